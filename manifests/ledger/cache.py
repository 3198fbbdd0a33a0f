"""What a token and a sequence keep on one accelerator: keys and values, latents, windows, recurrent states."""

from __future__ import annotations

from manifests.ledger.formulas import ELEMENT_BYTES, KV_BYTES, kv_bytes_per_token, latent_bytes_per_token
from manifests.ledger.terms import Book
from manifests.models import ModelFacts
from manifests.states import StateShape


def per_token(book: Book) -> float | None:
    """KV bytes of one token over all layers of one accelerator; None where shapes or format are not known."""
    facts = book.facts
    element = _element(book) if facts is not None else None
    if facts is None or element is None:
        return None
    layers = -(-facts.attention_layers // book.layout.pipeline)
    if facts.latent:
        rank, rope = facts.latent
        value = latent_bytes_per_token(layers, rank, rope, element)
        formula = f"MLA: L x (kv_lora_rank + rope) x bytes = {layers} x ({rank} + {rope}) x {element:g}; replicated"
        return book.add("KV per token", f"{formula} over TP", value, "bytes")
    split = 1 if book.layout.data_attention else book.layout.tensor
    heads = max(1, facts.kv_heads // split) if layers else 0
    width = facts.head_dim or 0
    value = kv_bytes_per_token(layers, heads, width, element)
    formula = f"2 x L x H_kv x D_h x bytes = 2 x {layers} x {heads} x {width} x {element:g}"
    return book.add("KV per token", formula + _split_note(facts, split), value, "bytes")


def _split_note(facts: ModelFacts, tensor: int) -> str:
    if tensor == 1:
        return ""
    if tensor > facts.kv_heads:
        return f" (TP {tensor} exceeds {facts.kv_heads} KV heads: heads are replicated, KV stops shrinking)"
    return f" (H_kv {facts.kv_heads} over TP {tensor})"


def _element(book: Book) -> float | None:
    written = str(book.value("kv-cache-dtype", "llm_args.kv_cache_config.dtype", "cache-type-k") or "auto").lower()
    if written in ("auto", "model"):
        dtype = str(book.value("dtype") or "auto")
        written = book.facts.dtype if dtype in ("auto", "half", "float") and book.facts else dtype
        written = "bfloat16" if written in ("fp8", "mxfp4", "auto") else written
    element = KV_BYTES.get(written) or ELEMENT_BYTES.get(written)
    if element is None:
        book.unknown.append(f"bytes per element of KV dtype `{written}`")
    return element


# --- states of recurrent layers


def state_per_sequence(book: Book) -> float | None:
    """Bytes of the recurrent states of one sequence on one accelerator: 0 without such layers, None where unknown.

    Source of the shapes: :mod:`manifests.states`. One live state per sequence is counted; prefix caching of states and
    speculation keep more.
    """
    facts = book.facts
    if facts is None or not facts.state_layers:
        return 0.0
    shape = facts.state
    formats = _state_formats(book, shape) if shape is not None else None
    if shape is None or formats is None:
        why = "config.json does not give its shape" if shape is None else "its number format is not known"
        book.unknown.append(f"state of {facts.state_layers} recurrent layers, a constant per sequence: {why}")
        return None
    conv, recurrent = formats
    layers = -(-facts.state_layers // book.layout.pipeline)
    ranks = 1 if book.layout.data_attention else book.layout.tensor
    columns = shape.conv_elements(ranks)
    value = layers * (columns * conv + shape.recurrent_elements / ranks * recurrent)
    formula = (
        f"{shape.kind}: L x (conv x bytes + recurrent x bytes) = {layers} x ({columns:g} x {conv:g} + "
        f"{shape.recurrent_elements / ranks:g} x {recurrent:g})"
    )
    return book.add("state per sequence", formula + (f" over TP {ranks}" if ranks > 1 else ""), value, "bytes")


def _state_formats(book: Book, shape: StateShape) -> tuple[float, float] | None:
    """Bytes per element of the convolution's and of the recurrent state, as the engine chooses them."""
    facts, family = book.facts, book.manifest.engine.family
    assert facts is not None
    written = str(book.value("dtype") or "auto")
    model = ELEMENT_BYTES.get(facts.dtype if written == "auto" else written, 2.0)
    if family == "vllm":
        cache = _named(book.value("mamba-cache-dtype"))
        conv = model if cache is None else cache
        own = _named(book.value("mamba-ssm-cache-dtype")) or _named(shape.dtype)
        return conv, own if own is not None else 4.0 if shape.kind == "KDA" else conv
    if family == "sglang":
        variables = book.manifest.environment
        named = _named(book.value("mamba-ssm-dtype")) or _named(variables.get("SGLANG_MAMBA_SSM_DTYPE"))
        own = named or _named(shape.dtype)
        return _named(variables.get("SGLANG_MAMBA_CONV_DTYPE")) or 2.0, 4.0 if own is None else own
    return None


def _named(dtype: object) -> float | None:
    return ELEMENT_BYTES.get(str(dtype)) if dtype not in (None, "auto") else None


def sequence_bytes(book: Book, token_bytes: float, state_bytes: float, tokens: int) -> float:
    """Bytes of one sequence of ``tokens``: windowed layers keep their window only, states do not grow."""
    facts = book.facts
    if facts is None or not facts.window or not facts.window_layers:
        return token_bytes * tokens + state_bytes
    per_layer = token_bytes / max(1, facts.attention_layers)
    full = facts.attention_layers - facts.window_layers
    return per_layer * (full * tokens + facts.window_layers * min(tokens, facts.window)) + state_bytes
