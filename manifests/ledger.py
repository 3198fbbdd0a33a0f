"""Bytes and bounds of a manifest on its accelerators: weights, KV cache, what fits, how fast a step can be at best.

Called by the CLI, by preflight (does it fit?) and by the dashboard (old against new). Every number is a term with
its formula, inputs and unit; what cannot be known is listed in ``unknown``, never guessed. Logical sizes are lower
bounds: workspace, allocator, graph capture and fragmentation come on top. Formulas: vLLM's own performance model and
the sizes in the models' papers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from manifests.engines.derived import accelerator_of, derive
from manifests.hardware import Accelerator
from manifests.layout import Layout, layout_of
from manifests.model import Manifest
from manifests.models import ModelFacts, find_model, quantization_of_name

_BYTES = {
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
# method -> (bits per quantized weight, scale and zero-point overhead in bits per weight, how)
_QUANTIZATION: dict[str, tuple[float, float, str]] = {
    "awq": (4, 20 / 128, "4-bit codes, 16-bit scale and 4-bit zero point per group of 128"),
    "awq_marlin": (4, 20 / 128, "4-bit codes, 16-bit scale and 4-bit zero point per group of 128"),
    "gptq": (4, 20 / 128, "4-bit codes, 16-bit scale and 4-bit zero point per group of 128"),
    "gptq_marlin": (4, 20 / 128, "4-bit codes, 16-bit scale and 4-bit zero point per group of 128"),
    "gptq-int4": (4, 20 / 128, "4-bit codes, 16-bit scale and 4-bit zero point per group of 128"),
    "gptq-int8": (8, 24 / 128, "8-bit codes, 16-bit scale and 8-bit zero point per group of 128"),
    "awq-int4": (4, 20 / 128, "4-bit codes, 16-bit scale and 4-bit zero point per group of 128"),
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
_KV_BYTES = {
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
}
_KV_BYTES |= {
    "bfloat16": 2.0,
    "float16": 2.0,
    "nvfp4": 0.5 + 1 / 16,
    "fp8_per_token_head": 1.0,
    "int8_per_token_head": 1.0,
}


@dataclass(frozen=True, slots=True)
class Term:
    """One number: name, formula with its inputs filled in, value, unit; ``estimate`` marks what is no exact size."""

    name: str
    formula: str
    value: float | int | None
    unit: str
    estimate: bool = False

    def to_json(self) -> dict[str, Any]:
        """The shape of one entry of ``terms``."""
        out: dict[str, Any] = {"name": self.name, "formula": self.formula, "value": self.value, "unit": self.unit}
        return out | {"estimate": True} if self.estimate else out


@dataclass(frozen=True)
class Ledger:
    """The accounts of one manifest, per accelerator."""

    weights_bytes: int | None
    kv_bytes_per_token: float | None
    kv_capacity_tokens: int | None
    max_sequences: int | None
    step_floor_s: float | None
    terms: tuple[Term, ...]
    fits: bool | None
    unknown: tuple[str, ...]
    model: str | None = None
    hardware: str | None = None
    context_tokens: int | None = None
    concurrency: int | None = None
    gpus: int = field(default=1)

    def to_json(self) -> dict[str, Any]:
        """The shape of ``weighlock ledger -o json``."""
        return {
            "weights_bytes": self.weights_bytes,
            "kv_bytes_per_token": _whole(self.kv_bytes_per_token),
            "kv_capacity_tokens": self.kv_capacity_tokens,
            "max_sequences": self.max_sequences,
            "step_floor_s": self.step_floor_s,
            "terms": [term.to_json() for term in self.terms],
            "fits": self.fits,
            "unknown": list(self.unknown),
            "model": self.model,
            "hardware": self.hardware,
            "context_tokens": self.context_tokens,
            "concurrency": self.concurrency,
            "gpus": self.gpus,
        }


def _whole(value: float | None) -> float | int | None:
    return int(value) if value is not None and float(value).is_integer() else value


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


def ledger(
    manifest: Manifest,
    hardware: str | None = None,
    concurrency: int | None = None,
    context: int | None = None,
    facts: ModelFacts | None = None,
    bandwidth: float | None = None,
) -> Ledger:
    """The ledger of a manifest, per accelerator.

    Args:
        hardware: accelerator by its catalogue name, where the pod does not select one.
        concurrency: sequences that decode together; context: tokens of each (prompt and answer). Default: one, and
        the limit.
        facts: model facts from a ``config.json``; default: the catalogue's.
        bandwidth: bytes per second attained by an independent benchmark of this accelerator.
    """
    return _Book(manifest, hardware, concurrency, context, facts, bandwidth).close()


class _Book:
    """Collects terms in the order in which they build on each other."""

    def __init__(
        self,
        manifest: Manifest,
        hardware: str | None,
        concurrency: int | None,
        context: int | None,
        facts: ModelFacts | None,
        bandwidth: float | None,
    ) -> None:
        self.manifest = manifest
        self.part: Accelerator | None = accelerator_of(manifest, hardware)
        self.facts = facts or find_model(manifest.model.id)
        self.layout: Layout = layout_of(manifest)
        self.bandwidth = bandwidth
        self.concurrency, self.context = concurrency, context or self._limit()
        self.terms: list[Term] = []
        self.unknown: list[str] = []

    def _limit(self) -> int | None:
        for name in ("max-model-len", "context-length", "max-seq-len", "max-total-tokens", "ctx-size"):
            value = self._value(name)
            if isinstance(value, int) and value > 0:
                return value
        return None

    def _value(self, name: str) -> Any:
        setting = self.manifest.settings.get(name)
        return setting.value if setting is not None else None

    def add(self, name: str, formula: str, value: float | int | None, unit: str, estimate: bool = False) -> Any:
        """Records a term and returns its value."""
        self.terms.append(
            Term(
                name, formula, _whole(value) if isinstance(value, float) and unit == "bytes" else value, unit, estimate
            )
        )
        return value

    def close(self) -> Ledger:
        if self.facts is None:
            self.unknown.append(f"model shapes of `{self.manifest.model.id}`: give its config.json")
        if not self.layout.known:
            self.unknown.append("parallel layout: a size is known only at run time or the engine has none; taken as 1")
        weights = self._weights()
        per_token = self._kv_per_token()
        budget = self._budget(weights)
        capacity = self._capacity(budget, per_token)
        sequences = self._sequences(budget, capacity)
        floor = self._floor(weights, per_token)
        return Ledger(
            weights,
            per_token,
            capacity,
            sequences,
            floor,
            tuple(self.terms),
            self._fits(weights, budget, sequences),
            tuple(dict.fromkeys(self.unknown)),
            self.facts.name if self.facts else None,
            self.part.name if self.part else None,
            self.context,
            self.concurrency,
            self.layout.needed,
        )

    # --- weights

    def _method(self) -> str | None:
        written = self._value("quantization") or self._value("quantize")
        method = str(written).lower() if written else None
        return (
            method or (self.facts.quantization if self.facts else None) or quantization_of_name(self.manifest.model.id)
        )

    def _weights(self) -> int | None:
        facts = self.facts
        if facts is None or facts.parameters is None:
            if facts is not None:
                self.unknown.append("number of parameters: config.json of this architecture does not give it")
            return None
        method = self._method()
        dtype = str(self._value("dtype") or "auto")
        element = _BYTES.get(facts.dtype if dtype == "auto" else dtype)
        if method is None and facts.dtype == "mxfp4":
            method = "mxfp4"
        if method is None:
            if element is None:
                self.unknown.append(f"bytes per weight of dtype `{dtype if dtype != 'auto' else facts.dtype}`")
                return None
            total = self.add(
                "weights",
                f"P x bits / 8 = {facts.parameters} x {element * 8:g} / 8",
                weight_bytes(facts.parameters, element * 8),
                "bytes",
            )
        else:
            total = self._quantized(facts, method, element or 2.0)
        return None if total is None else self._share_weights(facts, total)

    def _quantized(self, facts: ModelFacts, method: str, element: float) -> int | None:
        known = _QUANTIZATION.get(method) or _QUANTIZATION.get(method.replace("compressed-tensors", ""))
        if known is None or facts.parameters is None:
            self.unknown.append(f"bits per weight of quantization `{method}`")
            return None
        bits, overhead, how = known
        plain = facts.embedding_parameters
        quantized = facts.parameters - plain
        codes = self.add(
            "weight codes",
            f"(P - embeddings) x bits / 8 = {quantized} x {bits:g} / 8",
            weight_bytes(quantized, bits),
            "bytes",
        )
        extra = self.add(
            "scales and zero points",
            f"{quantized} x {overhead:g} / 8 ({how})",
            weight_bytes(quantized, overhead),
            "bytes",
            True,
        )
        rest = self.add(
            "unquantized embeddings",
            f"V x D x {1 if facts.tied else 2} x {element:g} = {plain} x {element:g}",
            int(plain * element),
            "bytes",
        )
        return int(self.add("weights", "codes + scales + unquantized", codes + extra + rest, "bytes", True))

    def _share_weights(self, facts: ModelFacts, total: int) -> int:
        layout = self.layout
        ranks = layout.tensor * layout.pipeline
        if (
            facts.experts
            and facts.expert_parameters
            and facts.parameters
            and layout.experts
            and layout.expert_ranks > layout.tensor
        ):
            share = facts.expert_parameters / facts.parameters
            experts, dense = total * share, total * (1 - share)
            value = experts / (layout.expert_ranks * layout.pipeline) + dense / ranks
            return int(
                self.add(
                    "weights per accelerator",
                    f"experts / (EP {layout.expert_ranks} x PP {layout.pipeline}) + rest / (TP {layout.tensor} x PP "
                    f"{layout.pipeline})",
                    int(value),
                    "bytes",
                )
            )
        if ranks == 1:
            return total
        return int(
            self.add(
                "weights per accelerator",
                f"weights / (TP x PP) = {total} / ({layout.tensor} x {layout.pipeline})",
                int(total / ranks),
                "bytes",
            )
        )

    # --- KV cache

    def _kv_element(self) -> float | None:
        name = next(
            (
                n
                for n in ("kv-cache-dtype", "llm_args.kv_cache_config.dtype", "cache-type-k")
                if self._value(n) is not None
            ),
            None,
        )
        written = str(self._value(name)).lower() if name else "auto"
        if written in ("auto", "model"):
            dtype = str(self._value("dtype") or "auto")
            written = self.facts.dtype if dtype in ("auto", "half", "float") and self.facts else dtype
            written = "bfloat16" if written in ("fp8", "mxfp4", "auto") else written
        element = _KV_BYTES.get(written) or _BYTES.get(written)
        if element is None:
            self.unknown.append(f"bytes per element of KV dtype `{written}`")
        return element

    def _kv_per_token(self) -> float | None:
        facts, element = self.facts, self._kv_element() if self.facts else None
        if facts is None or element is None:
            return None
        layers = -(-facts.attention_layers // self.layout.pipeline)
        if facts.state_layers:
            self.unknown.append(
                f"state of {facts.state_layers} recurrent layers: a constant per sequence that is not counted here"
            )
        if facts.latent:
            rank, rope = facts.latent
            value = latent_bytes_per_token(layers, rank, rope, element)
            return float(
                self.add(
                    "KV per token",
                    f"MLA: L x (kv_lora_rank + rope) x bytes = {layers} x ({rank} + {rope}) x {element:g}; replicated "
                    "over TP",
                    value,
                    "bytes",
                )
            )
        heads = max(1, facts.kv_heads // self._kv_split())
        width = facts.head_dim or 0
        value = kv_bytes_per_token(layers, heads, width, element)
        return float(
            self.add(
                "KV per token",
                f"2 x L x H_kv x D_h x bytes = 2 x {layers} x {heads} x {width} x {element:g}" + self._split_note(),
                value,
                "bytes",
            )
        )

    def _kv_split(self) -> int:
        return 1 if self.layout.data_attention else self.layout.tensor

    def _split_note(self) -> str:
        facts, tensor = self.facts, self._kv_split()
        if facts is None or tensor == 1:
            return ""
        if tensor > facts.kv_heads:
            return f" (TP {tensor} exceeds {facts.kv_heads} KV heads: heads are replicated, KV stops shrinking)"
        return f" (H_kv {facts.kv_heads} over TP {tensor})"

    def _sequence_bytes(self, tokens: int) -> float | None:
        """KV of one sequence of ``tokens``: windowed layers keep their window only."""
        per_token = next((term.value for term in self.terms if term.name == "KV per token"), None)
        facts = self.facts
        if per_token is None or facts is None:
            return None
        if not facts.window or not facts.window_layers:
            return float(per_token) * tokens
        per_layer = float(per_token) / max(1, facts.attention_layers)
        full = facts.attention_layers - facts.window_layers
        return per_layer * (full * tokens + facts.window_layers * min(tokens, facts.window))

    # --- what is left for it

    def _budget(self, weights: int | None) -> float | None:
        part, family = self.part, self.manifest.engine.family
        if part is None:
            self.unknown.append("accelerator: neither the pod nor --hardware names one of the catalogue")
            return None
        if weights is None:
            return None
        self.add("accelerator memory", f"{part.name}: {part.source}", part.memory_bytes, "bytes")
        if family == "vllm" and isinstance(self._value("kv-cache-memory-bytes"), int):
            return float(
                self.add(
                    "KV budget",
                    "written: --kv-cache-memory-bytes",
                    float(self._value("kv-cache-memory-bytes")),
                    "bytes",
                )
            )
        share = self._share(family)
        if share is None:
            self.unknown.append(f"memory share that {self.manifest.engine.name} gives to weights and KV")
            return None
        if family == "trtllm":
            return float(
                self.add(
                    "KV budget",
                    f"(memory - weights) x {share:g}",
                    max(0.0, (part.memory_bytes - weights) * share),
                    "bytes",
                    True,
                )
            )
        activations = self._activations() or 0.0
        value = part.memory_bytes * share - weights - activations
        return float(
            self.add("KV budget", f"memory x {share:g} - weights - activations", max(0.0, value), "bytes", True)
        )

    def _share(self, family: str) -> float | None:
        from manifests.diff_defaults import default_of
        from manifests.engines.grammar import catalogs_of

        name = {
            "vllm": "gpu-memory-utilization",
            "sglang": "mem-fraction-static",
            "trtllm": "free-gpu-memory-fraction",
            "tgi": "cuda-memory-fraction",
        }.get(family)
        if name is None:
            return None
        written = self._value(name)
        if written is None and family == "trtllm":
            written = self._value("llm_args.kv_cache_config.free_gpu_memory_fraction")
        if isinstance(written, int | float) and not isinstance(written, bool) and 0 < written <= 1:
            return float(written)
        found = default_of(name, self.manifest, catalogs_of(self.manifest.engine.name))
        return float(found.value) if found.status == "known" and isinstance(found.value, int | float) else None

    def _activations(self) -> float | None:
        facts = self.facts
        derived = derive(self.manifest, self.part.name if self.part else None)
        tokens = self._value("max-num-batched-tokens") or self._value("chunked-prefill-size")
        for name in ("max-num-batched-tokens", "chunked-prefill-size"):
            if tokens is None and name in derived:
                tokens = derived[name].value
        if facts is None or not isinstance(tokens, int) or tokens <= 0:
            self.unknown.append("activations: the token budget of a step is not known")
            return None
        width = 4 * facts.hidden + 2 * facts.intermediate / self.layout.tensor
        return float(
            self.add(
                "activations",
                f"tokens x (4 D + 2 I / TP) x 2 = {tokens} x {width:g} x 2; an estimate, the engine measures its own "
                "peak",
                tokens * width * 2,
                "bytes",
                True,
            )
        )

    def _capacity(self, budget: float | None, per_token: float | None) -> int | None:
        if budget is None or per_token is None or per_token <= 0:
            return None
        override = self._value("num-gpu-blocks-override")
        block = self._value("block-size") or self._value("page-size") or 16
        if isinstance(override, int) and isinstance(block, int):
            return int(
                self.add(
                    "KV capacity",
                    f"num-gpu-blocks-override x block-size = {override} x {block}",
                    override * block,
                    "tokens",
                )
            )
        return int(
            self.add(
                "KV capacity",
                "KV budget / KV per token (all layers growing); an upper bound",
                int(budget // per_token),
                "tokens",
                True,
            )
        )

    def _sequences(self, budget: float | None, capacity: int | None) -> int | None:
        if budget is None or capacity is None:
            return None
        if not self.context:
            self.unknown.append("context length: give --context or a limit in the manifest")
            return None
        one = self._sequence_bytes(self.context)
        if not one:
            return None
        self.add(
            "KV per sequence",
            f"KV of {self.context} tokens"
            + (
                f", {self.facts.window_layers} layers keep {self.facts.window} only"
                if self.facts and self.facts.window_layers
                else ""
            ),
            one,
            "bytes",
        )
        most = int(budget // one)
        limit = self._value("max-num-seqs") or self._value("max-running-requests") or self._value("max-batch-size")
        if isinstance(limit, int) and 0 < limit < most:
            self.add(
                "sequences that memory holds",
                f"KV budget / KV per sequence; the scheduler's limit is {limit}",
                most,
                "sequences",
                True,
            )
            return int(self.add("sequences", "min(memory, scheduler's limit)", limit, "sequences"))
        return int(self.add("sequences", "KV budget / KV per sequence", most, "sequences", True))

    def _fits(self, weights: int | None, budget: float | None, sequences: int | None) -> bool | None:
        if weights is None or budget is None or self.part is None:
            return None
        if budget <= 0:
            return False
        if sequences is None:
            return None
        return sequences >= (self.concurrency or 1)

    # --- speed

    def _floor(self, weights: int | None, per_token: float | None) -> float | None:
        speed = self.bandwidth or (self.part.bandwidth if self.part else None)
        if weights is None or speed is None:
            return None
        kind = (
            "measured"
            if self.bandwidth or (self.part and self.part.bandwidth_attainable)
            else "data sheet; attained bandwidth is lower, so the real floor is higher"
        )
        self.add("bandwidth", kind, speed, "bytes/s")
        batch = self.concurrency or 1
        moved = self._weights_read(weights, batch)
        if self.concurrency and self.context and per_token is not None:
            cache = self._sequence_bytes(self.context) or 0.0
            moved += self.add(
                "KV read per step", f"{batch} sequences x KV of {self.context} tokens", batch * cache, "bytes"
            )
        return float(self.add("step floor", "bytes moved / bandwidth", step_floor_seconds(moved, speed), "seconds"))

    def _weights_read(self, weights: int, batch: int) -> float:
        facts = self.facts
        if (
            facts is None
            or not facts.experts
            or not facts.expert_parameters
            or not facts.parameters
            or not facts.experts_per_token
        ):
            return float(weights)
        share = facts.expert_parameters / facts.parameters
        touched = min(batch * facts.experts_per_token, facts.experts) / facts.experts
        return float(
            self.add(
                "weights read per step",
                f"rest + experts x min(B x k, E) / E = B {batch}, k {facts.experts_per_token}, E {facts.experts}; at "
                "most",
                weights * ((1 - share) + share * touched),
                "bytes",
            )
        )


def compare_ledgers(old: Ledger, new: Ledger) -> list[Mapping[str, Any]]:
    """Old against new: one row per headline number with the ratio, None where either side is unknown."""
    rows: list[Mapping[str, Any]] = []
    for name in ("weights_bytes", "kv_bytes_per_token", "kv_capacity_tokens", "max_sequences", "step_floor_s"):
        first, second = getattr(old, name), getattr(new, name)
        ratio = second / first if first and second is not None else None
        rows.append({"name": name, "old": first, "new": second, "ratio": ratio})
    return rows
