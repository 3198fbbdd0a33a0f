"""status, history and the actions, against a small API server that answers like the real one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from controller.cli import act_commands, screen
from controller.cli import main as cli
from controller.dashboard.page import make_line
from tests.e2e import dashboard_data as data
from tests.e2e.dashboard_world import World, start_world

Run = Callable[..., int]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with start_world() as world:
        yield world


@pytest.fixture
def run(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command as a person; evidence from the fixture's API."""
    users = [{"name": name, "user": {"token": token}} for name, token in world.tokens.items()]
    contexts = [{"name": name, "context": {"cluster": "c", "user": name, "namespace": "chat"}} for name in world.tokens]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": world.kube_url}}],
        "users": users,
        "contexts": contexts,
        "current-context": "approver",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("WEIGHLOCK_URL", world.evidence_url)
    monkeypatch.setattr(act_commands, "OUTCOME_SECONDS", 0.0)

    def run(*arguments: str, user: str = "approver") -> int:
        return cli.main([*arguments, "--kubeconfig", str(path), "--context", user])

    return run


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_status_of_one(run: Run, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status", world.name, "-o", "json") == 0
    document = answer(capsys)
    assert (document["phase"], document["step"]["weight"], document["attempt"]) == ("Canary", 5, 7)
    assert document["live"]["rollout"] == f"chat/{world.name}"
    assert "weighlock approve" in document["who_acts"]
    assert run("status", world.name) == 0
    text = capsys.readouterr().out
    for part in (
        "Canary",
        "5 %",
        "globex",
        "HOLD",
        "PASS",
        "2\u202f344 more candidate requests",
        "Who must act",
        "canary 5",
    ):
        assert part in text


def test_status_of_all(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status", "-A", "-o", "json") == 0
    names = [(r["namespace"], r["name"]) for r in answer(capsys)["rollouts"]]
    assert names == [
        ("chat", "llama-70b-chat"),
        ("chat", "qwen-32b-tools"),
        ("search", "embed-rerank"),
        ("search", "mixtral-rag"),
    ]
    assert run("status") == 0
    assert "mixtral-rag" not in capsys.readouterr().out


def test_status_needs_the_object_only(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEIGHLOCK_URL", "http://127.0.0.1:9")
    assert run("status", world.name, "-o", "json") == 0
    document = answer(capsys)
    assert document["live"] is None and document["phase"] == "Canary"
    assert "does not answer" in document["evidence_problem"]
    monkeypatch.delenv("WEIGHLOCK_URL")
    assert run("status", world.name) == 0
    assert "No evidence API is known" in capsys.readouterr().out


def test_approve_signs_what_it_prints(run: Run, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(world.actions())
    assert run("approve", world.name, "--reason", "tail looks fine", "--yes", "-o", "json") == 0
    out, err = capsys.readouterr()
    spec = json.loads(out)["spec"]
    assert spec == {
        "rollout": world.name, "action": "approve", "revision": "a83f2d7710", "attempt": 7, "step": 1,
        "evidence": "9f2c61d07ab34e18", "user": "approver", "reason": "tail looks fine",
    }  # fmt: skip
    for value in ("a83f2d7710", "9f2c61d07ab34e18", "approver", "tail looks fine"):
        assert value in err
    created = world.actions()[before:]
    assert [action["spec"] for action in created] == [spec]
    assert created[0]["metadata"]["name"].startswith(f"{world.name}-approve-")


def test_an_approval_needs_a_reason_and_somebody_to_ask(
    run: Run, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(world.actions())
    assert run("approve", world.name) == 2
    assert run("abort", world.name, "--reason", "x") == 2
    assert capsys.readouterr().err.splitlines()[-1] == "weighlock: abort: nobody is here to ask; say --yes"
    assert len(world.actions()) == before


def test_who_may_not_is_told_the_servers_sentence(run: Run, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(world.actions())
    assert run("approve", world.name, "--reason", "x", "--yes", user="viewer") == 2
    assert "viewer may not approve inferencerollout" in capsys.readouterr().err.splitlines()[-1]
    assert run("status", world.name, user="stranger") == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert len(world.actions()) == before


def test_a_refused_act_is_audited_with_the_verified_name(
    run: Run, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.audit.clear()
    assert run("abort", world.name, "--reason", "x", "--yes", user="viewer") == 2
    assert [(who, what) for who, what, _ in world.audit] == [("viewer", "abort refused")]
    assert "may not abort" in str(world.audit[0][2]["message"])
    assert "kept in the rollout's audit trail" in capsys.readouterr().err
    monkeypatch.setenv("WEIGHLOCK_URL", "http://127.0.0.1:9")
    assert run("abort", world.name, "--reason", "x", "--yes", user="viewer") == 2
    err = capsys.readouterr().err
    assert "in the API server's audit log only" in err and "may not abort" in err.splitlines()[-1]


def test_an_act_without_effect_is_said_in_a_sentence(
    run: Run, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "It was given for other evidence; the evidence is now 1111111111111111."
    world.judge_action(f"uid-{len(world.actions())}", "ApprovalWithdrawn", why)
    assert run("approve", world.name, "--reason", "x", "--yes") == 1
    assert f"WITHOUT EFFECT (ApprovalWithdrawn): {why}" in capsys.readouterr().out
    world.judge_action(
        f"uid-{len(world.actions())}", "ActionStale", "It speaks of attempt 6, and attempt 7 is current."
    )
    assert run("approve", world.name, "--reason", "x", "--yes", "-o", "json") == 1
    assert answer(capsys)["message"] == "It speaks of attempt 6, and attempt 7 is current."
    world.judge_action(f"uid-{len(world.actions())}", "applied", "")
    assert run("approve", world.name, "--reason", "x", "--yes") == 0
    assert "created and in force" in capsys.readouterr().out
    assert run("history", world.name) == 0
    assert f"[ApprovalWithdrawn: {why}]" in capsys.readouterr().out


def test_rollback_names_its_target(run: Run, world: World) -> None:
    assert run("rollback", world.name, "--to", "19c2e6aa04", "--yes") == 0
    assert world.actions()[-1]["spec"]["revision"] == "19c2e6aa04"
    assert run("rollback", world.name, "--yes") == 0
    assert world.actions()[-1]["spec"]["revision"] == "4be1c09d52"


def test_history(run: Run, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("history", world.name, "-o", "json") == 0
    assert len(answer(capsys)["decisions"]) == 4
    assert run("history", world.name) == 0
    text = capsys.readouterr().out
    assert "Canary at 5 % (StepPassed)" in text and "approve refused by kim@example.com" in text


def test_rejudge_is_0_when_equal_and_1_when_not(run: Run, world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("history", world.name, "--rejudge") == 0
    assert "1 of 1 verdicts follow from stored counts alone." in capsys.readouterr().out
    assert run("history", world.name, "--attempt", "6", "--rejudge") == 1
    assert "e_pass: stored 20.4, rejudged 18.1" in capsys.readouterr().out


def test_what_is_not_there(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("status", "nothing-here") == 2
    assert capsys.readouterr().err.startswith("weighlock: nothing-here: there is no such InferenceRollout in chat; ")


@pytest.mark.parametrize("action", ["approve", "pause", "abort", "retry"])
def test_an_act_on_what_is_not_there_is_refused_before_anything_is_signed(
    action: str, run: Run, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(world.actions())
    assert run(action, "nothing-here", "--reason", "fine", "--yes") == 2
    assert capsys.readouterr().err.startswith("weighlock: nothing-here: there is no such InferenceRollout in chat; ")
    assert len(world.actions()) == before


def test_no_kubeconfig_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--kubeconfig", "/nowhere/config"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("content", ["a: [1\n", "[1, 2]\n", "contexts: 5\n", "current-context: x\n"])
def test_what_is_no_kubeconfig_is_bad_input(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    assert cli.main(["status", "--kubeconfig", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "defect" not in err and str(path) in err


def test_a_narrow_listing_names_every_rollout_whole() -> None:
    lines = [make_line(rollout) for rollout in data.rollouts()]
    for width in (60, 140):
        console = Console(width=width)
        with console.capture() as captured:
            console.print(screen.Listing(lines))
        text = captured.get()
        assert all(line.name in text for line in lines)
        assert max(len(row) for row in text.splitlines()) <= width


def test_crds_are_yaml_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["crds"]) == 0
    kinds = [document["kind"] for document in yaml.safe_load_all(capsys.readouterr().out)]
    assert kinds.count("CustomResourceDefinition") == 4 and "ValidatingAdmissionPolicy" in kinds
    assert cli.main(["crds", "--only", "admission", "-o", "json"]) == 0
    assert all("Admission" in item["kind"] for item in answer(capsys)["items"])
