"""When two values of a setting are the same, and what a change of it means by the catalogue.

Called by :mod:`manifests.diff`. Pure look-ups and comparisons; knows nothing of pairing, versions or output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from manifests.catalog import Catalog, Switch
from manifests.engines.profiles import Profile
from manifests.model import Manifest, Setting, canonical_json
from manifests.versions import bracket

_UNORDERED = frozenset(
    {
        "lora-modules",
        "cudagraph-capture-sizes",
        "cuda-graph-sizes",
        "allowed-origins",
        "allowed-methods",
        "allowed-headers",
        "lora-paths",
        "allowed-media-domains",
    }
)
_CREDENTIALS = re.compile(r"TOKEN$|SECRET|PASSWORD|_KEY$|CREDENTIAL", re.IGNORECASE)
_INERT_ENV = re.compile(
    r"^(?:HF_HOME|HF_HUB_CACHE|HUGGINGFACE_HUB_CACHE|TRANSFORMERS_CACHE|HF_MODULES_CACHE|XDG_CACHE_HOME|TRITON_CACHE_DIR|TORCH_EXTENSIONS_DIR|HOME|TZ|LANG|LC_.*|TERM"
    r"|POD_.*|NODE_NAME|NAMESPACE|HOSTNAME|DYN_LOG|LOG_DIR|.*_LOG_LEVEL|.*_LOGGING_LEVEL|NCCL_DEBUG|RUST_LOG|OTEL_.*|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE)$"
)
_RUNTIME_ENV: tuple[tuple[re.Pattern[str], str, tuple[str, ...], str], ...] = (
    (
        re.compile(r"^(?:NCCL|RCCL|UCX|NVSHMEM|GLOO|FI|MSCCL|CCOM|NIXL|MOONCAKE|TORCH_NCCL)_"),
        "parallelism",
        ("COMM",),
        "tunes collective or transfer libraries",
    ),
    (re.compile(r"^LMCACHE_"), "kv_offload", ("KV", "COMM"), "configures LMCache"),
    (
        re.compile(r"^(?:CUDA|NVIDIA|HIP|ROCR|ROCM|HSA|AITER|GPU|ZE|ONEAPI|HABANA|PT_HPU|NEURON|TPU|XLA|PJRT)_"),
        "kernel_backend",
        ("A",),
        "configures the accelerator's runtime",
    ),
    (
        re.compile(r"^(?:TORCH|PYTORCH|TRITON|FLASHINFER|TORCHINDUCTOR|DG|DEEP_GEMM|CUBLAS|CUDNN|FLA)_"),
        "kernel_backend",
        ("A",),
        "configures kernels or their compiler",
    ),
    (re.compile(r"^(?:OMP|MKL|OPENBLAS|KMP|GOMP|TOKENIZERS)_"), "scheduler", ("SCHED",), "sets host threads"),
    (
        re.compile(r"^(?:VLLM|SGLANG|SGL|TLLM|TRTLLM|TRT|DYN|AIBRIX|LLAMA)_"),
        "engine_environment",
        ("SCHED",),
        "is an engine's variable that the catalogue does not list: read its meaning",
    ),
    (
        re.compile(r"^(?:LD_LIBRARY_PATH|LD_PRELOAD|PATH|PYTHONPATH|VIRTUAL_ENV)$"),
        "kernel_backend",
        ("A",),
        "decides which libraries are loaded",
    ),
    (re.compile(r"^(?:HF|HUGGING|TRANSFORMERS|PYTHON)"), "weight_loading", ("COLD",), "concerns loading"),
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a change of something means: mechanism, ledgers moved, correctness class, floating-point note, witness, a
    phrase."""

    mechanism: str
    ledgers: tuple[str, ...]
    correctness: str
    fp_reorder: bool = False
    witness: str | None = None
    note: str | None = None


UNUSED = "no argument uses it"


def same(name: str, old: Any, new: Any) -> bool:
    """Whether two values of a setting are equal: numbers as numbers of one kind, objects by content, sets without
    order."""
    if name in _UNORDERED and isinstance(old, list) and isinstance(new, list):
        return sorted(map(canonical_json, old)) == sorted(map(canonical_json, new))
    if (isinstance(old, list) and isinstance(new, str | int)) or (isinstance(new, list) and isinstance(old, str | int)):
        return False
    return canonical_json(old) == canonical_json(new) or (_is_float(old) and _is_float(new) and old == new)


def _is_float(value: Any) -> bool:
    return isinstance(value, float)


def same_setting(name: str, old: Setting, new: Setting) -> bool:
    """Equality of two settings; an unresolved one equals only the identical expression."""
    if old.expression is not None or new.expression is not None:
        return old.expression == new.expression
    if (
        isinstance(old.value, int | float)
        and isinstance(new.value, int | float)
        and not isinstance(old.value, bool)
        and not isinstance(new.value, bool)
    ):
        return old.value == new.value
    return same(name, old.value, new.value)


def leaves(value: Any, prefix: str) -> dict[str, Any]:
    """Dotted leaves of a JSON object (an empty object is its own leaf)."""
    out: dict[str, Any] = {}
    for key, item in value.items():
        here = f"{prefix}.{key}"
        out.update(leaves(item, here) if isinstance(item, dict) and item else {here: item})
    return out


def meaning_of(name: str, catalogs: Sequence[Catalog]) -> Meaning:
    """The catalogue's word on a setting; an unknown flag may change anything, so it is a contract change until
    somebody knows."""
    for part in catalogs:
        switch = part.find(name)
        if switch is not None:
            return _of_switch(switch)
    if name == "quantization" or "quant" in name:
        return Meaning("weight_quant", ("W", "A"), "approximate")
    return Meaning(
        "unknown_flag",
        ("A",),
        "contract-change",
        note="the catalogue does not know this flag, so nothing may be assumed",
    )


def _of_switch(switch: Switch) -> Meaning:
    return Meaning(switch.mechanism, switch.ledgers, switch.correctness, switch.fp_reorder, switch.witness)


def meaning_of_env(variable: str, catalogs: Sequence[Catalog], opaque: bool) -> Meaning:
    """What a change of an environment variable means that is no switch of the engine."""
    if _CREDENTIALS.search(variable):
        return Meaning("credentials", (), "none", note="a credential: it changes who may load, not what is computed")
    if _INERT_ENV.match(variable):
        return Meaning(
            "environment", (), "none", note="names places, logs or the pod; nothing that is computed depends on it"
        )
    for part in catalogs:
        switch = part.find(f"env:{variable}")
        if switch is not None:
            return _of_switch(switch)
    for pattern, mechanism, ledgers, note in _RUNTIME_ENV:
        if pattern.match(variable):
            return Meaning(
                mechanism, ledgers, "semantic-exact" if mechanism != "weight_loading" else "none", True, note=note
            )
    if opaque:
        return Meaning("environment", ("SCHED",), "semantic-exact", note="a script inside the image may read it")
    return Meaning("environment", (), "none", note=f"no engine or library that is known reads it, and {UNUSED}")


def unread_by_engine(variable: str, profile: Profile, catalogs: Sequence[Catalog]) -> str | None:
    """What to say of a variable with the engine's own prefix that no surveyed version reads; None for any other one,
    also for those of the engine's plugins, which the survey does not cover."""
    if not variable.startswith(profile.variables) or variable.startswith(profile.plugin_variables):
        return None
    if any(part.find(f"env:{variable}") is not None for part in catalogs):
        return None
    tail = next(variable.removeprefix(head) for head in profile.variables if variable.startswith(head))
    flag = f"--{tail.lower().replace('_', '-')}"
    twin = any(flag in part.spellings for part in catalogs)
    return f"no surveyed version of {profile.title} reads it" + (f" (it reads the flag `{flag}`)" if twin else "")


def surveyed(manifest: Manifest, catalogs: Sequence[Catalog]) -> bool:
    """Whether the version of a manifest's engine lies inside the survey, so that what is not listed is not read."""
    version = manifest.engine.family_version
    return version is not None and any(None not in bracket(version, part.sampled) for part in catalogs)


# setting of a pod -> meaning; keys are prefixes
_POD: tuple[tuple[str, Meaning], ...] = (
    (
        "probe.",
        Meaning("lifecycle", ("COLD",), "none", note="decides when the pod takes traffic and when it is restarted"),
    ),
    ("mount:/dev/shm", Meaning("parallelism", ("COMM",), "semantic-exact", note="shared memory of the ranks of a pod")),
    ("mount:", Meaning("weight_loading", ("COLD",), "none", note="where files are loaded from")),
    ("pod.affinity", Meaning("placement", ("COMM",), "none", note="decides on which nodes the pods run")),
    ("pod.nodeSelector", Meaning("placement", ("COMM",), "none", note="decides on which nodes the pods run")),
    (
        "pod.topologySpreadConstraints",
        Meaning("placement", ("COMM",), "none", note="decides on which nodes the pods run"),
    ),
    (
        "pod.initContainers.",
        Meaning("weight_loading", ("COLD",), "semantic-exact", note="prepares what the engine loads: weights, files"),
    ),
    ("pod.hostNetwork", Meaning("network", ("COMM",), "none", note="the pod uses the node's network")),
    ("pod.resourceClaims", Meaning("placement", ("COMM",), "none", note="devices that the pod claims")),
)


def meaning_of_pod(name: str) -> Meaning:
    """What a change of a pod's field means."""
    return next(
        (meaning for prefix, meaning in _POD if name.startswith(prefix)),
        Meaning("pod", (), "none", note="does not touch what is computed"),
    )
