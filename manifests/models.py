"""Facts about models that memory and bandwidth depend on: from a ``config.json`` or from a small catalogue with
sources.

Called by the ledger and by lint. A number that neither states is None; nothing is guessed from a name except the
published quantization suffixes of checkpoints, and the ledger says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from manifests.states import StateShape, state_layers, state_shape


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Shapes of one model. ``window_layers`` layers keep ``window`` tokens only; ``latent`` is (rank, rope) of MLA;
    ``state_layers`` keep a state instead of tokens (Mamba, linear attention), whose shape is ``state``;
    ``shared_layers`` reuse another layer's KV; ``cache_layers``: layers with keys and values, where that is not all the
    others."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int | None
    vocab: int
    intermediate: int
    parameters: int | None
    dtype: str
    source: str
    window: int | None = None
    window_layers: int = 0
    latent: tuple[int, int] | None = None
    experts: int = 0
    experts_per_token: int = 0
    expert_parameters: int | None = None
    tied: bool = False
    state_layers: int = 0
    shared_layers: int = 0
    quantization: str | None = None
    state: StateShape | None = None
    cache_layers: int | None = None

    @property
    def attention_layers(self) -> int:
        """Layers that store keys and values of their own."""
        if self.cache_layers is not None:
            return self.cache_layers
        return self.layers - self.state_layers - self.shared_layers

    @property
    def embedding_parameters(self) -> int:
        """Parameters that quantization methods leave alone: token embedding and, where it is a matrix of its own,
        the output."""
        return self.vocab * self.hidden * (1 if self.tied else 2)


@cache
def _table() -> tuple[tuple[ModelFacts, tuple[re.Pattern[str], ...]], ...]:
    data = json.loads(resources.files("manifests.catalog").joinpath("models.json").read_text(encoding="utf-8"))
    return tuple((_row(row), tuple(re.compile(pattern) for pattern in row["match"])) for row in data["models"])


def _row(row: Mapping[str, Any]) -> ModelFacts:
    latent = row.get("mla")
    window = row.get("window")
    return ModelFacts(
        name=row["name"],
        layers=row["layers"],
        hidden=row["hidden"],
        heads=row["heads"],
        kv_heads=row["kv_heads"],
        head_dim=row["head_dim"],
        vocab=row["vocab"],
        intermediate=row["intermediate"],
        parameters=row["parameters"],
        dtype=row["dtype"],
        source=row["source"],
        window=window,
        window_layers=row.get("window_layers", row["layers"] if window else 0),
        latent=(latent["kv_lora_rank"], latent["rope_dim"]) if latent else None,
        experts=row.get("experts", 0),
        experts_per_token=row.get("experts_per_token", 0),
        expert_parameters=row.get("expert_parameters"),
        tied=row.get("tied", False),
    )


def names() -> tuple[str, ...]:
    """Every model of the catalogue."""
    return tuple(facts.name for facts, _ in _table())


def find_model(identity: str | None) -> ModelFacts | None:
    """The catalogue's model for a repository or path name; a fine-tune of another owner counts by its name."""
    if not identity:
        return None
    text = identity.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-").replace("meta-llama", "llama")
    best: tuple[int, ModelFacts] | None = None
    for facts, patterns in _table():
        for pattern in patterns:
            match = pattern.search(text)
            if match and (best is None or len(match[0]) > best[0]):
                best = (len(match[0]), facts)
    return best[1] if best else None


def quantization_of_name(identity: str | None) -> str | None:
    """The published suffix of a quantized checkpoint (``-AWQ``, ``-FP8``, ``-NVFP4``, ...), None for none."""
    match = re.search(
        r"(?i)[-_.](awq|gptq(?:-int[48])?|fp8|nvfp4|mxfp4|int8|int4|w8a8|w4a16|bnb-4bit)(?:$|[-_./])",
        str(identity or ""),
    )
    return match[1].lower() if match else None


def from_config(config: Mapping[str, Any], name: str = "config.json") -> ModelFacts:
    """Facts from a Hugging Face ``config.json``.

    Raises:
        ValueError: a shape that the formulas need is missing; the message names it.
    """
    inner = config.get("text_config")
    text: Mapping[str, Any] = {**config, **inner} if isinstance(inner, Mapping) else config
    layers = _number(text, "num_hidden_layers", "n_layer", "num_layers")
    hidden = _number(text, "hidden_size", "n_embd", "d_model")
    state, cached = state_layers(text, layers)
    heads = 1 if cached == 0 else _number(text, "num_attention_heads", "n_head")
    kv_heads = _optional(text, "num_key_value_heads", "num_kv_heads", "n_head_kv")
    if kv_heads is None:
        kv_heads = 1 if text.get("multi_query") else heads
    latent = (_number(text, "kv_lora_rank"), _number(text, "qk_rope_head_dim")) if text.get("kv_lora_rank") else None
    intermediate = _optional(text, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    experts = _optional(text, "num_experts", "n_routed_experts", "num_local_experts") or 0
    window, window_layers = _windows(text, layers)
    facts = ModelFacts(
        name=str(config.get("_name_or_path") or name),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=None if latent else _optional(text, "head_dim") or hidden // heads,
        vocab=_number(text, "vocab_size"),
        intermediate=intermediate,
        parameters=None,
        dtype=str(text.get("torch_dtype") or text.get("dtype") or "bfloat16"),
        source=name,
        window=window,
        window_layers=window_layers,
        latent=latent,
        experts=experts,
        experts_per_token=_optional(text, "num_experts_per_tok", "num_experts_per_token") or 0,
        expert_parameters=_expert_parameters(text, layers, hidden, intermediate, experts),
        tied=bool(text.get("tie_word_embeddings")),
        state_layers=state,
        shared_layers=_optional(text, "num_kv_shared_layers") or 0,
        quantization=_quantization(text),
        state=state_shape(text) if state else None,
        cache_layers=cached,
    )
    return _with_parameters(facts)


def _with_parameters(facts: ModelFacts) -> ModelFacts:
    """Counts the parameters of a dense, gated transformer; MLA, experts and state layers are counted by nobody here."""
    if facts.latent or facts.experts or facts.state_layers or facts.head_dim is None:
        return facts
    width = facts.head_dim
    attention = facts.hidden * width * (2 * facts.heads + 2 * facts.kv_heads)
    mlp = 3 * facts.hidden * facts.intermediate
    norms = 2 * facts.hidden
    return replace(
        facts, parameters=facts.layers * (attention + mlp + norms) + facts.embedding_parameters + facts.hidden
    )


def _quantization(text: Mapping[str, Any]) -> str | None:
    config = text.get("quantization_config")
    if not isinstance(config, Mapping):
        return None
    method = str(config.get("quant_method") or config.get("quant_algo") or "unknown")
    bits = config.get("bits")
    return f"{method}-int{bits}" if isinstance(bits, int) and method in ("gptq", "awq") else method


def _windows(text: Mapping[str, Any], layers: int) -> tuple[int | None, int]:
    """Sliding window and the number of its layers, from ``layer_types``, patterns or a window for all."""
    window = _optional(text, "sliding_window")
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        sliding = sum("sliding" in str(kind) for kind in kinds)
        return (window if sliding else None), sliding
    if _optional(text, "full_attention_interval"):
        return None, 0
    pattern = _optional(text, "sliding_window_pattern")
    if window and pattern:
        return window, layers - layers // pattern
    return (None, 0) if text.get("use_sliding_window") is False or not window else (window, layers)


def _expert_parameters(
    text: Mapping[str, Any], layers: int, hidden: int, intermediate: int, experts: int
) -> int | None:
    if not experts:
        return None
    width = _optional(text, "moe_intermediate_size") or intermediate
    dense = _optional(text, "first_k_dense_replace") or 0
    return 3 * hidden * width * experts * (layers - dense)


def _optional(text: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = text.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**12:
            return value
    return None


def _number(text: Mapping[str, Any], *keys: str) -> int:
    value = _optional(text, *keys)
    if value is None:
        raise ValueError(f"{keys[0]} is missing or no positive whole number")
    return value
