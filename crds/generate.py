"""Writes the CustomResourceDefinitions and the admission policy from the pydantic models.

Run as `python -m crds.generate` (or with `--check`, which only compares). The chart gets the same files.
Knows nothing of a cluster: models in, YAML out.
"""

import inspect
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from crds.admission import admission_objects
from crds.rules import ROLLOUT_NAME, RULES, Rule
from crds.v1alpha1 import conditions
from crds.v1alpha1.action import RolloutActionSpec
from crds.v1alpha1.common import GROUP, VERSION
from crds.v1alpha1.manifest import RunManifestSpec
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec, InferenceRolloutStatus

ROOT = Path(__file__).resolve().parent.parent
OUTPUTS = (ROOT / "crds" / "yaml", ROOT / "helm" / "weighlock" / "crds")
WORDS_PAGE = ROOT / "docs" / "conditions.md"
CHART_TEMPLATES = ROOT / "helm" / "weighlock" / "templates"

_KEPT = (
    "type",
    "description",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)
_MAP_KEYS = {("InferenceRolloutSpec", "roles"): "name", ("InferenceRolloutStatus", "conditions"): "type"}


class Structural:
    """Turns one model's JSON schema into a structural OpenAPI v3 schema."""

    def __init__(self, model: type[BaseModel]) -> None:
        schema = model.model_json_schema(by_alias=True)
        self._definitions: dict[str, Any] = schema.pop("$defs", {})
        self.schema = self._convert(schema)

    def _convert(self, node: dict[str, Any]) -> dict[str, Any]:
        node = self._resolve(node)
        out: dict[str, Any] = {key: node[key] for key in _KEPT if key in node}
        if node.get("default") is not None and not isinstance(node["default"], dict | list):
            out["default"] = node["default"]
        if "items" in node:
            out["items"] = self._convert(node["items"])
        if node.get("type") == "object":
            self._convert_object(node, out)
        if not node.get("type"):  # Any
            out["x-kubernetes-preserve-unknown-fields"] = True
        return out

    def _resolve(self, node: dict[str, Any]) -> dict[str, Any]:
        merged = dict(node)
        for member in merged.pop("anyOf", []):
            if member.get("type") != "null":
                merged = {**member, **merged}
        if "$ref" in merged:
            target = self._definitions[merged.pop("$ref").rsplit("/", 1)[1]]
            return {**self._resolve(target), **merged}
        return merged

    def _convert_object(self, node: dict[str, Any], out: dict[str, Any]) -> None:
        title = node.get("title", "")
        extra = node.get("additionalProperties")
        if isinstance(extra, dict) and extra:
            out["additionalProperties"] = self._convert(extra)
        elif "properties" not in node:
            out["x-kubernetes-preserve-unknown-fields"] = True
        if "properties" in node:
            out["properties"] = {name: self._convert(child) for name, child in node["properties"].items()}
        for (owner, field), key in _MAP_KEYS.items():
            if owner == title:
                out["properties"][field].update({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]})
        if node.get("required"):
            out["required"] = node["required"]
        if title in RULES:
            out["x-kubernetes-validations"] = RULES[title]


def _column(name: str, path: str, kind: str = "string", priority: int = 0) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column


def make_crd(
    kind: str,
    plural: str,
    short: str,
    spec: type[BaseModel],
    *,
    status: type[BaseModel] | None = None,
    columns: list[dict[str, Any]],
    scale: bool = False,
    rules: list[Rule] | None = None,
    description: str,
) -> dict[str, Any]:
    """One CustomResourceDefinition. Columns are printer columns beside the age."""
    properties: dict[str, Any] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": Structural(spec).schema,
    }
    subresources: dict[str, Any] = {}
    if status is not None:
        properties["status"] = Structural(status).schema
        subresources["status"] = {}
    if scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": description,
                "required": ["spec"],
                "properties": properties,
                **({"x-kubernetes-validations": rules} if rules else {}),
            }
        },
        "additionalPrinterColumns": [*columns, _column("Age", ".metadata.creationTimestamp", "date")],
        **({"subresources": subresources} if subresources else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "weighlock"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "shortNames": [short]},
            "versions": [version],
        },
    }


def make_crds() -> dict[str, dict[str, Any]]:
    """File name -> CustomResourceDefinition for all four kinds."""
    return {
        "inferencerollouts.yaml": make_crd(
            "InferenceRollout",
            "inferencerollouts",
            "iro",
            InferenceRolloutSpec,
            status=InferenceRolloutStatus,
            scale=True,
            rules=[ROLLOUT_NAME],
            description="A served LLM workload whose updates are weighed before they carry traffic.",
            columns=[
                _column("Phase", ".status.phase"),
                _column("Step", ".status.step.name"),
                _column("Weight", ".status.step.weight", "integer"),
                _column("Stable", ".status.stable"),
                _column("Candidate", ".status.candidate"),
                _column("Worst", ".status.verdict.worst.label"),
                _column("Message", ".status.message", priority=1),
            ],
        ),
        "rolloutpolicies.yaml": make_crd(
            "RolloutPolicy",
            "rolloutpolicies",
            "irp",
            RolloutPolicySpec,
            description="SLOs and gates, reusable inside a namespace.",
            columns=[_column("Preset", ".spec.evidence.preset")],
        ),
        "runmanifests.yaml": make_crd(
            "RunManifest",
            "runmanifests",
            "irm",
            RunManifestSpec,
            description="The complete frozen manifest of one revision; written by the controller only.",
            columns=[
                _column("Rollout", ".spec.rollout"),
                _column("Attempt", ".spec.attempt", "integer"),
                _column("Stable", r".metadata.labels.weighlock\.dev/stable"),
            ],
        ),
        "rolloutactions.yaml": make_crd(
            "RolloutAction",
            "rolloutactions",
            "ira",
            RolloutActionSpec,
            description="One act of a person on a rollout; immutable.",
            columns=[
                _column("Rollout", ".spec.rollout"),
                _column("Action", ".spec.action"),
                _column("User", ".spec.user"),
                _column("Attempt", ".spec.attempt", "integer"),
                _column("Step", ".spec.step", "integer"),
            ],
        ),
    }


def _dump(*objects: dict[str, Any]) -> str:
    header = "# Written by `python -m crds.generate` from crds/v1alpha1; do not edit.\n"
    return header + yaml.safe_dump_all(objects, sort_keys=False, width=110)


def make_words_page() -> str:
    """Phases, conditions and reasons as a page: each value with the comment that stands beside it in the source."""
    page = [
        "# Phases, conditions, reasons",
        "",
        "Written by `python -m crds.generate` from `crds/v1alpha1/conditions.py`.",
        "",
    ]
    for title, enum in (
        ("Phases", conditions.Phase),
        ("Conditions", conditions.ConditionType),
        ("Reasons", conditions.Reason),
    ):
        page += [f"## {title}", "| value | meaning |", "|---|---|", *_rows(enum), ""]
    return "\n".join(page)


def _rows(enum: type[StrEnum]) -> list[str]:
    lines = re.findall(r'^    [A-Z_]+ = "(\w+)"  # (.+)$', inspect.getsource(enum), re.M)
    if [value for value, _ in lines] != [member.value for member in enum]:
        raise ValueError(f"{enum.__name__}: every value needs a comment beside it that says what it means")
    return [f"| `{value}` | {meaning} |" for value, meaning in lines]


def render() -> dict[Path, str]:
    """Every generated file and its text."""
    files = {folder / name: _dump(crd) for folder in OUTPUTS for name, crd in make_crds().items()}
    admission = _dump(*admission_objects())
    files[ROOT / "crds" / "yaml" / "admission.yaml"] = admission
    files[CHART_TEMPLATES / "admission.yaml"] = admission
    files[WORDS_PAGE] = make_words_page()
    return files


def main(arguments: list[str]) -> int:
    """Write the files, or with `--check` name those that differ (exit 1)."""
    stale = [path for path, text in render().items() if not path.is_file() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `make generate`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in render().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"{len(stale)} of {len(render())} files changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
