"""`weighlock lint`: find what will not do what its author meant. The rules are in `manifests`."""

import argparse

from controller.cli.manifest_files import import_names, refuse_bad
from controller.cli.output import emit
from manifests.lint import lint
from manifests.model import Finding, ImportResult


def register(parser: argparse.ArgumentParser) -> None:
    """Arguments of `weighlock lint`."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="Kubernetes YAML, Helm values, RunManifests; - for stdin"
    )
    parser.add_argument("--engine-version", metavar="V", help="the engine's version where the image does not say it")
    parser.add_argument("--longest-prompt", type=int, metavar="N", help="longest prompt of the traffic, tokens")


def run(args: argparse.Namespace) -> int:
    """1 when a finding is an error, else 0."""
    result = import_names(args.files, args.engine_version)
    findings = lint(result, args.longest_prompt)
    emit(args, {"findings": [finding.to_json() for finding in findings]}, lambda: _text(findings, result))
    refuse_bad(result)
    return 1 if any(finding.level == "error" for finding in findings) else 0


def _text(findings: list[Finding], result: ImportResult) -> str:
    if not findings:
        if result.manifests:
            return "nothing found"
        return "" if result.refused else "nothing to look at: no document serves a model (`weighlock import` says why)"
    return "\n".join(f"{f.file}: {f.level}: {f.code}: {f.message} ({f.path})" for f in findings)
