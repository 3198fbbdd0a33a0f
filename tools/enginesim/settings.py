"""The effective configuration of one simulated engine: flags + environment + hardware-dependent defaults, resolved
once.

Called by ``__main__.py`` and the tests; everything else takes the frozen ``Settings``. Resolution follows vLLM's own
rules (defaults by memory size and usage context, KV blocks from what weights and activations leave over).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.enginesim.argv import parse_argv, version_tuple
from tools.enginesim.hardware import ACCELERATORS, Accelerator, Model, find_model

DEFAULT_VERSION = "0.32.0"
QUANTIZED_WEIGHT_BYTES = {"fp8": 1.0, "compressed-tensors": 1.0, "modelopt": 1.0, "experts_int8": 1.0, "mxfp8": 1.0}
FOUR_BIT_WEIGHT_BYTES = 0.56  # codes plus scales and zero points
ACCEPTANCE_BY_METHOD = {"ngram": 0.45, "suffix": 0.5, "draft_model": 0.6, "medusa": 0.55, "eagle": 0.68, "eagle3": 0.74}
LAUNCH_FACTORS = (((0, 33), 0.85), ((0, 28), 1.0), ((0, 14), 1.08), ((0, 0), 1.2))  # (first version, launch cost)
BLOCK_SIZE_DEFAULT = 16
HIDDEN_STATES_HELD = 12  # activations of the largest step, in hidden states
GRAPH_BYTES = 2e9


class StartError(Exception):
    """The engine cannot start with these settings; the text is what vLLM would have logged."""


@dataclass(frozen=True)
class Speculation:
    """Draft length, method and the mean chance that one draft token is accepted."""

    method: str
    tokens: int
    acceptance: float


@dataclass(frozen=True)
class Settings:
    """Everything that the server and the timing model read."""

    model_id: str
    served_names: tuple[str, ...]
    model: Model
    accelerator: Accelerator
    version: str
    host: str
    port: int
    control_port: int
    api_keys: tuple[str, ...]
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    prefix_caching: bool
    long_prefill_token_threshold: int
    speculation: Speculation | None
    quantization: str | None
    weight_bytes: float
    kv_cache_dtype: str
    kv_bytes: float
    gpu_memory_utilization: float
    tensor_parallel_size: int
    enforce_eager: bool
    async_scheduling: bool
    stream_interval: int
    block_size: int
    num_gpu_blocks: int
    request_id_headers: bool
    max_num_queued_reqs: int | None
    launch_factor: float
    seed: int
    frontend_seconds: float
    start_seconds: float
    drain_seconds: float
    warmup_requests: int
    initial_faults: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    assumed_model: bool = False

    @property
    def name(self) -> str:
        """The label ``model_name`` and the field ``model`` of answers."""
        return self.served_names[0]

    @property
    def numerics(self) -> str:
        """What decides the tokens of an answer beside the prompt; empty for plain 16-bit arithmetic."""
        kv = "" if self.kv_bytes == 2.0 else f"kv={self.kv_cache_dtype}"
        return ",".join(part for part in (kv, f"q={self.quantization}" if self.quantization else "") if part)

    def resolved(self) -> dict[str, Any]:
        """The effective configuration as JSON, for ``/server_info`` and the start-up log."""
        document = asdict(self)
        document["api_keys"] = ["<redacted>"] * len(self.api_keys)
        document["given"] = {key: "<redacted>" if key == "api-key" else value for key, value in self.given.items()}
        return document


def resolve(argv: list[str], environment: Mapping[str, str]) -> Settings:
    """Arguments after ``vllm`` and the environment -> settings; ``StartError`` where the engine would refuse."""
    version = environment.get("ENGINESIM_VERSION", DEFAULT_VERSION)
    given = parse_argv(argv, version)
    accelerator = _accelerator(environment.get("ENGINESIM_HARDWARE", "H100"))
    model, assumed = find_model(str(given["model"]))
    max_model_len = _max_model_len(given, model)
    max_num_seqs, max_num_batched_tokens = _batch_limits(given, accelerator, max_model_len)
    memory = _memory(given, version, accelerator, model, max_num_batched_tokens)
    blocks, block_size = memory["num_gpu_blocks"], memory["block_size"]
    if blocks * block_size < max_model_len:
        raise StartError(
            f"ValueError: To serve at least one request with the models's max seq len ({max_model_len}), more KV cache "
            f"is needed than is available ({blocks * block_size} tokens). Try increasing `gpu_memory_utilization` or "
            "decreasing `max_model_len` when initializing the engine."
        )
    return Settings(
        model_id=str(given["model"]),
        served_names=tuple(given.get("served-model-name") or [str(given["model"])]),
        model=model,
        assumed_model=assumed,
        accelerator=accelerator,
        version=version,
        given=given,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        launch_factor=next(factor for first, factor in LAUNCH_FACTORS if version_tuple(version) >= first),
        **memory,
        **_scheduling(given, version, environment),
        **_process(given, environment),
    )


def _memory(
    given: Mapping[str, Any], version: str, accelerator: Accelerator, model: Model, batched_tokens: int
) -> dict[str, Any]:
    """Bytes per weight and per KV element, ranks, and the KV blocks that follow."""
    weight_bytes = _weight_bytes(given.get("quantization"))
    kv_dtype = str(given.get("kv-cache-dtype", "auto"))
    kv_bytes = 2.0 if kv_dtype in ("auto", "bfloat16", "float16") else 0.5 if "4" in kv_dtype else 1.0
    ranks = int(given.get("tensor-parallel-size", 1))
    utilization = float(given.get("gpu-memory-utilization", 0.92 if version_tuple(version) >= (0, 20) else 0.90))
    block_size = int(given.get("block-size") or BLOCK_SIZE_DEFAULT)
    activations = batched_tokens * model.hidden * 2 * HIDDEN_STATES_HELD + GRAPH_BYTES
    room = accelerator.memory_bytes * utilization - model.parameters * weight_bytes / ranks - activations
    per_token = 2 * model.layers * max(1, model.kv_heads // ranks) * model.head_dim * kv_bytes
    blocks = given.get("num-gpu-blocks-override") or int(room / (per_token * block_size))
    if blocks < 1:
        raise StartError(
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine."
        )
    return {
        "quantization": given.get("quantization"),
        "weight_bytes": weight_bytes,
        "kv_cache_dtype": kv_dtype,
        "kv_bytes": kv_bytes,
        "tensor_parallel_size": ranks,
        "gpu_memory_utilization": utilization,
        "block_size": block_size,
        "num_gpu_blocks": int(blocks),
    }


def _scheduling(given: Mapping[str, Any], version: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """What the batcher does with its queue."""
    speculation = _speculation(given.get("speculative-config"), environment)
    async_scheduling = bool(given.get("async-scheduling", version_tuple(version) >= (0, 14)))
    if speculation is not None and speculation.method in ("ngram", "suffix"):
        async_scheduling = False  # vLLM switches it off too: the next draft needs the tokens on the host
    return {
        "chunked_prefill": bool(given.get("enable-chunked-prefill", True)),
        "prefix_caching": bool(given.get("enable-prefix-caching", True)),
        "long_prefill_token_threshold": int(given.get("long-prefill-token-threshold", 0)),
        "speculation": speculation,
        "enforce_eager": bool(given.get("enforce-eager", False)),
        "async_scheduling": async_scheduling,
        "stream_interval": max(1, int(given.get("stream-interval", 1))),
        "max_num_queued_reqs": given.get("max-num-queued-reqs"),
    }


def _process(given: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Addresses, and how the simulator itself behaves."""
    host = str(given.get("host") or "0.0.0.0")
    if host == "0.0.0.0":  # pods of the development cluster share one machine: each has an address of its own
        host = environment.get("DEVCLUSTER_POD_IP") or environment.get("POD_IP") or "127.0.0.1"
    return {
        "host": host,
        "port": int(given.get("port", 8000)),
        "control_port": int(environment.get("ENGINESIM_CONTROL_PORT", "9901")),
        "api_keys": tuple(given.get("api-key") or filter(None, [environment.get("VLLM_API_KEY")])),
        "request_id_headers": bool(given.get("enable-request-id-headers", False)),
        "seed": int(environment.get("ENGINESIM_SEED", "0")),
        "frontend_seconds": float(environment.get("ENGINESIM_FRONTEND_MS", "0")) / 1000,
        "start_seconds": float(environment.get("ENGINESIM_START_S", "0")),
        "drain_seconds": float(environment.get("ENGINESIM_DRAIN_S", "25")),
        "warmup_requests": int(environment.get("ENGINESIM_WARMUP_REQUESTS", "0")),
        "initial_faults": json.loads(environment.get("ENGINESIM_FAULTS", "{}") or "{}"),
    }


def _accelerator(name: str) -> Accelerator:
    if name not in ACCELERATORS:
        raise StartError(f"ENGINESIM_HARDWARE={name}: unknown; one of {', '.join(ACCELERATORS)}")
    return ACCELERATORS[name]


def _weight_bytes(quantization: object) -> float:
    if quantization is None:
        return 2.0
    return QUANTIZED_WEIGHT_BYTES.get(str(quantization), FOUR_BIT_WEIGHT_BYTES)


def _speculation(text: str | None, environment: Mapping[str, str]) -> Speculation | None:
    if not text or text in ("None", "null"):
        return None
    config = json.loads(text)
    tokens = config.get("num_speculative_tokens")
    if not isinstance(tokens, int) or tokens < 1:
        raise StartError("ValueError: num_speculative_tokens must be provided in --speculative-config")
    method = str(config.get("method") or "draft_model")
    acceptance = float(environment.get("ENGINESIM_ACCEPTANCE", ACCEPTANCE_BY_METHOD.get(method, 0.6)))
    return Speculation(method, tokens, acceptance)


def _max_model_len(given: Mapping[str, Any], model: Model) -> int:
    wanted = int(given.get("max-model-len", -1))
    if wanted > model.max_len:
        raise StartError(
            f"ValueError: User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
            f"(max_position_embeddings={model.max_len})."
        )
    return wanted if wanted > 0 else model.max_len


def _batch_limits(given: Mapping[str, Any], accelerator: Accelerator, max_model_len: int) -> tuple[int, int]:
    """``max_num_seqs`` and ``max_num_batched_tokens`` as the API server resolves them for this memory size."""
    gibibytes = accelerator.memory_bytes / 2**30
    default_tokens, default_seqs = 2048, 256
    if gibibytes >= 160:
        default_tokens, default_seqs = 16384, 1024
    elif gibibytes >= 70 and accelerator.name != "A100":
        default_tokens, default_seqs = 8192, 1024
    seqs = int(given.get("max-num-seqs") or default_seqs)
    chunked = bool(given.get("enable-chunked-prefill", True))
    tokens = given.get("max-num-batched-tokens")
    if tokens is None:
        tokens = min(default_tokens, seqs * max_model_len)
        return seqs, tokens if chunked else max(tokens, max_model_len)
    if not chunked and tokens < max_model_len:
        raise StartError(
            f"ValueError: max_num_batched_tokens ({tokens}) is smaller than max_model_len ({max_model_len}). This "
            "effectively limits the maximum sequence length to max_num_batched_tokens and makes vLLM reject longer "
            "sequences. Please increase max_num_batched_tokens or decrease max_model_len."
        )
    if tokens < seqs:
        raise StartError(
            f"ValueError: max_num_batched_tokens ({tokens}) must be greater than or equal to max_num_seqs ({seqs})."
        )
    return seqs, int(tokens)
