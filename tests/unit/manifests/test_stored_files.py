"""A RunManifest holds each ConfigMap's text once, and every reader gets the whole text back."""

import pytest

from manifests.stored import read_stored
from manifests.stored_files import refer, resolve

MORE = "".join(f"setting-{n}: {n}\n" for n in range(9))
MAPS = {
    "chat": {"t.jinja": "{% for m in messages %}\n{{ m }}\n{% endfor %}\n"},
    "conf": {"c.yaml": f"a: 1\nkey: sk-1\n{MORE}"},
}
FILES = {
    "/etc/chat/t.jinja": MAPS["chat"]["t.jinja"],
    "/etc/conf/c.yaml": f"a: 1\nkey: <redacted>\n{MORE}",  # a secret was hidden in it
    "/tmp/made-by-the-script": "x\n",
}


def test_texts_of_config_maps_are_references_and_come_back_whole() -> None:
    stored = refer(FILES, MAPS)
    assert stored == {
        "/etc/chat/t.jinja": {"configMap": "chat", "key": "t.jinja"},
        "/etc/conf/c.yaml": {"configMap": "conf", "key": "c.yaml", "lines": {"1": "key: <redacted>"}},
        "/tmp/made-by-the-script": "x\n",
    }
    assert resolve(stored, MAPS) == FILES


@pytest.mark.parametrize("text", ["", "\n", "one", "a: 1\r\nkey: y\r\nb: 2\r\n", "a: 1\nkey: <redacted>"])
def test_whatever_was_written_comes_back(text: str) -> None:
    assert resolve(refer({"/f": text}, MAPS), MAPS) == {"/f": text}


def manifest(files: object) -> dict[str, object]:
    part = {"name": "chat", "argv": ["vllm"], "engine": {"name": "vllm"}, "settings": {}, "files": files}
    return {"kind": "RunManifest", "spec": {"configMaps": MAPS, "resolved": [part]}}


def test_what_older_releases_stored_is_read_like_the_new_form() -> None:
    old, new = (read_stored(manifest(files), "f", 0) for files in (FILES, refer(FILES, MAPS)))
    assert old is not None and new is not None and old == new
    assert old[0].files == FILES and old[0].digest == new[0].digest


def test_a_reference_without_its_config_map_is_empty_and_no_error() -> None:
    stored = {"/f": {"configMap": "gone", "key": "x", "lines": {"0": "y"}}, "/g": {}}
    assert resolve(stored, MAPS) == {"/f": "y", "/g": ""}
