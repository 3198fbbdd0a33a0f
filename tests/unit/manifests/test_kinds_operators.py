"""KServe, OME, KubeAI, KAITO and AIBrix, as people publish them: every form was silent or wrong once."""

from typing import Any

import pytest

from manifests.diff import diff
from tests.unit.manifests.builders import deployment
from tests.unit.manifests.kinds import VLLM, changed, made, read, settings

# --- KServe


def test_the_runtime_of_an_llm_service_says_the_engine() -> None:
    spec = {"runtime": "kserve-llm-sglang", "model": {"uri": "hf://org/m"}, "parallelism": {"tensor": 2}}
    found = read(made("LLMInferenceService", "serving.kserve.io/v1alpha2", spec)).manifests[0]
    assert found.engine.name == "sglang" and settings(found)["tp-size"] == 2


def test_a_speculator_and_an_offloading_tier_are_named() -> None:
    def service(tokens: str, size: str) -> dict[str, Any]:
        spec = {
            "model": {"uri": "hf://org/m"},
            "speculator": {"config": {"method": "mtp", "num_speculative_tokens": tokens}},
            "kvCacheOffloading": {"cpu": {"size": size}},
        }
        return made("LLMInferenceService", "serving.kserve.io/v1alpha2", spec)

    assert settings(read(service("1", "1Gi")).manifests[0])["speculative-config"]["num_speculative_tokens"] == 1
    result = diff(read(service("1", "1Gi")), read(service("2", "2Gi")))
    assert [(line.setting, line.mechanism) for line in result.changes] == [
        ("speculative-config.num_speculative_tokens", result.changes[0].mechanism),
        ("spec.kvCacheOffloading.cpu.size", "kv_offload"),
    ]


def test_a_predictor_without_runtime_and_format_is_a_patch() -> None:
    model = {"storageUri": "s3://b/m", "args": ["--max-num-seqs=8"]}
    found = read(made("InferenceService", "serving.kserve.io/v1beta1", {"predictor": {"model": model}})).manifests[0]
    assert found.patch and found.engine.name == "vllm" and settings(found) == {"max-num-seqs": 8}


def test_the_weights_that_the_storage_initialiser_fetches() -> None:
    container: dict[str, Any] = {"name": "c", "image": VLLM, "args": ["--model=/mnt/models"]}
    container["env"] = [{"name": "STORAGE_URI", "value": "s3://b/m"}]
    found = read(made("InferenceService", "serving.kserve.io/v1beta1", {"predictor": {"containers": [container]}}))
    assert found.manifests[0].model.id == "s3://b/m"


def test_values_that_quote_the_models_name() -> None:
    values = {
        "modelArtifacts": {"name": "org/m", "uri": 'hf://"{{ .Values.modelArtifacts.name }}"'},
        "routing": {"proxy": {"image": "ghcr.io/llm-d/llm-d-routing-sidecar:v1", "connector": "nixlv2"}},
        "decode": {"containers": [{"name": "vllm", "image": VLLM, "modelCommand": "vllmServe"}]},
    }
    found = read(values).manifests
    assert [(m.role, m.model.id) for m in found] == [("sidecar", None), ("server", "org/m")]
    assert settings(found[0])["connector"] == "nixlv2"


def test_a_sidecar_of_an_llm_service_is_no_server() -> None:
    pod = {"containers": [{"name": "log", "image": "busybox", "command": ["sh", "-c", "sleep 9"]}, {"name": "vllm"}]}
    annotations = {"serving.kserve.io/exp-dra-device-class": "gpu.nvidia.com"}
    annotations |= {"serving.kserve.io/exp-dra-device-count": "2", "serving.kserve.io/exp-dra-container-name": "vllm"}
    spec = {"model": {"uri": "hf://org/m"}, "template": pod}
    result = read(made("LLMInferenceService", "serving.kserve.io/v1alpha2", spec, annotations=annotations))
    assert [(m.container, m.resources["gpu"]) for m in result.manifests] == [("vllm", 2)]


def test_a_claim_whose_template_is_missing_is_no_zero() -> None:
    claims = {"resources": {"claims": [{"name": "gpu"}]}}
    body = deployment(gpu=None, container=claims, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    found = read(*body).manifests[0]
    assert "gpu" not in found.resources and "resources.gpu" in {entry.what for entry in found.unresolved}


# --- OME, KubeAI, KAITO, AIBrix


def test_a_service_of_ome_takes_its_runtime_from_the_input() -> None:
    runner: dict[str, Any] = {"name": "ome-container", "image": "lmsysorg/sglang:v0.5.5"}
    runner["command"] = [
        "sh",
        "-c",
        "python3 -m sglang.launch_server --model-path ${MODEL_PATH} --nnodes ${LWS_GROUP_SIZE}",
    ]
    engine = {"leader": {"runner": runner}, "worker": {"size": 3, "runner": runner}}
    runtime = made("ClusterServingRuntime", "ome.io/v1beta1", {"engineConfig": engine}, name="srt-big")
    service = made("InferenceService", "ome.io/v1beta1", {"model": {"name": "big"}, "runtime": {"name": "srt-big"}})
    found = read(service, runtime).manifests[:2]
    assert [(m.rank, m.model.id, settings(m)["nnodes"], m.resources["pods"]) for m in found] == [
        ("leader", "big", 4, 4),
        ("worker", "big", 4, 4),
    ]
    alone = read(service).manifests[0]
    assert alone.engine.name == "sglang" and "not in the input" in alone.unresolved[0].why
    older = made(
        "ServingRuntime", "ome.io/v1beta1", {"containers": [{"name": "c", "image": VLLM, "args": ["--model=m"]}]}
    )
    assert [m.engine.version for m in read(older).manifests] == ["0.11.0"]


@pytest.mark.parametrize(("engine", "name"), [("SGLang", "sglang"), ("LlamaCpp", "llamacpp"), ("VLLM", "vllm")])
def test_every_engine_that_kubeai_starts_and_we_know(engine: str, name: str) -> None:
    spec = {"engine": engine, "url": "hf://org/m", "resourceProfile": "nvidia-gpu-t4:2", "targetRequests": 10}
    found = read(made("Model", "kubeai.org/v1", spec)).manifests[0]
    assert (found.engine.name, found.resources["gpu"]) == (name, 2)
    assert changed(
        [made("Model", "kubeai.org/v1", spec)], [made("Model", "kubeai.org/v1", {**spec, "targetRequests": 9})]
    ) == [("spec.targetRequests", None)]


def test_roles_and_adapters_of_kaito() -> None:
    roles = [
        {"type": role, "replicas": 1, "instanceType": "Standard_NC24ads_A100_v4"} for role in ("prefill", "decode")
    ]
    found = read(made("MultiRoleInference", "kaito.sh/v1alpha1", {"model": {"name": "phi-4"}, "roles": roles}))
    assert [(m.role, m.model.id, m.resources["gpu"]) for m in found.manifests] == [
        ("prefill", "phi-4", 1),
        ("decode", "phi-4", 1),
    ]

    def workspace(strength: str) -> dict[str, Any]:
        inference = {"preset": {"name": "phi-4"}, "adapters": [{"source": {"name": "x"}, "strength": strength}]}
        return {
            "apiVersion": "kaito.sh/v1beta1",
            "kind": "Workspace",
            "metadata": {"name": "w"},
            "inference": inference,
        }

    assert changed([workspace("1.0")], [workspace("0.5")]) == [("inference.adapters", None)]


def test_a_claim_in_a_warm_pool_and_what_stands_around_engines() -> None:
    spec = {
        "artifactURL": "huggingface://org/m",
        "engine": "vllm",
        "engineConfig": {"args": {"--max-model-len": "2048"}},
    }
    result = read(
        made("ModelClaim", "model.aibrix.ai/v1alpha1", spec),
        made("PodAutoscaler", "autoscaling.aibrix.ai/v1alpha1", {}),
        made("ModelWarmup", "model.aibrix.ai/v1alpha1", {}),
        made("ClusterBaseModel", "ome.io/v1beta1", {}),
        made("RAGEngine", "kaito.sh/v1beta1", {}),
    )
    assert settings(result.manifests[0])["max-model-len"] == 2048
    assert [document.handled for document in result.documents] == ["manifest", *["context"] * 4]


def test_two_services_with_the_same_roles_are_told_apart_by_their_place() -> None:
    def storm(name: str, share: str) -> dict[str, Any]:
        args = ["vllm", "serve", "m", "--gpu-memory-utilization", share]
        role = {"name": "prefill", "template": deployment(command=args)[0]["spec"]["template"]}
        return made(
            "StormService", "orchestration.aibrix.ai/v1alpha1", {"template": {"spec": {"roles": [role]}}}, name=name
        )

    old, new = [storm("a", "0.8"), storm("b", "0.8")], [storm("a", "0.8"), storm("b", "0.7")]
    assert [name for name, _ in changed(old, new)] == ["gpu-memory-utilization"]


def test_a_line_says_which_half_and_which_rank_it_is_about() -> None:
    def service(share: str) -> dict[str, Any]:
        def pod(value: str) -> dict[str, Any]:
            env = [{"name": "VLLM_ADDITIONAL_ARGS", "value": f"--gpu-memory-utilization {value}"}]
            return {"containers": [{"name": "main", "env": env}]}

        half = {"template": pod("0.8"), "worker": pod("0.8"), "parallelism": {"data": 16, "dataLocal": 8}}
        prefill = {**half, "template": pod(share)}
        spec = {"model": {"uri": "hf://org/m"}, **half, "prefill": prefill}
        return made("LLMInferenceService", "serving.kserve.io/v1alpha2", spec)

    mark = "a/main (prefill leader)"
    assert changed([service("0.8")], [service("0.7")]) == [("gpu-memory-utilization", mark)]
    alone = diff(read(service("0.8")), read(service("0.7")), select=mark)
    assert [(line.setting, line.manifest) for line in alone.changes] == [("gpu-memory-utilization", None)]
