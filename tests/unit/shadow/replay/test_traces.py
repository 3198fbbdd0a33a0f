"""Traces of many makers, read by their columns; what is no trace is refused in one sentence."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from shadow.replay.traces import FORMATS, TraceRefused, read_trace


def lines(*entries: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(entry) for entry in entries).encode()


DYNAMO = {"event_type": "request_end", "request": {"request_received_ms": 500, "input_tokens": 7, "output_tokens": 2}}
AIPERF = {
    "metadata": {"request_start_ns": 5_000_000_000},
    "metrics": {"input_sequence_length": {"value": 7}, "output_sequence_length": {"value": 2}},
}
OURS = {"t_start_s": 10.5, "variant": "stable", "prompt_tokens": 7, "output_tokens": 2}
CASES = {
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    b"2023-11-16 18:15:46.6805900,7,2\n2023-11-16 18:15:47.1805901,9,3\n",
    "vidur": b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,7,2\n0.5000001,9,3\n",
    "burstgpt": b"Timestamp,Model,Request tokens,Response tokens,Log Type\n5,a,7,2,x\n5.5000001,b,9,3,x\n",
    "splitwise": b"request_id,arrival_timestamp,prompt_size,token_size\n0,3,7,2\n1,3.5000001,9,3\n",
    "aibrix-lengths": b"timestamp_ms,prompt_length,output_length\n21,7,2\n521.0001,9,3\n",
    "mooncake": lines(
        {"timestamp": 0, "input_length": 7, "output_length": 2, "hash_ids": [0, 1]},
        {"timestamp": 500.0001, "input_length": 9, "output_length": 3, "hash_ids": [0, 2]},
    ),
    "bailian": lines(
        {"chat_id": 1, "timestamp": 1.0, "input_length": 7, "output_length": 2, "hash_ids": [4]},
        {"chat_id": 2, "timestamp": 1.5000001, "input_length": 9, "output_length": 3, "hash_ids": [4]},
    ),
    "aibrix": lines(
        {"timestamp": 0, "requests": [{"prompt_length": 7, "output_length": 2}]},
        {"timestamp": 500.0001, "requests": [{"prompt_length": 9, "output_length": 3}]},
    ),
    "dynamo": lines(
        {"event": {"event_type": "tool_call", "request": {"request_received_ms": 1}}},
        {"event": DYNAMO},
        {"event": {**DYNAMO, "request": {"request_received_ms": 1000.0001, "input_tokens": 9, "output_tokens": 3}}},
    ),
    "aiperf": lines(
        AIPERF,
        {
            "metadata": {"request_start_ns": 5_500_000_100},
            "metrics": {"input_sequence_length": {"value": 9}, "output_sequence_length": {"value": 3}},
        },
    ),
    "weighlock": lines(OURS, {**OURS, "t_start_s": 11.0000001, "prompt_tokens": 9, "output_tokens": 3}),
    "spans": lines(
        {"start_time_s": 1776685509.5, "input_tokens": 7, "output_tokens": 2},
        {"start_time_s": "1776685510.0000001", "input_tokens": 9, "output_tokens": 3},
    ),
    "llmperf": lines(
        {"number_input_tokens": 7, "number_output_tokens": 2}, {"number_input_tokens": 9, "number_output_tokens": 3}
    ),
}


def test_every_format_has_a_case() -> None:
    assert set(CASES) == {form.name for form in FORMATS}


@pytest.mark.parametrize("name", CASES)
def test_a_format_is_told_by_its_columns_and_read_exactly(name: str) -> None:
    trace = read_trace(CASES[name])
    assert trace.format == name
    assert [(row.prompt_tokens, row.output_tokens) for row in trace.rows] == [(7, 2), (9, 3)]
    assert [row.at_ns for row in trace.rows] == ([None, None] if name == "llmperf" else [0, 500_000_100])
    assert read_trace(gzip.compress(CASES[name])) == trace


def test_requests_are_in_time_order_and_ties_in_file_order() -> None:
    data = b"timestamp_ms,prompt_length,output_length\n9,1,1\n3,2,1\n9,3,1\n3,4,1\n"
    assert [row.prompt_tokens for row in read_trace(data).rows] == [2, 4, 1, 3]


def test_tenants_come_from_a_named_field() -> None:
    assert [row.tenant for row in read_trace(CASES["burstgpt"], tenant_from="Model").rows] == ["a", "b"]
    nested = lines({"event": {**DYNAMO, "agent": {"session": "s1"}}})
    assert read_trace(nested, tenant_from="event.agent.session").rows[0].tenant == "s1"


def test_a_line_without_lengths_is_left_out_and_counted_not_taken_as_zero() -> None:
    trace = read_trace(lines(OURS, {**OURS, "prompt_tokens": None}))
    assert (len(trace.rows), trace.left_out) == (1, 1)


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", ""),
        (b"a,b\n1,2\n", ""),
        (b"0,0,0,,0,0\n600,0,0,,0,0\n", ""),
        (b'{"concurrency": 4, "mean_ttft_ms": 1.0}', ""),
        (b"[1, 2]", "line 1"),
        (b'{"timestamp": 0, "input_length": 1, "output_length": 2}\n{"timest', "line 2"),
        (b"timestamp_ms,prompt_length,output_length\n1,-5,2\n", "line 2"),
        (b"timestamp_ms,prompt_length,output_length\n1,1.5,2\n", "line 2"),
        (b"timestamp_ms,prompt_length,output_length\nsoon,5,2\n", "line 2"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,5,2\n", "line 2"),
        (b"timestamp_ms,prompt_length,output_length\n", ""),
        (b"\x1f\x8bnot really", ""),
        (b"\xff\xfe\x00", "line 1"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_place(data: bytes, where: str) -> None:
    with pytest.raises(TraceRefused) as caught:
        read_trace(data)
    assert caught.value.where == where


def test_an_unknown_format_name_is_refused() -> None:
    with pytest.raises(TraceRefused):
        read_trace(CASES["azure"], "azzure")


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_trace_is_read_or_refused_never_a_traceback(seed: int) -> None:
    dice = random.Random(seed)
    for data in CASES.values():
        damaged = bytearray(data)
        for _ in range(dice.randint(1, 8)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            trace = read_trace(bytes(damaged))
        except TraceRefused as refused:
            assert refused.problem
        else:
            assert trace.rows


def test_the_handed_traces_have_the_sizes_of_their_index(shared_data: Path) -> None:
    found = {}
    for name in ("azure2023_conv.csv", "vidur_splitwise_conv.csv", "mooncake_conversation_trace.jsonl"):
        trace = read_trace((shared_data / "traces" / name).read_bytes())
        found[name] = (trace.format, len(trace.rows), round(trace.span_s or 0))
    assert found == {
        "azure2023_conv.csv": ("azure", 19366, 3502),
        "vidur_splitwise_conv.csv": ("vidur", 19366, 3502),
        "mooncake_conversation_trace.jsonl": ("mooncake", 12031, 3537),
    }
    for name in ("reports/guidellm_report_v2.json", "odyn_vllm_concurrency_sweep.jsonl", "servegen/clients.tsv"):
        with pytest.raises(TraceRefused):
            read_trace((shared_data / "traces" / name).read_bytes())
