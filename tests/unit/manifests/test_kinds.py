"""Kinds that no shared file shows: patches, values, runtimes, Ray, OME, our own objects."""

from typing import Any

import pytest
import yaml

from manifests.diff import diff
from manifests.importing import import_files, import_objects
from manifests.model import ImportResult
from tests.unit.manifests.builders import deployment


def read(*documents: dict[str, Any]) -> ImportResult:
    return import_files([("k.yaml", yaml.safe_dump_all(documents).encode())])


def settings(result: ImportResult, index: int = 0) -> dict[str, Any]:
    return {name: setting.value for name, setting in result.manifests[index].settings.items()}


@pytest.mark.parametrize(
    ("args", "engine"),
    [
        (["--max-num-seqs=64"], "vllm"),
        (["--mem-fraction-static=.8"], "sglang"),
        (["--port=80"], "unknown"),
        (["--what=1"], "unknown"),
    ],
)
def test_a_kustomize_patch_is_what_it_sets(args: list[str], engine: str) -> None:
    result = read(*deployment(image=None, args=args, gpu=None))
    assert [(m.engine.name, m.patch) for m in result.manifests] == [(engine, True)]
    assert "patch" in {warning.code for warning in result.warnings}
    assert len(settings(result)) == 1


def test_an_object_without_containers_is_no_manifest() -> None:
    result = read({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 3}})
    assert result.manifests == () and result.documents[0].handled == "context"


def test_a_predictor_over_its_runtime() -> None:
    container = {
        "name": "kserve-container",
        "image": "vllm/vllm-openai:v0.11.0",
        "args": ["--model=/mnt/models", "--served-model-name={{.Name}}"],
    }
    runtime = {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": {"name": "r"},
        "spec": {"containers": [container]},
    }
    model = {
        "modelFormat": {"name": "vLLM"},
        "runtime": "r",
        "storageUri": "hf://org/m",
        "args": ["--max-model-len=2048"],
    }
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {"predictor": {"model": model}},
    }
    result = read(service, runtime)
    assert result.manifests[0].model.id == "org/m" and result.manifests[0].engine.version == "0.11.0"
    assert settings(result) == {"model": "/mnt/models", "served-model-name": "chat", "max-model-len": 2048}


def test_ray_serve_settings() -> None:
    text = yaml.safe_dump(
        {
            "applications": [
                {
                    "args": {
                        "llm_configs": [
                            {
                                "model_loading_config": {"model_source": "org/m"},
                                "engine_kwargs": {"tensor_parallel_size": 2},
                            }
                        ]
                    }
                }
            ]
        }
    )
    head = {"template": {"spec": {"containers": [{"name": "head", "image": "rayproject/ray-llm:2.46.0"}]}}}
    result = read(
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayService",
            "metadata": {"name": "r"},
            "spec": {"serveConfigV2": text, "rayClusterConfig": {"headGroupSpec": head}},
        }
    )
    assert (
        settings(result) == {"model": "org/m", "tensor-parallel-size": 2} and result.manifests[0].engine.version is None
    )


def test_values_of_a_chart_that_writes_a_flag_for_an_absent_key() -> None:
    spec = {
        "name": "m",
        "repository": "vllm/vllm-openai",
        "tag": "v0.11.0",
        "modelURL": "org/m",
        "requestGPU": 1,
        "vllmConfig": {"maxModelLen": 4096},
    }
    result = read({"servingEngineSpec": {"modelSpec": [spec]}})
    assert settings(result)["enable-prefix-caching"] is False
    off = read({"servingEngineSpec": {"modelSpec": [{**spec, "enabled": False}]}})
    assert off.manifests == () and "not enabled" in off.documents[0].reason


def test_a_list_belongs_to_its_document() -> None:
    result = read(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [*deployment(name="a", args=["--model", "m"]), *deployment(name="b", args=["--model", "m"])],
        }
    )
    assert [m.name for m in result.manifests] == ["a", "b"] and len(result.documents) == 1
    assert result.manifests[1].source.path.startswith("items[1].")


def test_objects_of_the_operator_with_their_configmaps() -> None:
    body = deployment(
        args=["--model", "m", "--config", "/c/a.yaml"],
        container={"volumeMounts": [{"name": "c", "mountPath": "/c"}]},
        volumes=[{"name": "c", "configMap": {"name": "cfg"}}],
    )
    result = import_objects(body, {"cfg": {"a.yaml": "max-num-seqs: 8\n"}})
    assert settings(result)["max-num-seqs"] == 8
    assert result.manifests[0].settings["max-num-seqs"].origin == "configmap"


def test_groups_of_disaggregated_roles() -> None:
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.20.0",
        "command": ["bash", "-c", "vllm serve m -dp $((LWS_GROUP_SIZE * 8)) --data-parallel-size-local 8"],
        "resources": {"limits": {"nvidia.com/gpu": 8}},
    }
    role = {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [container]}}}}
    result = read(
        {
            "apiVersion": "disaggregatedset.x-k8s.io/v1",
            "kind": "DisaggregatedSet",
            "metadata": {"name": "d"},
            "spec": {"roles": [{"name": "prefill", "spec": role}, {"name": "decode", "spec": role}]},
        }
    )
    assert [(m.name, m.role, m.resources["pods"]) for m in result.manifests] == [
        ("prefill", "prefill", 2),
        ("decode", "decode", 2),
    ]
    assert settings(result)["data-parallel-size"] == 16


def test_a_template_parameter_without_a_value_stays_unresolved() -> None:
    template = {
        "apiVersion": "template.openshift.io/v1",
        "kind": "Template",
        "metadata": {"name": "t"},
        "parameters": [{"name": "MODEL", "value": "org/m"}, {"name": "LENGTH", "required": True}],
        "objects": deployment(args=["--model=${MODEL}", "--max-model-len=${LENGTH}"]),
    }
    result = import_files([("t.yaml", yaml.safe_dump(template).encode())])
    assert result.manifests[0].model.id == "org/m"
    assert result.manifests[0].settings["max-model-len"].value is None
    assert "max-model-len" in {entry.what for entry in result.manifests[0].unresolved}
    assert "bad-value" not in {warning.code for warning in result.warnings}


def test_values_that_the_chart_turns_into_no_argument_are_compared_as_written() -> None:
    def side(size: str) -> ImportResult:
        model = {"name": "m", "repository": "vllm/vllm-openai", "tag": "v0.11.0", "modelURL": "org/m"}
        cache = {"enabled": True, "cpuOffloadingBufferSize": size}
        values = {"servingEngineSpec": {"modelSpec": [{**model, "lmcacheConfig": cache}]}}
        return import_files([("v.yaml", yaml.safe_dump(values).encode())])

    result = diff(side("30"), side("60"))
    assert [(line.setting, line.mechanism) for line in result.changes] == [
        ("modelSpec.lmcacheConfig.cpuOffloadingBufferSize", "kv_offload")
    ]
