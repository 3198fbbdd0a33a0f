"""Record files: reading, mending, and the same counts as the streaming builder."""

import gzip
import io
import json
import math
from typing import Any

import numpy as np
import orjson
import pytest
import zstandard
from hypothesis import given, settings

from policies import arrow_lines, record_files
from policies.builder import BlockBuilder, builder_setup
from policies.columns import Requests
from policies.frames import Frame, projections, stable_blocks
from policies.history import prepare
from policies.judge import Judge
from policies.offline import judge_columns
from policies.projection import Strata, project
from policies.record_files import Columns, RecordFileError, read_records
from policies.records import RequestRecord
from policies.verdict import Result
from tests.unit.policies.conftest import START_S, history_blocks, make_contract, make_record, run_judge, traffic
from tests.unit.policies.test_builder import some_records

GATES = [
    {"metric": "ttft", "percentile": "99", "margin": "50%", "limit": "2s"},
    {"metric": "tpot", "percentile": "99", "margin": "50%"},
    {"metric": "maxGap", "percentile": "95", "limit": "1s"},
    {"metric": "e2e", "percentile": "99", "limit": "10s"},
    {"metric": "success", "limit": "99%"},
    {"metric": "goodFraction", "margin": "2pp"},
    {"metric": "goodput", "margin": "10%"},
]


def to_columns(records: list[RequestRecord]) -> Columns:
    columns = Columns()
    columns.add_all((i, orjson.loads(r.to_json_line())) for i, r in enumerate(records, start=1))
    return columns


@settings(max_examples=60, deadline=None)
@given(some_records())
def test_columns_count_like_the_builder(records: list[RequestRecord]) -> None:
    contract = make_contract(GATES, slo={"ttft": "2s", "e2e": "20s"})
    setup = prepare(contract, history_blocks(contract, np.random.default_rng(3), 90, 5))
    one = Judge(setup)
    builder = BlockBuilder(builder_setup(contract, "chat", 1), one.thresholds(), START_S)
    for record in sorted(records, key=lambda r: r.t_start_s):
        builder.finish(record)
    found = builder.tick(START_S + 60)
    for block in found:
        one.register((c.tenant, c.bucket) for c in block.cells)
    streamed = [project(block, one.strata, one.checks, one.keys, contract.attempted) for block in found]
    requests = Requests(contract, to_columns(records), one.strata)
    frame = Frame(requests, START_S, START_S + 60, contract.block_s)
    since = [np.full(one.strata.size, START_S) for _ in one.checks]
    taken = list(projections(frame, one.checks, one.keys, (), {}, since))
    assert len(taken) == len(streamed)
    for a, c in zip(streamed, taken, strict=True):
        for check, left, right in zip(one.checks, a.counts, c.counts, strict=True):
            for name in ("n_c", "k_c", "n_b", "k_b"):
                assert getattr(left, name).tolist() == getattr(right, name).tolist(), (check.metric, check.gate, name)
        assert a.routed == c.routed
        for variant in a.finished:
            assert a.finished[variant].tolist() == c.finished[variant].tolist()


def test_a_file_and_a_stream_give_the_same_verdict() -> None:
    contract = make_contract([GATES[0]])
    rng = np.random.default_rng(5)
    past = traffic(rng, "stable", 90, 16, start_s=START_S - 90)
    records = traffic(rng, "stable", 200, 16) + traffic(rng, "candidate", 200, 16)
    judged = judge_columns(contract, to_columns(records), to_columns(past))
    frame = Requests(contract, to_columns(past), Strata())
    start = float(frame.start.min())
    count = max(1, round((float(frame.end.max()) - start) / contract.block_s))
    blocks = stable_blocks(contract, frame, start, start + count * contract.block_s, ~frame.is_candidate)
    judge = Judge(prepare(contract, blocks))
    streamed = run_judge(judge, records, START_S + 210)
    assert judged.verdict.result is Result.PASS
    assert streamed.passed_at_s is not None
    assert abs((judged.verdict.decided_at_s or 0) - (streamed.passed_at_s - START_S)) <= 10


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_files_are_told_by_their_content(pack: object) -> None:
    lines = b"".join(make_record(i, START_S + i).to_json_line() for i in range(50))
    columns = Columns()
    read_records(io.BytesIO(pack(lines)), columns)  # type: ignore[operator]
    assert columns.lines == 50 and columns.floats("ttft_s").tolist() == [0.1] * 50


def test_parquet_reads_like_json_lines(tmp_path: object) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [orjson.loads(make_record(i, START_S + i).to_json_line()) for i in range(20)]
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), sink)
    columns = Columns()
    read_records(io.BytesIO(sink.getvalue()), columns)
    assert columns.lines == 20 and columns.floats("e2e_s").tolist() == [0.5] * 20


def line(**fields: object) -> bytes:
    """One JSON line as Python writes it, NaN included."""
    base = {"id": "x", "t_start_s": 5.0, "variant": "stable", "tenant": "a", "outcome": "ok"}
    return json.dumps({**base, **fields}).encode() + b"\n"


@pytest.mark.parametrize(
    ("fields", "treated"),
    [
        ({"ttft_s": math.nan}, "badNumber"),
        ({"ttft_s": -1.0}, "badNumber"),
        ({"e2e_s": math.inf}, "badNumber"),
        ({"ttft_s": "soon"}, "badNumber"),
        ({"ttft_s": "0.01"}, "badNumber"),
        ({"ttft_s": True}, "badNumber"),
        ({"ttft_s": 10**400}, "badNumber"),
        ({"t_start_s": True}, "badTime"),
        ({"outcome": "exploded"}, "unknownOutcome"),
        ({"kind": "weird"}, "unknownKind"),
        ({"t_start_s": math.nan}, "badTime"),
        ({"t_start_s": -4}, "badTime"),
    ],
)
def test_wrong_values_are_mended_and_counted(fields: dict[str, object], treated: str) -> None:
    columns = Columns()
    read_records(io.BytesIO(line(**fields)), columns)
    assert columns.treated == {treated: 1}
    if "ttft_s" in fields or "e2e_s" in fields:
        assert np.isnan(columns.floats("ttft_s")).all() and np.isnan(columns.floats("e2e_s")).all()
    if treated == "unknownOutcome":
        requests = Requests(make_contract(GATES, slo={"ttft": "2s"}), columns, Strata())
        assert requests.bad.tolist() == [True], "an outcome we cannot read is never a success"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"not json\n", "line 1"),
        (b"[1, 2]\n", "no JSON object"),
        (b'{"id": "x"}\n', "t_start_s is missing"),
        (line(variant="canary"), "variant is 'canary'"),
        (line(variant=["stable"]), "variant is"),
        (line(variant={}), "variant is"),
        (line(ttft=1.0), "ttft_s"),
        (b"\x1f\x8b\x08\x00broken", "decompressed"),
    ],
)
def test_what_is_no_record_is_refused_with_its_line(text: bytes, words: str) -> None:
    with pytest.raises(RecordFileError, match=words):
        read_records(io.BytesIO(text), Columns())


def test_a_pair_that_is_no_text_is_read_as_text() -> None:
    columns = Columns()
    read_records(
        io.BytesIO(line(id=7, pair=None) + line(id="c", pair=7, variant="candidate") + line(pair=[1])), columns
    )
    live, copy, other = columns.codes("pair").tolist()
    assert live == copy != other


@pytest.mark.parametrize("frames", [1, 3])
def test_frames_of_zstd_are_read_to_the_end_and_a_cut_one_is_refused(frames: int) -> None:
    lines = [make_record(i, START_S + i).to_json_line() for i in range(300)]
    size = len(lines) // frames
    packed = b"".join(zstandard.compress(b"".join(lines[i * size : (i + 1) * size])) for i in range(frames))
    columns = Columns()
    read_records(io.BytesIO(packed), columns)
    assert columns.lines == 300
    with pytest.raises(RecordFileError, match="cut off"):
        read_records(io.BytesIO(zstandard.compress(b"".join(lines))[:40]), Columns())


def test_a_request_of_many_days_is_too_slow_and_ends_with_the_file() -> None:
    contract = make_contract(GATES, slo={"ttft": "2s"})
    records = [make_record(1, START_S, e2e_s=1e9), make_record(2, START_S + 50)]
    requests = Requests(contract, to_columns(records), Strata())
    assert requests.dropped == {"endless": 1}
    assert requests.end.max() == START_S + 50.5
    assert requests.readings["e2e"].value.tolist() == [1e9, 0.5]


def test_a_gap_that_ends_after_its_request_is_counted_within_it() -> None:
    contract = make_contract([GATES[2]])
    slow = {"max_gap_s": 2.0, "max_gap_at_s": 2200.0, "e2e_s": 3.0}
    records = [make_record(i, START_S + i, **(slow if i == 4 else {})) for i in range(10)]
    requests = Requests(contract, to_columns(records), Strata())
    frame = Frame(requests, START_S, float(requests.end.max()) + 1e-6, contract.block_s)
    n, k = frame.latency("maxGap", np.array([1.0]), np.ones(10, dtype=bool))
    assert (n.sum(), k[:, 0].tolist()) == (10, [0, 1])
    builder = BlockBuilder(builder_setup(contract, "chat", 1), prepare(contract, []).thresholds(), START_S)
    builder.tick(START_S + 1)
    for record in records:
        builder.finish(record)
    blocks = builder.tick(START_S + 30)
    assert [sum(c.metrics["maxGap"].over.get(1_000_000, 0) for c in b.cells) for b in blocks[:2]] == [0, 1]


def test_duplicates_swapped_times_and_wrong_clocks_are_counted() -> None:
    contract = make_contract(GATES, slo={"ttft": "2s"})
    records = [make_record(1, START_S), make_record(1, START_S + 3), make_record(2, START_S, ttft_s=9.0, e2e_s=1.0)]
    records += [make_record(3 + i, START_S + i) for i in range(5)] + [make_record(99, START_S + 90 * 86400)]
    requests = Requests(contract, to_columns(records), Strata())
    assert requests.dropped == {"duplicate": 1, "swappedTimes": 1, "badTime": 1}
    assert len(requests.start) == 7


def test_open_requests_age_until_the_last_moment_of_the_input() -> None:
    contract = make_contract(GATES, slo={"ttft": "2s"})
    fields = {"outcome": "open", "ttft_s": None, "e2e_s": None, "max_gap_s": None}
    records = [make_record(1, START_S, **fields), make_record(2, START_S + 8, **fields), make_record(3, START_S + 9)]
    requests = Requests(contract, to_columns(records), Strata())
    assert requests.readings["ttft"].bound[:2] == pytest.approx([9.5, 1.5])


# --- two readers of one file ---


def plain_lines(count: int) -> list[dict[str, object]]:
    """Records with some fields left out, as tools write them."""
    rng = np.random.default_rng(4)
    found: list[dict[str, object]] = []
    for i in range(count):
        record: dict[str, object] = {
            "id": f"r{i % (count - 5)}",  # the last five are duplicates
            "t_start_s": 1000 + i / 10,
            "variant": "stable" if i % 2 else "candidate",
            "tenant": f"t{i % 7}",
            "outcome": "ok" if i % 11 else "timeout",
            "prompt_tokens": int(rng.integers(1, 3000)) if i % 5 else None,
            "ttft_s": -1.0 if i % 97 == 0 else float(rng.random()),
            "stream": None if i % 13 == 0 else bool(i % 3),
            "kind": None if i % 17 == 0 else "live",
            "model": "org/m",
            "status": 200,
        }
        if i % 3 == 0:
            record |= {"pair": f"r{i + 1}", "pod": f"p{i % 4}", "bucket": "0-512"}
        found.append(record)
    return found


ODD = [
    b'{"id": 7, "t_start_s": 1.5, "variant": "stable", "tenant": "t1", "outcome": "ok"}',
    b'{"id": "n", "t_start_s": 2.5, "variant": "stable", "tenant": "t1", "outcome": "ok", "ttft_s": NaN}',
    b'{"id": "u", "t_start_s": 2.5, "variant": "stable", "tenant": "t1", "outcome": "exploded"}',
    b'{"id": "k", "t_start_s": 2.5, "variant": "stable", "tenant": "t1", "outcome": "ok", "kind": "odd"}',
    b'{"id": "x", "t_start_s": -3, "variant": "stable", "tenant": "t1", "outcome": "ok"}',
    b'{"id": "y", "t_start_s": 3, "variant": "stable", "tenant": 5, "outcome": "ok", "status": "200"}',
    b"",
]


@pytest.mark.parametrize("odd", [None, *ODD])
@pytest.mark.parametrize("variant", [None, "candidate"])
def test_decoding_by_columns_and_by_lines_is_the_same(
    monkeypatch: pytest.MonkeyPatch, odd: bytes | None, variant: str | None
) -> None:
    pytest.importorskip("pyarrow")
    lines = [json.dumps(record).encode() for record in plain_lines(600)]
    if odd is not None:
        lines.insert(300, odd)
    content = b"\n".join(lines)
    monkeypatch.setattr(record_files, "_PIECE_BYTES", 20_000)
    monkeypatch.setattr(arrow_lines, "LEAST_BYTES", 0)
    fast, slow = record_files.Columns(), record_files.Columns()
    taken: list[int] = []
    monkeypatch.setattr(record_files.Columns, "add_piece", _noting(taken, record_files.Columns.add_piece))
    record_files.read_records(io.BytesIO(content), fast, variant)
    assert taken, "no piece was decoded by columns"
    monkeypatch.setattr(record_files, "read_piece", lambda *_: None)
    record_files.read_records(io.BytesIO(content), slow, variant)
    assert (fast.lines, fast.treated) == (slow.lines, slow.treated)
    for name in ("t_start_s", "ttft_s", "prompt_tokens", "gaps_n"):
        np.testing.assert_array_equal(fast.floats(name), slow.floats(name))
    for name in ("outcome", "stream", "half", "ident", "pair"):
        np.testing.assert_array_equal(fast.codes(name), slow.codes(name))
    for columns in (fast, slow):
        columns.sources.append(("", "", "", "", "", ""))
    assert [fast.sources[i] for i in fast.codes("source")] == [slow.sources[i] for i in slow.codes("source")]


def _noting(taken: list[int], add: Any) -> Any:
    def noted(self: record_files.Columns, piece: Any) -> None:
        taken.append(piece.rows)
        add(self, piece)

    return noted


@pytest.mark.parametrize("wrong", [b"{broken", b"[1]", b'{"id": "a", "colour": 1}', b'{"id": "a"}'])
def test_a_wrong_line_in_a_later_piece_has_its_number(monkeypatch: pytest.MonkeyPatch, wrong: bytes) -> None:
    lines = [json.dumps(record).encode() for record in plain_lines(600)]
    lines.insert(431, wrong)
    monkeypatch.setattr(record_files, "_PIECE_BYTES", 20_000)
    monkeypatch.setattr(arrow_lines, "LEAST_BYTES", 0)
    with pytest.raises(record_files.RecordFileError) as error:
        record_files.read_records(io.BytesIO(b"\n".join(lines)), record_files.Columns())
    assert error.value.where == "line 432"
