"""Values that an engine fills in from the hardware or from other flags when they are not written, each with its rule.

Called by the diff and the ledger. Source: facts of vLLM ``get_batch_defaults`` and SGLang ``memory_hook`` (surveyed
versions); a version or hardware that the tables do not cover gives nothing, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from manifests.hardware import Accelerator, find_accelerator
from manifests.model import Manifest
from manifests.versions import version_key


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that nobody wrote: what it is, whether hardware decides it, and the rule in words."""

    value: Any
    from_hardware: bool
    rule: str


def accelerator_of(manifest: Manifest, hardware: str | None = None) -> Accelerator | None:
    """The accelerator of a manifest: the one that is asked for, else the node label that the pod selects."""
    return find_accelerator(hardware) if hardware else find_accelerator(str(manifest.resources.get("product") or ""))


def derive(manifest: Manifest, hardware: str | None = None) -> dict[str, Derived]:
    """Setting -> derived value, for settings that the manifest leaves open."""
    family = manifest.engine.family
    part = accelerator_of(manifest, hardware)
    if family == "vllm":
        return _vllm(manifest, part)
    if family == "sglang" and part is not None:
        return _sglang(manifest, part)
    return {}


def _vllm(manifest: Manifest, part: Accelerator | None) -> dict[str, Derived]:
    out: dict[str, Derived] = {}
    version = version_key(manifest.engine.family_version)
    if manifest.value("env:VLLM_USE_V1") is False and version is not None and version < ((0, 11), 0, 0):
        out["enable-prefix-caching"] = Derived(
            False, False, "VLLM_USE_V1=0 selects the V0 engine, whose default is off"
        )
        length = manifest.value("max-model-len")
        if isinstance(length, int) and length <= 32768:
            out["enable-chunked-prefill"] = Derived(
                False, False, "VLLM_USE_V1=0 selects the V0 engine, off up to 32,768 tokens of context"
            )
        return out
    if version is None or version < ((0, 10, 2), 0, 0) or part is None or part.vendor not in ("nvidia", "amd"):
        return out
    out |= _vllm_batch(manifest, part, version)
    return {name: derived for name, derived in out.items() if name not in manifest.settings}


def _vllm_batch(manifest: Manifest, part: Accelerator, version: Any) -> dict[str, Derived]:
    tokens, seqs, tier = 2048, 256, "other GPU"
    if part.memory_gib >= 160 and version >= ((0, 32), 0, 0):
        tokens, seqs, tier = 16384, 1024, "160 GiB or more"
    elif part.memory_gib >= 160 and version > ((0, 26), 0, 0):
        return {}
    elif part.memory_gib >= 70 and not part.name.startswith("A100"):
        tokens, seqs, tier = 8192, 1024, "70 GiB or more, not an A100"
    words = f"API server on {part.name} ({tier})"
    if manifest.value("performance-mode") == "throughput":
        tokens, seqs, words = tokens * 2, seqs * 2, words + ", doubled by --performance-mode throughput"
    written = manifest.value("max-num-seqs")
    most = written if isinstance(written, int) else seqs
    length = manifest.value("max-model-len")
    if isinstance(length, int):
        if manifest.value("enable-chunked-prefill") is False and length > tokens:
            tokens, words = length, words + ", raised to max-model-len because chunked prefill is off"
        elif most * length < tokens:
            tokens, words = most * length, words + ", clipped to max-num-seqs x max-model-len"
    return {
        "max-num-batched-tokens": Derived(tokens, True, words),
        "max-num-seqs": Derived(seqs, True, words.split(", raised")[0].split(", clipped")[0]),
    }


_SGLANG_TIERS = (
    (20, 2048, 8, 8),
    (35, 4096, 48, 160),
    (60, 4096, 32, 160),
    (90, 8192, 256, 512),
    (160, 8192, 256, 512),
)


def _sglang(manifest: Manifest, part: Accelerator) -> dict[str, Derived]:
    version = version_key(manifest.engine.family_version)
    if version is None:
        return {}
    chunk, small, large, limit = 16384, 512, 512, "160 GiB or more"
    for edge, tokens, batch, batch_tp4 in _SGLANG_TIERS:
        if part.memory_gib < edge:
            chunk, small, large, limit = tokens, batch, batch_tp4, f"below {edge} GiB"
            break
    if limit == "below 35 GiB" and version <= ((0, 5, 16), 0, 0):
        chunk = 2048
    elif limit == "below 35 GiB" and version < ((0, 5, 23), 0, 0):
        return {}
    tp = manifest.value("tp-size")
    batch = large if isinstance(tp, int) and tp >= 4 else small
    words = f"{part.name} ({limit})"
    out = {"chunked-prefill-size": Derived(chunk, True, words)}
    name = "cuda-graph-max-bs-decode" if version >= ((0, 5, 16), 0, 0) else "cuda-graph-max-bs"
    out[name] = Derived(batch, True, words + (", tp of 4 or more" if batch == large and large != small else ""))
    return {key: derived for key, derived in out.items() if key not in manifest.settings}
