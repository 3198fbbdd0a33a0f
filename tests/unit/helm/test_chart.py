"""The chart renders, refuses what cannot work, and grants no more than it must."""

from typing import Any

import pytest
import yaml
from helm_python import HelmRenderError
from helm_python.chart import Chart, lint

from tools.release import CHART, loopback_values


def render(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    with Chart.load(CHART) as chart:
        files = chart.render(values or {}, name="weighlock", namespace="weighlock-system")
    return [doc for text in files.values() for doc in yaml.safe_load_all(text) if doc]


def rules(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [rule for obj in objects if obj["kind"] == kind for rule in obj["rules"]]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == kind}


def test_lint_finds_no_error() -> None:
    report = lint(CHART, {})
    assert report["errors"] in ([], None), report
    assert all(message["severity"] < 3 for message in report["messages"] or [])


def test_c109_no_wildcards_no_secret_listing_no_escalation() -> None:
    objects = render()
    for rule in rules(objects, "ClusterRole") + rules(objects, "Role"):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"], rule
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"]), rule
        if "secrets" in rule["resources"]:
            assert not {"list", "watch", "deletecollection"} & set(rule["verbs"]), rule


def test_c109_dashboard_has_an_account_of_its_own_without_any_right() -> None:
    objects = render()
    accounts = {
        name: pod["spec"]["template"]["spec"]["serviceAccountName"]
        for name, pod in of_kind(objects, "Deployment").items()
    }
    assert len(set(accounts.values())) == 3
    bound = {
        subject["name"]
        for kind in ("RoleBinding", "ClusterRoleBinding")
        for binding in of_kind(objects, kind).values()
        for subject in binding["subjects"]
        if subject["kind"] == "ServiceAccount"
    }
    assert bound == {"weighlock-operator"}


def test_watch_namespaces_render_roles_and_no_cluster_wide_rights() -> None:
    objects = render({"watchNamespaces": ["team-a", "team-b"]})
    roles = [obj for obj in objects if obj["kind"] == "Role" and obj["metadata"]["name"] == "weighlock-operator"]
    assert {role["metadata"]["namespace"] for role in roles} == {"team-a", "team-b"}
    cluster = of_kind(objects, "ClusterRole")["weighlock-operator-cluster"]["rules"]
    assert not any("deployments" in rule["resources"] or "secrets" in rule["resources"] for rule in cluster)


def test_c111_two_operators_need_postgresql() -> None:
    with pytest.raises(HelmRenderError, match="PostgreSQL"):
        render({"operator": {"replicas": 2}})
    assert render({"operator": {"replicas": 2}, "database": {"url": "postgresql+psycopg://w@db/w"}})


def test_operator_is_never_rolled_with_two_writers() -> None:
    deployments = of_kind(render(), "Deployment")
    assert deployments["weighlock-operator"]["spec"]["strategy"]["type"] == "Recreate"
    assert deployments["weighlock-recorder"]["spec"]["strategy"]["type"] == "Recreate"


def test_loopback_values_reach_every_flag() -> None:
    values = loopback_values()
    args = of_kind(render(values), "Deployment")["weighlock-operator"]["spec"]["template"]["spec"]["containers"][0][
        "args"
    ]
    assert f"--advertise-xds={values['operator']['xdsBind']}" in args
    assert f"--recorder-url=http://{values['recorder']['bind']}" in args
