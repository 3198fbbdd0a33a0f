"""Kinds and forms that no shared file shows, as people publish them: every one was silent, wrong or unclear once."""

from typing import Any

import pytest
import yaml

from manifests.diff import diff
from manifests.importing import import_files
from manifests.model import ImportResult, Manifest
from tests.unit.manifests.builders import deployment

VLLM = "vllm/vllm-openai:v0.11.0"


def read(*documents: Any) -> ImportResult:
    return import_files([("k.yaml", yaml.safe_dump_all(documents).encode())], salt=b"test")


def made(kind: str, group: str, spec: dict[str, Any], name: str = "a", **meta: Any) -> dict[str, Any]:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def settings(manifest: Manifest) -> dict[str, Any]:
    return {name: setting.value for name, setting in manifest.settings.items()}


def changed(old: Any, new: Any) -> list[tuple[str, str | None]]:
    result = diff(read(*old), read(*new))
    return [(line.setting, line.manifest) for line in result.changes]


# --- production-stack


def stack(router: dict[str, Any], **spec: Any) -> dict[str, Any]:
    model = {"name": "m", "repository": "vllm/vllm-openai", "tag": "v0.11.0", "modelURL": "org/m", **spec}
    return {"servingEngineSpec": {"modelSpec": [model], "vllmApiKey": "abc123XYZ"}, "routerSpec": router}


def test_the_router_of_the_chart_is_read_and_compared() -> None:
    router = {"routingLogic": "session", "sessionKey": "x-user", "extraArgs": ["--log-stats"], "hpa": {"max": 3}}
    found = read(stack(router)).manifests[1]
    assert (found.role, found.engine.name, found.engine.image) == ("router", "unknown", "lmcache/lmstack-router")
    assert settings(found)["routing-logic"] == "session" and settings(found)["log-stats"] is True
    assert changed([stack(router)], [stack({**router, "routingLogic": "kvaware"})]) == [
        ("routing-logic", "router/router-container")
    ]
    assert changed([stack(router)], [stack({**router, "hpa": {"max": 4}})]) == [
        ("routerSpec.hpa.max", "router/router-container")
    ]


def test_a_key_of_the_chart_shows_in_no_output_but_its_change_does() -> None:
    old, new = stack({"enableRouter": False}), stack({"enableRouter": False})
    new["servingEngineSpec"]["vllmApiKey"] = "other456XYZ"
    result = diff(read(old), read(new))
    assert [(line.setting, line.old, line.new) for line in result.changes] == [
        ("env:VLLM_API_KEY", "<redacted>", "<redacted>")
    ]
    assert "abc123XYZ" not in str(result.to_json()) and "other456XYZ" not in str(result.to_json())


ADAPTER = {
    "name": "law",
    "baseModel": "m",
    "adapterSource": {"type": "local", "adapterPath": "/a", "credentials": "hf_abcdefgh12345678"},
}


def with_adapters(*adapters: dict[str, Any], on: bool = True, **more: Any) -> dict[str, Any]:
    values = stack({"enableRouter": False})
    return {**values, "loraAdapters": list(adapters), "loraController": {"enableLoraController": on, **more}}


def test_adapters_that_the_chart_loads_at_run_time_are_compared_on_their_model() -> None:
    moved = {**ADAPTER, "adapterSource": {"type": "local", "adapterPath": "/b"}}
    result = diff(read(with_adapters(ADAPTER)), read(with_adapters(moved)))
    lines = {line.setting: (line.old, line.new, line.mechanism, line.correctness) for line in result.changes}
    assert lines["loraAdapters.law.adapterSource.adapterPath"] == ("/a", "/b", "lora", "contract-change")
    assert "hf_abcdefgh12345678" not in str(result.to_json())
    assert not diff(read(with_adapters(ADAPTER)), read(with_adapters(ADAPTER))).effective
    added = diff(read(with_adapters()), read(with_adapters(ADAPTER)))
    assert {line.mechanism for line in added.changes} == {"lora"} and added.effective


def test_an_adapter_that_is_off_changes_nothing_and_its_controller_does() -> None:
    off = {**ADAPTER, "enabled": False}
    assert not diff(read(with_adapters()), read(with_adapters(off))).effective
    assert changed([with_adapters(ADAPTER, on=False)], [with_adapters(ADAPTER)]) == [
        ("loraController.enableLoraController", None)
    ]
    assert changed([with_adapters(replicaCount=1)], [with_adapters(replicaCount=2)]) == [
        ("loraController.replicaCount", None)
    ]


def test_the_cache_server_of_the_chart_is_compared() -> None:
    sides = [{**stack({"enableRouter": False}), "cacheserverSpec": {"serde": serde}} for serde in ("naive", "cachegen")]
    result = diff(read(sides[0]), read(sides[1]))
    assert [(line.setting, line.mechanism) for line in result.changes] == [("cacheserverSpec.serde", "kv_offload")]


def test_prefill_and_decode_of_a_runtime_resource() -> None:
    part = {
        "model": {"modelURL": "org/m", "maxModelLen": 4096},
        "vllmConfig": {"tensorParallelSize": 1},
        "lmCacheConfig": {"enabled": True, "kvRole": "kv_producer", "nixlRole": "sender"},
        "deploymentConfig": {"image": {"registry": "r", "name": "lmcache/vllm-openai:x"}, "resources": {"gpu": "1"}},
    }
    old = made("VLLMRuntime", "production-stack.vllm.ai/v1alpha1", {"topology": {"prefill": part, "decode": part}})
    assert [(m.name, m.role, m.resources["gpu"]) for m in read(old).manifests] == [
        ("a-prefill", "prefill", 1),
        ("a-decode", "decode", 1),
    ]
    other = {**part, "model": {"modelURL": "org/m", "maxModelLen": 8192}}
    new = made("VLLMRuntime", "production-stack.vllm.ai/v1alpha1", {"topology": {"prefill": part, "decode": other}})
    assert changed([old], [new]) == [("max-model-len", "a-decode/vllm")]


def test_values_of_the_operators_chart() -> None:
    values = {
        "vllmRuntimeDefaults": {"model": {"modelURL": "org/m", "dtype": "bfloat16"}},
        "vllmRuntimes": [{"name": "one"}, {"name": "two", "spec": {"model": {"modelURL": "org/n"}}}],
        "vllmRouter": {"enabled": True, "spec": {"routingLogic": "session"}},
    }
    assert [(m.name, m.role, m.model.id) for m in read(values).manifests] == [
        ("one", "server", "org/m"),
        ("two", "server", "org/n"),
        ("router", "router", None),
    ]


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


# --- Ray, Dynamo


def test_several_models_of_one_ray_service_are_several_manifests() -> None:
    configs = [
        {
            "model_loading_config": {"model_id": name, "model_source": f"org/{name}"},
            "engine_kwargs": {"max_model_len": size},
        }
        for name, size in (("a", 1024), ("b", 2048))
    ]
    container = {"name": "head", "image": "rayproject/ray-llm:2.50.0"}
    worker = {"name": "w", "image": "rayproject/ray-llm:2.50.0", "resources": {"limits": {"nvidia.com/gpu": 4}}}
    cluster = {
        "headGroupSpec": {"template": {"spec": {"containers": [container]}}},
        "workerGroupSpecs": [{"replicas": 1, "template": {"spec": {"containers": [worker]}}}],
    }
    text = yaml.safe_dump({"applications": [{"args": {"llm_configs": configs}}]})
    found = read(made("RayService", "ray.io/v1", {"serveConfigV2": text, "rayClusterConfig": cluster})).manifests
    assert [(m.name, m.model.id, settings(m).get("max-model-len"), m.resources["gpu"]) for m in found[:2]] == [
        ("a", "org/a", 1024, 4),
        ("b", "org/b", 2048, 4),
    ]


def test_a_ray_application_of_ones_own_is_compared_as_it_is_written() -> None:
    def service(size: str) -> dict[str, Any]:
        env = {"pip": ["vllm==0.5.4"], "env_vars": {"TENSOR_PARALLELISM": size}}
        text = yaml.safe_dump({"applications": [{"name": "llm", "import_path": "serve:model", "runtime_env": env}]})
        head = {"template": {"spec": {"containers": [{"name": "head", "image": "rayproject/ray-ml:2.33.0"}]}}}
        return made("RayService", "ray.io/v1", {"serveConfigV2": text, "rayClusterConfig": {"headGroupSpec": head}})

    found = read(service("2")).manifests[0]
    assert (found.engine.name, found.engine.version) == ("vllm", "0.5.4") and found.unresolved[0].what == "command"
    assert changed([service("2")], [service("4")]) == [
        ("spec.serveConfigV2.llm.runtime_env.env_vars.TENSOR_PARALLELISM", None)
    ]


def graph(**services: dict[str, Any]) -> dict[str, Any]:
    return made("DynamoGraphDeployment", "nvidia.com/v1alpha1", {"services": services})


def worker(*args: str, command: str = "dynamo.vllm", **more: Any) -> dict[str, Any]:
    main = {"image": "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.3.0", "command": ["python3", "-m", command]}
    return {"componentType": "worker", "extraPodSpec": {"mainContainer": {**main, "args": list(args)}}, **more}


def test_a_worker_is_a_half_only_beside_the_other_half() -> None:
    alone = read(graph(VllmDecodeWorker=worker("--model", "m")))
    both = read(graph(VllmDecodeWorker=worker("--model", "m"), VllmPrefillWorker=worker("--model", "m")))
    assert [m.role for m in alone.manifests] == ["server"]
    assert [m.role for m in both.manifests] == ["decode", "prefill"]


def test_a_graph_without_images_is_a_patch_and_a_planner_is_no_server() -> None:
    patch = read(graph(decode={"replicas": 2, "sharedMemory": {"size": "9Gi"}}))
    assert patch.manifests[0].patch and {w.code for w in patch.warnings} == {"patch"}
    planner = worker("--config", "{}", command="dynamo.planner") | {"componentType": "planner"}
    assert [m.name for m in read(graph(Planner=planner, W=worker("--model", "m"))).manifests] == ["W"]


def test_a_program_beside_the_engine_is_a_sidecar() -> None:
    engine = {"name": "e", "image": "lmsysorg/sglang:v0.5.5", "command": ["python3", "-m", "sglang.launch_server"]}
    engine["args"] = ["--model-path", "m"]
    part = worker() | {"extraPodSpec": {"mainContainer": {"image": "r/sglang-runtime:1", "command": ["grpc-bridge"]}}}
    part["extraPodSpec"]["containers"] = [engine]
    result = read(graph(W=part))
    assert [(m.container, m.role) for m in result.manifests] == [("main", "sidecar"), ("e", "server")]
    assert "ambiguous-command" not in {w.code for w in result.warnings}


def test_a_mocker_is_named_as_one() -> None:
    found = read(graph(W=worker("--model-path", "m", command="dynamo.mocker"))).manifests[0]
    assert found.engine.name == "unknown" and "simulator" in str(found.reason)


# --- wrappers, patches, groups


@pytest.mark.parametrize(
    ("kind", "group", "spec"),
    [
        ("HelmRelease", "helm.toolkit.fluxcd.io/v2", lambda v: {"values": v}),
        ("Application", "argoproj.io/v1alpha1", lambda v: {"source": {"helm": {"valuesObject": v}}}),
        ("Application", "argoproj.io/v1alpha1", lambda v: {"sources": [{}, {"helm": {"values": yaml.safe_dump(v)}}]}),
        ("HelmChart", "helm.cattle.io/v1", lambda v: {"valuesContent": yaml.safe_dump(v)}),
    ],
)
def test_values_inside_a_wrapper(kind: str, group: str, spec: Any) -> None:
    model = {"name": "m", "repository": "vllm/vllm-openai", "tag": "v0.11.0", "modelURL": "org/m"}
    found = read(made(kind, group, spec({"servingEngineSpec": {"modelSpec": [model]}})))
    assert [(m.name, m.model.id) for m in found.manifests] == [("m", "org/m")]
    other = read(made(kind, group, {"chart": {"spec": {"chart": "vllm"}}}))
    assert other.documents[0].handled == "context" and "render" in other.documents[0].reason


def test_patches_of_kustomize_are_named_as_such() -> None:
    component = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": []}
    result = read(component, [{"op": "replace", "path": "/spec/replicas", "value": 2}])
    assert [document.handled for document in result.documents] == ["context", "context"]
    assert "kubectl kustomize" in result.documents[1].reason


def test_a_merge_conflict_is_named() -> None:
    text = "apiVersion: v1\nkind: Pod\n<<<<<<< HEAD\nmetadata: {}\n=======\n>>>>>>> main\n"
    refused = import_files([("c.yaml", text.encode())]).refused[0]
    assert (refused.path, "merge conflict" in refused.problem) == ("3:1", True)


@pytest.mark.parametrize(
    ("kind", "group", "wrap"),
    [
        ("RoleBasedGroup", "workloads.x-k8s.io/v1alpha1", lambda t: {"roles": [{"name": "prefill", "template": t}]}),
        (
            "JobSet",
            "jobset.x-k8s.io/v1alpha2",
            lambda t: {"replicatedJobs": [{"name": "prefill", "template": {"spec": {"template": t}}}]},
        ),
        (
            "PodCliqueSet",
            "grove.io/v1alpha1",
            lambda t: {"template": {"cliques": [{"name": "prefill", "spec": {"podSpec": t["spec"]}}]}},
        ),
        ("Job", "batch.volcano.sh/v1alpha1", lambda t: {"tasks": [{"name": "prefill", "template": t}]}),
        ("DeploymentConfig", "apps.openshift.io/v1", lambda t: {"template": t}),
        ("Service", "serving.knative.dev/v1", lambda t: {"template": t}),
    ],
)
def test_other_groups_and_templates(kind: str, group: str, wrap: Any) -> None:
    template = deployment(command=["vllm", "serve", "m"])[0]["spec"]["template"]
    found = read(made(kind, group, wrap(template), name="prefill")).manifests
    assert [(m.name, m.role, m.engine.version) for m in found] == [("prefill", "prefill", "0.11.0")]


# --- pods


def test_a_reference_that_changes_is_named_even_where_its_value_is_a_secret() -> None:
    def pod(secret: str, field: str) -> list[dict[str, Any]]:
        env = [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "t"}}},
            {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": field}}},
        ]
        return deployment(command=["vllm", "serve", "m"], container={"env": env})

    assert [name for name, _ in changed(pod("a", "status.podIP"), pod("b", "status.hostIP"))] == [
        "env:HF_TOKEN",
        "env:VLLM_HOST_IP",
    ]


def test_devices_and_what_fetches_the_weights_are_compared() -> None:
    def pod(devices: int, source: str) -> list[dict[str, Any]]:
        limits = {"resources": {"limits": {"nvidia.com/gpu": 1, "rdma/ib": devices}}}
        fetch = {"name": "fetch", "image": "i", "args": ["--model-uri", source]}
        return deployment(command=["vllm", "serve", "/m"], container=limits, initContainers=[fetch])

    assert [name for name, _ in changed(pod(1, "s3://a"), pod(2, "s3://b"))] == [
        "resources.limits.rdma/ib",
        "pod.initContainers.fetch",
    ]


def test_a_container_that_only_waits_starts_no_engine() -> None:
    found = read(*deployment(command=["sh", "-c", "sleep infinity"])).manifests[0]
    assert found.engine.name == "unknown" and "waits" in str(found.reason)


def test_a_group_says_once_what_its_pods_share() -> None:
    def group(replicas: int) -> dict[str, Any]:
        template = deployment(command=["vllm", "serve", "m"])[0]["spec"]["template"]
        parts = {"size": 2, "leaderTemplate": template, "workerTemplate": template}
        return made(
            "LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", {"replicas": replicas, "leaderWorkerTemplate": parts}
        )

    assert [name for name, _ in changed([group(1)], [group(2)])] == ["replicas"]


def test_the_production_stack_router_as_a_program() -> None:
    found = read(
        *deployment(image="ubuntu:22.04", command=["python", "-m", "vllm_router.app", "--port=8000"])
    ).manifests[0]
    assert (found.role, settings(found)["port"]) == ("router", 8000)


def test_an_unset_variable_is_the_default_of_vllm() -> None:
    found = read(*deployment(command=["sh", "-c", "vllm serve m --kv-cache-memory-bytes=${BYTES-}"]))
    assert found.manifests[0].settings["kv-cache-memory-bytes"].value is None
    assert "bad-value" not in {w.code for w in found.warnings}


def test_a_credential_in_a_name_is_shown_nowhere() -> None:
    secret = "sk-" + "a1b2c3d4e5" * 3
    body = deployment(name=f"vllm {secret}", container={"name": f"engine {secret}"}, args=["--model", "m"])
    result = read(*body)
    assert secret not in str([m.to_json() for m in result.manifests]) + str(result.documents) + str(result.warnings)
