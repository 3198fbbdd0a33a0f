"""What the table calls wrong, its intervals, the goals, and the store of results."""

import json
from pathlib import Path

import pytest

from tools.bench.judge import __main__ as command
from tools.bench.judge import table
from tools.bench.judge.code import code_digest
from tools.bench.judge.run import OURS, RunResult, append_run, load_runs, store_path
from tools.bench.judge.scenarios import QUICK, SCENARIOS, find

HEAD = table.Head("python -m tools.bench.judge --quick", 1, "abc", "1234567")


def runs(name: str, *decisions: tuple[str, float]) -> list[RunResult]:
    peers = dict.fromkeys(table.PEERS, ("PASS", 1800.0))
    return [RunResult(name, i, {OURS: d, **peers}, 1.0, 1.2, (), None) for i, d in enumerate(decisions)]


def ours(name: str, *decisions: tuple[str, float]) -> table.Figures:
    return table.figures(find(name)[0], decisions)


def test_wrong_decisions_follow_the_truth() -> None:
    both = ("FAIL", 60.0), ("PASS", 1200.0), ("INCONCLUSIVE", 7200.0)
    null, bad, edge = (ours(name, *both) for name in ("null", "all_x2", "least_favourable"))
    assert null.false_rollback is not None and null.false_rollback.k == 1 and null.false_promotion is None
    assert bad.false_promotion is not None and bad.false_promotion.k == 1 and bad.false_rollback is None
    assert edge.wrong is not None and (edge.wrong.k, edge.wrong.n) == (2, 3)
    assert ours("candidate_stall_60s", *both).wrong is None
    assert bad.detect is not None and bad.detect.seconds == 60.0
    assert null.promote is not None and null.promote.seconds == 1200.0


def test_a_rollback_before_a_late_breach_is_false_and_times_count_from_its_onset() -> None:
    late = ours("late_15min_tenant_x2", ("FAIL", 300.0), ("FAIL", 990.0), ("FAIL", 1000.0))
    assert late.false_rollback is not None and late.false_rollback.k == 1
    assert late.detect is not None and late.detect.seconds == 95.0


def test_interval_of_a_share_is_clopper_pearson() -> None:
    none = table.share(0, 150)
    assert (none.low, none.high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 150), rel=1e-6))


def test_median_interval_needs_six_values() -> None:
    few, enough = table.median([1.0, 2.0, 3.0]), table.median([float(i) for i in range(1, 11)])
    assert few is not None and few.low is None
    assert enough is not None and (enough.seconds, enough.low, enough.high) == (5.5, 2.0, 9.0)


def test_goals_say_met_missed_or_too_few() -> None:
    many = [("PASS", 3000.0)] * 150
    found = {
        "null": {OURS: ours("null", *many)},
        "bursty_null_independent": {OURS: ours("bursty_null_independent", *many[:20])},
        "all_x2": {OURS: ours("all_x2", ("FAIL", 40.0), ("FAIL", 40.0))},
        "one_tenant_x2": {OURS: ours("one_tenant_x2", ("FAIL", 60.0), ("FAIL", 60.0))},
        "one_stratum_x5": {OURS: ours("one_stratum_x5", ("FAIL", 40.0), ("INCONCLUSIVE", 7200.0))},
        "least_favourable": {OURS: ours("least_favourable", *([("INCONCLUSIVE", 7200.0)] * 57 + many[:3]))},
    }
    made = {goal.words.split(":")[0]: goal.is_met for goal in table.goals(found)}
    assert made == {
        "null": True,
        "bursty_null_independent": None,
        "no false promotion outside the boundary": True,
        "least favourable": True,
        "all_x2": False,
        "one_tenant_x2": True,
        "one_stratum_x5": False,
    }
    found["null"] = {OURS: ours("null", *many, ("FAIL", 100.0))}
    assert table.goals(found)[0].is_met is False


def test_written_files_hold_the_figures_and_say_what_is_missing(tmp_path: Path) -> None:
    scenarios = find("null,all_x2,diurnal")
    results = {"null": runs("null", ("PASS", 3000.0)), "all_x2": runs("all_x2", ("FAIL", 30.0)), "diurnal": []}
    table.write(tmp_path, HEAD, scenarios, results)
    text = (tmp_path / "judge-bench.md").read_text()
    assert "**Not run yet with this code:** diurnal." in text and HEAD.command in text
    data = json.loads((tmp_path / "judge-bench.json").read_text())
    assert [row["scenario"] for row in data["rows"]] == ["null", "all_x2"]
    assert data["rows"][1]["judges"][OURS]["detect"]["seconds"] == 30.0
    assert "<svg" in (tmp_path / "judge-bench.svg").read_text()
    (tmp_path / "boundary.md").write_text("# Error rates\n")
    docs = tmp_path / "docs"
    docs.mkdir()
    table.publish(tmp_path, docs)
    page = (docs / "judge-bench.md").read_text()
    assert page.count("judge-bench.svg") == 1 and "\n## Error rates\n" in page
    assert (docs / "judge-bench.json").read_bytes() == (tmp_path / "judge-bench.json").read_bytes()


def test_runs_are_stored_and_an_unfinished_line_is_run_again(tmp_path: Path) -> None:
    path = store_path(tmp_path, find("null")[0], 1, code_digest())
    for result in runs("null", ("PASS", 1.0), ("FAIL", 2.0)):
        append_run(path, result)
    assert load_runs(path) == runs("null", ("PASS", 1.0), ("FAIL", 2.0))
    with path.open("a") as file:
        file.write('{"scenario": "null", "run": 2, "deci')
    assert command.missing_runs(find("null")[0], 4, path) == [2, 3]


def test_modes_choose_scenarios_and_runs() -> None:
    full = command.chosen(command.parse_arguments(["--full"]))
    assert [s.name for s, _ in full] == [s.name for s in SCENARIOS]
    assert {n for s, n in full if s.is_null} == {150} and {n for s, n in full if not s.is_null} == {60}
    quick = command.chosen(command.parse_arguments([]))
    assert [s.name for s, _ in quick] == list(QUICK) and {s.judged_s for s, _ in quick} == {3600.0}


def test_an_unknown_scenario_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--scenarios", "nul", "--out", str(tmp_path)]) == 2
    assert "no scenario 'nul'" in capsys.readouterr().err
