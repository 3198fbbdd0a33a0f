"""What is left in the cluster: variants, copies of ConfigMaps, Services, after rollbacks, edits and deletions."""

from typing import Any

import pytest

from controller.core import variants
from tests.unit.controller.shell.shell import NAME, NS, Shell


def test_c83_a_rollback_serves_exactly_what_was_stored(shell: Shell) -> None:
    shell.weigh()
    stable = shell.status["stable"]
    live = shell.cluster.objects["deployments", NS, variants.variant_name(NAME, stable, "server")]
    stored = [dict(c) for c in live["spec"]["template"]["spec"]["containers"]]
    live["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "X", "value": "1"}]
    live["spec"]["template"]["spec"]["nodeSelector"] = {"x": "y"}
    live["metadata"]["generation"] = 2
    shell.say("FAIL")
    shell.run_to("RolledBack")
    template = shell.cluster.objects["deployments", NS, variants.variant_name(NAME, stable, "server")]["spec"][
        "template"
    ]
    assert template["spec"]["containers"] == stored and "nodeSelector" not in template["spec"]
    assert "equal to its stored manifest" in shell.status["message"]


def test_config_maps_are_copied_by_content_and_restored(shell: Shell) -> None:
    volume = {"name": "c", "configMap": {"name": "settings"}}
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.31.0",
        "envFrom": [{"configMapRef": {"name": "settings"}}],
    }
    template = {"spec": {"containers": [container], "volumes": [volume]}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NS}}
    shell.cluster.put({**config, "data": {"max": "64"}})
    shell.apply(template=template)
    shell.run_to("Shadow")
    shell.once()
    copies = [o for o in shell.cluster.cached("configmaps", NS) if o.get("immutable")]
    assert len(copies) == 1 and copies[0]["metadata"]["annotations"][variants.SOURCE] == "settings"
    candidate = shell.status["candidate"]
    pod = shell.cluster.objects["deployments", NS, f"{NAME}-{candidate}"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["configMap"]["name"] == copies[0]["metadata"]["name"]
    assert pod["containers"][0]["envFrom"][0]["configMapRef"]["name"] == copies[0]["metadata"]["name"]
    shell.cluster.put({**config, "data": {"max": "96"}})
    shell.once()
    assert shell.status["reason"] == "Superseded"


def test_deletion_orphans_what_serves_and_the_service_points_to_it(shell: Shell) -> None:
    shell.weigh()
    stable, candidate = shell.status["stable"], shell.status["candidate"]
    obj = shell.cluster.objects["inferencerollouts", NS, NAME]
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for _ in range(4):
        shell.once()
    assert shell.cluster.objects["inferencerollouts", NS, NAME]["metadata"]["finalizers"] == []
    assert ("deployments", NS, f"{NAME}-{stable}") in shell.cluster.objects
    assert ("deployments", NS, f"{NAME}-{candidate}") not in shell.cluster.objects
    service = shell.cluster.objects["services", NS, f"{NAME}-gate"]
    assert service["spec"]["selector"][variants.REVISION] == stable
    assert "weighlock.dev/gate" not in service["spec"]["selector"]
    assert shell.cluster.cached("runmanifests", NS) == []


def legacy_service() -> dict[str, Any]:
    spec = {"selector": {"app": "legacy"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "llm", "namespace": NS}, "spec": spec}


@pytest.mark.parametrize("legacy_runs", [True, False])
def test_a_taken_over_service_gets_back_what_it_had(shell: Shell, legacy_runs: bool) -> None:
    shell.cluster.put(legacy_service())
    if legacy_runs:
        meta = {"name": "old", "namespace": NS, "labels": {"app": "legacy"}}
        shell.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": {}})
    shell.apply(traffic={"takeOverService": "llm"})
    for _ in range(4):
        shell.once()
        if legacy_runs:
            shell.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {}, "status": {}})
    service = shell.cluster.objects["services", NS, "llm"]
    assert service["spec"]["selector"] == {"weighlock.dev/gate": NAME}
    assert service["spec"]["ports"][0]["targetPort"] == 8000
    shell.cluster.objects["inferencerollouts", NS, NAME]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for _ in range(4):
        shell.reconciler.reconcile(f"{NS}/{NAME}")
    service = shell.cluster.objects["services", NS, "llm"]
    if legacy_runs:
        assert service["spec"] == legacy_service()["spec"]
    else:
        assert service["spec"]["selector"][variants.REVISION] == shell.status["stable"]
    assert not any(key.startswith("weighlock.dev") for key in service["metadata"].get("annotations", {}))


def test_a_service_of_another_rollout_is_not_taken(shell: Shell) -> None:
    service = legacy_service()
    service["metadata"]["annotations"] = {"weighlock.dev/taken-over-by": "another"}
    shell.cluster.put(service)
    shell.apply(traffic={"takeOverService": "llm"})
    for _ in range(3):
        shell.once()
    assert shell.cluster.objects["services", NS, "llm"]["spec"]["selector"] == {"app": "legacy"}
    stalled = next(c for c in shell.status["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "RouteConflict"


def test_c75_what_others_write_into_a_running_variant_starts_no_attempt(shell: Shell) -> None:
    shell.apply()
    shell.run_to("Completed")
    attempt, stable = shell.status["attempt"], shell.status["stable"]
    live = shell.cluster.objects["deployments", NS, variants.variant_name(NAME, stable, "server")]
    template = live["spec"]["template"]
    template["metadata"]["annotations"] = {"sidecar.istio.io/status": "injected"}
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}  # an autoscaler's
    for replicas in (3, 5) * 5:
        shell.apply(replicas=replicas)
        shell.once()
    assert (shell.status["attempt"], shell.status["stable"]) == (attempt, stable)
    assert shell.status["phase"] == "Completed"
