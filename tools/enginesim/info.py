"""The read-only documents of an engine: model cards, resolved configuration, metrics. Used by ``service.py``."""

import time
from typing import Any

from tools.enginesim.engine import Engine
from tools.enginesim.metrics import Metrics, expose
from tools.enginesim.settings import Settings

NOTE = "engine simulator, not vLLM; a real vLLM serves this path only with VLLM_SERVER_DEV_MODE=1"


def model_cards(settings: Settings, started: float) -> dict[str, Any]:
    """``GET /v1/models``."""
    cards = [
        {
            "id": name,
            "object": "model",
            "created": int(started),
            "owned_by": "vllm",
            "root": settings.model_id,
            "parent": None,
            "max_model_len": settings.max_model_len,
        }
        for name in settings.served_names
    ]
    return {"object": "list", "data": cards}


def server_info(settings: Settings, engine: Engine) -> dict[str, Any]:
    """``GET /server_info``: the resolved configuration, and how the simulation itself is doing."""
    return {
        "simulator": True,
        "note": NOTE,
        "vllm_version": settings.version,
        "vllm_config": settings.resolved(),
        "simulation": {
            "steps": engine.batcher.step,
            "busy_seconds": engine.batcher.busy_seconds,
            "host_lag_max_seconds": engine.host_lag_max_seconds,
            "resyncs": engine.resyncs,
        },
    }


def metrics_page(settings: Settings, engine: Engine, metrics: Metrics, started: float) -> bytes:
    """``GET /metrics``. Families that start with ``enginesim_`` are the simulator's own."""
    batcher = engine.batcher
    waiting = float(len(batcher.waiting))
    by_reason = "Waiting requests by reason."
    usage = batcher.pool.used / batcher.pool.total
    gauges = [
        ("num_requests_running", "Number of requests in model execution batches.", "", float(len(batcher.running))),
        ("num_requests_waiting", "Number of requests waiting to be processed.", "", waiting),
        ("num_requests_waiting_by_reason", by_reason, ',reason="capacity"', waiting),
        ("num_requests_waiting_by_reason", by_reason, ',reason="deferred"', 0.0),
        ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", "", usage),
    ]
    cache = {
        "block_size": settings.block_size,
        "cache_dtype": settings.kv_cache_dtype,
        "enable_prefix_caching": settings.prefix_caching,
        "gpu_memory_utilization": settings.gpu_memory_utilization,
        "num_gpu_blocks": settings.num_gpu_blocks,
        "num_gpu_blocks_override": settings.given.get("num-gpu-blocks-override"),
        "prefix_caching_hash_algo": "sha256",
    }
    process = [
        ("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", started),
        ("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", time.process_time()),
        ("enginesim_host_lag_seconds", "How late the last simulated step was delivered.", engine.host_lag_seconds),
        ("enginesim_busy_seconds_total", "Simulated seconds the device was busy.", batcher.busy_seconds),
    ]
    return expose(metrics, settings.name, gauges, cache, process).encode()
