"""The ValidatingAdmissionPolicy that makes a RolloutAction a person's own act.

Whoever creates an action must be the user that it names and must hold the action's verb on that InferenceRollout.
The API server decides; no component of ours is trusted with it.
"""

from typing import Any

from crds.v1alpha1.common import GROUP, VERSION

NAME = "rolloutactions.weighlock.dev"


def admission_objects() -> list[dict[str, Any]]:
    """The policy and its binding, in the order in which they are applied."""
    allowed = (
        "authorizer.group('weighlock.dev').resource('inferencerollouts')"
        ".namespace(object.metadata.namespace).name(object.spec.rollout).check(object.spec.action).allowed()"
    )
    told = (
        "request.userInfo.username + ': ' + object.spec.action + ' ' + object.spec.rollout"
        " + (has(object.spec.attempt) ? ' attempt ' + string(object.spec.attempt) : '')"
        " + (has(object.spec.step) ? ' step ' + string(object.spec.step) : '')"
    )
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": [VERSION],
                        "operations": ["CREATE"],
                        "resources": ["rolloutactions"],
                    }
                ]
            },
            # Whoever reads the API server's audit log sees what was tried, also where it keeps no request bodies.
            "auditAnnotations": [{"key": "act", "valueExpression": told}],
            "validations": [
                {
                    "expression": "object.spec.user == request.userInfo.username",
                    "messageExpression": "'spec.user must be you: ' + request.userInfo.username",
                    "reason": "Forbidden",
                },
                {
                    "expression": allowed,
                    "messageExpression": "request.userInfo.username + ' may not ' + object.spec.action "
                    "+ ' inferencerollout ' + object.spec.rollout + ' in ' + object.metadata.namespace",
                    "reason": "Forbidden",
                },
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "validationActions": ["Deny", "Audit"]},
    }
    return [policy, binding]
