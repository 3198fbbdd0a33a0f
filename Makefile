# Everything is installed by these targets; nothing else must be typed on a fresh machine.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.weighlock-stamp
STATE ?= .weighlock/cluster
PYTEST_ARGS ?=
export DEMO_KEEP DEMO_APPROVE WEIGHLOCK_CACHE KUBEBUILDER_ASSETS

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(STAMP): requirements.lock pyproject.toml tools/bootstrap.sh
	@PYTHON=$(PYTHON) tools/bootstrap.sh $(VENV)
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Make the Python environment (first use of any target does it)

.PHONY: demo
demo: setup ## The whole main job, from nothing (DEMO_KEEP=1 leaves it running, DEMO_APPROVE=manual waits for you)
	@$(BIN)/python -m tools.demo

.PHONY: test
test: setup system-packages ## All tests: unit, scenarios, end to end on real parts
	@$(BIN)/python -m tools.devcluster build
	@$(BIN)/python -m pytest -m "not soak" $(PYTEST_ARGS)

.PHONY: test-soak
test-soak: setup ## The whole demo as a test, with the operator killed thirty times (about twenty minutes)
	@$(BIN)/python -m tools.devcluster build
	@$(BIN)/python -m pytest -m soak $(PYTEST_ARGS)

.PHONY: unit
unit: setup ## Unit tests alone
	@$(BIN)/python -m pytest tests/unit $(PYTEST_ARGS)

.PHONY: check
check: setup ## Format, lint, types, import contract, generated files, unit tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(MAKE) --no-print-directory verify
	@$(BIN)/python -m pytest -q tests/unit -m "not slow" $(PYTEST_ARGS)

.PHONY: generate
generate: setup ## Write the CRDs, the chart's copies and the generated docs
	@$(BIN)/python -m crds.generate
	@$(BIN)/python -m controller.core.diagram
	@$(BIN)/python -m tools.catalog.lint_codes

.PHONY: verify
verify: setup ## Generated files are current
	@$(BIN)/python -m crds.generate --check
	@$(BIN)/python -m controller.core.diagram --check
	@$(BIN)/python -m tools.catalog.lint_codes --check

.PHONY: cluster
cluster: setup ## Development cluster: real control plane, pods as processes
	@$(BIN)/python -m tools.devcluster up --state $(STATE)

.PHONY: cluster-down
cluster-down: setup ## Stop it
	@$(BIN)/python -m tools.devcluster down --state $(STATE)

.PHONY: system-packages
system-packages: ## Browser, Prometheus and PostgreSQL for the end-to-end tests (Debian, root; tests skip without)
	@tools/system-packages.sh

.PHONY: format
format: setup ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix -q .

.PHONY: lock
lock: setup ## Renew requirements.lock from pyproject.toml
	@$(BIN)/uv pip compile pyproject.toml --extra dev --generate-hashes --no-header --no-annotate -q -o requirements.lock

.PHONY: clean
clean: ## Remove the environment and tool caches (clusters: make cluster-down; built binaries stay cached)
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
