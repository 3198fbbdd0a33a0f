"""Ray services and Dynamo graphs, as people publish them: every form was silent or wrong once."""

from typing import Any

import yaml

from tests.unit.manifests.kinds import changed, made, read, settings

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
