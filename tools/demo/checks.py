"""What the demo verifies by itself, beside what the product says of itself.

Each function returns findings: (holds, sentence). `acts.py` prints them; one that does not hold fails the demo.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from scipy.stats import binom

from manifests.digest import equal_after_normalisation
from policies.blocks import Block
from tools.demo.world import ROLLOUT, World

Finding = tuple[bool, str]
BAND = 0.999  # two-sided probability of the observed split's band
LOAD_TOLERANCE = 0.15
MARGIN_SECONDS = 15.0  # a block's step is known to its length; a request says its own
FULL_REPLICAS = 3
FAILED_OUTCOMES = ("server_error", "truncated", "timeout", "empty", "rejected", "client_error")


def stable_pods(world: World, revision: str) -> dict[str, str]:
    """Pod name -> uid of a revision."""
    pods = world.pods(f"weighlock.dev/rollout={ROLLOUT},weighlock.dev/revision={revision}")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def serves_what_was_stored(world: World, revision: str, before: dict[str, str]) -> list[Finding]:
    """Pod template and ConfigMap contents against the stored RunManifest, and that no stable pod was restarted."""
    stored = world.get("runmanifest", f"{ROLLOUT}-{revision}")["spec"]
    live = world.get("deployment", f"{ROLLOUT}-{revision}")["spec"]["template"]
    copies = {
        item["metadata"]["annotations"]["weighlock.dev/source"]: item
        for item in world.get("configmaps", selector=f"weighlock.dev/rollout={ROLLOUT}")["items"]
        if "weighlock.dev/source" in item["metadata"].get("annotations", {})
        and item["metadata"]["name"] in json.dumps(live)
    }
    renamed = json.loads(_rename(json.dumps(live), {c["metadata"]["name"]: source for source, c in copies.items()}))
    differences = list(equal_after_normalisation(stored["roles"][0]["template"], renamed))
    contents = {source: copy.get("data", {}) for source, copy in copies.items()}
    after = stable_pods(world, revision)
    return [
        (not differences, f"pod template equals stored RunManifest {revision}; differences: {differences or 'none'}"),
        (
            contents == stored.get("configMaps", {}),
            f"contents of {len(contents)} ConfigMap(s) equal the stored ones, byte for byte",
        ),
        (after == before, f"no stable pod was restarted or replaced ({len(after)} pods, same uids)"),
    ]


def _rename(text: str, names: dict[str, str]) -> str:
    for copy, source in names.items():
        text = text.replace(f'"{copy}"', f'"{source}"')
    return text


def client_records(path: Path, start: int = 0, end: int | None = None) -> list[dict[str, Any]]:
    """What clients saw, by the order in which they were served; of the bytes [start, end) of the file, whole lines."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(start)
        text = file.read(-1 if end is None else end - start)
    return [orjson.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


@dataclass(frozen=True)
class Felt:
    """What users felt over some time; latencies in seconds, None where nobody was served."""

    requests: int
    failed: int
    ttft_p50: float | None
    ttft_p99: float | None

    @property
    def sentence(self) -> str:
        """For people."""
        if self.ttft_p50 is None or self.ttft_p99 is None:
            return "none yet"
        ttft = f"TTFT P50 {1000 * self.ttft_p50:.0f} ms, P99 {1000 * self.ttft_p99:.0f} ms"
        return f"{self.requests:,} requests, {self.failed} failed, {ttft}"


def felt(records: list[dict[str, Any]]) -> Felt:
    """What users felt, from their own records."""
    ttft = sorted(record["ttft_s"] for record in records if record.get("ttft_s") is not None)
    failed = sum(record["outcome"] in FAILED_OUTCOMES for record in records)
    if not ttft:
        return Felt(len(records), failed, None, None)
    return Felt(len(records), failed, ttft[len(ttft) // 2], ttft[min(len(ttft) - 1, int(0.99 * len(ttft)))])


def nobody_was_cut(records: list[dict[str, Any]]) -> Finding:
    """Zero live requests failed or were truncated."""
    outcomes = Counter(record["outcome"] for record in records)
    failed = {name: outcomes[name] for name in FAILED_OUTCOMES if outcomes[name]}
    return (
        not failed,
        f"{len(records):,} live requests, {sum(failed.values())} failed or truncated {failed or ''}".rstrip(),
    )


def split_within_band(world: World, attempt: int, blocks: list[Block]) -> list[Finding]:
    """Observed share of the candidate within the binomial band of the declared weight, at every step.

    Counted on request records: each says under which step its gate routed it.
    """
    live = [block for block in blocks if block.stage in ("canary", "ramp")]
    weights = {block.step: (block.stage, block.weight) for block in live}
    routed: dict[int, Counter[str]] = {step: Counter() for step in weights}
    if not live:
        return [(False, "no step with a live share was recorded")]
    since_s, until_s = min(block.start_s for block in live), max(block.end_s for block in live)
    for record in world.records(since_s - MARGIN_SECONDS, until_s + MARGIN_SECONDS):
        if record["kind"] == "live" and record["attempt"] == attempt and record["step"] in routed:
            routed[record["step"]][record["variant"]] += 1
    findings = []
    for step, counter in sorted(routed.items()):
        stage, weight = weights[step]
        total, candidate = sum(counter.values()), counter["candidate"]
        low, high = binom.interval(BAND, total, weight / 100)
        band = f"99.9 % band {low:,.0f}–{high:,.0f}"
        sentence = f"{stage} {weight} %: the candidate got {candidate:,} of {total:,} live requests ({band})"
        findings.append((bool(low <= candidate <= high), sentence))
    return findings


def live_requests_that_met(blocks: list[Block]) -> int:
    """Live requests that the candidate served in an attempt."""
    cells = (cell for block in blocks for cell in block.cells)
    return sum(cell.routed for cell in cells if cell.kind == "live" and cell.variant == "candidate")


def load_parity(blocks: list[Block]) -> list[Finding]:
    """At small weights: the candidate's load per replica against its load at 100 %, and the tenant mix."""
    findings = []
    for stage, weight in sorted({(b.stage, b.weight) for b in blocks if b.stage in ("shadow", "canary")}):
        served: Counter[str] = Counter()
        live: Counter[str] = Counter()
        pods: set[str] = set()
        for block in _loaded([b for b in blocks if (b.stage, b.weight) == (stage, weight)]):
            for cell in block.cells:
                if cell.kind == "live":
                    live[cell.tenant] += cell.routed
                if cell.variant == "candidate" and cell.kind != "probe":
                    served[cell.tenant] += cell.routed
                    pods.add(cell.pod)
        findings.extend(_parity(stage, weight, served, live, len(pods)))
    return findings


def _loaded(blocks: list[Block]) -> list[Block]:
    """Blocks of one step from the second in which the candidate served: before that its pods came up."""
    served = [any(cell.variant == "candidate" and cell.kind != "probe" for cell in block.cells) for block in blocks]
    return blocks[served.index(True) + 1 :] if any(served) else []


def _parity(stage: str, weight: int, served: Counter[str], live: Counter[str], pods: int) -> list[Finding]:
    total, all_live = sum(served.values()), sum(live.values())
    if not total or not pods:
        return []
    target = all_live / FULL_REPLICAS
    ratio = total / pods / target
    mix = max(abs(served[t] / total - live[t] / all_live) / (live[t] / all_live) for t in live)
    holds = abs(ratio - 1) <= LOAD_TOLERANCE and mix <= LOAD_TOLERANCE
    return [
        (
            holds,
            f"{stage} {weight} %: a candidate replica at {ratio:.2f} of its load at 100 %, tenant mix within {mix:.0%}",
        )
    ]
