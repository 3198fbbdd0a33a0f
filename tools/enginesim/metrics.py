"""vLLM V1's Prometheus families: names, bucket edges, labels and text, without a client library.

Counters are plain attributes because the step loop increments them; the text is made only when somebody asks for it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping

TTFT_EDGES: tuple[float, ...] = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
TTFT_EDGES += (160.0, 640.0, 2560.0)
TOKEN_TIME_EDGES = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
)
REQUEST_TIME_EDGES: tuple[float, ...] = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
)
REQUEST_TIME_EDGES += (480.0, 960.0, 1920.0, 7680.0)
ITERATION_EDGES = tuple(float(2**power) for power in range(15))
FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")


def one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to ``limit``: vLLM's edges for token counts, which move with the longest context."""
    edges: list[float] = []
    decade = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * decade > limit:
                return tuple(edges)
            edges.append(float(mantissa * decade))
        decade *= 10


class Histogram:
    """Counts per bucket (not cumulative inside), sum and count."""

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Adds ``times`` observations of ``value``."""
        self.counts[bisect_left(self.edges, value)] += times
        self.sum += value * times


class Metrics:
    """All that one engine counts."""

    def __init__(self, max_model_len: int, speculative_tokens: int) -> None:
        tokens = one_two_five(max_model_len)
        self.ttft = Histogram(TTFT_EDGES)
        self.inter_token = Histogram(TOKEN_TIME_EDGES)
        self.time_per_output_token = Histogram(TOKEN_TIME_EDGES)
        self.e2e = Histogram(REQUEST_TIME_EDGES)
        self.queue = Histogram(REQUEST_TIME_EDGES)
        self.prefill = Histogram(REQUEST_TIME_EDGES)
        self.decode = Histogram(REQUEST_TIME_EDGES)
        self.inference = Histogram(REQUEST_TIME_EDGES)
        self.prompt_lengths = Histogram(tokens)
        self.generation_lengths = Histogram(tokens)
        self.params_max_tokens = Histogram(tokens)
        self.iteration_tokens = Histogram(ITERATION_EDGES)
        self.finished = dict.fromkeys(FINISHED_REASONS, 0)
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.preemptions = 0
        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        self.accepted_per_position = [0] * speculative_tokens
        self.speculative = speculative_tokens > 0

    def histograms(self) -> Iterable[tuple[str, str, Histogram]]:
        """Family, help text, histogram."""
        yield "time_to_first_token_seconds", "Histogram of time to first token in seconds.", self.ttft
        yield "inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", self.inter_token
        yield (
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            self.time_per_output_token,
        )
        yield "e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", self.e2e
        yield "request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", self.queue
        yield "request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", self.inference
        yield "request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", self.prefill
        yield "request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", self.decode
        yield "request_prompt_tokens", "Number of prefill tokens processed.", self.prompt_lengths
        yield "request_generation_tokens", "Number of generation tokens processed.", self.generation_lengths
        yield "request_params_max_tokens", "Histogram of the max_tokens request parameter.", self.params_max_tokens
        yield "iteration_tokens_total", "Histogram of number of tokens per engine_step.", self.iteration_tokens

    def counters(self) -> Iterable[tuple[str, str, Mapping[str, int]]]:
        """Family, help text, value per extra label text."""
        computed = self.prompt_tokens - self.cached_tokens
        sources = {"local_compute": computed, "local_cache_hit": self.cached_tokens, "external_kv_transfer": 0}
        yield (
            "prefix_cache_queries_total",
            "Prefix cache queries, in terms of number of queried tokens.",
            {"": self.prefix_queries},
        )
        yield (
            "prefix_cache_hits_total",
            "Prefix cache hits, in terms of number of cached tokens.",
            {"": self.prefix_hits},
        )
        yield "num_preemptions_total", "Cumulative number of preemption from the engine.", {"": self.preemptions}
        yield "prompt_tokens_total", "Number of prefill tokens processed.", {"": self.prompt_tokens}
        yield (
            "prompt_tokens_by_source_total",
            "Number of prompt tokens by source.",
            {f',source="{source}"': count for source, count in sources.items()},
        )
        yield (
            "prompt_tokens_cached_total",
            "Number of cached prompt tokens (local + external).",
            {"": self.cached_tokens},
        )
        yield "generation_tokens_total", "Number of generation tokens processed.", {"": self.generation_tokens}
        yield (
            "request_success_total",
            "Count of successfully processed requests.",
            {f',finished_reason="{reason}"': count for reason, count in self.finished.items()},
        )
        if self.speculative:
            yield "spec_decode_num_drafts_total", "Number of spec decoding drafts.", {"": self.drafts}
            yield "spec_decode_num_draft_tokens_total", "Number of draft tokens.", {"": self.draft_tokens}
            yield "spec_decode_num_accepted_tokens_total", "Number of accepted tokens.", {"": self.accepted_tokens}
            yield (
                "spec_decode_num_accepted_tokens_per_pos_total",
                "Accepted tokens per draft position.",
                {f',position="{position}"': count for position, count in enumerate(self.accepted_per_position)},
            )


def escape(value: str) -> str:
    """A label value as the text format wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value))


def expose(
    metrics: Metrics,
    model_name: str,
    gauges: Iterable[tuple[str, str, str, float]],
    cache_config: Mapping[str, object],
    process: Iterable[tuple[str, str, float]],
) -> str:
    """The page. ``gauges``: (family, help, extra label text, value); ``process``: unprefixed (family, help, value)."""
    labels = f'engine="0",model_name="{escape(model_name)}"'
    lines: list[str] = []
    headed: set[str] = set()

    def head(family: str, text: str, kind: str) -> None:
        if family not in headed:
            headed.add(family)
            lines.extend((f"# HELP {family} {text}", f"# TYPE {family} {kind}"))

    for family, text, extra, value in gauges:
        head(f"vllm:{family}", text, "gauge")
        lines.append(f"vllm:{family}{{{labels}{extra}}} {_number(value)}")
    for family, text, values in metrics.counters():
        head(f"vllm:{family}", text, "counter")
        lines.extend(f"vllm:{family}{{{labels}{extra}}} {_number(value)}" for extra, value in values.items())
    for family, text, histogram in metrics.histograms():
        head(f"vllm:{family}", text, "histogram")
        lines.extend(_histogram_lines(f"vllm:{family}", labels, histogram))
    head("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", "gauge")
    info = ",".join(f'{key}="{escape(str(value))}"' for key, value in sorted(cache_config.items()))
    lines.append(f'vllm:cache_config_info{{{info},engine="0"}} 1.0')
    for family, text, value in process:
        head(family, text, "gauge")
        lines.append(f"{family} {_number(value)}")
    return "\n".join(lines) + "\n"


def _histogram_lines(family: str, labels: str, histogram: Histogram) -> Iterable[str]:
    total = 0
    for edge, count in zip(histogram.edges, histogram.counts, strict=False):
        total += count
        yield f'{family}_bucket{{{labels},le="{_number(edge)}"}} {_number(total)}'
    total += histogram.counts[-1]
    yield f'{family}_bucket{{{labels},le="+Inf"}} {_number(total)}'
    yield f"{family}_count{{{labels}}} {_number(total)}"
    yield f"{family}_sum{{{labels}}} {_number(histogram.sum)}"
