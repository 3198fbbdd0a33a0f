"""People of the demo: the approver on the dashboard's pages, others who may not approve.

Uses the dashboard as a browser without JavaScript does: pages, cookies, forms.
"""

import re
from typing import Any

import httpx
import yaml

from tools.demo.world import NAMESPACE, ROLLOUT, DemoError, World

FORM_TRIES = 3
CHANGED_MEANWHILE = 409  # the evidence moved between reading and signing: read again


def tries_to_approve_by_kubectl(world: World, rollout: dict[str, Any], user: str) -> tuple[bool, str]:
    """Finding: the API server refuses `user`'s approval."""
    try:
        world.kubectl("create", "-f", "-", "-n", NAMESPACE, user=user, stdin=yaml.safe_dump(_action(rollout, user)))
    except DemoError as error:
        return "forbidden" in str(error).lower(), f"{user}'s approval is refused by the API server"
    return False, f"{user}'s approval was accepted"


def _action(rollout: dict[str, Any], user: str) -> dict[str, Any]:
    status = rollout["status"]
    return {
        "apiVersion": "weighlock.dev/v1alpha1",
        "kind": "RolloutAction",
        "metadata": {"generateName": f"{ROLLOUT}-approve-"},
        "spec": {
            "rollout": ROLLOUT,
            "action": "approve",
            "user": user,
            "reason": "because I can",
            "revision": status["candidate"],
            "attempt": status["attempt"],
            "step": status["step"]["index"],
            "evidence": status["verdict"]["evidence"],
        },
    }


def approves_on_dashboard(world: World, reason: str) -> str:
    """Log in as the approver, read what would be signed, send the form; a sentence about what was signed.

    Raises:
        DemoError: the dashboard has no such form, or refused it.
    """
    path = f"/r/{NAMESPACE}/{ROLLOUT}/act/approve"
    with httpx.Client(base_url=world.dashboard_url, follow_redirects=True, timeout=20) as browser:
        origin = {"Origin": world.dashboard_url}
        _expect(browser.post("/login", data={"token": world.cluster.token("approver")}, headers=origin))
        for _ in range(FORM_TRIES):
            fields = {**_hidden(browser.get(path).text, path), "reason": reason}
            answer = browser.post(path, data=fields, headers=origin)
            if answer.status_code != CHANGED_MEANWHILE:
                break
    _expect(answer)
    signed = f"revision {fields['revision']}, attempt {fields['attempt']}, step {fields['step']}"
    return f"approver signs on the dashboard: {signed}, evidence {fields['evidence'][:12]}… — “{reason}”"


def _expect(answer: httpx.Response) -> None:
    if answer.status_code >= 400:
        raise DemoError(f"the dashboard answered {answer.status_code}: {answer.text[:300]}")


def _hidden(page: str, path: str) -> dict[str, str]:
    for form in re.findall(r"<form\b.*?</form>", page, re.S):
        if f'action="{path}"' in form[: form.index(">")]:
            inputs = re.findall(r"<input\b[^>]*>", form)
            pairs = [(_attribute(tag, "name"), _attribute(tag, "value")) for tag in inputs if 'type="hidden"' in tag]
            return {name: value for name, value in pairs if name}
    raise DemoError(f"no form {path} on the page")


def _attribute(tag: str, name: str) -> str:
    found = re.search(rf'\b{name}="([^"]*)"', tag)
    return found[1] if found else ""
