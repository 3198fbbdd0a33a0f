"""Shapes of the states that recurrent layers keep instead of keys and values, from a model's ``config.json``.

Called by :mod:`manifests.models`. A state has the last columns of a short convolution and a recurrent part; its size
does not grow with the sequence. Source of the formulas: vLLM ``model_executor/layers/mamba/mamba_utils.py`` (state
shapes by kind of layer) and SGLang ``srt/configs/mamba_utils.py``, which agree; the papers of Mamba, Mamba-2, gated
delta networks and Kimi Linear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StateShape:
    """One layer's state before it is split: ``width`` channels of ``columns`` each in the convolution (``groups`` of
    ``group_width`` channels are replicated when there are fewer of them than ranks), and ``recurrent_elements``.
    ``dtype`` is the recurrent part's format where the config states one."""

    kind: str
    width: int
    columns: int
    recurrent_elements: int
    groups: int = 0
    group_width: int = 0
    dtype: str | None = None

    def conv_elements(self, ranks: int) -> float:
        """Elements of the convolution's columns on one of ``ranks`` tensor ranks."""
        extra = ranks - self.groups if self.groups and self.groups % ranks else 0
        return (self.width + extra * self.group_width) * self.columns / ranks


def state_shape(text: Mapping[str, Any]) -> StateShape | None:
    """The state of this architecture's recurrent layers; None where the config does not give every size."""
    dtype = text.get("mamba_ssm_dtype")
    known = str(dtype) if isinstance(dtype, str) else None
    for reader in (_gated_delta, _kimi, _mamba2, _mamba1, _lightning, _short_conv):
        found = reader(text, known)
        if found is not None:
            return found
    return None


def _sizes(text: Mapping[str, Any], *names: tuple[str, ...]) -> list[int] | None:
    """One positive whole number for each tuple of alternative keys, None when one is missing."""
    out = []
    for keys in names:
        value = next((text[key] for key in keys if isinstance(text.get(key), int)), None)
        if value is None or isinstance(value, bool) or not 0 < value < 10**9:
            return None
        out.append(value)
    return out


def _gated_delta(text: Mapping[str, Any], dtype: str | None) -> StateShape | None:
    sizes = _sizes(
        text,
        ("linear_num_key_heads",),
        ("linear_num_value_heads",),
        ("linear_key_head_dim",),
        ("linear_value_head_dim",),
        ("linear_conv_kernel_dim",),
    )
    if sizes is None:
        return None
    key_heads, value_heads, key_dim, value_dim, kernel = sizes
    width = 2 * key_heads * key_dim + value_heads * value_dim
    return StateShape("gated delta net", width, kernel - 1, value_heads * value_dim * key_dim, dtype=dtype)


def _kimi(text: Mapping[str, Any], dtype: str | None) -> StateShape | None:
    inner = text.get("linear_attn_config")
    if not isinstance(inner, Mapping):
        return None
    sizes = _sizes(inner, ("num_heads",), ("head_dim",), ("short_conv_kernel_size",))
    if sizes is None:
        return None
    heads, width, kernel = sizes
    return StateShape("KDA", 3 * heads * width, kernel - 1, heads * width * width, dtype=dtype)


def _mamba2(text: Mapping[str, Any], dtype: str | None) -> StateShape | None:
    plain = text.get("model_type") == "mamba2"
    sizes = _sizes(
        text,
        ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", *(("num_heads",) if plain else ())),
        ("mamba_head_dim", "mamba_d_head", "mamba_headdim", *(("head_dim",) if plain else ())),
        ("ssm_state_size", "mamba_d_state", "mamba_state_dim", *(("state_size",) if plain else ())),
        ("mamba_n_groups", "n_groups", "mamba_ngroups"),
        ("conv_kernel", "mamba_d_conv", "mamba_conv_kernel"),
    )
    if sizes is None:
        return None
    heads, head_dim, state, groups, kernel = sizes
    width = heads * head_dim + 2 * groups * state
    return StateShape("Mamba-2", width, kernel - 1, heads * head_dim * state, groups, 2 * state, dtype)


def _mamba1(text: Mapping[str, Any], dtype: str | None) -> StateShape | None:
    sizes = _sizes(text, ("mamba_d_state", "state_size"), ("mamba_d_conv", "conv_kernel"))
    expand = _sizes(text, ("mamba_expand", "expand"), ("hidden_size",))
    inner = _sizes(text, ("intermediate_size",)) if text.get("model_type") in ("mamba", "falcon_mamba") else None
    channels = inner[0] if inner else expand[0] * expand[1] if expand else None
    if sizes is None or channels is None or text.get("model_type") == "mamba2":
        return None
    state, kernel = sizes
    return StateShape("Mamba", channels, kernel - 1, channels * state, dtype=dtype)


def _lightning(text: Mapping[str, Any], dtype: str | None) -> StateShape | None:
    if not isinstance(text.get("attn_type_list"), list):
        return None
    sizes = _sizes(text, ("num_attention_heads",), ("head_dim",))
    return None if sizes is None else StateShape("lightning attention", 0, 0, sizes[0] * sizes[1] ** 2, dtype=dtype)


def _short_conv(text: Mapping[str, Any], dtype: str | None) -> StateShape | None:
    sizes = _sizes(text, ("conv_L_cache",), ("conv_dim", "hidden_size"))
    return None if sizes is None else StateShape("short convolution", sizes[1], sizes[0] - 1, 0, dtype=dtype)


def state_layers(text: Mapping[str, Any], layers: int) -> tuple[int, int | None]:
    """``(layers with a state, layers with keys and values)``; the second is None where it is all the others."""
    kinds = text.get("layer_types") or text.get("layers_block_type")
    if isinstance(kinds, list):
        return sum(bool(re.search(r"linear|mamba|ssm|recurrent|^conv$", str(kind))) for kind in kinds), None
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return pattern.count("M"), pattern.count("*")
    if text.get("model_type") in ("mamba", "mamba2", "falcon_mamba"):
        return layers, 0
    if text.get("model_type") == "falcon_h1":
        return layers, layers
    inner = text.get("linear_attn_config")
    if isinstance(inner, Mapping) and isinstance(inner.get("kda_layers"), list):
        return len(inner["kda_layers"]), None
    for key, is_state in (("attn_type_list", 0), ("attn_layer_indices", None)):
        listed = text.get(key)
        if isinstance(listed, list):
            return (listed.count(is_state) if is_state is not None else max(0, layers - len(listed))), None
    return _period(text, layers), None


def _period(text: Mapping[str, Any], layers: int) -> int:
    """Every n-th layer attends, the others keep a state."""
    for key in ("full_attention_interval", "attn_layer_period"):
        sizes = _sizes(text, (key,))
        if sizes is not None and sizes[0] > 1:
            offset = text.get("attn_layer_offset", sizes[0] - 1)
            start = offset if isinstance(offset, int) and 0 <= offset < layers else sizes[0] - 1
            return layers - len(range(start, layers, sizes[0]))
    return 0
