"""Accepted is not active; and which bottleneck an observation points to."""

from typing import Any

import pytest

from manifests import catalog
from manifests.diagnose import ROWS, diagnose
from manifests.engines.metrics import parse_metrics
from manifests.witness import ACTIVE, CANNOT_TELL, INACTIVE, witness, witnesses
from tests.unit.manifests.builders import build_import

VLLM = "vllm:num_requests_running 1\n"
CONFIG = (
    'vllm:cache_config_info{block_size="16",cache_dtype="%s",'
    'enable_prefix_caching="%s",gpu_memory_utilization="0.9",num_gpu_blocks="10"} '
    "1\n"
)


@pytest.mark.parametrize(
    ("mechanism", "text", "state"),
    [
        ("prefix_cache", "vllm:prefix_cache_queries_total 10\nvllm:prefix_cache_hits_total 4\n", ACTIVE),
        ("prefix_cache", "vllm:prefix_cache_queries_total 10\nvllm:prefix_cache_hits_total 0\n", CANNOT_TELL),
        ("prefix_cache", CONFIG % ("auto", "False"), INACTIVE),
        ("prefix_cache", CONFIG % ("auto", "True"), ACTIVE),
        ("prefix_cache", VLLM, CANNOT_TELL),
        (
            "spec_decode",
            "vllm:spec_decode_num_drafts_total 5\nvllm:spec_decode_num_draft_tokens_total "
            "10\nvllm:spec_decode_num_accepted_tokens_total 6\n",
            ACTIVE,
        ),
        ("spec_decode", "vllm:spec_decode_num_drafts_total 0\nvllm:generation_tokens_total 500\n", INACTIVE),
        ("spec_decode", "vllm:generation_tokens_total 500\n", CANNOT_TELL),
        ("spec_decode", "sglang:spec_accept_length 2.5\nsglang:generation_tokens_total 500\n", ACTIVE),
        ("kv_quant", CONFIG % ("fp8", "True"), ACTIVE),
        ("kv_quant", CONFIG % ("auto", "True"), INACTIVE),
        ("cuda_graph_compile", "sglang:is_cuda_graph 0\n", INACTIVE),
        (
            "pd_disagg",
            "vllm:external_prefix_cache_queries_total 5\nvllm:external_prefix_cache_hits_total 0\n",
            INACTIVE,
        ),
        ("pd_disagg", "vllm:external_prefix_cache_queries_total 5\nvllm:external_prefix_cache_hits_total 3\n", ACTIVE),
        ("lora", VLLM, CANNOT_TELL),
    ],
)
def test_a_scrape_tells(mechanism: str, text: str, state: str) -> None:
    found = witness(mechanism, parse_metrics(text))
    assert found.state == state and found.reason


def manifest(*args: str) -> Any:
    return build_import(args=["--model", "m", *args]).manifests[0]


def test_a_resolved_configuration_tells() -> None:
    asked = manifest("--kv-cache-dtype", "fp8")
    assert witness(asked, {"vllm_config": {"cache_config": {"kv_cache_dtype": "fp8"}}}, "kv_quant").state == ACTIVE
    assert witness(asked, {"vllm_config": {"cache_config": {"kv_cache_dtype": "auto"}}}, "kv_quant").state == INACTIVE
    assert witness(asked, {"other": 1}, "kv_quant").state == CANNOT_TELL


def test_a_log_line_tells() -> None:
    asked = manifest("--kv-cache-dtype", "fp8", "--max-num-seqs", "64")
    log = "INFO non-default args: {'model': 'm', 'kv_cache_dtype': 'fp8', 'max_num_seqs': 64}"
    assert witness(asked, log, "kv_quant").state == ACTIVE and witness(asked, log, "scheduler").state == ACTIVE
    assert witness(asked, "INFO non-default args: {'max_num_seqs': 256}", "scheduler").state == INACTIVE


def test_an_accepted_flag_that_is_not_on_is_found() -> None:
    judged = {
        j.mechanism: j.state
        for j in witnesses(
            manifest("--kv-cache-dtype", "fp8", "--enable-prefix-caching"), parse_metrics(CONFIG % ("auto", "True"))
        )
    }
    assert judged == {"kv_quant": INACTIVE, "prefix_cache": ACTIVE}


def test_contradicting_observations_cannot_tell() -> None:
    asked = manifest("--kv-cache-dtype", "fp8")
    judged = witnesses(asked, parse_metrics(CONFIG % ("auto", "True")), {"kv_cache_dtype": "fp8"})
    assert judged[0].state == CANNOT_TELL and "contradict" in judged[0].reason


def test_chunked_prefill_is_proven_by_steps_that_never_exceed_the_budget() -> None:
    text = "".join(
        f'vllm:iteration_tokens_total_bucket{{le="{edge}"}} {count}\n'
        for edge, count in (("1024", 5), ("2048", 9), ("4096", 9), ("+Inf", 9))
    )
    text += "vllm:iteration_tokens_total_count 9\n"
    text += "".join(
        f'vllm:request_prompt_tokens_bucket{{le="{edge}"}} {count}\n'
        for edge, count in (("2048", 3), ("8192", 5), ("+Inf", 5))
    )
    text += "vllm:request_prompt_tokens_count 5\n"
    asked = manifest("--max-num-batched-tokens", "2048")
    assert witness(asked, parse_metrics(text), "chunked_prefill").state == ACTIVE
    beyond = text.replace('le="4096"} 9', 'le="4096"} 11').replace(
        'total_bucket{le="+Inf"} 9', 'total_bucket{le="+Inf"} 11'
    )
    assert witness(asked, parse_metrics(beyond), "chunked_prefill").state == INACTIVE


@pytest.mark.parametrize(
    ("seen", "row", "helps"),
    [
        ({"kv_usage_ratio": 0.97}, "kv_almost_full", "kv_quant"),
        ({"preemptions_per_request": 0.2, "kv_usage_ratio": 0.5}, "kv_almost_full", "prefix_cache"),
        (
            {"tpot_tail_ratio": 6, "prompt_tokens_mean": 3000, "kv_usage_ratio": 0.3},
            "large_prefills_jittery_tpot",
            "chunked_prefill",
        ),
        ({"hbm_bandwidth_ratio": 0.9}, "decode_memory_bandwidth", "weight_quant"),
        ({"kernel_gap_ratio": 0.4}, "kernel_gaps", "cuda_graph_compile"),
        ({"collective_share": 0.5}, "collectives", "parallelism"),
        (
            {"prefix_hit_ratio": 0.8, "queue_share_of_ttft": 0.75, "kv_usage_ratio": 0.97},
            "hits_without_gain",
            "routing",
        ),
        ({"spec_acceptance": 0.8, "tpot_against_baseline": 1.1}, "speculation_without_gain", "spec_decode"),
        ({"queue_share_of_ttft": 0.8, "kv_usage_ratio": 0.2}, "queue", "scheduler"),
    ],
)
def test_rows_of_the_selection_matrix(seen: dict[str, float], row: str, helps: str) -> None:
    found = diagnose(seen)
    fitting = [name for name, fit in found.rows if fit == max(fit for _, fit in found.rows)]
    assert row in fitting
    best = next(entry for entry in ROWS if entry.name == row)
    assert helps in best.helps and best.rule_out


def test_a_proposed_change_is_judged_against_the_bottleneck() -> None:
    found = diagnose({"kv_usage_ratio": 0.97}, ["kv_quant", "cuda_graph_compile"])
    assert [(name, addresses) for name, addresses, _ in found.mechanisms] == [
        ("kv_quant", True),
        ("cuda_graph_compile", False),
    ]
    assert found.rule_out_first == "orphan blocks, fragmentation, over-reservation"


def test_what_is_not_observed_is_missing_never_assumed() -> None:
    found = diagnose({"kv_usage_ratio": 0.1})
    assert found.bottleneck == "none" and any(
        text.startswith("decode_memory_bandwidth: needs hbm_bandwidth_ratio") for text in found.missing
    )
    assert diagnose({}).bottleneck == "unknown"
    assert diagnose(parse_metrics("llamacpp:requests_processing 1\n")).bottleneck in ("unknown", "none")


def test_a_scrape_gives_observations_with_their_sources() -> None:
    text = "vllm:kv_cache_usage_perc 0.99\nvllm:num_preemptions_total 30\nvllm:request_success_total 100\n"
    found = diagnose(parse_metrics(text), manifest("--kv-cache-dtype", "fp8"))
    assert found.engine == "vllm" and found.bottleneck == "kv_almost_full"
    assert found.mechanisms[0][:2] == ("kv_quant", True)
    assert {entry.observation: entry.value for entry in found.evidence}["preemptions_per_request"] == 0.3


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "tgi", "llamacpp"])
def test_every_mechanism_of_an_engine_is_judged_or_it_is_said_where_to_look(engine: str) -> None:
    page = parse_metrics(f"# TYPE {PAGES[engine]} gauge\n{PAGES[engine]} 1\n")
    known = catalog.load(engine)
    assert page.engine == engine and known is not None
    for mechanism in sorted({switch.mechanism for switch in known.switches.values()}):
        judged = witness(mechanism, page)
        assert judged.state in ("active", "inactive", "cannot_tell")
        if judged.state == "cannot_tell":
            assert mechanism in judged.reason and "; ask " in judged.reason


PAGES = {
    "vllm": "vllm:num_requests_running",
    "sglang": "sglang:num_running_reqs",
    "trtllm": "trtllm_num_requests_running",
    "tgi": "tgi_queue_size",
    "llamacpp": "llamacpp:requests_processing",
}
