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


def granted(objects: list[dict[str, Any]], prefix: str) -> set[str]:
    """`group/resource verb` (names of single objects after `=`) of all roles whose name begins so."""
    chosen = [o for o in objects if o["kind"] in ("Role", "ClusterRole") and o["metadata"]["name"].startswith(prefix)]
    return {
        f"{group}/{resource} {verb}" + "".join(f" ={name}" for name in rule.get("resourceNames", ()))
        for role in chosen
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_c109_secrets_are_touched_only_for_mutual_tls() -> None:
    plain = granted(render({"tls": {"enabled": False}}), "weighlock")
    assert not any("secrets" in right for right in plain)
    split = granted(render({"watchNamespaces": ["team-a"]}), "weighlock-operator-cluster")
    assert not any("secrets" in right for right in split)
    leader = {right for right in granted(render(), "weighlock-leader") if "secrets" in right}
    names = " =weighlock-xds-ca =weighlock-recorder-tls"
    assert leader == {f"/secrets get{names}", f"/secrets patch{names}", "/secrets create"}


def test_c109_nobody_enters_pods_or_reads_logs() -> None:
    for right in granted(render(), "weighlock"):
        assert not any(word in right for word in ("pods/", "serviceaccounts", "roles", "deletecollection")), right


def test_mutual_tls_is_on_by_default_and_can_be_signed_by_others() -> None:
    def arguments(objects: list[dict[str, Any]], part: str) -> list[str]:
        pod = of_kind(objects, "Deployment")[f"weighlock-{part}"]["spec"]["template"]["spec"]
        return [str(argument) for argument in pod["containers"][0]["args"]]

    objects = render()
    assert "--tls-dir=/var/run/weighlock/tls" in arguments(objects, "operator")
    assert "--tls-ca=/etc/weighlock/tls/ca.crt" in arguments(objects, "recorder")
    off = render({"tls": {"enabled": False}})
    assert not any("--tls" in text for part in ("operator", "recorder") for text in arguments(off, part))
    kept = render({"tls": {"authoritySecret": "our-ca"}})
    assert "--tls-authority-secret=our-ca" in arguments(kept, "operator")
    assert "/secrets get =our-ca" in granted(kept, "weighlock-leader")
    managed = render({"tls": {"certManager": {"enabled": True}}})
    certificate = of_kind(managed, "Certificate")["weighlock-authority"]["spec"]
    assert certificate["isCA"] and certificate["issuerRef"]["name"] in of_kind(managed, "Issuer")
    assert f"--tls-authority-secret={certificate['secretName']}" in arguments(managed, "operator")


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


def test_c109_the_one_cluster_wide_write_is_limited_to_the_finalizer_in_watched_namespaces() -> None:
    def writes(objects: list[dict[str, Any]]) -> set[str]:
        rights = granted(objects, "weighlock-operator-cluster")
        reviews = {"authentication.k8s.io/tokenreviews create", "authorization.k8s.io/subjectaccessreviews create"}
        return {right for right in rights if right.split(" ")[1] not in ("get", "list", "watch")} - reviews

    values = {"watchNamespaces": ["team-a", "team-b"]}
    split = render(values)
    assert writes(split) == {"weighlock.dev/inferencerollouts patch"}
    assert "/namespaces get =team-a =team-b" in granted(split, "weighlock-operator-cluster")
    policy = of_kind(split, "ValidatingAdmissionPolicy")["weighlock-operator.weighlock.dev"]["spec"]
    assert policy["failurePolicy"] == "Fail"
    assert "system:serviceaccount:weighlock-system:weighlock-operator" in policy["matchConditions"][0]["expression"]
    assert policy["validations"][0]["expression"] == 'request.namespace in ["team-a","team-b"]'
    binding = of_kind(split, "ValidatingAdmissionPolicyBinding")["weighlock-operator.weighlock.dev"]["spec"]
    assert "Deny" in binding["validationActions"]
    assert writes(render({**values, "letGoWithNamespace": False})) == set()


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
    assert f"--recorder-url=https://{values['recorder']['apiBind']}" in args


def test_a_slow_start_of_the_operator_is_no_reason_to_end_it() -> None:
    pod = of_kind(render(), "Deployment")["weighlock-operator"]["spec"]["template"]["spec"]
    started = pod["containers"][0]["startupProbe"]
    assert started["periodSeconds"] * started["failureThreshold"] >= 300
    assert started["httpGet"] == pod["containers"][0]["livenessProbe"]["httpGet"]


def test_c115_selectors_hold_nothing_that_an_upgrade_changes() -> None:
    """Selectors are immutable: a version or a chart name in one would make `helm upgrade` fail."""
    objects = render()
    workloads = of_kind(objects, "Deployment")
    assert len(workloads) == 3
    for name, obj in workloads.items():
        kept = {
            "app.kubernetes.io/instance": "weighlock",
            "app.kubernetes.io/component": name.removeprefix("weighlock-"),
        }
        assert obj["spec"]["selector"]["matchLabels"] == kept
    for service in of_kind(objects, "Service").values():
        assert not any("version" in key or "chart" in key for key in service["spec"]["selector"])


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("operator", {"prometheusURL": "http://prometheus:9090"}),
        ("operator", {"watchNamespaces": ["team-a"]}),
        ("operator", {"database": {"secretName": "db"}}),
        ("operator", {"tls": {"authoritySecret": "our-ca"}}),
        ("recorder", {"tls": {"enabled": False}}),
        ("dashboard", {"advertise": {"evidenceURL": "http://elsewhere:1"}}),
    ],
)
def test_c115_a_changed_value_rolls_the_part_that_it_is_for(part: str, change: dict[str, Any]) -> None:
    """Parts are configured by arguments and environment, so no change waits for the next restart."""

    def pod(values: dict[str, Any]) -> dict[str, Any]:
        template: dict[str, Any] = of_kind(render(values), "Deployment")[f"weighlock-{part}"]["spec"]["template"]
        return template

    assert pod(change) != pod({})
    mounted = {volume["configMap"]["name"] for volume in pod({})["spec"]["volumes"] if "configMap" in volume}
    assert mounted <= {"kube-root-ca.crt"}
