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


# --- states of recurrent layers: sizes computed by hand from the configs' numbers

QWEN3_NEXT: dict[str, Any] = {
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 151936,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
}
GRANITE: dict[str, Any] = {
    **CONFIG,
    "num_hidden_layers": 40,
    "layer_types": ["mamba"] * 36 + ["attention"] * 4,
    "mamba_n_heads": 128,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
}


@pytest.mark.parametrize(
    ("config", "args", "expected"),
    [
        # gated delta net: 36 x ((2 x 16 x 128 + 32 x 128) x 3 x 2 bytes + 32 x 128 x 128 x 2 bytes)
        (QWEN3_NEXT, [], 36 * (8192 * 3 * 2 + 524_288 * 2)),
        (QWEN3_NEXT, ["--mamba-ssm-cache-dtype", "float32"], 36 * (8192 * 3 * 2 + 524_288 * 4)),
        ({**QWEN3_NEXT, "mamba_ssm_dtype": "float32"}, ["-tp", "2"], 36 * (4096 * 3 * 2 + 262_144 * 4)),
        # Mamba-2: 36 x ((128 x 64 + 2 x 1 x 128) x 3 x 2 + 128 x 64 x 128 x 2); one group is replicated over TP
        (GRANITE, [], 36 * (8448 * 3 * 2 + 1_048_576 * 2)),
        (GRANITE, ["-tp", "2"], 36 * ((8192 + 4 * 128) // 2 * 3 * 2 + 524_288 * 2)),
        # KDA keeps its recurrent part in float32
        (
            {
                **CONFIG,
                "linear_attn_config": {
                    "num_heads": 32,
                    "head_dim": 128,
                    "short_conv_kernel_size": 4,
                    "kda_layers": list(range(24)),
                },
            },
            [],
            24 * (3 * 32 * 128 * 3 * 2 + 32 * 128 * 128 * 4),
        ),
    ],
)
def test_the_state_of_recurrent_layers_by_hand(config: dict[str, Any], args: list[str], expected: int) -> None:
    facts = from_config(config)
    found = book("org/any", *args, facts=facts, image="vllm/vllm-openai:v0.20.0", gpu=2)
    term = next(term for term in found.terms if term.name == "state per sequence")
    assert term.value == expected and not any("recurrent" in text for text in found.unknown)


def test_layers_that_attend_are_told_from_those_that_do_not() -> None:
    nemotron = from_config(
        {
            **CONFIG,
            "num_hidden_layers": 8,
            "hybrid_override_pattern": "M-M*-M-*",
            "mamba_num_heads": 64,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "n_groups": 8,
            "conv_kernel": 4,
        }
    )
    assert (nemotron.state_layers, nemotron.attention_layers) == (3, 2)
    falcon = from_config({**GRANITE, "layer_types": None, "model_type": "falcon_h1"})
    assert (falcon.state_layers, falcon.attention_layers) == (40, 40)
    mamba = from_config(
        {
            "model_type": "mamba",
            "num_hidden_layers": 64,
            "hidden_size": 2560,
            "vocab_size": 50280,
            "intermediate_size": 5120,
            "state_size": 16,
            "conv_kernel": 4,
        }
    )
    found = book("org/any", facts=mamba, image="vllm/vllm-openai:v0.20.0")
    assert found.kv_bytes_per_token == 0
    assert next(t.value for t in found.terms if t.name == "state per sequence") == 64 * (5120 * 3 * 2 + 5120 * 16 * 2)


def test_a_state_without_sizes_or_in_an_engine_of_unknown_format_is_unknown() -> None:
    bare = from_config({**CONFIG, "layer_types": ["linear_attention"] * 24 + ["full_attention"] * 8})
    assert any("config.json does not give its shape" in text for text in book("org/any", facts=bare).unknown)
    facts = from_config(GRANITE)
    manifest = build_import(
        "nvcr.io/nvidia/tensorrt-llm/release:1.2.1", command=["trtllm-serve", "org/any"], gpu=1
    ).manifests[0]
    assert any("number format is not known" in text for text in ledger(manifest, facts=facts).unknown)


def test_the_floor_says_whose_bandwidth_it_takes() -> None:
    def bandwidth(**keywords: Any) -> tuple[float, str]:
        found = book("meta-llama/Llama-3.1-8B-Instruct", **keywords)
        return next((term.value, term.formula) for term in found.terms if term.name == "bandwidth")  # type: ignore[misc]

    speed, words = bandwidth(hardware="H200-141GB")
    assert speed == 4.48e12 and words.startswith("attained on H200-141GB") and "Azure" in words
    speed, words = bandwidth(hardware="L4-24GB")
    assert speed == 3.0e11 and words.startswith("data sheet")
    assert bandwidth(hardware="L4-24GB", bandwidth=2.5e11)[1].startswith("attained: given")


def test_what_was_attained_is_below_the_data_sheet_and_has_a_source() -> None:
    rows = json.loads((Path(hardware.__file__).parent / "catalog" / "hardware.json").read_text())["accelerators"]
    measured = [row for row in rows if row["bandwidth_attainable_bytes_per_s"] is not None]
    assert len(measured) >= 9
    for row in measured:
        share = row["bandwidth_attainable_bytes_per_s"] / row["bandwidth_datasheet_bytes_per_s"]
        assert 0.7 < share < 1 and row["attainable_source"], row["name"]
    assert all(not row["attainable_source"] for row in rows if row not in measured)
