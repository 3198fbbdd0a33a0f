"""What will not do what its author meant: rules over manifests, beside what the import itself already found.

Called by the CLI, by preflight and by the diff (errors of the new side). Each rule is a function from a manifest to
findings with a stable code; the codes and their remedies stand in :mod:`manifests.codes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from manifests import compare
from manifests.codes import make_finding
from manifests.engines.derived import accelerator_of
from manifests.engines.grammar import catalogs_of
from manifests.engines.profiles import profile_of
from manifests.layout import group_gpus, layout_of
from manifests.model import Finding, ImportResult, Manifest
from manifests.models import find_model

Rule = Callable[[Manifest], Iterator[tuple[str, str, str | None]]]

_FLAG_LOOKALIKE = re.compile(
    r"^(?:TENSOR_PARALLEL_SIZE|PIPELINE_PARALLEL_SIZE|DATA_PARALLEL_SIZE|MAX_MODEL_LEN|MAX_NUM_SEQS|MAX_NUM_BATCHED_TOKENS|GPU_MEMORY_UTILIZATION"
    r"|KV_CACHE_DTYPE|QUANTIZATION|ENABLE_PREFIX_CACHING|ENABLE_CHUNKED_PREFILL|BLOCK_SIZE|SWAP_SPACE|DTYPE|SERVED_MODEL_NAME|MEM_FRACTION_STATIC|TP_SIZE|DP_SIZE)$"
)
_BRANCHES = frozenset({"main", "master", "dev", "develop", "trunk", "HEAD", "latest"})


def lint(manifests: ImportResult | Iterable[Manifest], longest_prompt_tokens: int | None = None) -> list[Finding]:
    """All findings, errors first.

    Args:
        manifests: what was imported (its own findings are included), or manifests alone.
        longest_prompt_tokens: longest request of the traffic contract; a context limit below it would drop traffic.
    """
    found = list(manifests.warnings) if isinstance(manifests, ImportResult) else []
    listed = manifests.manifests if isinstance(manifests, ImportResult) else list(manifests)
    for manifest in listed:
        found += findings_of(manifest)
        found += _traffic(manifest, longest_prompt_tokens)
    order = {"error": 0, "warning": 1, "info": 2}
    return sorted(dict.fromkeys(found), key=lambda finding: order[finding.level])


def findings_of(manifest: Manifest) -> list[Finding]:
    """The findings of one manifest by all rules."""
    if manifest.patch or manifest.role in ("router", "sidecar"):
        return []
    out = []
    for rule in RULES:
        for code, message, level in rule(manifest):
            out.append(make_finding(code, message, manifest.source.file, manifest.source.path, level))
    return out


def _traffic(manifest: Manifest, longest: int | None) -> Iterator[Finding]:
    for name in ("max-model-len", "context-length", "max-seq-len", "max-input-tokens"):
        limit = manifest.value(name)
        if longest is not None and isinstance(limit, int) and 0 < limit < longest:
            text = f"`{name}` is {limit}, but the traffic has prompts of {longest} tokens: they will be refused"
            yield make_finding("context-limit-lowered", text, manifest.source.file, manifest.source.path, "error")


def _gpus(manifest: Manifest) -> Iterator[tuple[str, str, str | None]]:
    layout, available = layout_of(manifest), group_gpus(manifest)
    if not layout.known or available is None or not profile_of(manifest.engine.family).parallel:
        return
    if manifest.rank == "leader" and not manifest.resources.get("gpu") and manifest.resources.get("pods", 1) > 1:
        return  # a head without accelerators: its engine runs on the workers, whose pods are not in this manifest
    words = " x ".join(layout.written) or "one rank"
    pods, gpus = manifest.resources.get("pods", 1), manifest.resources.get("gpu")
    have = f"{gpus} accelerator(s) a pod" + (f" in {pods} pods" if pods != 1 else "")
    if layout.needed > available and (available > 0 or layout.needed > 1):
        level = (
            "warning"
            if manifest.source.kind in ("Workspace", "InferenceSet", "ServingRuntime", "ClusterServingRuntime")
            else "error"
        )
        resource = manifest.resources.get("accelerator", "resources.gpu")
        yield (
            "gpu-count",
            f"{words} needs {layout.needed} accelerators, but {resource} gives {have}; lower the parallel size or "
            "raise the request",
            level,
        )
    elif 0 < layout.needed < available and manifest.rank is None:
        yield (
            "gpu-unused",
            f"{words} uses {layout.needed} of the {available} accelerators that the pod asks for ({have})",
            None,
        )
    visible = manifest.environment.get("CUDA_VISIBLE_DEVICES")
    if (
        isinstance(visible, str)
        and re.fullmatch(r"[\d,\s]+", visible)
        and len([v for v in visible.split(",") if v.strip()]) < min(layout.needed, int(gpus or 0) or layout.needed)
    ):
        yield (
            "visible-devices",
            f"CUDA_VISIBLE_DEVICES={visible} shows fewer devices than the {layout.needed} that {words} needs; remove "
            "it",
            None,
        )


def _revision(manifest: Manifest) -> Iterator[tuple[str, str, str | None]]:
    identity = manifest.model.id
    if not identity or identity.startswith(("/", ".", "~", "s3:", "pvc:", "gs:", "oci:")) or "/" not in identity:
        return
    if manifest.model.revision in _BRANCHES:
        yield (
            "branch-revision",
            f"`{identity}` at `{manifest.model.revision}` is a branch: it moves under a fixed manifest; pin a commit",
            None,
        )
    elif manifest.model.revision is None:
        yield (
            "branch-revision",
            f"`{identity}` has no revision: every pod start may load newer weights; pin a commit",
            "info",
        )


def _listening(manifest: Manifest) -> Iterator[tuple[str, str, str | None]]:
    family, profile = manifest.engine.name, profile_of(manifest.engine.name)
    if not profile.listens_locally or not manifest.argv:
        return
    host = manifest.value("host")
    if host is None and re.search(r"ggml-org/llama\.cpp|ggerganov/llama\.cpp", manifest.engine.image or ""):
        return  # the project's own images set LLAMA_ARG_HOST=0.0.0.0
    if host in (None, "localhost", "127.0.0.1"):
        yield (
            "host-localhost",
            f"{family} listens on {'localhost by default' if host is None else host}: probes and Services do not "
            "reach it; set --host 0.0.0.0",
            None,
        )
    if profile.metrics_switch is not None and manifest.value(profile.metrics_switch[0]) is not True:
        yield "metrics-off", profile.metrics_switch[1], None


def _memory_share(manifest: Manifest) -> Iterator[tuple[str, str, str | None]]:
    layout = layout_of(manifest)
    shared = any(name == "mount:/dev/shm" for name in manifest.pod) or manifest.source.kind in (
        "DynamoGraphDeployment",
        "Model",
        "Workspace",
        "InferenceSet",
        "values",
        "VLLMRuntime",
        "LLMInferenceService",
    )
    if layout.known and layout.tensor > 1 and manifest.pod and not shared:
        yield (
            "shm-missing",
            f"tensor parallel {layout.tensor} without a volume at /dev/shm: collectives between ranks may fail; mount "
            "an emptyDir of medium Memory",
            None,
        )


def _environment(manifest: Manifest) -> Iterator[tuple[str, str, str | None]]:
    if (
        any(entry.what == "command" for entry in manifest.unresolved)
        or manifest.engine.name in ("unknown", "tgi")
        or manifest.role == "frontend"
    ):
        return
    argv = " ".join(manifest.argv)
    profile, catalogs = profile_of(manifest.engine.family), catalogs_of(manifest.engine.name)
    for name, value in manifest.environment.items():
        used = isinstance(value, str) and len(value) > 1 and value in argv
        said = compare.unread_by_engine(name, profile, catalogs)
        if said is not None and not used:
            yield "env-unread", f"env `{name}` changes nothing: {said}; check its spelling, or delete it", "warning"
        if _FLAG_LOOKALIKE.match(name) and not used:
            yield (
                "env-unread",
                f"env `{name}` looks like a setting, but {manifest.engine.name} does not read it and no argument uses "
                "it; use the flag",
                "warning",
            )


def _speculation(manifest: Manifest) -> Iterator[tuple[str, str, str | None]]:
    for name in ("speculative-accept-threshold-single", "speculative-accept-threshold-acc"):
        value = manifest.value(name)
        if isinstance(value, int | float) and value < 1:
            yield (
                "spec-relaxed",
                f"`{name}` {value} below 1 accepts tokens that the target would not: approximate, not "
                "distribution-exact",
                None,
            )
    if manifest.value("llm_args.speculative_config.use_relaxed_acceptance_for_thinking") is True:
        yield (
            "spec-relaxed",
            "use_relaxed_acceptance_for_thinking accepts tokens that the target would not: approximate",
            None,
        )
    config = manifest.value("speculative-config")
    if isinstance(config, dict) and str(config.get("rejection_sample_method", "")) in (
        "relaxed",
        "typical",
        "synthetic",
    ):
        yield (
            "spec-relaxed",
            f"rejection_sample_method {config['rejection_sample_method']} is no exact acceptance rule: approximate",
            None,
        )
    speculates = (
        config is not None
        or manifest.value("spec-method") is not None
        or manifest.value("speculative-algorithm") is not None
    )
    most = manifest.value("max-num-seqs") or manifest.value("max-running-requests")
    if speculates and isinstance(most, int) and most >= 256:
        yield (
            "unprofitable-mechanism",
            f"speculation with up to {most} concurrent sequences: drafts then take compute that the batch could use; "
            "it pays at low concurrency",
            None,
        )


def _profit(manifest: Manifest) -> Iterator[tuple[str, str, str | None]]:
    part = accelerator_of(manifest)
    fp8 = [name for name in ("kv-cache-dtype", "quantization") if str(manifest.value(name) or "").startswith("fp8")]
    if part is not None and part.fp8_flops is None and fp8:
        yield (
            "unprofitable-mechanism",
            f"{' and '.join(fp8)} fp8 on {part.name}, which has no FP8 units: bytes shrink, but values are converted "
            "at every use",
            None,
        )
    model = find_model(manifest.model.id)
    if manifest.value("enable-expert-parallel") is True and model is not None and not model.experts:
        yield "expert-parallel-dense", f"--enable-expert-parallel does nothing for {model.name}, which is dense", None
    interval = manifest.value("stream-interval")
    if isinstance(interval, int) and interval > 1:
        yield (
            "stream-interval",
            f"stream-interval {interval}: a chunk carries up to {interval} tokens, so chunk gaps are no token "
            "intervals",
            None,
        )
    tokens, length = manifest.value("max-num-batched-tokens"), manifest.value("max-model-len")
    if (
        manifest.value("enable-chunked-prefill") is False
        and isinstance(tokens, int)
        and isinstance(length, int)
        and tokens < length
    ):
        yield (
            "bad-value",
            f"chunked prefill is off and max-num-batched-tokens {tokens} is below max-model-len {length}: the engine "
            "refuses to start",
            "error",
        )


def _model(manifest: Manifest) -> Iterator[tuple[str, str, str | None]]:
    if (
        manifest.argv
        and not any(entry.what == "command" for entry in manifest.unresolved)
        and manifest.model.id is None
        and manifest.engine.name not in ("unknown", "triton-trtllm", "triton-vllm")
        and manifest.role not in ("frontend", "worker")
    ):
        yield "missing-model", f"no model is named: {manifest.engine.name} starts its own default; name one", None


RULES: tuple[Rule, ...] = (_gpus, _revision, _listening, _memory_share, _environment, _speculation, _profit, _model)
