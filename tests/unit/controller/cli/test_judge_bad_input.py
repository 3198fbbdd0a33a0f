"""Every kind of wrong record through the command: counted in `warnings`, and none is a PASS by accident.

The same traffic, unharmed, passes.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.cli.main import main
from tests.unit.controller.cli.test_judge_and_plan import POLICY
from tests.unit.policies.conftest import START_S, traffic

Raw = dict[str, Any]
SECONDS, RPS = 150.0, 16.0


def records(variant: str, seed: int) -> list[Raw]:
    found = traffic(np.random.default_rng(seed), variant, SECONDS, RPS)
    return [json.loads(record.to_json_line()) for record in found]


def judged(tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[Raw], policy: str = POLICY) -> Raw:
    """The document of the command for these records of a step."""
    before = traffic(np.random.default_rng(1), "stable", 95, RPS, start_s=START_S - 95)
    (tmp_path / "history.jsonl").write_bytes(b"".join(r.to_json_line() for r in before))
    (tmp_path / "policy.yaml").write_text(policy)
    (tmp_path / "step.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = {name: str(tmp_path / f"{name}") for name in ("policy.yaml", "step.jsonl", "history.jsonl")}
    files = ("--records", names["step.jsonl"], "--history", names["history.jsonl"])
    code = main(["judge", "-o", "json", "--policy", names["policy.yaml"], *files])
    document: Raw = json.loads(capsys.readouterr().out)
    assert code == {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}[document["verdict"]]
    return document


def every(n: int, change: Callable[[Raw], object]) -> Callable[[list[Raw]], None]:
    """Harm every n-th record of the candidate."""

    def harm(rows: list[Raw]) -> None:
        for row in [r for r in rows if r["variant"] == "candidate"][::n]:
            change(row)

    return harm


def swap(row: Raw) -> None:
    row["ttft_s"], row["e2e_s"] = row["e2e_s"] + 1.0, row["ttft_s"]


HARMS: dict[str, tuple[Callable[[list[Raw]], None], str, str]] = {
    "NaN": (every(5, lambda r: r.update(ttft_s=float("nan"))), "Unreadable", "no clock can give"),
    "infinite": (every(5, lambda r: r.update(ttft_s=float("inf"))), "Unreadable", "no clock can give"),
    "negative": (every(5, lambda r: r.update(ttft_s=-0.2)), "Unreadable", "no clock can give"),
    "text that looks like a number": (every(1, lambda r: r.update(ttft_s="0.01")), "Unreadable", "no clock can give"),
    "text": (every(5, lambda r: r.update(ttft_s="fast")), "Unreadable", "no clock can give"),
    "zero for absent": (every(1, lambda r: r.update(ttft_s=0.0)), "Unreadable", "no clock can give"),
    "a nanosecond for absent": (every(1, lambda r: r.update(ttft_s=1e-9)), "Unreadable", "no clock can give"),
    "milliseconds of one arm": (every(1, lambda r: r.update(ttft_s=r["ttft_s"] / 1000)), "Implausible", ""),
    "missing": (every(5, lambda r: r.pop("ttft_s")), "Unmeasured", ""),
    "swapped": (every(5, swap), "Unreadable", "first token after the end"),
    "unknown outcome": (every(5, lambda r: r.update(outcome="splendid")), "Unreadable", "count as server_error"),
    "no tokens and no bucket": (every(5, lambda r: r.pop("prompt_tokens")), "Unbucketed", ""),
    "future": (every(5, lambda r: r.update(t_start_s=r["t_start_s"] + 86400.0)), "Unreadable", "usable start"),
    "milliseconds": (every(5, lambda r: r.update(t_start_s=r["t_start_s"] * 1000)), "Unreadable", "usable start"),
    "clock step": (
        every(1, lambda r: r.update(t_start_s=r["t_start_s"] + (3000.0 if r["t_start_s"] > START_S + 5 else 0.0))),
        "NoFreshData",
        "",
    ),
    "two manifests": (every(5, lambda r: r.update(revision="other")), "MixedRevisions", ""),
    "young pods": (every(1, lambda r: r.update(pod_age_s=1.0)), "TelemetrySilent", "younger than warmup"),
}


@pytest.mark.parametrize("kind", HARMS)
def test_wrong_records_hold_and_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    harm, reason, warning = HARMS[kind]
    rows = records("stable", 2) + records("candidate", 3)
    harm(rows)
    document = judged(tmp_path, capsys, rows)
    assert document["verdict"] != "PASS"
    assert document["verdict"] == "FAIL" or reason in {h["reason"] for h in document["holds"]}, document["sentences"]
    assert any(warning in words for words in document["warnings"]) or not warning, document["warnings"]


def test_unharmed_duplicated_and_out_of_order_records_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = records("stable", 2) + records("candidate", 3)
    first = judged(tmp_path, capsys, rows)
    assert first["verdict"] == "PASS"
    twice = [*rows, *rows]
    np.random.default_rng(4).shuffle(twice)  # type: ignore[arg-type]
    second = judged(tmp_path, capsys, twice)
    assert (second["verdict"], second["decided_at_s"]) == ("PASS", first["decided_at_s"])
    assert [r["n_candidate"] for r in second["strata"]] == [r["n_candidate"] for r in first["strata"]]
    assert f"{len(rows)} duplicate requests were dropped" in second["warnings"]


def test_a_flood_of_tenants_is_pooled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flood = records("stable", 5) + records("candidate", 6)
    for number, row in enumerate(flood):
        row.update(tenant=f"bot-{number}", id=f"flood-{number}")
    rows = records("stable", 2) + records("candidate", 3) + flood
    document = judged(tmp_path, capsys, rows, POLICY.replace("other: ignore", "other: each"))
    assert document["verdict"] == "INCONCLUSIVE"
    assert any("beyond the cap were pooled" in words for words in document["warnings"])
    assert len({r["tenant"] for r in document["strata"]}) <= 502


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PAR1" + b"x" * 100, "broken Parquet"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 100, "cannot be decompressed"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 100, "cannot be decompressed"),
        (b'{"id":"a","t_start_s":1.7e12,"variant":"stable","tenant":"a","outcome":"ok"}\n', "not milliseconds"),
        (b'{"id":' * 20_000, "line 1: is no JSON"),
        (b'{"id":"\\ud800","t_start_s":1,"variant":"stable","tenant":"a","outcome":"ok"}\n', "line 1: is no JSON"),
    ],
)
def test_broken_files_are_one_line_that_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    (tmp_path / "r").write_bytes(content)
    assert main(["judge", "--policy", str(tmp_path / "p.yaml"), "--records", str(tmp_path / "r")]) == 2
    message = capsys.readouterr().err
    assert words in message and len(message.splitlines()) == 1 and "internal error" not in message


def test_a_tenant_cannot_write_lines_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "tenant": "x\n\x1b[2JPASS after 1 s"} for row in records("stable", 2)[:40]]
    (tmp_path / "p.yaml").write_text(POLICY.replace("other: ignore", "other: each"))
    (tmp_path / "r").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["judge", "--policy", str(tmp_path / "p.yaml"), "--records", str(tmp_path / "r")]) == 3
    out, err = capsys.readouterr()
    assert r"x\n\x1b[2JPASS" in out
    assert "\x1b" not in out + err and not any(line.startswith(("PASS", "\x1b")) for line in out.splitlines())


def test_an_empty_history_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yaml").write_text(POLICY)
    (tmp_path / "h").write_bytes(b"")
    (tmp_path / "r").write_text(json.dumps(records("stable", 2)[0]) + "\n")
    files = ("--records", str(tmp_path / "r"), "--history", str(tmp_path / "h"))
    assert main(["judge", "--policy", str(tmp_path / "p.yaml"), *files]) == 2
    assert "leave --history out" in capsys.readouterr().err


def test_a_step_of_years_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = records("stable", 2)[0]
    rows = [{**row, "id": str(i), "t_start_s": 1e9 + i * 20_000.0, "tenant": "a"} for i in range(4000)]
    (tmp_path / "p.yaml").write_text(POLICY)
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["judge", "--policy", str(tmp_path / "p.yaml"), "--records", str(tmp_path / "r.jsonl")]) == 2
    assert "too many for one step" in capsys.readouterr().err


CONTRADICTIONS = {
    "gates": ("  gates:\n  - {metric: ttft", "  gates: []\n  x:\n  - {metric: ttft"),
    "margin": ('margin: "100%"', 'margin: "0.5%"'),
    "limit": ("limit: 1s", 'limit: "1"'),
    "alphaRollback": ("evidence: {", 'evidence: {alphaRollback: "0.6", '),
    "alphaPromote": ("evidence: {", 'evidence: {alphaPromote: "0", '),
    "minStep": ("minStep: 35s", "minStep: 9h"),
    "stallTolerance": ("evidence: {", "evidence: {stallTolerance: 1s, "),
    "phiFloor": ("evidence: {", 'evidence: {phiFloor: "0.5", '),
}


@pytest.mark.parametrize("field", CONTRADICTIONS)
def test_contradictory_policies_are_refused_with_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str
) -> None:
    old, new = CONTRADICTIONS[field]
    assert old in POLICY
    (tmp_path / "p.yaml").write_text(POLICY.replace(old, new))
    (tmp_path / "r.jsonl").write_text("")
    assert main(["judge", "--policy", str(tmp_path / "p.yaml"), "--records", str(tmp_path / "r.jsonl")]) == 2
    message = capsys.readouterr().err
    assert field in message and len(message.splitlines()) == 1
