"""`weighlock judge` and `weighlock plan` as a user calls them."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from controller.cli.main import main
from policies.records import RequestRecord
from tests.unit.policies.conftest import START_S, traffic

POLICY = """
apiVersion: weighlock.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: chat}
spec:
  tenants: {from: {header: x-tenant}, required: [a], other: ignore}
  lengthBuckets: {edges: [512]}
  gates:
  - {metric: ttft, percentile: "99", margin: "100%", limit: 1s}
  - {metric: success, limit: "99%"}
  evidence: {history: 90s, minStep: 35s, minBlocks: 6, warmup: 10s}
"""
ROW_FIELDS = (
    "tenant bucket metric gate verdict n_stable n_candidate exceed_stable exceed_candidate estimate_stable "
    "estimate_candidate ratio_low ratio_high low high limit e_pass e_fail phi needed_requests eta_s reason"
)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


def write(path: Path, records: list[RequestRecord]) -> str:
    content = b"".join(r.to_json_line() for r in records)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


@pytest.fixture
def history(tmp_path: Path) -> str:
    rng = np.random.default_rng(1)
    return write(tmp_path / "history.jsonl.gz", traffic(rng, "stable", 95, 16, start_s=START_S - 95))


def arms(factor: float, seconds: float = 200.0) -> tuple[list[RequestRecord], list[RequestRecord]]:
    rng = np.random.default_rng(2)
    return traffic(rng, "stable", seconds, 16), traffic(rng, "candidate", seconds, 16, factor=factor)


def judge(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = main(["judge", "-o", "json", *arguments])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("factor", "code", "verdict"), [(1.0, 0, "PASS"), (4.0, 1, "FAIL")])
def test_verdict_and_exit_code(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    policy: str,
    history: str,
    factor: float,
    code: int,
    verdict: str,
) -> None:
    stable, candidate = arms(factor)
    mixed = stable + candidate
    np.random.default_rng(3).shuffle(mixed)  # type: ignore[arg-type]
    path = write(tmp_path / "records.jsonl", mixed)
    got, document = judge(capsys, "--policy", policy, "--records", path, "--history", history)
    assert (got, document["verdict"]) == (code, verdict)
    rows = document["strata"]
    assert isinstance(rows, list) and len(rows) == 3
    assert {(r["metric"], r["gate"]) for r in rows} == {
        ("ttft", "p99-margin"),
        ("ttft", "p99-limit"),
        ("success", "limit"),
    }
    assert all(set(ROW_FIELDS.split()) <= r.keys() for r in rows)
    decided = document["decided_at_s"]
    assert isinstance(decided, float) and 20 <= decided <= 200
    rollback = document["rollback"]
    assert isinstance(rollback, dict)
    assert (rollback["e"] >= rollback["threshold"]) == (verdict == "FAIL")
    if verdict == "FAIL":
        assert {"tenant", "bucket", "metric", "gate", "e"} <= rollback["culprits"][0].keys()


def test_two_files_at_different_times_are_aligned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, history: str
) -> None:
    from dataclasses import replace

    stable, candidate = arms(1.0)
    later = [replace(r, t_start_s=r.t_start_s + 7200, variant="stable") for r in candidate]
    code, document = judge(
        capsys,
        *("--policy", policy, "--history", history, "--stable", write(tmp_path / "s.jsonl", stable)),
        *("--candidate", write(tmp_path / "c.jsonl.gz", later)),
    )
    assert code == 0 and document["verdict"] == "PASS"


def test_little_data_is_inconclusive_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, history: str
) -> None:
    stable, candidate = arms(1.0, 20)
    path = write(tmp_path / "records.jsonl", stable + candidate)
    code, document = judge(capsys, "--policy", policy, "--records", path, "--history", history)
    assert code == 3 and document["verdict"] == "INCONCLUSIVE" and document["decided_at_s"] is None
    limits = [r for r in document["strata"] if r["gate"] == "p99-limit"]  # type: ignore[union-attr]
    assert limits[0]["needed_requests"] > 0 and limits[0]["eta_s"] > 0
    assert {h["reason"] for h in document["holds"]} >= {"MinStep", "TooFewRequests"}  # type: ignore[union-attr]


def test_without_history_margins_wait_and_phi_is_four(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    stable, candidate = arms(1.0, 60)
    path = write(tmp_path / "records.jsonl", stable + candidate)
    code, document = judge(capsys, "--policy", policy, "--records", path)
    rows = {r["gate"]: r for r in document["strata"]}  # type: ignore[union-attr]
    assert code == 3
    assert rows["p99-margin"]["n_stable"] < rows["p99-limit"]["n_stable"] - 250, "the first 300 set the threshold"
    assert all(r["phi"] >= 4 for r in rows.values())
    assert any("phi is at least 4" in w for w in document["warnings"])  # type: ignore[union-attr]


def test_without_stable_a_margin_is_never_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    path = write(tmp_path / "c.jsonl", arms(1.0)[1])
    code, document = judge(capsys, "--policy", policy, "--candidate", path)
    assert code == 3 and document["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    ("policy_text", "records", "words"),
    [
        (POLICY, b"{broken\n", "line 1"),
        (POLICY, b'{"id": "x", "tenant": "a"}\n', "t_start_s is missing"),
        (POLICY, b"", "holds no request record"),
        (POLICY.replace("minStep", "minStpe"), b"", "did you mean minStep?"),
        (POLICY.replace('"100%"', '"0.2%"'), b"", "gates[0].margin"),
        (POLICY.replace("limit: 1s", "limit: 1"), b"", "gates.0.limit"),
        ("[1", b"", "is no YAML"),
        ("kind: Deployment\n", b"", "no RolloutPolicy"),
    ],
)
def test_bad_input_is_one_line_that_names_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy_text: str, records: bytes, words: str
) -> None:
    (tmp_path / "p.yaml").write_text(policy_text)
    (tmp_path / "r.jsonl").write_bytes(records)
    code = main(["judge", "--policy", str(tmp_path / "p.yaml"), "--records", str(tmp_path / "r.jsonl")])
    captured = capsys.readouterr()
    assert code == 2 and captured.out == ""
    assert words in captured.err and len(captured.err.strip().splitlines()) == 1


def test_plan_says_minutes_and_what_cannot_pass(capsys: pytest.CaptureFixture[str], policy: str, history: str) -> None:
    assert main(["plan", "-o", "json", "--policy", policy, "--records", history, "--share", "50%"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["cannot_pass"] == [] and 0.5 < document["minutes_90"] < 10
    row = next(r for r in document["strata"] if r["gate"] == "p99-margin")
    assert row["rate_rps"] == pytest.approx(8, rel=0.1)
    assert 500 < row["requests_needed_50"] <= row["requests_needed_90"] < 3000
    assert main(["plan", "-o", "json", "--policy", policy, "--records", history, "--steps", "5,25,50"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [s["share"] for s in steps] == [0.05, 0.25, 0.5]
    assert steps[0]["minutes_90"] > steps[2]["minutes_90"]


def test_plan_refuses_a_share_that_leaves_nothing_to_compare(
    capsys: pytest.CaptureFixture[str], policy: str, history: str
) -> None:
    assert main(["plan", "--policy", policy, "--records", history, "--share", "100%"]) == 2
    assert "stable needs requests" in capsys.readouterr().err


REPORT_POLICY = """
tenants: {from: {header: x-tenant}, required: [a], other: ignore}
lengthBuckets: {edges: [512]}
gates:
- {metric: ttft, percentile: "99", limit: 1s}
- {metric: success, limit: "99%"}
evidence: {minStep: 30s, minBlocks: 5}
"""


def vllm_bench(path: Path, requests: int, ttft_s: float, with_times: bool) -> str:
    """A detailed result, ten requests a second."""
    whole = [ttft_s * (0.5 + (i % 100) / 200) for i in range(requests)]
    document: dict[str, object] = {
        "num_prompts": requests,
        "completed": requests,
        "request_rate": 10.0,
        "request_throughput": 10.0,
        "mean_ttft_ms": ttft_s * 750,
        "input_lens": [100] * requests,
        "output_lens": [10] * requests,
        "ttfts": whole,
        "itls": [[0.01] * 9] * requests,
        "errors": [""] * requests,
    }
    if with_times:
        document["start_times"] = [1000.0 + i / 10 for i in range(requests)]
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize("with_times", [True, False])
@pytest.mark.parametrize(("ttft_s", "code"), [(0.5, 0), (5.0, 1)])
def test_reports_are_judged_as_records_or_in_one_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], with_times: bool, ttft_s: float, code: int
) -> None:
    policy = tmp_path / "p.yaml"
    policy.write_text(REPORT_POLICY)
    stable = vllm_bench(tmp_path / "s.json", 2000, 0.5, with_times)
    candidate = vllm_bench(tmp_path / "c.json", 2000, ttft_s, with_times)
    got, document = judge(capsys, "--policy", str(policy), "--stable", stable, "--candidate", candidate)
    assert got == code, document["sentences"]
    assert (document["decided_at_s"] is not None) == with_times, "a report without times has no moment of decision"
    assert {(r["tenant"], r["bucket"]) for r in document["strata"]} == {("a", "0-512")}  # type: ignore[union-attr]


def test_separate_recordings_at_other_loads_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, history: str
) -> None:
    from dataclasses import replace

    rng = np.random.default_rng(5)
    later = [replace(r, t_start_s=r.t_start_s + 7200) for r in traffic(rng, "candidate", 200.0, 8, factor=6.0)]
    code, document = judge(
        capsys,
        *("--policy", policy, "--history", history, "--stable", write(tmp_path / "s.jsonl", arms(1.0)[0])),
        *("--candidate", write(tmp_path / "c.jsonl", later)),
    )
    assert "NotLoadMatched" in {h["reason"] for h in document["holds"]}  # type: ignore[union-attr]
    margin = next(r for r in document["strata"] if r["gate"] == "p99-margin")  # type: ignore[union-attr]
    assert margin["verdict"] == "INCONCLUSIVE" and margin["n_candidate"] == 0 and code != 0


def test_a_report_of_one_variant_is_no_file_of_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    report = vllm_bench(tmp_path / "s.json", 10, 0.5, False)
    assert main(["judge", "--policy", policy, "--records", report]) == 2
    assert "--stable or --candidate" in capsys.readouterr().err
    records = write(tmp_path / "r.jsonl", arms(1.0, 5)[0])
    assert main(["judge", "--policy", policy, "--stable", records, "--candidate", report]) == 2
    assert "of both variants" in capsys.readouterr().err


def test_tokens_faster_than_the_accelerator_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, history: str
) -> None:
    stable, candidate = arms(1.0)
    path = write(tmp_path / "records.jsonl", stable + candidate)
    code, document = judge(capsys, "--policy", policy, "--records", path, "--history", history, "--tpot-floor", "900ms")
    assert code == 3 and {h["reason"] for h in document["holds"]} >= {"Implausible"}  # type: ignore[union-attr]
    assert main(["judge", "--policy", policy, "--records", path, "--tpot-floor", "fast"]) == 2


def metrics_page(path: Path, hits: int, queries: int) -> str:
    """Prefix-cache counters as vLLM writes them."""
    names = (("hits", hits), ("queries", queries))
    lines = [
        line
        for name, value in names
        for line in (
            f"# TYPE vllm:prefix_cache_{name}_total counter",
            f'vllm:prefix_cache_{name}_total{{model_name="m"}} {value}.0',
        )
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(("hits", "code"), [(620_000, 0), (50_000, 3)])
def test_a_cold_prefix_cache_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, history: str, hits: int, code: int
) -> None:
    stable, candidate = arms(1.0)
    path = write(tmp_path / "records.jsonl", stable + candidate)
    pages = [
        *("--stable-metrics", metrics_page(tmp_path / "s0", 9_000_000, 10_000_000)),
        *("--stable-metrics", metrics_page(tmp_path / "s1", 9_600_000, 11_000_000)),
        *("--candidate-metrics", metrics_page(tmp_path / "c1", hits, 1_000_000)),
    ]
    got, document = judge(capsys, "--policy", policy, "--records", path, "--history", history, *pages)
    assert got == code
    reasons = {h["reason"] for h in document["holds"]}  # type: ignore[union-attr]
    assert ("CacheWarmthShift" in reasons) == (code == 3)
    assert main(["judge", "--policy", policy, "--records", path, *pages[:2]]) == 2


def test_a_history_takes_neither_the_candidate_nor_the_step_itself(
    tmp_path: Path, policy: str, history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stable, candidate = arms(1.0)
    step = write(tmp_path / "step.jsonl", stable + candidate)
    files = ("--policy", policy, "--records", step, "--history", history)
    _, alone = judge(capsys, *files)
    _, mixed = judge(capsys, *files, "--history", step)
    assert mixed["strata"] == alone["strata"]
    added = set(mixed["warnings"]) - set(alone["warnings"])  # type: ignore[call-overload]
    assert added == {
        f"{len(candidate)} records of the history are the candidate's and were left out",
        f"{len(stable)} records of the history are of the step itself and were left out",
    }
    assert main(["judge", *files[:4], "--history", step]) == 2
    assert "holds no request of stable from before the step" in capsys.readouterr().err


def test_what_was_mended_in_the_history_is_told(
    tmp_path: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    past = traffic(np.random.default_rng(1), "stable", 95, 16, start_s=START_S - 95)
    history = write(tmp_path / "twice.jsonl", past + past)
    step = write(tmp_path / "step.jsonl", [r for arm in arms(1.0, 60.0) for r in arm])
    words = f"history: {len(past)} duplicate requests were dropped"
    _, judged = judge(capsys, "--policy", policy, "--records", step, "--history", history)
    assert words in judged["warnings"]  # type: ignore[operator]
    assert main(["plan", "-o", "json", "--policy", policy, "--records", history]) == 0
    assert words in json.loads(capsys.readouterr().out)["warnings"]


def test_one_wrong_start_does_not_move_an_arm(
    tmp_path: Path, policy: str, history: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stable, candidate = arms(1.0)
    later = [replace(r, t_start_s=r.t_start_s + 400_000.0) for r in candidate]
    later[0] = replace(later[0], t_start_s=5.0)
    files = (write(tmp_path / "s.jsonl", stable), write(tmp_path / "c.jsonl", later))
    code, document = judge(
        capsys, "--policy", policy, "--stable", files[0], "--candidate", files[1], "--history", history
    )
    assert (code, document["verdict"]) == (0, "PASS")
    assert "1 records without a usable start were dropped" in document["warnings"]  # type: ignore[operator]


@pytest.mark.parametrize("every", ["-5", "nan", "inf"])
def test_looking_every_so_often_needs_a_time(policy: str, every: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "--policy", policy, "--records", "-", "--every", every]) == 2
    assert "--every" in capsys.readouterr().err


def test_steps_are_in_percent_and_a_plan_says_what_it_does_not_list(
    tmp_path: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    past = traffic(np.random.default_rng(1), "stable", 95, 16, start_s=START_S - 95)
    rows = [replace(r, tenant=f"t\x1b[{i % 12}") for i, r in enumerate(past)]
    many = tmp_path / "each.yaml"
    many.write_text(POLICY.replace("other: ignore", "other: each").replace("required: [a]", "required: []"))
    arguments = ["plan", "--policy", str(many), "--records", write(tmp_path / "h.jsonl", rows), "--steps", "0.5,1,5%"]
    assert main([*arguments, "-o", "json"]) == 0
    assert [s["share"] for s in json.loads(capsys.readouterr().out)["steps"]] == [0.005, 0.01, 0.05]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "and 16 faster checks" in text and "\x1b" not in text


def test_plan_says_that_times_are_unusable(tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str) -> None:
    record = '{"id": "1", "t_start_s": -5, "variant": "stable", "tenant": "a", "outcome": "ok"}\n'
    (tmp_path / "r.jsonl").write_text(record)
    assert main(["plan", "--policy", policy, "--records", str(tmp_path / "r.jsonl")]) == 2
    assert "none of its 1 records has a usable t_start_s" in capsys.readouterr().err
