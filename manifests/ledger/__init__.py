"""Bytes and bounds of a manifest on its accelerators: weights, KV cache, what fits, how fast a step can be at best.

Called by the CLI, by preflight (does it fit?) and by the dashboard (old against new). Every number is a term with its
formula, inputs and unit; what cannot be known is listed in ``unknown``, never guessed. Logical sizes are lower bounds:
workspace, allocator, graph capture and fragmentation come on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manifests.engines.derived import accelerator_of
from manifests.engines.profiles import profile_of
from manifests.layout import layout_of
from manifests.ledger import cache, capacity, speed
from manifests.ledger.formulas import (
    amdahl_bound,
    kv_bytes_per_token,
    latent_bytes_per_token,
    step_floor_seconds,
    weight_bytes,
)
from manifests.ledger.terms import Book, Ledger, Term
from manifests.ledger.weights import weights as weights_of
from manifests.model import Manifest
from manifests.models import ModelFacts, find_model

__all__ = [
    "Ledger",
    "Term",
    "amdahl_bound",
    "compare_ledgers",
    "kv_bytes_per_token",
    "latent_bytes_per_token",
    "ledger",
    "step_floor_seconds",
    "weight_bytes",
]


def ledger(
    manifest: Manifest,
    hardware: str | None = None,
    concurrency: int | None = None,
    context: int | None = None,
    facts: ModelFacts | None = None,
    bandwidth: float | None = None,
) -> Ledger:
    """The ledger of a manifest, per accelerator.

    Args:
        hardware: accelerator by its catalogue name, where the pod does not select one.
        concurrency: sequences that decode together; context: tokens of each (prompt and answer). Default: one, and
        the limit.
        facts: model facts from a ``config.json``; default: the catalogue's.
        bandwidth: bytes per second attained by an independent benchmark of this accelerator.
    """
    part = accelerator_of(manifest, hardware)
    book = Book(
        manifest, part, facts or find_model(manifest.model.id), layout_of(manifest), concurrency, None, bandwidth
    )
    book.context = context or book.size(profile_of(manifest.engine.family).context)
    return _closed(book)


def _closed(book: Book) -> Ledger:
    if book.facts is None:
        book.unknown.append(f"model shapes of `{book.manifest.model.id}`: give its config.json")
    if not book.layout.known:
        book.unknown.append("parallel layout: a size is known only at run time or the engine has none; taken as 1")
    held = weights_of(book)
    per_token = cache.per_token(book)
    state = cache.state_per_sequence(book)
    left = capacity.budget(book, held)
    tokens = capacity.tokens(book, left, per_token)
    sequences = capacity.sequences(book, left, per_token, state)
    floor = speed.step_floor(book, held, per_token, state)
    return Ledger(
        weights_bytes=held,
        kv_bytes_per_token=per_token,
        kv_capacity_tokens=tokens,
        max_sequences=sequences,
        step_floor_s=floor,
        terms=tuple(book.terms),
        fits=capacity.fits(book, held, left, sequences),
        unknown=tuple(dict.fromkeys(book.unknown)),
        model=book.facts.name if book.facts else None,
        hardware=book.part.name if book.part else None,
        context_tokens=book.context,
        concurrency=book.concurrency,
        gpus=book.layout.needed,
    )


def compare_ledgers(old: Ledger, new: Ledger) -> list[Mapping[str, Any]]:
    """Old against new: one row per headline number with the ratio, None where either side is unknown."""
    rows: list[Mapping[str, Any]] = []
    for name in ("weights_bytes", "kv_bytes_per_token", "kv_capacity_tokens", "max_sequences", "step_floor_s"):
        first, second = getattr(old, name), getattr(new, name)
        ratio = second / first if first and second is not None else None
        rows.append({"name": name, "old": first, "new": second, "ratio": ratio})
    return rows
