"""What the roofline needs to know about accelerators and models. Public data-sheet and config.json figures.

``bandwidth`` is what a copy benchmark attains, not the data sheet; ``flops`` is the dense BF16 peak.
"""

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Accelerator:
    """One device: dense BF16 FLOP/s, attainable HBM bytes/s, memory bytes, bytes/s and latency of its interconnect."""

    name: str
    flops: float
    bandwidth: float
    memory_bytes: float
    link_bandwidth: float
    collective_seconds: float
    fp8: bool = True


ACCELERATORS = {
    entry.name: entry
    for entry in (
        Accelerator("H100", 989e12, 2.70e12, 80e9, 360e9, 11e-6),
        Accelerator("H200", 989e12, 3.90e12, 141e9, 360e9, 11e-6),
        Accelerator("B200", 2250e12, 6.60e12, 180e9, 720e9, 10e-6),
        Accelerator("A100", 312e12, 1.60e12, 80e9, 240e9, 14e-6, fp8=False),
        Accelerator("L40S", 362e12, 0.70e12, 48e9, 26e9, 28e-6),
        Accelerator("L4", 121e12, 0.26e12, 24e9, 26e9, 28e-6),
        Accelerator("MI300X", 1307e12, 4.20e12, 192e9, 300e9, 14e-6),
    )
}


@dataclass(frozen=True)
class Model:
    """Shape of a decoder: parameter counts, attention geometry, longest context, experts if it is sparse."""

    name: str
    parameters: float
    active_parameters: float
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    max_len: int
    experts: int = 0
    experts_per_token: int = 0
    expert_parameters: float = 0.0


LLAMA_8B = Model("Llama-3.1-8B", 8.03e9, 8.03e9, 32, 4096, 32, 8, 128, 131072)
MODELS = (
    Model("Llama-3.2-1B", 1.24e9, 1.24e9, 16, 2048, 32, 8, 64, 131072),
    Model("Llama-3.2-3B", 3.21e9, 3.21e9, 28, 3072, 24, 8, 128, 131072),
    LLAMA_8B,
    Model("Llama-3.1-70B", 70.6e9, 70.6e9, 80, 8192, 64, 8, 128, 131072),
    Model("Llama-3.3-70B", 70.6e9, 70.6e9, 80, 8192, 64, 8, 128, 131072),
    Model("Qwen3-0.6B", 0.6e9, 0.6e9, 28, 1024, 16, 8, 128, 40960),
    Model("Qwen3-8B", 8.2e9, 8.2e9, 36, 4096, 32, 8, 128, 40960),
    Model("Qwen3-32B", 32.8e9, 32.8e9, 64, 5120, 64, 8, 128, 40960),
    Model("Qwen3-30B-A3B", 30.5e9, 3.3e9, 48, 2048, 32, 4, 128, 40960, 128, 8, 29.0e9),
    Model("Qwen2.5-7B", 7.6e9, 7.6e9, 28, 3584, 28, 4, 128, 32768),
    Model("Mixtral-8x7B", 46.7e9, 12.9e9, 32, 4096, 32, 8, 128, 32768, 8, 2, 45.1e9),
    Model("opt-125m", 0.125e9, 0.125e9, 12, 768, 12, 12, 64, 2048),
)


def find_model(name: str) -> tuple[Model, bool]:
    """The shape behind a model id, and whether it is assumed (unknown names scale Llama 8B by the size in the name)."""
    plain = name.lower()
    hits = [model for model in MODELS if model.name.lower() in plain]
    if hits:
        return max(hits, key=lambda model: len(model.name)), False
    size = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])", plain.replace("_", "-"))
    if size is None:
        return LLAMA_8B, True
    parameters = float(size.group(1)) * 1e9
    scale = (parameters / LLAMA_8B.parameters) ** (1 / 3)
    layers = max(4, round(LLAMA_8B.layers * scale))
    hidden = max(512, round(LLAMA_8B.hidden * scale / 128) * 128)
    assumed = replace(
        LLAMA_8B, name=name, parameters=parameters, active_parameters=parameters, layers=layers, hidden=hidden
    )
    return assumed, True
