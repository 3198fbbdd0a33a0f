"""What the weights leave on one accelerator: budget of the cache, tokens, sequences, whether the contract fits."""

from __future__ import annotations

from manifests.diff_defaults import default_of
from manifests.engines.derived import derive
from manifests.engines.grammar import catalogs_of
from manifests.ledger.cache import sequence_bytes
from manifests.ledger.terms import Book


def budget(book: Book, weights: int | None) -> float | None:
    """Bytes that the cache may take; None (and the reason) where accelerator, weights or share are not known."""
    part, family = book.part, book.manifest.engine.family
    if part is None:
        book.unknown.append("accelerator: neither the pod nor --hardware names one of the catalogue")
        return None
    if weights is None:
        return None
    book.add("accelerator memory", f"{part.name}: {part.source}", part.memory_bytes, "bytes")
    written = book.value("kv-cache-memory-bytes")
    if family == "vllm" and isinstance(written, int):
        return book.add("KV budget", "written: --kv-cache-memory-bytes", float(written), "bytes")
    share = _share(book)
    if share is None:
        book.unknown.append(f"memory share that {book.manifest.engine.name} gives to weights and KV")
        return None
    if book.profile.share_after_weights:
        left = max(0.0, (part.memory_bytes - weights) * share)
        return book.add("KV budget", f"(memory - weights) x {share:g}", left, "bytes", True)
    value = part.memory_bytes * share - weights - (activations(book) or 0.0)
    return book.add("KV budget", f"memory x {share:g} - weights - activations", max(0.0, value), "bytes", True)


def _share(book: Book) -> float | None:
    names = book.profile.memory_share
    written = book.value(*names)
    if isinstance(written, int | float) and not isinstance(written, bool) and 0 < written <= 1:
        return float(written)
    if not names:
        return None
    found = default_of(names[0], book.manifest, catalogs_of(book.manifest.engine.name))
    return float(found.value) if found.status == "known" and isinstance(found.value, int | float) else None


def activations(book: Book) -> float | None:
    """An estimate of one step's activations, from the token budget of the scheduler."""
    facts = book.facts
    derived = derive(book.manifest, book.part.name if book.part else None)
    names = book.profile.step_tokens
    tokens = book.value(*names)
    for name in names:
        if tokens is None and name in derived:
            tokens = derived[name].value
    if facts is None or not isinstance(tokens, int) or tokens <= 0:
        book.unknown.append("activations: the token budget of a step is not known")
        return None
    width = 4 * facts.hidden + 2 * facts.intermediate / book.layout.tensor
    formula = f"tokens x (4 D + 2 I / TP) x 2 = {tokens} x {width:g} x 2; an estimate, the engine measures its own peak"
    return book.add("activations", formula, tokens * width * 2, "bytes", True)


def tokens(book: Book, left: float | None, token_bytes: float | None) -> int | None:
    """Tokens that the budget holds; an upper bound."""
    if left is None or token_bytes is None or token_bytes <= 0:
        return None
    override = book.value("num-gpu-blocks-override")
    block = book.value("block-size", "page-size") or 16
    if isinstance(override, int) and isinstance(block, int):
        formula = f"num-gpu-blocks-override x block-size = {override} x {block}"
        return int(book.add("KV capacity", formula, override * block, "tokens"))
    formula = "KV budget / KV per token (all layers growing); an upper bound"
    return int(book.add("KV capacity", formula, int(left // token_bytes), "tokens", True))


def sequences(book: Book, left: float | None, token_bytes: float | None, state_bytes: float | None) -> int | None:
    """Sequences of the context's length that fit, and the scheduler's limit where that is lower."""
    if left is None or token_bytes is None:
        return None
    if not book.context:
        book.unknown.append("context length: give --context or a limit in the manifest")
        return None
    if state_bytes is None:
        return None
    facts = book.facts
    one = sequence_bytes(book, token_bytes, state_bytes, book.context)
    if one <= 0:
        return None
    window = f", {facts.window_layers} layers keep {facts.window} only" if facts and facts.window_layers else ""
    state = ", and the states" if state_bytes else ""
    book.add("KV per sequence", f"KV of {book.context} tokens{window}{state}", one, "bytes")
    most = int(left // one)
    limit = book.size(book.profile.sequences)
    if limit is not None and limit < most:
        formula = f"KV budget / KV per sequence; the scheduler's limit is {limit}"
        book.add("sequences that memory holds", formula, most, "sequences", True)
        return int(book.add("sequences", "min(memory, scheduler's limit)", limit, "sequences"))
    return int(book.add("sequences", "KV budget / KV per sequence", most, "sequences", True))


def fits(book: Book, weights: int | None, left: float | None, held: int | None) -> bool | None:
    """Whether weights and the contract's sequences fit; None where that cannot be told."""
    if weights is None or left is None or book.part is None:
        return None
    if left <= 0:
        return False
    return None if held is None else held >= (book.concurrency or 1)
