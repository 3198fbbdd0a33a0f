"""How large a manifest may be: each ConfigMap counts once, and what etcd would refuse is told before anything moves."""

import json
import time

import pytest

from controller.core import freezing
from controller.core.sizes import LARGEST_MANIFEST_BYTES, LARGEST_STORED_BYTES, Size, size_of
from controller.core.snapshot import Frozen
from crds.v1alpha1.conditions import Phase
from crds.v1alpha1.rollout import InferenceRolloutSpec
from tests.unit.controller.world import installed

KIB = 1024
LINE = "{{ message['content'] | trim }} {# a line of a template #}\n"


def frozen(parts: dict[str, str]) -> Frozen:
    """A revision that mounts these ConfigMaps (name -> text), in two containers each."""
    mounts = [{"name": name, "mountPath": f"/etc/{name}"} for name in parts]
    containers = [
        {"name": name, "image": "vllm/vllm-openai:v0.31.0", "args": ["--model=m"], "volumeMounts": mounts}
        for name in ("vllm", "second")
    ]
    volumes = [{"name": name, "configMap": {"name": name}} for name in parts]
    raw = {
        "replicas": 1,
        "policy": {"gates": [{"metric": "success", "limit": "99%"}]},
        "template": {"spec": {"containers": containers, "volumes": volumes}},
    }
    spec = InferenceRolloutSpec.model_validate(raw)
    contents = {name: {"t.jinja": text} for name, text in parts.items()}
    return freezing.freeze("ns", "chat", spec, None, contents, "2026-01-01T00:00:00Z")


def test_a_config_map_counts_once_however_often_it_is_mounted() -> None:
    parts = {f"part-{n}": f"{n}\n" + LINE * (300 * KIB // len(LINE)) for n in range(3)}
    began = time.process_time()
    large = frozen(parts)
    spent = time.process_time() - began
    text_bytes = sum(len(text) for text in parts.values())
    assert text_bytes > 890 * KIB
    assert large.size.content_bytes < 1.06 * text_bytes
    assert large.size.excess() == ""
    assert spent < 5.0
    stored = freezing.manifest_object("ns", "chat", large, 1)
    back = freezing.from_object(json.loads(json.dumps(stored)))
    assert back.manifest.config_maps == {name: {"t.jinja": text} for name, text in parts.items()}
    mounted = {f"/etc/{name}/t.jinja": text for name, text in parts.items()}
    assert [part.files for part in freezing.manifests_of(back)] == [mounted, mounted]


@pytest.mark.parametrize(
    ("text", "stored_bytes"), [("ab", 2), ("<|x|>&", 6 + 15), ("é", 2), ("\u2028", 6), ("\n", 2), ("\x01", 6)]
)
def test_bytes_are_counted_as_etcd_holds_them(text: str, stored_bytes: int) -> None:
    """Measured on kube-apiserver 1.37: 250,000 of `<` are taken, 270,000 are `etcdserver: request is too large`."""
    assert size_of({"k": text}).stored_bytes - size_of({"k": ""}).stored_bytes == stored_bytes


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (Size(LARGEST_MANIFEST_BYTES, LARGEST_STORED_BYTES, 0), ""),
        (Size(LARGEST_MANIFEST_BYTES + 1, 0, 0), "1,048,577 bytes, and at most 1,048,576"),
        (Size(0, LARGEST_STORED_BYTES + 1, 0), "as etcd holds it"),
        (Size(0, 0, 2**22), "as it is sent"),
    ],
)
def test_the_limit_that_breaks_is_told(size: Size, words: str) -> None:
    assert words in size.excess() if words else size.excess() == ""


def test_too_large_names_object_and_size_before_anything_moves() -> None:
    world = installed().apply("v2")
    target = frozen({"small": "x", "huge": LINE * (1100 * KIB // len(LINE))})
    world.overrides["target"] = target
    world.settle()
    assert world.status.phase is Phase.PENDING
    assert world.condition("Stalled") == ("True", "ManifestTooLarge")
    message = world.status.message
    assert f"RunManifest chat-{target.rev10} would have" in message and "at most 1,048,576" in message
    assert "ConfigMap huge (1,1" in message
    assert target.rev10 not in world.stored and set(world.running) == {world.status.stable}
