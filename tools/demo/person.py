"""People of the demo: the approver on the dashboard's pages, others who may not approve.

Uses the dashboard as a browser without JavaScript does: pages, cookies, forms.
"""

import re
from typing import Any

import httpx
import yaml

from tools.demo.world import NAMESPACE, ROLLOUT, DemoError, World


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


def approves_on_dashboard(world: World, rollout: dict[str, Any], reason: str) -> str:
    """Log in as the approver, read the page, send its form; a sentence about what was signed.

    Raises:
        DemoError: the dashboard has no such form, or answered with an error.
    """
    with httpx.Client(base_url=world.dashboard_url, follow_redirects=True, timeout=20) as browser:
        origin = {"Origin": world.dashboard_url}
        login = browser.get("/login").text
        _expect(
            browser.post(
                "/login", data={**_hidden(login, "/login"), "token": world.cluster.token("approver")}, headers=origin
            )
        )
        page = browser.get(f"/rollouts/{NAMESPACE}/{ROLLOUT}").text
        path = f"/rollouts/{NAMESPACE}/{ROLLOUT}/actions"
        fields = {**_hidden(page, path, "approve"), "action": "approve", "reason": reason}
        _expect(browser.post(path, data=fields, headers=origin))
    signed = f"revision {fields.get('revision')}, attempt {fields.get('attempt')}, step {fields.get('step')}"
    return f"approver signs on the dashboard: {signed}, evidence {fields.get('evidence', '')[:12]}… — “{reason}”"


def _expect(answer: httpx.Response) -> None:
    if answer.status_code >= 400:
        raise DemoError(f"the dashboard answered {answer.status_code}: {answer.text[:300]}")


def _hidden(page: str, path: str, action: str = "") -> dict[str, str]:
    for form in re.findall(r"<form\b.*?</form>", page, re.S):
        head = form[: form.index(">")]
        if f'action="{path}"' in head and (not action or f'value="{action}"' in form):
            inputs = re.findall(r"<input\b[^>]*>", form)
            pairs = [(_attribute(tag, "name"), _attribute(tag, "value")) for tag in inputs if 'type="hidden"' in tag]
            return {name: value for name, value in pairs if name}
    raise DemoError(f"no form {action or path} on the page")


def _attribute(tag: str, name: str) -> str:
    found = re.search(rf'\b{name}="([^"]*)"', tag)
    return found[1] if found else ""
