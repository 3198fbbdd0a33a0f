"""The formulas of the ledger on plain numbers, and the bytes of number formats and quantization methods.

Called by the other modules of the package, by tests and by whoever needs one number. Knows no manifest. Sources: vLLM's
performance model, the papers of the models and of the quantization methods.
"""

from __future__ import annotations

ELEMENT_BYTES = {
    "bfloat16": 2.0,
    "float16": 2.0,
    "half": 2.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "float32": 4.0,
    "float": 4.0,
    "fp32": 4.0,
    "fp8": 1.0,
    "int8": 1.0,
}
_GROUP_4 = (4, 20 / 128, "4-bit codes, 16-bit scale and 4-bit zero point per group of 128")
# method -> (bits per quantized weight, scale and zero-point overhead in bits per weight, how)
QUANTIZATION: dict[str, tuple[float, float, str]] = {
    "awq": _GROUP_4,
    "awq_marlin": _GROUP_4,
    "gptq": _GROUP_4,
    "gptq_marlin": _GROUP_4,
    "gptq-int4": _GROUP_4,
    "gptq-int8": (8, 24 / 128, "8-bit codes, 16-bit scale and 8-bit zero point per group of 128"),
    "awq-int4": _GROUP_4,
    "int4": (4, 16 / 128, "4-bit codes, 16-bit scale per group of 128"),
    "w4a16": (4, 16 / 128, "4-bit codes, 16-bit scale per group of 128"),
    "bitsandbytes": (4, 32 / 64, "4-bit codes, 32-bit scale per block of 64"),
    "bitsandbytes-nf4": (4, 32 / 64, "4-bit codes, 32-bit scale per block of 64"),
    "bnb-4bit": (4, 32 / 64, "4-bit codes, 32-bit scale per block of 64"),
    "fp8": (8, 0, "8-bit weights, scales per tensor or channel neglected"),
    "int8": (8, 0, "8-bit weights, scales per channel neglected"),
    "w8a8": (8, 0, "8-bit weights, scales per channel neglected"),
    "nvfp4": (4, 8 / 16, "4-bit codes, 8-bit scale per block of 16"),
    "modelopt_fp4": (4, 8 / 16, "4-bit codes, 8-bit scale per block of 16"),
    "mxfp4": (4, 8 / 32, "4-bit codes, 8-bit scale per block of 32"),
}
KV_BYTES = {
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "int8": 1.0,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "f16": 2.0,
    "bf16": 2.0,
    "f32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "nvfp4": 0.5 + 1 / 16,
    "fp8_per_token_head": 1.0,
    "int8_per_token_head": 1.0,
}


def weight_bytes(parameters: int, bits: float) -> int:
    """``M_weight = P x bits / 8``, bytes."""
    return int(parameters * bits / 8)


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, element_bytes: float) -> float:
    """``2 x L x H_kv x D_h x bytes``: keys and values of one token over all layers, bytes."""
    return 2 * layers * kv_heads * head_dim * element_bytes


def latent_bytes_per_token(layers: int, rank: int, rope: int, element_bytes: float) -> float:
    """Multi-head latent attention: ``L x (rank + rope) x bytes``; not divided by tensor parallelism."""
    return layers * (rank + rope) * element_bytes


def amdahl_bound(share: float, speedup: float) -> float:
    """``1 / ((1 - f) + f / s)``: the most that making a share ``f`` of the time ``s`` times faster can give."""
    if not 0 <= share <= 1 or speedup <= 0:
        raise ValueError("share must be within 0..1 and the speed-up above 0")
    return 1 / ((1 - share) + share / speedup)


def step_floor_seconds(bytes_moved: float, bandwidth_bytes_per_s: float) -> float:
    """``bytes / bandwidth``: no step that moves the bytes is faster, seconds."""
    if bandwidth_bytes_per_s <= 0:
        raise ValueError("bandwidth must be above 0")
    return bytes_moved / bandwidth_bytes_per_s
