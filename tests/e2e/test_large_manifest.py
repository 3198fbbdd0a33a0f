"""ConfigMaps of nearly 1 MiB are frozen, stored and served whole; larger ones are refused before anything moves."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kube import Namespace, wait_until
from tests.e2e.rollout import API, Rollout, condition, is_true
from tests.e2e.system import System

pytestmark = pytest.mark.e2e
KIB = 1024
LINE = "{%- if message['role'] == 'user' -%}<|im_start|>{{ message['content'] }}\n"
PARTS = ("part-0", "part-1", "part-2")


def text_of(part: str, kib: int) -> str:
    return f"{part}\n" + LINE * (kib * KIB // len(LINE))


class Large(Rollout):
    """A rollout whose engine mounts three large ConfigMaps beside the usual one."""

    def spec(self, *flags: str, **more: Any) -> dict[str, Any]:
        spec = super().spec(*flags, **more)
        pod = spec["template"]["spec"]
        for name in PARTS:
            pod["volumes"].append({"name": name, "configMap": {"name": name}})
            pod["containers"][0]["volumeMounts"].append({"name": name, "mountPath": f"/etc/{name}"})
        return spec

    def put(self, name: str, kib: int) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"t.jinja": text_of(name, kib)}}
        path = f"{self.namespace.path('configmaps', name)}?fieldManager=user&force=true"
        self.system.call("PATCH", path, {**body, "metadata": {"name": name}}, "application/apply-patch+yaml")


@pytest.fixture
def large(system: System) -> Iterator[Large]:
    rollout = Large(system, Namespace(system.cluster.api(), "large"), replicas=1, gpus=0, gates=1)
    for name in PARTS:
        rollout.put(name, 285)
    rollout.install()
    yield rollout
    rollout.namespace.call("DELETE", rollout.path)
    wait_until("the object to go", lambda: not rollout.get(), 60)
    system.call("DELETE", rollout.namespace.path("deployments", version="apps/v1"))


def test_config_maps_up_to_the_limit_serve_and_beyond_it_nothing_moves(large: Large) -> None:
    stable = large.status()["stable"]
    stored = large.namespace.get("runmanifests", f"chat-{stable}", API)["spec"]
    total = sum(len(text) for data in stored["configMaps"].values() for text in data.values())
    assert total > 850 * KIB
    assert all(stored["configMaps"][name]["t.jinja"] == text_of(name, 285) for name in PARTS)
    pod = large.engines(stable)[0]
    copies = {v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v}
    for copy in copies - {name for name in copies if name.startswith("chat-template")}:
        data = large.namespace.get("configmaps", copy)["data"]["t.jinja"]
        assert data == text_of(copy.rsplit("-", 1)[0], 285)

    large.put("part-1", 700)
    status = large.wait("it is told", lambda s: condition(s, "Stalled").get("reason") == "ManifestTooLarge", 60)
    told = condition(status, "Stalled")["message"]
    assert f"RunManifest chat-{status['candidate']} would have" in told
    assert "ConfigMap part-1 (71" in told and "Nothing was moved" in told
    assert large.variants() == {stable} and is_true(status, "Ready") is False
    assert status["step"]["weight"] == 0 and status["stable"] == stable
    assert large.namespace.get("runmanifests", f"chat-{status['candidate']}", API) is None
    large.put("part-1", 285)
    large.wait("the stable revision in sync", lambda s: is_true(s, "InSync"), 60)
