"""Bytes and bounds: the worked example, ten models by their papers, layouts, what is unknown."""

import json
from pathlib import Path
from typing import Any

import pytest

from manifests import hardware, models
from manifests.ledger import (
    Ledger,
    amdahl_bound,
    kv_bytes_per_token,
    latent_bytes_per_token,
    ledger,
    step_floor_seconds,
    weight_bytes,
)
from manifests.models import find_model, from_config
from tests.unit.manifests.builders import build_import


def book(model: str, *args: str, image: str = "vllm/vllm-openai:v0.11.0", gpu: int = 1, **keywords: Any) -> Ledger:
    return ledger(build_import(image, args=["--model", model, *args], gpu=gpu).manifests[0], **keywords)


def test_the_worked_example_to_the_byte() -> None:
    assert weight_bytes(8_000_000_000, 16) == 16_000_000_000
    assert weight_bytes(8_000_000_000, 4) == 4_000_000_000
    assert kv_bytes_per_token(32, 8, 128, 2) == 128 * 1024
    assert kv_bytes_per_token(32, 8, 128, 2) * 8192 == 2**30
    assert step_floor_seconds(16.0e9, 1.6e12) == pytest.approx(0.010)
    assert amdahl_bound(0.05, 2) == pytest.approx(1.0256, abs=1e-4)


@pytest.mark.parametrize(
    ("model", "expected", "source"),
    [
        ("facebook/opt-13b", 800 * 1024, "PagedAttention paper, section 3: 2 x 5120 x 40 x 2 = 800 KB"),
        ("deepseek-ai/DeepSeek-V3", 70_272, "Insights into DeepSeek-V3, table 1: 70.272 KB (BF16)"),
        ("Qwen/Qwen2.5-72B-Instruct", 327_680, "Insights into DeepSeek-V3, table 1: 327.680 KB"),
        ("meta-llama/Llama-3.1-405B-Instruct", 516_096, "Insights into DeepSeek-V3, table 1: 516.096 KB"),
        ("deepseek-ai/DeepSeek-V2", 2 * 34_560, "DeepSeek-V2 paper: (512 + 64) x 60 = 34.6K elements"),
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072, "Llama 3 paper, table 3: 32 layers, 8 KV heads, 128"),
        ("meta-llama/Llama-3.3-70B-Instruct", 327_680, "Llama 3 paper, table 3: 80 layers, 8 KV heads, 128"),
        ("meta-llama/Llama-2-7b-chat-hf", 524_288, "Llama 2 paper: 32 layers, 32 heads of 128, no GQA"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 131_072, "Mixtral paper, table 1: 32 layers, 8 KV heads, 128"),
        ("google/gemma-2-9b-it", 344_064, "Gemma 2 report, table 1: 42 layers, 8 KV heads, 256"),
        ("Qwen/Qwen3-8B", 147_456, "Qwen3 report, table 1: 36 layers, 8 KV heads, 128"),
        ("tiiuae/falcon-7b", 8_192, "Falcon paper: multi-query, 32 layers, one head of 64"),
    ],
)
def test_kv_bytes_per_token_of_public_models(model: str, expected: int, source: str) -> None:
    arguments = ["--dtype", "bfloat16"]
    assert book(model, *arguments).kv_bytes_per_token == expected, source


def test_weights_are_parameters_times_bits() -> None:
    assert book("meta-llama/Llama-3.1-8B-Instruct").weights_bytes == 2 * 8_030_261_248
    quantized = book("org/Llama-3.1-8B-Instruct-AWQ", "--quantization", "awq").weights_bytes
    facts = find_model("meta-llama/Llama-3.1-8B")
    assert facts is not None and quantized is not None
    linear = 8_030_261_248 - facts.embedding_parameters
    assert quantized == linear * 4 // 8 + int(linear * (20 / 128) / 8) + 2 * facts.embedding_parameters


@pytest.mark.parametrize(
    ("args", "gpus", "factor", "kv"),
    [
        ([], 1, 1, 131_072),
        (["-tp", "2"], 2, 2, 65_536),
        (["-tp", "8"], 8, 8, 16_384),
        (["-tp", "16"], 16, 16, 16_384),
        (["-pp", "2"], 2, 2, 65_536),
        (["-tp", "2", "-pp", "2"], 4, 4, 32_768),
        (["-dp", "2"], 2, 1, 131_072),
    ],
)
def test_shares_of_a_parallel_layout(args: list[str], gpus: int, factor: int, kv: int) -> None:
    found = book("meta-llama/Llama-3.1-8B-Instruct", *args, gpu=gpus)
    assert found.weights_bytes == 2 * 8_030_261_248 // factor
    assert found.kv_bytes_per_token == kv
    assert found.gpus == gpus


def test_latent_attention_is_not_divided_by_tensor_parallelism() -> None:
    assert latent_bytes_per_token(61, 512, 64, 2) == 70_272
    assert book("deepseek-ai/DeepSeek-V3", "--dtype", "bfloat16", "-tp", "8", gpu=8).kv_bytes_per_token == 70_272


def test_quantized_kv_halves_the_bytes() -> None:
    assert book("meta-llama/Llama-3.1-8B-Instruct", "--kv-cache-dtype", "fp8").kv_bytes_per_token == 65_536


def test_a_sliding_window_bounds_a_long_sequence() -> None:
    found = book("google/gemma-2-9b-it", hardware="H100", context=8192)
    per_sequence = next(term.value for term in found.terms if term.name == "KV per sequence")
    assert per_sequence == 2 * 8 * 256 * 2 * (21 * 8192 + 21 * 4096)


def test_capacity_and_fit() -> None:
    found = book(
        "meta-llama/Llama-3.1-8B-Instruct", "--max-num-seqs", "16", hardware="H100", context=8192, concurrency=16
    )
    assert found.fits is True and found.max_sequences == 16
    budget = next(term.value for term in found.terms if term.name == "KV budget")
    assert isinstance(budget, int | float) and found.kv_capacity_tokens == int(budget // 131_072)
    assert book("meta-llama/Llama-3.1-70B-Instruct", hardware="H100", context=100).fits is False


def test_the_floor_counts_weights_and_kv_and_the_bandwidth_given() -> None:
    found = book("meta-llama/Llama-3.1-8B-Instruct", hardware="H100", bandwidth=1.6e12)
    assert found.step_floor_s == pytest.approx(2 * 8_030_261_248 / 1.6e12)
    both = book("meta-llama/Llama-3.1-8B-Instruct", hardware="H100", bandwidth=1.6e12, concurrency=16, context=8192)
    assert both.step_floor_s == pytest.approx((2 * 8_030_261_248 + 16 * 2**30) / 1.6e12)


def test_a_mixture_reads_the_experts_that_a_batch_touches() -> None:
    one = book("mistralai/Mixtral-8x7B-Instruct-v0.1", "-tp", "2", hardware="H100", concurrency=1, gpu=2)
    many = book("mistralai/Mixtral-8x7B-Instruct-v0.1", "-tp", "2", hardware="H100", concurrency=64, gpu=2)
    assert one.step_floor_s is not None and many.step_floor_s is not None and one.step_floor_s < many.step_floor_s / 3


def test_what_is_not_known_is_unknown_never_guessed() -> None:
    found = book("org/unheard-of")
    assert (
        found.weights_bytes is None
        and found.kv_bytes_per_token is None
        and found.fits is None
        and found.step_floor_s is None
    )
    assert any("config.json" in text for text in found.unknown) and any("accelerator" in text for text in found.unknown)
    assert "unknown" not in json.dumps(found.to_json()["terms"])


def test_every_term_states_formula_and_unit() -> None:
    for term in book("meta-llama/Llama-3.1-8B-Instruct", hardware="H100", context=100, concurrency=2).terms:
        assert term.formula and term.unit and term.value is not None


CONFIG: dict[str, Any] = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "intermediate_size": 14336,
}


def test_facts_from_a_config_json() -> None:
    facts = from_config(CONFIG)
    assert facts.parameters == 8_030_261_248
    assert book("org/any", facts=facts).kv_bytes_per_token == 131_072
    nested = from_config({"text_config": CONFIG, "vision_config": {"num_hidden_layers": 4}})
    assert nested.layers == 32
    hybrid = from_config({**CONFIG, "layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8})
    assert hybrid.state_layers == 24 and book("org/any", facts=hybrid).kv_bytes_per_token == 32_768
    shared = from_config({**CONFIG, "num_kv_shared_layers": 16})
    assert book("org/any", facts=shared).kv_bytes_per_token == 65_536
    window = from_config(
        {**CONFIG, "sliding_window": 1024, "layer_types": ["sliding_attention", "full_attention"] * 16}
    )
    assert (window.window, window.window_layers) == (1024, 16)


@pytest.mark.parametrize(
    "broken",
    [{}, {**CONFIG, "hidden_size": "4096"}, {**CONFIG, "num_hidden_layers": -1}, {**CONFIG, "vocab_size": 10**20}],
)
def test_a_broken_config_names_what_is_missing(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="missing or no positive"):
        from_config(broken)


def test_the_catalogues_are_large_enough_and_state_sources() -> None:
    assert len(models.names()) >= 25 and len(hardware.names()) >= 20
    folder = Path(hardware.__file__).parent / "catalog"
    for name, key in (("models", "models"), ("hardware", "accelerators")):
        assert all(row["source"] for row in json.loads((folder / f"{name}.json").read_text())[key])


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("nvidia-h100-80gb", "H100-SXM-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM-80GB"),
        ("NVIDIA-A100-SXM4-80GB", "A100-SXM-80GB"),
        ("nvidia-l4", "L4-24GB"),
        ("amd-gpu-mi300x", "MI300X-192GB"),
        ("NVIDIA-GB200", "GB200-186GB"),
    ],
)
def test_accelerators_by_their_labels(label: str, name: str) -> None:
    found = hardware.find_accelerator(label)
    assert found is not None and found.name == name


def test_a_slice_is_not_its_card() -> None:
    assert hardware.find_accelerator("nvidia.com/mig-4g.71gb") is None and hardware.find_accelerator("unheard") is None
