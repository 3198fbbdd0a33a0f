"""Resolved configuration: hardware-dependent defaults, couplings, refusals."""

import pytest

from tests.unit.tools.enginesim.support import settings
from tools.enginesim.settings import StartError, resolve


@pytest.mark.parametrize(
    ("hardware", "tokens", "seqs"),
    [("B200", 16384, 1024), ("H100", 8192, 1024), ("A100", 2048, 256), ("L40S", 2048, 256)],
)
def test_batch_defaults_follow_the_memory_size(hardware: str, tokens: int, seqs: int) -> None:
    resolved = settings(ENGINESIM_HARDWARE=hardware)
    assert (resolved.max_num_batched_tokens, resolved.max_num_seqs) == (tokens, seqs)


def test_memory_share_default_flips_with_the_version() -> None:
    assert settings(ENGINESIM_VERSION="0.19.0").gpu_memory_utilization == 0.90
    assert settings(ENGINESIM_VERSION="0.20.0").gpu_memory_utilization == 0.92


def test_kv_blocks_grow_with_fp8_kv_and_shrink_with_the_token_budget() -> None:
    plain = settings().num_gpu_blocks
    assert settings("--kv-cache-dtype", "fp8").num_gpu_blocks == pytest.approx(2 * plain, rel=0.01)
    assert settings("--max-num-batched-tokens", "32768").num_gpu_blocks < plain
    assert settings("--num-gpu-blocks-override", "2000").num_gpu_blocks == 2000


def test_whole_prompts_raise_the_budget_or_are_refused() -> None:
    assert settings("--no-enable-chunked-prefill").max_num_batched_tokens == 16384
    with pytest.raises(StartError, match="is smaller than max_model_len"):
        settings("--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["serve", "meta-llama/Llama-3.1-70B"], "No available memory"),
        (["serve", "meta-llama/Llama-3.1-8B", "--max-model-len", "500000"], "greater than the derived"),
        (["serve", "meta-llama/Llama-3.1-8B", "--num-gpu-blocks-override", "10"], "more KV cache is needed"),
        (["serve", "m", "--speculative-config", '{"method":"ngram"}'], "num_speculative_tokens"),
    ],
)
def test_what_cannot_start_says_so(argv: list[str], words: str) -> None:
    with pytest.raises(StartError, match=words):
        resolve(argv, {})


def test_ngram_speculation_switches_asynchronous_scheduling_off() -> None:
    ngram = '{"method":"ngram","num_speculative_tokens":3}'
    assert settings().async_scheduling
    assert not settings("--speculative-config", ngram).async_scheduling


def test_any_address_becomes_the_pods_own() -> None:
    assert settings("--host", "0.0.0.0", DEVCLUSTER_POD_IP="127.0.0.9").host == "127.0.0.9"


def test_api_keys_are_not_shown() -> None:
    resolved = settings("--api-key", "sesame").resolved()
    assert "sesame" not in repr(resolved)
