"""What the cluster's admission would refuse is found in Preflight, by the API server itself, before anything moves."""

from collections.abc import Iterator

import pytest

from tests.e2e.kube import Namespace, wait_until
from tests.e2e.rollout import AT_ONCE, Rollout, condition
from tests.e2e.system import System

pytestmark = pytest.mark.e2e
GROUP = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("validatingadmissionpolicybindings", "validatingadmissionpolicies")
NAME = "no-large-batches.example.com"
RULE = "!object.spec.template.spec.containers.exists(c, c.?args.orValue([]).exists(a, a == '--max-num-seqs=999'))"
MESSAGE = "batches of 999 are not for this cluster"


def drop_policy(system: System) -> None:
    for kind in KINDS:
        system.cluster.api().call("DELETE", f"{GROUP}/{kind}/{NAME}")


@pytest.fixture
def cases(system: System) -> Iterator[Rollout]:
    """A rollout on a cluster whose owner has a policy that knows nothing of us."""
    rollout = Rollout(system, Namespace(system.cluster.api(), "cases"), replicas=1, gpus=0, gates=1)
    rollout.install()
    rules = [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]
    spec = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": RULE, "message": MESSAGE}],
    }
    binding = {"policyName": NAME, "validationActions": ["Deny"]}
    for kind, content in zip(KINDS, (binding, spec), strict=True):
        system.call("POST", f"{GROUP}/{kind}", {"metadata": {"name": NAME}, "spec": content})
    yield rollout
    drop_policy(system)
    rollout.settle()


def wait_in_force(rollout: Rollout, stable: str) -> None:
    template = rollout.namespace.get("deployments", f"chat-{stable}", "apps/v1")["spec"]
    template["template"]["spec"]["containers"][0]["args"].append("--max-num-seqs=999")
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe"}, "spec": template}
    path = f"{rollout.namespace.path('deployments', version='apps/v1')}?dryRun=All"
    wait_until("the policy to be in force", lambda: rollout.namespace.api.call("POST", path, body)[0] >= 400)


def test_a_refused_candidate_is_told_in_the_servers_words(system: System, cases: Rollout) -> None:
    stable = cases.status()["stable"]
    uids = cases.uids(stable)
    wait_in_force(cases, stable)
    attempt = cases.begin(cases.spec("--max-num-seqs=999", steps=AT_ONCE))
    status = cases.wait("refusal", lambda s: condition(s, "Stalled").get("reason") == "DryRunRefused")
    assert MESSAGE in condition(status, "Stalled")["message"]
    assert (status["phase"], status["attempt"], status["step"]["weight"]) == ("Preflight", attempt, 0)
    assert cases.variants() == {stable} and cases.uids(stable) == uids
    drop_policy(system)
    cases.wait_weight(20)  # nobody has to touch the rollout once the cluster's owner allows it
    cases.takes("abort")
    cases.wait_ended(attempt, "RolledBack")
