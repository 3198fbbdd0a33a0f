"""Seconds of one engine step: a roofline over weights, KV and compute, plus what launches, collectives and the host
cost.

Pure. Formulas: weights and KV read as in vLLM's own per-step model (facts/engines.md 1.10), GEMM and attention FLOPs
beside them; ``max`` of the two is what the device needs. The efficiencies are round published figures, not fits.
"""

from dataclasses import dataclass

from tools.enginesim.settings import Settings

GEMM_EFFICIENCY = 0.60  # of the dense peak, large batches
EXPERT_GEMM_EFFICIENCY = 0.45  # grouped GEMMs of sparse models reach less
ATTENTION_EFFICIENCY = 0.45
DEQUANTIZING_EFFICIENCY = 0.55  # weight-only formats at large batches lose to the plain kernel
DEQUANTIZING_ROWS = 128
GRAPH_LAUNCH_PER_LAYER = 14e-6  # replay of captured graphs, attention outside of them
EAGER_LAUNCH_PER_LAYER = 110e-6
STEP_FIXED = 0.35e-3  # sampling, input preparation, copies that no overlap hides
HOST_FIXED = 0.5e-3  # scheduler and output processing; hidden behind the device by asynchronous scheduling
HOST_PER_SEQUENCE = 12e-6
NGRAM_PER_SEQUENCE = 6e-6


@dataclass(frozen=True)
class StepWork:
    """One batch: prompt tokens computed, their token x context pairs, decoding sequences, their summed context."""

    prefill_tokens: int
    prefill_pairs: float
    decodes: int
    context_tokens: float


class StepTime:
    """Holds the constants of one configuration so that a step costs a dozen multiplications."""

    def __init__(self, settings: Settings) -> None:
        model, device, ranks = settings.model, settings.accelerator, settings.tensor_parallel_size
        self.rows_per_decode = 1 + (settings.speculation.tokens if settings.speculation else 0)
        self.is_async = settings.async_scheduling
        sparse = model.experts > 0
        self.dense_bytes = (model.parameters - model.expert_parameters) * settings.weight_bytes / ranks
        self.expert_bytes = model.expert_parameters * settings.weight_bytes / ranks
        self.untouched = 1 - model.experts_per_token / model.experts if sparse else 1.0
        self.kv_bytes_per_token = (
            2 * model.layers * max(1, model.kv_heads // ranks) * model.head_dim * settings.kv_bytes
        )
        self.bandwidth = device.bandwidth
        efficiency = EXPERT_GEMM_EFFICIENCY if sparse else GEMM_EFFICIENCY
        if settings.weight_bytes == 1.0 and device.fp8:
            efficiency *= 1.7
        self.dequantizes = settings.weight_bytes < 1.0
        self.seconds_per_row = 2 * model.active_parameters / (ranks * device.flops * efficiency)
        self.seconds_per_pair = (
            4 * model.layers * model.heads * model.head_dim / (ranks * device.flops * ATTENTION_EFFICIENCY)
        )
        per_layer = EAGER_LAUNCH_PER_LAYER if settings.enforce_eager else GRAPH_LAUNCH_PER_LAYER
        self.launch = (per_layer * model.layers + STEP_FIXED) * settings.launch_factor
        self.collectives = 2 * model.layers * device.collective_seconds if ranks > 1 else 0.0
        traffic = 2 * model.layers * model.hidden * 2 * 2 * (ranks - 1) / ranks
        self.link_seconds_per_row = traffic / device.link_bandwidth
        self.draft_seconds, self.draft_per_sequence = self._draft_cost(settings)
        self.host_factor = settings.launch_factor

    def _draft_cost(self, settings: Settings) -> tuple[float, float]:
        speculation = settings.speculation
        if speculation is None:
            return 0.0, 0.0
        if speculation.method in ("ngram", "suffix"):
            return 0.1e-3, NGRAM_PER_SEQUENCE
        layers = 1 if speculation.method.startswith(("eagle", "mtp", "medusa")) else max(2, settings.model.layers // 4)
        share = layers / settings.model.layers
        per_pass = share * (self.dense_bytes + self.expert_bytes) / self.bandwidth + 0.12e-3
        passes = 1 if speculation.method == "medusa" else speculation.tokens
        return passes * per_pass, 0.0

    def seconds(self, work: StepWork) -> float:
        """Duration of a step with this batch."""
        rows = work.prefill_tokens + work.decodes * self.rows_per_decode
        read = self.dense_bytes + self.kv_bytes_per_token * work.context_tokens
        if self.expert_bytes:
            read += self.expert_bytes * (1 - self.untouched**rows)
        compute = rows * self.seconds_per_row
        if self.dequantizes and rows > DEQUANTIZING_ROWS:
            compute /= DEQUANTIZING_EFFICIENCY
        compute += self.seconds_per_pair * (work.prefill_pairs + work.context_tokens * self.rows_per_decode)
        device = max(compute, read / self.bandwidth) + self.launch + self.collectives + rows * self.link_seconds_per_row
        if work.decodes:
            device += self.draft_seconds + self.draft_per_sequence * work.decodes
        host = (HOST_FIXED + HOST_PER_SEQUENCE * work.decodes) * self.host_factor
        return max(device, host) if self.is_async else device + host
