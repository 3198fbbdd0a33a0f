"""Environments of containers as Kubernetes defines them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tools.devcluster.node.environment import ReferenceMissing, expand, make_environment, parse_quantity

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web"}, "annotations": {}},
    "spec": {"nodeName": "gpu-a", "serviceAccountName": "default"},
    "status": {"podIP": "127.9.1.1", "hostIP": "127.9.0.1"},
}
OBJECTS = {
    ("ConfigMap", "cfg"): {"data": {"LEVEL": "low", "app.conf": "x", "not a name": "y"}},
    ("Secret", "key"): {"data": {"TOKEN": base64.b64encode(b"s3").decode()}},
}


def look_up(kind: str, name: str) -> dict[str, Any] | None:
    return OBJECTS.get((kind, name))


def environment(container: dict[str, Any]) -> dict[str, str]:
    return make_environment(container, POD, look_up)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("--x=$(A)/$(B)", "--x=1/2"),
        ("$(NONE)", "$(NONE)"),
        ("$$(A)", "$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("100$", "100$"),
        ("$(A", "$(A"),
    ],
)
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_env_wins_over_env_from_and_sees_what_came_before() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "cfg"}}, {"secretRef": {"name": "key"}, "prefix": "P_"}],
        "env": [
            {"name": "BEFORE", "value": "$(AFTER)"},
            {"name": "AFTER", "value": "$(LEVEL)!"},
            {"name": "LEVEL", "value": "high"},
            {"name": "SEEN", "value": "$(LEVEL)"},
        ],
    }
    assert environment(container) == {
        "app.conf": "x",
        "P_TOKEN": "s3",
        "BEFORE": "$(AFTER)",
        "AFTER": "low!",
        "LEVEL": "high",
        "SEEN": "high",
    }


def test_references_to_keys_fields_and_resources() -> None:
    container = {
        "resources": {"limits": {"memory": "1Gi", "cpu": "1500m"}},
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "LEVEL"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key", "key": "TOKEN"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "F", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "G", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "x", "optional": True}}},
        ],
    }
    expected = {"A": "low", "B": "s3", "C": "127.9.1.1", "D": "web", "E": "1024", "F": "2"}
    assert environment(container) == expected


@pytest.mark.parametrize(
    "origin",
    [
        {"configMapKeyRef": {"name": "none", "key": "x"}},
        {"configMapKeyRef": {"name": "cfg", "key": "x"}},
        {"secretKeyRef": {"name": "none", "key": "x"}},
        {"fieldRef": {"fieldPath": "status.nothing"}},
    ],
)
def test_what_is_missing_and_not_optional_is_an_error(origin: dict[str, Any]) -> None:
    with pytest.raises(ReferenceMissing):
        environment({"env": [{"name": "A", "valueFrom": origin}]})


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("64Mi", 64 * 2**20), ("1.5Gi", 3 * 2**29), ("250m", 0.25), ("2k", 2000), ("1e3", 1000)],
)
def test_quantities(text: str, value: float) -> None:
    assert float(parse_quantity(text)) == value


def test_no_quantity() -> None:
    with pytest.raises(ValueError, match="no quantity"):
        parse_quantity("ten")
