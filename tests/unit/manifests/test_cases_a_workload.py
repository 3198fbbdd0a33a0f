"""The field cases about quantities, models, pods, files and secrets, one test each, named by the case."""

from typing import Any

import pytest

from manifests.diff import PairingError, diff
from manifests.digest import equal_after_normalisation, normalise, revision_digest
from manifests.lint import lint
from manifests.model import REDACTED, ImportResult
from tests.unit.manifests.builders import Build, build_import, configmap, mounted
from tests.unit.manifests.readings import codes, lines, settings


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"limits": {"cpu": "1000m"}}, {"limits": {"cpu": 1}}),
        ({"limits": {"cpu": "1"}}, {"limits": {"cpu": 1}}),
        ({"limits": {"cpu": 0.5}}, {"limits": {"cpu": "500m"}}),
        ({"limits": {"memory": "1000M"}}, {"limits": {"memory": "1G"}}),
        ({"limits": {"memory": "1024Mi"}}, {"limits": {"memory": "1Gi"}}),
        ({}, None),
        ({}, {"limits": {}}),
        (None, {"limits": {}}),
    ],
)
def test_c13_equal_quantities_are_no_difference(old: Any, new: Any) -> None:
    def result(resources: Any) -> ImportResult:
        return build_import(
            args=["--model", "m"], gpu=None, container={} if resources is None else {"resources": resources}
        )

    assert diff(result(old), result(new)).changes == ()
    assert (
        equal_after_normalisation(
            {"resources": old} if old is not None else {}, {"resources": new} if new is not None else {}
        )
        == []
    )


def test_c13_a_gibibyte_is_no_gigabyte() -> None:
    assert equal_after_normalisation({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1G"}}) == ["limits.memory"]


def test_c13_what_the_api_server_fills_in_is_no_difference() -> None:
    written = {
        "spec": {
            "containers": [
                {
                    "name": "v",
                    "image": "vllm/vllm-openai:v0.11.0",
                    "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
                }
            ]
        }
    }
    live = {
        "metadata": {
            "creationTimestamp": None,
            "annotations": {"sidecar.istio.io/status": "injected", "kubectl.kubernetes.io/restartedAt": "now"},
        },
        "spec": {
            "containers": [
                {
                    "name": "v",
                    "image": "vllm/vllm-openai:v0.11.0",
                    "imagePullPolicy": "IfNotPresent",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "readinessProbe": {
                        "httpGet": {"path": "/health", "port": 8000, "scheme": "HTTP"},
                        "timeoutSeconds": 1,
                        "periodSeconds": 10,
                        "successThreshold": 1,
                        "failureThreshold": 3,
                    },
                }
            ],
            "terminationGracePeriodSeconds": 30,
            "restartPolicy": "Always",
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
        },
    }
    for _ in range(10):
        assert equal_after_normalisation(written, live) == []
        live = normalise(live)


def test_c15_an_unpinned_model_is_named_and_a_moved_one_is_a_change() -> None:
    result = build_import(args=["--model", "org/m"])
    assert any(f.code == "branch-revision" for f in lint(result))
    from dataclasses import replace

    manifest = result.manifests[0]
    old = replace(manifest, extra={"generation": {"modelRevision": "r1", "chatTemplateHash": "a"}})
    new = replace(manifest, extra={"generation": {"modelRevision": "r2", "chatTemplateHash": "b"}})
    found = diff(old, new)
    assert [(line.setting, line.old, line.new) for line in found.changes] == [
        ("model.revision", "r1", "r2"),
        ("generation.chatTemplateHash", "a", "b"),
    ]
    assert "unpinned" in found.changes[0].why and found.correctness == "contract-change"


def test_c15_a_local_path_ignores_the_revision() -> None:
    old = build_import(args=["--model", "/models/m", "--revision", "a"])
    new = build_import(args=["--model", "/models/m", "--revision", "b"])
    assert not diff(old, new).effective
    assert diff(
        build_import(args=["--model", "org/m", "--revision", "a"]),
        build_import(args=["--model", "org/m", "--revision", "b"]),
    ).effective


ISTIO = {"name": "istio-proxy", "image": "docker.io/istio/proxyv2:1.24.0", "args": ["proxy", "sidecar"]}
VLLM = {
    "name": "vllm",
    "image": "vllm/vllm-openai:v0.11.0",
    "args": ["--model", "m"],
    "resources": {"limits": {"nvidia.com/gpu": 1}},
}


def pod(*containers: dict[str, Any], **spec: Any) -> ImportResult:
    import yaml

    from manifests.importing import import_files

    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": list(containers), **spec},
    }
    return import_files([("pod.yaml", yaml.safe_dump(body).encode())])


def test_c17_the_server_is_found_wherever_it_stands() -> None:
    first, second = pod(ISTIO, VLLM), pod(VLLM, ISTIO)
    native = pod(VLLM, initContainers=[{**ISTIO, "restartPolicy": "Always"}])
    for result in (first, second, native):
        assert [manifest.container for manifest in result.manifests] == ["vllm"]
    assert diff(first, second).changes == () and diff(first, native).changes == ()


def test_c17_two_servers_in_one_pod_need_a_name() -> None:
    both = pod(VLLM, {**VLLM, "name": "other"})
    assert "ambiguous-command" in codes(both)
    with pytest.raises(PairingError) as caught:
        diff(both, both)
    assert set(caught.value.choices) == {"p/vllm", "p/other"}
    assert diff(both, both, select="p/vllm").changes == ()


def test_c19_more_ranks_than_accelerators_is_an_error(build: Build) -> None:
    small = build(args=["--model", "m", "-tp", "2"], gpu=1)
    findings = [f for f in lint(small) if f.code == "gpu-count"]
    assert (
        findings[0].level == "error"
        and "tensor-parallel-size 2" in findings[0].message
        and "nvidia.com/gpu" in findings[0].message
    )
    assert any(f.code == "gpu-count" for f in diff(build(args=["--model", "m"]), small).warnings)
    hidden = build(args=["--model", "m", "-tp", "2"], gpu=2, env={"CUDA_VISIBLE_DEVICES": "0"})
    assert {f.code: f.level for f in lint(hidden)}["visible-devices"] == "warning"


def test_c19_a_group_of_pods_counts_together() -> None:
    import yaml

    from manifests.importing import import_files

    container = {
        **VLLM,
        "args": ["--model", "m", "-tp", "2", "-pp", "2"],
        "resources": {"limits": {"nvidia.com/gpu": 2}},
    }
    worker = {
        **VLLM,
        "name": "worker",
        "args": ["ray", "start"],
        "command": ["sh", "-c", "ray start --address=$(LWS_LEADER_ADDRESS) --block"],
    }
    group = {
        "size": 2,
        "leaderTemplate": {"spec": {"containers": [container]}},
        "workerTemplate": {"spec": {"containers": [worker]}},
    }
    body = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "g"},
        "spec": {"leaderWorkerTemplate": group},
    }
    result = import_files([("lws.yaml", yaml.safe_dump(body).encode())])
    assert [(m.rank, m.role, m.engine.name) for m in result.manifests] == [
        ("leader", "server", "vllm"),
        ("worker", "worker", "unknown"),
    ]
    assert not [f for f in lint(result) if f.code == "gpu-count"]


def with_config(name: str, seqs: int) -> ImportResult:
    config = configmap(name, vllm__yaml=f"max_num_seqs: {seqs}\nmax-model-len: 4096\n")
    return build_import(
        args=["--model", "m", "--config", "/etc/vllm/vllm.yaml"], others=(config,), **mounted(name, "/etc/vllm")
    )


def test_c21_configmaps_are_compared_by_content() -> None:
    result = diff(with_config("cfg-a1", 64), with_config("cfg-b2", 96))
    assert lines(result) == [("max-num-seqs", 64, 96)]
    assert not diff(with_config("cfg-a1", 64), with_config("cfg-b2", 64)).effective
    assert lines(diff(with_config("cfg", 64), with_config("cfg", 96))) == [("max-num-seqs", 64, 96)]


def test_c21_a_missing_configmap_is_an_error_not_empty(build: Build) -> None:
    result = build(args=["--model", "m", "--config", "/etc/vllm/vllm.yaml"], **mounted("gone", "/etc/vllm"))
    assert any(w.code == "missing-configmap" and w.level == "error" for w in result.warnings)
    assert any(entry.what == "file:/etc/vllm/vllm.yaml" for entry in result.manifests[0].unresolved)


def test_c37_a_smaller_context_limit_is_a_reduced_capability(build: Build) -> None:
    result = diff(
        build(args=["--model", "m", "--max-model-len", "32768"]),
        build(args=["--model", "m", "--max-model-len", "16384"]),
    )
    assert any(w.code == "context-limit-lowered" and "capability reduced" in w.message for w in result.warnings)
    assert result.correctness == "contract-change"
    assert any(
        f.level == "error"
        for f in lint(build(args=["--model", "m", "--max-model-len", "100"]), longest_prompt_tokens=200)
        if f.code == "context-limit-lowered"
    )


def test_c45_another_accelerator_is_a_change(build: Build) -> None:
    def on(product: str) -> ImportResult:
        return build(args=["--model", "m"], nodeSelector={"nvidia.com/gpu.product": product})

    result = diff(on("NVIDIA-H100-80GB-HBM3"), on("NVIDIA-A100-SXM4-80GB"))
    assert ("resources.product", "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB") in lines(result)
    derived = {line.setting: (line.old, line.new) for line in result.changes if line.origin == "hardware-default"}
    assert derived == {"max-num-batched-tokens": (8192, 2048), "max-num-seqs": (1024, 256)}


def template(**labels: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "v", "image": "i:1", "args": ["--model", "m"]}]},
    }


def test_c75_replicas_status_and_injected_annotations_start_no_attempt() -> None:
    first = revision_digest({"server": template(app="a")}, None, None)
    injected = template(app="a")
    injected["metadata"]["annotations"] = {"sidecar.istio.io/status": "x", "linkerd.io/inject": "enabled"}
    injected["metadata"]["creationTimestamp"] = None
    assert revision_digest({"server": injected}, {}, {}) == first
    assert revision_digest({"server": template(app="b")}, None, None) != first
    assert revision_digest({"server": template(app="a")}, {"model": {"revision": "r"}}, None) != first


def test_c83_an_added_variable_is_seen_after_a_rollback() -> None:
    stored, live = template(app="a"), template(app="a")
    live["spec"]["containers"][0]["env"] = [{"name": "X", "value": "1"}]
    live["spec"]["tolerations"] = [{"key": "k", "operator": "Exists"}]
    assert equal_after_normalisation(stored, live) == ["spec.containers[0].env", "spec.tolerations"]


MARKERS = ("hf_abcdefghijklmnop", "sk-0123456789abcdef", "hunter2hunter2", "p4ssw0rdvalue")


def secret_manifest(token: str) -> ImportResult:
    script = f"export DB_PASSWORD=p4ssw0rdvalue; vllm serve org/m --api-key sk-0123456789abcdef --port 8000 # {token}"
    return build_import(
        command=["sh", "-c", script],
        env={"HF_TOKEN": token, "PROXY": "http://user:hunter2hunter2@proxy:3128"},
        container={"args": []},
    )


def test_c105_no_secret_leaves_the_import_or_the_diff() -> None:
    import json

    old, new = secret_manifest("hf_abcdefghijklmnop"), secret_manifest("hf_zyxwvutsrqponmlk")
    result = diff(old, new)
    for text in (
        json.dumps(old.to_json()),
        json.dumps(result.to_json()),
        "\n".join(result.sentences()),
        json.dumps([f.to_json() for f in lint(old)]),
    ):
        assert not [marker for marker in (*MARKERS, "hf_zyxwvutsrqponmlk") if marker in text]
    assert settings(old)["api-key"] == REDACTED and old.manifests[0].environment["HF_TOKEN"] == REDACTED
    assert [line.setting for line in result.changes] == ["env:HF_TOKEN"] and "secret changed" in result.changes[0].why
    assert old.manifests[0].digest == new.manifests[0].digest


def test_c105_a_count_of_tokens_is_no_secret(build: Build) -> None:
    result = build(
        "ghcr.io/huggingface/text-generation-inference:2.4.0", env={"MODEL_ID": "org/m", "MAX_TOTAL_TOKENS": "4096"}
    )
    assert settings(result)["max-total-tokens"] == 4096


def test_labels_that_the_controller_adds_are_no_difference() -> None:
    ours = {"app.kubernetes.io/managed-by": "weighlock", "weighlock.dev/role": "server"}
    assert equal_after_normalisation({"spec": {}}, {"metadata": {"labels": ours}, "spec": {}}) == []
    theirs = {"app.kubernetes.io/managed-by": "helm"}
    assert equal_after_normalisation({"spec": {}}, {"metadata": {"labels": theirs}, "spec": {}}) == ["metadata"]
