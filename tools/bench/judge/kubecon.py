"""The KubeCon NA 2025 A/B runs judged by `weighlock judge`: which variant passes at which load, for the docs.

Run `python -m tools.bench.judge.kubecon [--write]`; `--write` puts the table between its markers in docs/judge.md. The
reports are read from WEIGHLOCK_SHARED (default ../shared). Every stage of a variant is judged against all stages of the
plain engine, so that each finds the one at its own load.
"""

import argparse
import contextlib
import io
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controller.cli.main import main as weighlock

POLICY = """
tenants: {from: {header: x-tenant}, required: [bench], other: ignore}
lengthBuckets: {edges: [512]}
gates:
- {metric: ttft, percentile: "99", limit: 500ms}
- {metric: e2e, percentile: "99", limit: 2s}
- {metric: ttft, percentile: "99", margin: "25%", mode: dryRun}
- {metric: tpot, percentile: "99", limit: 20ms, mode: dryRun}
- {metric: maxGap, percentile: "99", limit: 1s, mode: dryRun}
- {metric: success, limit: "99%"}
"""
BASELINE, STAGES = "vllm", range(7)
VARIANTS = ("vllm", "vllm+batch_size", "vllm+v0_engine")
BEGIN, END = "<!-- kubecon:begin -->", "<!-- kubecon:end -->"
DOCUMENT = Path("docs/judge.md")
_HEAD = (
    "variant",
    "load",
    "verdict",
    "TTFT P99 <= 500 ms",
    "E2E P99 <= 2 s",
    "TTFT P99 against `vllm`, + 25 % (shown only)",
)
_SHORT = {"PASS": "pass", "FAIL": "FAIL", "INCONCLUSIVE": "open"}


def default_folder() -> Path:
    """Where the reports are."""
    return Path(os.environ.get("WEIGHLOCK_SHARED", "../shared")) / "data" / "traces" / "kubecon-na-2025-ab"


def report(folder: Path, variant: str, stage: int) -> str:
    """File of one stage."""
    return str(folder / variant / "results" / f"stage_{stage}_lifecycle_metrics.json")


def verdict(policy: Path, stable: Sequence[str], candidate: str) -> dict[str, Any]:
    """The document of the command."""
    options = [part for name in stable for part in ("--stable", name)]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        weighlock(["judge", "--policy", str(policy), *options, "--candidate", candidate, "-o", "json"])
    return dict(json.loads(out.getvalue()))


def rows_of(folder: Path) -> list[tuple[str, ...]]:
    """One row per variant and stage."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        policy = Path(scratch) / "policy.yaml"
        policy.write_text(POLICY)
        baseline = [report(folder, BASELINE, stage) for stage in STAGES]
        for variant in VARIANTS:
            for stage in STAGES:
                found.append(_row(variant, verdict(policy, baseline, report(folder, variant, stage))))
    return found


def _row(variant: str, document: dict[str, Any]) -> tuple[str, ...]:
    checks = {(r["metric"], r["gate"]): r for r in document["strata"]}
    load = checks["ttft", "p99-limit"]["reason"].split(" at ", 1)[1].split(":", 1)[0]
    cells = [_cell(checks[key]) for key in (("ttft", "p99-limit"), ("e2e", "p99-limit"), ("ttft", "p99-margin"))]
    return f"`{variant}`", load, document["verdict"], *cells


def _cell(row: dict[str, Any]) -> str:
    """The verdict of a check and, in short, why."""
    why = row["reason"].split(": ", 1)[1].split(", limit", 1)[0].removeprefix("candidate ")
    why = why.split(" after ", 1)[0].split(": latencies", 1)[0]
    more = f"; needs {row['reason'].rsplit('needs ', 1)[1]}" if "needs " in row["reason"] else ""
    return f"{_SHORT[row['verdict']]}: {why}{more}"


def table(folder: Path) -> str:
    """The Markdown table."""
    lines = [_HEAD, tuple("---" for _ in _HEAD), *rows_of(folder)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """Print the table, or write it into the document."""
    parser = argparse.ArgumentParser(description="the KubeCon A/B reports judged")
    parser.add_argument("--write", action="store_true", help=f"put the table into {DOCUMENT}")
    found = table(default_folder())
    if not parser.parse_args().write:
        print(found)
        return 0
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{found}\n{END}{rest.split(END, 1)[1]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
