"""Which request is sent when: trace rows, tenants, strata, prompt text. Deterministic by seed; no network, no clock."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

BUCKET_EDGES = (420, 1100)
BYTES_PER_TOKEN = 4
CORPUS_BYTES = 1 << 20
WORDS = (
    "lock",
    "barge",
    "canal",
    "gate",
    "weir",
    "towpath",
    "sluice",
    "basin",
    "load",
    "ton",
    "rope",
    "mule",
    "bank",
    "level",
)


@dataclass(frozen=True)
class TraceRow:
    """Lengths of one request of the trace, in tokens."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Planned:
    """One request to send: seconds after the start, who sends it, how long it is."""

    at_seconds: float
    tenant: str
    bucket: int
    prompt_tokens: int
    max_tokens: int


def read_trace(path: Path) -> list[TraceRow]:
    """Rows of an Azure LLM inference trace (``ContextTokens,GeneratedTokens``)."""
    with path.open(newline="") as file:
        rows = [TraceRow(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    if not rows:
        raise ValueError(f"{path}: no rows")
    return rows


def bucket_of(prompt_tokens: int) -> int:
    """Index of the length bucket: 0-420, 421-1100, 1101+."""
    return sum(prompt_tokens > edge for edge in BUCKET_EDGES)


def bucket_name(index: int) -> str:
    """The bucket as policies name it."""
    lows = (0, *(edge + 1 for edge in BUCKET_EDGES))
    return f"{lows[index]}-{BUCKET_EDGES[index]}" if index < len(BUCKET_EDGES) else f"{lows[index]}+"


def _looped(rows: list[TraceRow], random: Random) -> Iterator[TraceRow]:
    """The rows in a shuffled order, again and again: each as often as in the trace."""
    order = random.sample(rows, len(rows))
    while True:
        yield from order


def plan_requests(
    rows: list[TraceRow],
    tenants: list[str],
    rate_per_second: float,
    seed: int,
    *,
    output_cap: int,
    output_floor: int,
    prompt_cap: int,
    arrivals: str,
) -> Iterator[Planned]:
    """Endless requests at ``rate_per_second``; every tenant x bucket stratum gets the same share.

    Strata are dealt in shuffled rounds, one request each, so shares are equal over any window of a few rounds.
    ``arrivals``: ``poisson`` (independent exponential gaps) or ``constant``.
    """
    random = Random(seed)
    by_bucket = [
        [row for row in rows if bucket_of(row.prompt_tokens) == index] for index in range(len(BUCKET_EDGES) + 1)
    ]
    for index, members in enumerate(by_bucket):
        if not members:
            raise ValueError(f"the trace has no row with {bucket_name(index)} prompt tokens")
    strata = [(tenant, index) for tenant in tenants for index in range(len(by_bucket))]
    sources = {stratum: _looped(by_bucket[stratum[1]], random) for stratum in strata}
    at_seconds = 0.0
    while True:
        random.shuffle(strata)
        for tenant, index in strata:
            at_seconds += random.expovariate(rate_per_second) if arrivals == "poisson" else 1.0 / rate_per_second
            row = next(sources[tenant, index])
            output = max(output_floor, min(output_cap, row.output_tokens))
            yield Planned(at_seconds, tenant, index, min(prompt_cap, row.prompt_tokens), output)


class PromptWriter:
    """Prompt text of an exact length: unique from its first bytes, or behind a prefix that long prompts share."""

    def __init__(self, seed: int, shared_tenant: str | None, shared_share: float) -> None:
        random = Random(seed + 7)
        words = random.choices(WORDS, k=CORPUS_BYTES // 4)
        self.corpus = " ".join(words)[:CORPUS_BYTES].encode()
        self.random = random
        self.shared_tenant = shared_tenant
        self.shared_share = shared_share
        self.shared = b"Standing instructions of the house. " + self.corpus[: 256 * 1024]

    def write(self, planned: Planned, request_id: str) -> bytes:
        """ASCII without characters that JSON escapes; 4 bytes a token."""
        length = planned.prompt_tokens * BYTES_PER_TOKEN
        prefix = b""
        if planned.tenant == self.shared_tenant and planned.bucket == len(BUCKET_EDGES):
            prefix = self.shared[: int(length * self.shared_share)]
        head = prefix + f"[{request_id}] ".encode()
        start = self.random.randrange(len(self.corpus) - length)
        return (head + self.corpus[start : start + length])[:length]


def chat_body(prompt: bytes, model: str | None, max_tokens: int, include_usage: bool) -> bytes:
    """A streaming chat completion; ``model`` None leaves the field out."""
    name = b'"model":' + json.dumps(model).encode() + b"," if model else b""
    usage = b',"stream_options":{"include_usage":true}' if include_usage else b""
    return (
        b"{" + name + b'"messages":[{"role":"user","content":"' + prompt + b'"}],"temperature":0,"stream":true'
        b',"max_tokens":%d%b}' % (max_tokens, usage)
    )
