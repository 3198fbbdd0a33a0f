"""The admission policy: who refuses an act, and what is left of it in the API server's audit log."""

from crds.admission import NAME, admission_objects


def test_refusals_are_denied_and_audited() -> None:
    policy, binding = admission_objects()
    assert binding["spec"] == {"policyName": NAME, "validationActions": ["Deny", "Audit"]}
    assert policy["spec"]["failurePolicy"] == "Fail"
    told = policy["spec"]["auditAnnotations"]
    assert [entry["key"] for entry in told] == ["act"]
    for part in ("request.userInfo.username", "object.spec.action", "object.spec.rollout", "object.spec.attempt"):
        assert part in told[0]["valueExpression"]
