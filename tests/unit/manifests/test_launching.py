"""Scripts that start servers: what runs, what never runs, what ends at once; builds and secrets of llama.cpp; Dynamo's
flags by its own version."""

import pytest

from manifests.lint import lint
from manifests.model import ImportResult
from manifests.versions import version_key
from tests.unit.manifests.builders import build_import

LLAMA = "ghcr.io/ggml-org/llama.cpp"


def script(text: str, image: str = "vllm/vllm-openai:v0.11.0") -> ImportResult:
    return build_import(image, command=["sh", "-c", text])


def codes(result: ImportResult) -> set[str]:
    return {warning.code for warning in result.warnings}


@pytest.mark.parametrize("between", ["&&", ";", "\n"])
def test_what_stands_behind_a_server_in_the_foreground_never_runs(between: str) -> None:
    found = script(f"vllm serve a {between} vllm serve b")
    assert found.manifests[0].model.id == "a" and "never-runs" in codes(found)
    message = next(warning.message for warning in found.warnings if warning.code == "never-runs")
    assert "`vllm serve b` never runs while `vllm serve a` serves" in message


def test_the_first_of_two_may_be_in_the_background() -> None:
    found = script("vllm serve a & vllm serve b")
    assert found.manifests[0].model.id == "b" and codes(found) == {"several-engines"}


def test_a_fallback_runs_only_when_the_first_fails() -> None:
    found = script("vllm serve a || vllm serve b")
    assert found.manifests[0].model.id == "a" and "never-runs" not in codes(found)


@pytest.mark.parametrize(
    ("text", "ends"),
    [("vllm serve a &", True), ("vllm serve a & wait", False), ("vllm serve a & sleep infinity", False)],
)
def test_a_script_that_waits_for_nothing_ends_with_its_container(text: str, ends: bool) -> None:
    found = script(text)
    assert ("background-engine" in codes(found)) is ends and found.manifests[0].model.id == "a"


def test_ray_start_blocks_only_when_it_is_told_to() -> None:
    assert script("ray start --head && vllm serve a").manifests[0].model.id == "a"
    assert "never-runs" in codes(script("ray start --head --block && vllm serve a"))


@pytest.mark.parametrize(
    ("tag", "version", "moves"),
    [
        ("server-cuda-b4719", "b4719", False),
        ("server-b6123", "b6123", False),
        ("full-vulkan-b6123", "b6123", False),
        ("server", None, True),
        ("server-cuda13", None, True),
    ],
)
def test_builds_of_llama_cpp(tag: str, version: str | None, moves: bool) -> None:
    found = build_import(f"{LLAMA}:{tag}", args=["-m", "/m.gguf"])
    assert found.manifests[0].engine.version == version
    assert ("moving-tag" in codes(found)) is moves


def test_builds_are_in_order() -> None:
    older, newer = version_key("b4719"), version_key("b6123")
    assert older is not None and newer is not None and older < newer
    assert version_key("b1") is None


def test_the_key_of_llama_cpp_is_a_secret_in_either_place() -> None:
    found = build_import(
        f"{LLAMA}:server-b6123", args=["-m", "/m.gguf"], env={"LLAMA_API_KEY": "geheim1", "LLAMA_ARG_CTX_SIZE": "4096"}
    )
    manifest = found.manifests[0]
    assert manifest.settings["api-key"].value == "<redacted>" and manifest.settings["ctx-size"].value == 4096
    assert "geheim1" not in str(found.to_json()) and "secret-in-env" in codes(found)
    written = build_import(f"{LLAMA}:server-b6123", args=["-m", "/m.gguf", "--api-key", "geheim2"])
    assert "geheim2" not in str(written.to_json()) and codes(written) == {"secret-in-argv"}


def test_a_token_flag_without_a_value_means_the_stored_one() -> None:
    bare = build_import(args=["--model", "m", "--hf-token"])
    assert bare.manifests[0].settings["hf-token"].value is True and "missing-value" not in codes(bare)
    assert "secret-in-argv" in codes(build_import(args=["--model", "m", "--hf-token", "hf_abcdefgh"]))


@pytest.mark.parametrize(("version", "code"), [("0.7.1", None), ("1.6.1", "removed-flag")])
def test_flags_of_dynamo_belong_to_its_own_version(version: str, code: str | None) -> None:
    found = build_import(
        f"nvcr.io/nvidia/ai-dynamo/vllm-runtime:{version}",
        command=["python3", "-m", "dynamo.vllm"],
        args=["--model", "m", "--is-prefill-worker"],
    )
    assert found.manifests[0].settings["is-prefill-worker"].value is True
    assert "unknown-flag" not in codes(found)
    assert (code in codes(found)) if code else not codes(found) & {"removed-flag", "removed-later"}


def test_a_variable_that_no_version_reads_is_named() -> None:
    unknown = lint(build_import(args=["--model", "m"], env={"VLLM_ATTENTON_BACKEND": "FLASHINFER"}))
    assert any("VLLM_ATTENTON_BACKEND" in finding.message for finding in unknown if finding.code == "env-unread")
    known = lint(build_import(args=["--model", "m"], env={"VLLM_ENGINE_READY_TIMEOUT_S": "900"}))
    assert not any(finding.code == "env-unread" for finding in known)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ray start --address=head:6379 --block", "joins the Ray cluster at head:6379"),
        ("ray start --head --block", "starts the head of a Ray cluster and no engine"),
    ],
)
def test_a_ray_container_says_what_it_joins(text: str, reason: str) -> None:
    manifest = script(text, "rayproject/ray:2.40.0").manifests[0]
    assert manifest.role == "worker" and manifest.reason is not None and reason in manifest.reason
