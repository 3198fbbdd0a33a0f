"""Mount paths in arguments and variables."""

from __future__ import annotations

import pytest

from tools.devcluster.node.rewrite import PathRewriter

REWRITE = PathRewriter("/r", ["/etc/config", "/models/", "/etc/config/deep", "/"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/config", "/r/etc/config"),
        ("/etc/config/a.yaml", "/r/etc/config/a.yaml"),
        ("/etc/config/deep/b", "/r/etc/config/deep/b"),
        ("--model=/models/llama", "--model=/r/models/llama"),
        ("cat /models/x && exec vllm serve /models/y", "cat /r/models/x && exec vllm serve /r/models/y"),
        ('{"path": "/models/x"}', '{"path": "/r/models/x"}'),
        ("/a:/models:/b", "/a:/r/models:/b"),
        ("/etc/configuration", "/etc/configuration"),
        ("/other/etc/config", "/other/etc/config"),
        ("http://host/models/x", "http://host/models/x"),
        ("file:///models/x", "file:///models/x"),
        ("models/x", "models/x"),
        ("/", "/"),
    ],
)
def test_whole_mount_paths_only(text: str, expected: str) -> None:
    assert REWRITE(text) == expected


def test_rewriting_twice_changes_nothing_more() -> None:
    assert REWRITE(REWRITE("/etc/config/a")) == "/r/etc/config/a"


def test_without_mounts_nothing_changes() -> None:
    assert PathRewriter("/r", [])("/etc/config") == "/etc/config"
