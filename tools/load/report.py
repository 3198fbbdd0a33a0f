"""Table of a record file: ``python -m tools.load.report A.jsonl [B.jsonl]``; two files: also the ratio B to A."""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tools.load.stats import quantile

COLUMNS = (("ttft", 0.5), ("ttft", 0.99), ("tpot", 0.5), ("tpot", 0.99), ("e2e", 0.5), ("e2e", 0.99), ("gap", 0.99))
Stratum = dict[str, list[float]]


def read_strata(path: Path, skip_seconds: float) -> dict[str, Stratum]:
    """Milliseconds per ``tenant/bucket`` and for ``all``, without the first ``skip_seconds``; failures are counted."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    start = min((record["t_start_s"] for record in records), default=0.0) + skip_seconds
    strata: dict[str, Stratum] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record["t_start_s"] < start:
            continue
        for name in ("all", f"{record['tenant']}/{record['bucket']}"):
            values = strata[name]
            if record["outcome"] != "ok":
                values["failed"].append(1.0)
                continue
            values["ttft"].append(record["ttft_s"] * 1e3)
            values["e2e"].append(record["e2e_s"] * 1e3)
            if record["max_gap_s"] is not None:
                values["gap"].append(record["max_gap_s"] * 1e3)
            if (record["output_tokens"] or 0) >= 2:
                values["tpot"].append((record["e2e_s"] - record["ttft_s"]) / (record["output_tokens"] - 1) * 1e3)
    return strata


def row(values: Stratum) -> list[float]:
    """The table's numbers of one stratum: mean TPOT, mean E2E, then the quantiles of ``COLUMNS``."""
    means = [math.fsum(values[name]) / len(values[name]) if values[name] else math.nan for name in ("tpot", "e2e")]
    return means + [quantile(values[name], share) or math.nan for name, share in COLUMNS]


def table(names: Iterable[str], first: dict[str, Stratum], second: dict[str, Stratum] | None) -> list[str]:
    """Markdown lines; cells of a comparison are ``second (ratio)``."""
    heads = ["mean tpot", "mean e2e"] + [f"{name} p{share * 100:g}" for name, share in COLUMNS]
    lines = ["| ms | n | failed | " + " | ".join(heads) + " |", "|---" * (len(heads) + 3) + "|"]
    for name in names:
        base = row(first[name])
        shown = first if second is None else second
        cells = [f"{value:.1f}" for value in base]
        if second is not None:
            cells = [f"{new:.1f} ({new / old:.2f}x)" for new, old in zip(row(second[name]), base, strict=True)]
        counts = [str(len(shown[name]["ttft"])), str(len(shown[name]["failed"]))]
        lines.append(f"| {name} | " + " | ".join(counts + cells) + " |")
    return lines


def main() -> int:
    """Prints the table."""
    skip = 5.0
    files = [read_strata(Path(name), skip) for name in sys.argv[1:3]]
    if not files:
        print("usage: python -m tools.load.report A.jsonl [B.jsonl]", file=sys.stderr)
        return 2
    print("\n".join(table(sorted(files[0]), files[0], files[1] if len(files) > 1 else None)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
