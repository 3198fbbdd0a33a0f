"""Cases of ownership, secrets and upgrades: over small fakes, with several rollouts and several operators."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from controller.core import variants
from controller.core.machine import decide
from controller.logs import redact
from controller.reads.parsing import read_stored
from manifests.diff import Diff
from shadow.recorder.recorder import Recorder
from tests.unit.controller.shell.shell import NS, Shell

OWNED_KINDS = ("deployments", "configmaps", "services", "runmanifests")


def settings(shell: Shell, data: str) -> dict[str, Any]:
    """A ConfigMap of the user's, and a template that mounts it."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": NS}}
    shell.cluster.put({**config, "data": {"max": data}})
    volume = {"name": "c", "configMap": {"name": "settings"}}
    return {"spec": {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.31.0"}], "volumes": [volume]}}


def copies(shell: Shell) -> set[str]:
    return {o["metadata"]["name"] for o in shell.cluster.cached("configmaps", NS) if o.get("immutable")}


def delete(shell: Shell) -> None:
    obj = shell.cluster.objects["inferencerollouts", NS, shell.name]
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


# --- C95 ---


def test_c95_a_config_map_that_two_rollouts_mount_outlives_each_of_them() -> None:
    """Copies are named by content, so both mount the same one."""
    chat = Shell()
    code = Shell(beside=chat, name="code")
    template = settings(chat, "64")
    for shell in (chat, code):
        shell.apply(template=template, deletionPolicy="Delete")
        shell.run_to("Completed")
    (shared,) = copies(chat)
    delete(chat)
    for _ in range(4):
        chat.once()
    assert not chat.cluster.cached("deployments", NS, {variants.ROLLOUT: "chat", variants.ROLE: "server"})
    assert copies(chat) == {shared}, "the pods of code mount it"
    delete(code)
    for _ in range(4):
        code.once()
    assert copies(code) == set()
    assert chat.cluster.get_cached("configmaps", NS, "settings") is not None  # the user's own is never touched


def test_c95_nothing_that_serves_has_an_owner(shell: Shell) -> None:
    shell.weigh()
    for kind in OWNED_KINDS:
        for obj in shell.cluster.cached(kind, NS):
            assert "ownerReferences" not in obj["metadata"], obj["metadata"]["name"]


@pytest.mark.parametrize("phase", ["Completed", "Canary", "RollingBack"])
def test_c95_deleted_while_the_operator_is_down(shell: Shell, phase: str) -> None:
    stable = shell.status["stable"]
    if phase != "Completed":
        shell.weigh()
    if phase == "RollingBack":
        shell.say("FAIL")
        shell.once()
    assert shell.status["phase"] == phase
    delete(shell)
    shell.clock.now_s += 3600
    shell.start_operator()
    for _ in range(5):
        shell.once()
    assert shell.cluster.objects["inferencerollouts", NS, "chat"]["metadata"]["finalizers"] == []
    served = shell.cluster.cached("deployments", NS, {variants.ROLLOUT: "chat", variants.ROLE: "server"})
    assert [obj["metadata"]["labels"][variants.REVISION] for obj in served] == [stable]
    assert shell.cluster.objects["services", NS, "chat-gate"]["spec"]["selector"][variants.REVISION] == stable


# --- C105 ---

MARKERS = ("hf_abcdefghijklmnopqrstuvwx0123", "sk-abcdefghijklmnopqrst012345", "sk-zyxwvutsrqponmlkjihg987654")


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Everything that is logged, as it would be printed."""
    found: list[str] = []

    def keep(_logger: object, _name: str, event: Any) -> Any:
        found.append(json.dumps(event, default=repr))
        raise structlog.DropEvent

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    before, handler = structlog.get_config(), Handler()
    structlog.configure(processors=[structlog.processors.format_exc_info, redact, keep])
    logging.getLogger().addHandler(handler)
    yield found
    logging.getLogger().removeHandler(handler)
    structlog.configure(**before)


def secretive(token: str, key: str, in_shell: bool) -> dict[str, Any]:
    """A template with secrets where people put them: a variable, an argument, inside a shell text."""
    container: dict[str, Any] = {"name": "vllm", "image": "vllm/vllm-openai:v0.31.0"}
    container["env"] = [{"name": "HF_TOKEN", "value": token}]
    if in_shell:
        container["command"] = ["sh", "-c", f"exec vllm serve m --max-num-seqs 64 --api-key {key}"]
    else:
        container["args"] = ["--model=m", "--max-num-seqs=64", "--api-key", key]
    return {"spec": {"containers": [container]}}


def test_c105_no_secret_is_in_logs_events_status_or_what_people_are_shown(lines: list[str]) -> None:
    shell = Shell()
    shell.apply(template=secretive(MARKERS[0], MARKERS[1], in_shell=False))
    shell.run_to("Completed")
    shell.apply(template=secretive(MARKERS[0], MARKERS[2], in_shell=True))
    shell.run_to("Shadow")
    snapshot = shell.observer.observe(NS, "chat")
    assert snapshot is not None
    stable, candidate = (snapshot.frozen(rev) for rev in (snapshot.status.stable, snapshot.status.candidate))
    assert stable is not None and candidate is not None
    found = shell.observer.diff_between(stable, candidate)
    assert isinstance(found, Diff)
    assert any(line.setting == "api-key" and "hash differs" in (line.why or "") for line in found.changes)
    shown = [
        *lines,
        json.dumps(shell.cluster.events),
        json.dumps(shell.status),
        json.dumps(found.to_json()),
        json.dumps([frozen.manifest.resolved for frozen in (stable, candidate)]),
        repr(shell.store.rows),
        repr(decide(snapshot).message),
    ]
    assert lines and shell.cluster.events
    for marker in MARKERS:
        assert not any(marker in text for text in shown), next(text for text in shown if marker in text)[:300]


def test_c105_a_failing_call_does_not_tell_its_token(lines: list[str], shell: Shell) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError(
            "401 for Authorization: Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6Im1hcmtlciJ9.eyJzdWIiOiJvcCJ9.sig"
        )

    shell.cluster.replace_status, kept = refuse, shell.cluster.replace_status  # type: ignore[method-assign]
    shell.apply("vllm/vllm-openai:v0.32.0")
    shell.once()
    shell.cluster.replace_status = kept  # type: ignore[method-assign]
    assert any("defect" in line for line in lines)
    assert not any("eyJhbGciOi" in text for text in (*lines, json.dumps(shell.status)))


def test_c105_the_recorders_spool_is_for_its_owner_alone(tmp_path: Any) -> None:
    recorder = Recorder(tmp_path / "data")
    spools = tmp_path / "data" / "rollouts" / "ns" / "chat"
    recorder.rollout("ns/chat")
    recorder.close()
    for folder in (tmp_path / "data", spools / "records", spools / "blocks"):
        assert folder.stat().st_mode & 0o077 == 0, folder


# --- C113 ---


def workload_writes(shell: Shell) -> list[str]:
    """Writes to engine workloads (gates may restart one by one when their image changes)."""
    return [e for e in shell.journal if e.split()[1:2] == ["deployments"] and not e.endswith("-gate")]


def test_c113_an_upgrade_of_the_operator_changes_no_engine_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five rollouts at rest and one in mid-attempt; the new operator has other label defaults."""
    chat = Shell()
    chat.apply()
    chat.run_to("Completed")
    idle = [Shell(beside=chat, name=f"idle-{n}") for n in range(5)]
    for shell in idle:
        shell.apply()
        shell.run_to("Completed")
    chat.weigh()
    attempt, pods = chat.status["attempt"], {o["metadata"]["uid"] for o in chat.cluster.cached("pods", NS)}
    monkeypatch.setattr(variants, "OWNED", {**variants.OWNED, "app.kubernetes.io/version": "2"})
    chat.journal.clear()
    for shell in (chat, *idle):
        shell.start_operator()
        for _ in range(10):
            shell.once()
    assert workload_writes(chat) == []
    assert {o["metadata"]["uid"] for o in chat.cluster.cached("pods", NS)} == pods
    assert (chat.status["phase"], chat.status["attempt"]) == ("Canary", attempt)
    chat.say("FAIL")
    chat.run_to("RolledBack")
    restored = [write for write in workload_writes(chat) if write.startswith(("patch", "apply"))]
    assert restored == [], "a rollback under the new operator restarts nothing that serves"


def test_c113_an_older_operator_reads_what_a_newer_one_stored(shell: Shell) -> None:
    (obj,) = shell.cluster.cached("runmanifests", NS)
    newer = {**obj, "spec": {**obj["spec"], "newer": {"x": 1}, "roles": [{**obj["spec"]["roles"][0], "newer": 1}]}}
    frozen = read_stored(newer)
    assert frozen is not None and frozen.manifest == read_stored(obj).manifest  # type: ignore[union-attr]
    shell.cluster.put(newer)
    shell.start_operator()
    for _ in range(3):
        shell.once()
    assert shell.status["phase"] == "Completed" and shell.condition("InSync")["status"] == "True"


# --- C115 ---


def test_c115_a_selector_holds_nothing_that_a_change_could_change(shell: Shell) -> None:
    """Another model, another version label, another manifest: new names, never another selector of an old one."""
    selectors = {o["metadata"]["name"]: o["spec"]["selector"] for o in shell.cluster.cached("deployments", NS)}
    container = {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model=another/model"]}
    labels = {"app.kubernetes.io/version": "9", "model": "another"}
    shell.apply(template={"metadata": {"labels": labels}, "spec": {"containers": [container]}})
    shell.run_to("Canary")
    shell.once()
    for obj in shell.cluster.cached("deployments", NS):
        name, keys = obj["metadata"]["name"], set(obj["spec"]["selector"]["matchLabels"])
        assert obj["spec"]["selector"] == selectors.get(name, obj["spec"]["selector"])
        assert keys <= {variants.ROLLOUT, variants.REVISION, variants.ROLE, variants.GATE}
    assert shell.condition("Stalled")["status"] == "False"
