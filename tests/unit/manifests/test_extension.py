"""A reader for a kind that nobody here knows, added by the documented extension point."""

from typing import Any

import yaml

from manifests.diff import diff
from manifests.importers import registry
from manifests.importers.kubernetes import workload_of
from manifests.importers.registry import Field, Scope, Workload, items, mapping, reader, whole_number
from manifests.importing import import_files

DOCUMENT = """
apiVersion: serving.example.org/v1
kind: TokenFactory
metadata: {name: chat, namespace: prod}
spec:
  engine: {image: "vllm/vllm-openai:v0.20.0", model: org/m, maxLength: 4096, extra: ["--enforce-eager"]}
  cards: 2
  stages: [{name: prefill, count: 1}, {name: decode, count: 3}]
"""


def read_token_factory(obj: dict[str, Any], scope: Scope) -> list[Workload]:
    """The whole importer: pods, roles, replicas, and the fields that mean settings."""
    spec = mapping(obj.get("spec"))
    engine = mapping(spec.get("engine"))
    fields = (Field("max-model-len", engine["maxLength"], "spec.engine.maxLength"),)
    out = []
    for index, stage in enumerate(items(spec.get("stages"))):
        container = {
            "name": "engine",
            "image": engine.get("image"),
            "command": ["vllm", "serve", engine.get("model")],
            "args": engine.get("extra"),
            "resources": {"limits": {"nvidia.com/gpu": spec.get("cards")}},
        }
        template = {"spec": {"containers": [container]}}
        name, count = str(stage.get("name")), whole_number(stage.get("count"))
        out.append(
            workload_of(obj, template, f"spec.stages[{index}]", name=name, role=name, replicas=count, fields=fields)
        )
    return out


def test_a_fourth_party_kind_is_read_by_a_short_importer(monkeypatch: Any) -> None:
    monkeypatch.setattr(registry, "_READERS", dict(registry._READERS))
    assert import_files([("f.yaml", DOCUMENT.encode())]).documents[0].handled == "not-ours"
    reader("TokenFactory.serving.example.org")(read_token_factory)
    result = import_files([("f.yaml", DOCUMENT.encode())])
    assert [(m.name, m.role, m.replicas, m.resources["gpu"]) for m in result.manifests] == [
        ("prefill", "prefill", 1, 2),
        ("decode", "decode", 3, 2),
    ]
    settings = {name: (s.value, s.origin) for name, s in result.manifests[0].settings.items()}
    assert settings == {
        "model": ("org/m", "command"),
        "enforce-eager": (True, "args"),
        "max-model-len": (4096, "custom-resource"),
    }
    changed = yaml.safe_load(DOCUMENT)
    changed["spec"]["engine"]["maxLength"] = 8192
    lines = diff(result, import_files([("g.yaml", yaml.safe_dump(changed).encode())])).changes
    assert [(line.manifest, line.setting, line.old, line.new) for line in lines] == [
        ("prefill/engine", "max-model-len", 4096, 8192),
        ("decode/engine", "max-model-len", 4096, 8192),
    ]
