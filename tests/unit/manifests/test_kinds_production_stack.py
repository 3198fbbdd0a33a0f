"""The production stack's charts and resources, as people publish them: every form was silent or wrong once."""

from typing import Any

from manifests.diff import diff
from tests.unit.manifests.kinds import changed, made, read, settings

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
