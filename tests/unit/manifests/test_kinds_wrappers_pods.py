"""Wrappers, patches, groups and pods, as people publish them: every form was silent or wrong once."""

from typing import Any

import pytest
import yaml

from manifests.importing import import_files
from tests.unit.manifests.builders import deployment
from tests.unit.manifests.kinds import changed, made, read, settings

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
