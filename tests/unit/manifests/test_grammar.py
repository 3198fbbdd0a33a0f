"""Flags by engine and version."""

from typing import Any

import pytest

from manifests.engines.grammar import Parsed, parse
from manifests.starts import Arg, Launch, find_launch


def read(
    line: str | list[str], engine: str = "vllm", version: str | None = "0.22.0", style: str = "argparse"
) -> Parsed:
    tokens = line.split() if isinstance(line, str) else line
    return parse(Launch(engine, engine, tuple(Arg(token) for token in tokens), style=style), version)


def values(*args: Any, **keywords: Any) -> dict[str, Any]:
    return {name: setting.value for name, setting in read(*args, **keywords).settings.items()}


def codes(*args: Any, **keywords: Any) -> list[str]:
    return [code for code, _ in read(*args, **keywords).findings]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("org/m --max_model_len 8k", {"model": "org/m", "max-model-len": 8000}),
        ("org/m --max-model-len 8K", {"model": "org/m", "max-model-len": 8192}),
        ("org/m --gpu_memory_utilization=.9", {"model": "org/m", "gpu-memory-utilization": 0.9}),
        ("org/m --no-enable-prefix-caching", {"model": "org/m", "enable-prefix-caching": False}),
        ("org/m -O3", {"model": "org/m", "optimization-level": 3}),
        ("org/m -O 2", {"model": "org/m", "optimization-level": 2}),
        ("org/m -O.cudagraph_mode=FULL", {"model": "org/m", "compilation-config": {"cudagraph_mode": "FULL"}}),
        (
            "org/m -cc.mode=3 -cc.custom_ops+ all",
            {"model": "org/m", "compilation-config": {"mode": 3, "custom_ops": ["all"]}},
        ),
        (
            "org/m --speculative-config.method eagle --speculative-config.num_speculative_tokens 2",
            {"model": "org/m", "speculative-config": {"method": "eagle", "num_speculative_tokens": 2}},
        ),
        (
            "org/m --lora-modules a=/a b=/b --enforce-eager",
            {"model": "org/m", "lora-modules": ["a=/a", "b=/b"], "enforce-eager": True},
        ),
        ("org/m --served-model-name a b", {"model": "org/m", "served-model-name": ["a", "b"]}),
        ("org/m --seed -1", {"model": "org/m", "seed": -1}),
        ("org/m --quantization None", {"model": "org/m", "quantization": None}),
        (
            "--model m --limit-mm-per-prompt image=2,video=1",
            {"model": "m", "limit-mm-per-prompt": {"image": 2, "video": 1}},
        ),
        (
            'org/m --kv-transfer-config {"kv_role":"kv_both"}',
            {"model": "org/m", "kv-transfer-config": {"kv_role": "kv_both"}},
        ),
    ],
)
def test_vllm(line: str, expected: dict[str, Any]) -> None:
    assert values(line) == expected and codes(line) == []


def test_before_optimization_levels_o3_is_a_compilation_level() -> None:
    assert values("org/m -O3", version="0.9.2") == {"model": "org/m", "compilation-config": {"level": 3}}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("m --max-num-batched-token 4096", "abbreviated-flag"),
        ("m --max-num 4", "ambiguous-flag"),
        ("m --tensor-paralel-size 2", "unknown-flag"),
        ("m -zz 2", "unknown-short-flag"),
        ("m --swap-space 4", "removed-flag"),
        ("m --dtype half --dtype float16", "duplicate-flag"),
        ("m --max-num-seqs many", "bad-value"),
        ("m --max-num-seqs --dtype half", "missing-value"),
        ("m stray", "stray-argument"),
        ("m --enable-prefix-caching=true", "bool-with-value"),
        ("m --speculative-config {a:1}", "bad-value"),
        ("m --api-key sk-abcdefgh", "secret-in-argv"),
    ],
)
def test_vllm_says_what_is_wrong(line: str, code: str) -> None:
    assert code in codes(line)


def test_the_nearest_known_flag_is_named() -> None:
    assert "--tensor-parallel-size" in dict(read("m --tensor-paralel-size 2").findings)["unknown-flag"]


def test_a_flag_that_is_younger_than_the_version_is_an_error() -> None:
    assert "flag-too-new" in codes("m --spec-method eagle", version="0.11.0")
    assert codes("m --spec-method eagle", version="0.22.0") == []


def test_the_last_of_two_values_counts_and_the_first_is_named() -> None:
    parsed = read("m --max-num-seqs 1 --max-num-seqs 2")
    assert parsed.settings["max-num-seqs"].value == 2
    assert "--max-num-seqs 1" in dict(parsed.findings)["duplicate-flag"]


def test_a_value_that_is_known_only_at_run_time_is_unresolved() -> None:
    launch = Launch("vllm", "vllm", (Arg("m"), Arg("--node-rank"), Arg("$RANK", False)))
    parsed = parse(launch, None)
    assert parsed.settings["node-rank"].value is None and parsed.settings["node-rank"].expression == "$RANK"
    assert parsed.unresolved == [("node-rank", "`$RANK` is known only at run time")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--model-path m --tp 2", {"model-path": "m", "tp-size": 2}),
        ("--model m --tensor-parallel-size=2", {"model-path": "m", "tp-size": 2}),
        (
            "--model-path m --disable-radix-cache --mem-fraction-static .8",
            {"model-path": "m", "disable-radix-cache": True, "mem-fraction-static": 0.8},
        ),
        ("--model-path m --cuda-graph-bs-decode 1 2 4", {"model-path": "m", "cuda-graph-bs-decode": [1, 2, 4]}),
    ],
)
def test_sglang(line: str, expected: dict[str, Any]) -> None:
    assert values(line, engine="sglang", version="0.5.23") == expected


def test_tensorrt_llm_and_its_aliases() -> None:
    found = values(
        "m --tp_size 4 --kv_cache_free_gpu_memory_fraction 0.8 --max_batch_size 64 --trust_remote_code",
        engine="trtllm",
        version=None,
        style="click",
    )
    assert found == {
        "model": "m",
        "tensor-parallel-size": 4,
        "free-gpu-memory-fraction": 0.8,
        "max-batch-size": 64,
        "trust-remote-code": True,
    }


def test_tgi_and_llama_cpp() -> None:
    assert values("--model-id m --num-shard 2 --quantize awq", engine="tgi", version=None, style="clap") == {
        "model-id": "m",
        "num-shard": 2,
        "quantize": "awq",
    }
    found = values(
        "-m /m.gguf -c 4096 -ngl 99 -fa on --no-jinja -ctk q8_0", engine="llamacpp", version=None, style="llamacpp"
    )
    assert found == {
        "model": "/m.gguf",
        "ctx-size": 4096,
        "n-gpu-layers": 99,
        "flash-attn": "on",
        "jinja": False,
        "cache-type-k": "q8_0",
    }


@pytest.mark.parametrize(
    ("argv", "engine", "kind"),
    [
        (["vllm", "serve", "m"], "vllm", "server"),
        (["/opt/venv/bin/vllm", "serve", "m"], "vllm", "server"),
        (["vllm", "launch", "render", "m"], "vllm", "render"),
        (["python3", "-u", "-m", "vllm.entrypoints.openai.api_server"], "vllm", "server"),
        (["python3.12", "/app/vllm/entrypoints/openai/api_server.py"], "vllm", "server"),
        (["numactl", "--cpunodebind=0", "python3", "-m", "sglang.launch_server"], "sglang", "server"),
        (["env", "A=b", "tini", "--", "vllm", "serve", "m"], "vllm", "server"),
        (["mpirun", "-n", "4", "trtllm-llmapi-launch", "trtllm-serve", "m"], "trtllm", "server"),
        (["python3", "-m", "dynamo.sglang"], "dynamo-sglang", "server"),
        (["python3", "-m", "sglang_router.launch_router"], "sglang", "router"),
        (["text-generation-launcher"], "tgi", "server"),
        (["tritonserver"], "triton-trtllm", "server"),
    ],
)
def test_launchers(argv: list[str], engine: str, kind: str) -> None:
    found = find_launch([Arg(part) for part in argv])
    assert found is not None and (found.engine, found.kind) == (engine, kind)


@pytest.mark.parametrize("argv", [["vllm", "bench", "serve"], ["python3", "app.py"], ["nginx"], ["bash"], []])
def test_what_is_no_engine(argv: list[str]) -> None:
    assert find_launch([Arg(part) for part in argv]) is None
