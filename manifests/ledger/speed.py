"""How fast a decode step can be at best: bytes that it moves over the bandwidth that the accelerator attains."""

from __future__ import annotations

from manifests.ledger.cache import sequence_bytes
from manifests.ledger.formulas import step_floor_seconds
from manifests.ledger.terms import Book


def step_floor(book: Book, weights: int | None, token_bytes: float | None, state_bytes: float | None) -> float | None:
    """Seconds; None where weights or accelerator are not known. The term ``bandwidth`` says whose figure it is."""
    found = _bandwidth(book)
    if weights is None or found is None:
        return None
    speed, kind = found
    book.add("bandwidth", kind, speed, "bytes/s")
    batch = book.concurrency or 1
    moved = _weights_read(book, weights, batch)
    if book.concurrency and book.context and token_bytes is not None:
        cache = sequence_bytes(book, token_bytes, 0.0, book.context)
        formula = f"{batch} sequences x KV of {book.context} tokens"
        moved += book.add("KV read per step", formula, batch * cache, "bytes")
        if state_bytes:
            formula = f"{batch} sequences x state, read and written"
            moved += book.add("states moved per step", formula, 2 * batch * state_bytes, "bytes")
    return book.add("step floor", "bytes moved / bandwidth", step_floor_seconds(moved, speed), "seconds")


def _bandwidth(book: Book) -> tuple[float, str] | None:
    """Bytes per second and where they come from: the caller, a public benchmark, else the data sheet."""
    part = book.part
    if book.bandwidth:
        return book.bandwidth, "attained: given with --bandwidth"
    if part is None:
        return None
    if part.bandwidth_attainable is not None:
        return part.bandwidth_attainable, f"attained on {part.name} in a public benchmark: {part.attainable_source}"
    sheet = "data sheet; attained bandwidth is lower and not in the catalogue, so the real floor is higher"
    return part.bandwidth_datasheet, sheet


def _weights_read(book: Book, weights: int, batch: int) -> float:
    """Weight bytes of one step: all of a dense model, of a mixture the experts that the batch can touch."""
    facts = book.facts
    if facts is None or not facts.experts or not facts.expert_parameters:
        return float(weights)
    if not facts.parameters or not facts.experts_per_token:
        return float(weights)
    share = facts.expert_parameters / facts.parameters
    touched = min(batch * facts.experts_per_token, facts.experts) / facts.experts
    formula = f"rest + experts x min(B x k, E) / E = B {batch}, k {facts.experts_per_token}, E {facts.experts}; at most"
    return book.add("weights read per step", formula, weights * ((1 - share) + share * touched), "bytes")
