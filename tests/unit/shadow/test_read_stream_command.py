"""`weighlock read-stream`: every kind of recording, told by content; bad input is named."""

import argparse
import json
from pathlib import Path

import pytest

from controller.cli import read_stream
from controller.cli.errors import BadInput

# outcome, events, content events, first content event, prompt tokens, output tokens, source, finish reason, terminator
CHUNKS: dict[str, tuple[object, ...]] = {
    "aisdk-alibaba-qwen-tool-call.chunks.jsonl": ("ok", 6, 3, 0, 295, 22, "usage", "tool_calls", None),
    "aisdk-deepseek-tool-call.chunks.jsonl": ("ok", 52, 50, 1, 339, 83, "usage", "tool_calls", None),
    "aisdk-mistral-incremental-tool-call.chunks.jsonl": ("ok", 3, 2, 0, 171, 14, "usage", "tool_calls", None),
    "aisdk-moonshotai.chunks.jsonl": ("ok", 4, 4, 0, 9, 12, "usage", "stop", None),
    "aisdk-openai-completion.chunks.jsonl": ("ok", 17, 16, 0, 14, 16, "usage", "length", None),
    "dynamo-sglang-qwen3-0.6B-stream_c42ba578-tool.json": ("ok", 112, 111, 0, 184, 112, "engine", "stop", None),
    "dynamo-vllm-qwen3-0.6B-incomplete_tool.json": ("ok", 13, 13, 0, None, None, "none", "length", None),
    "dynamo-vllm-qwen3-0.6B-stream_8f33c28b-tool.json": ("ok", 125, 124, 0, None, None, "none", "stop", None),
    "dynamo-vllm-qwen3-0.6B-stream_finish_length.json": ("ok", 12, 12, 0, None, None, "none", "length", None),
    "tgi-chat-stream-nousage.chunks.json": ("ok", 3, 2, 0, None, None, "none", "stop", None),
    "tgi-chat-stream-usage.chunks.json": ("ok", 4, 2, 0, 39, 3, "usage", "stop", None),
    "llamacpp-upstream-done.http": ("ok", 4, 1, 1, 13, 50, "usage", "length", True),
}
FIELDS = (
    "outcome",
    "events",
    "content_events",
    "first_content_event",
    "prompt_tokens",
    "output_tokens",
    "tokens_source",
    "finish_reason",
    "done",
)
EVENT = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'


@pytest.mark.parametrize("name", sorted(CHUNKS))
def test_recorded_chunks(shared_data: Path, name: str) -> None:
    reading = read_stream.read_body(name, (shared_data / "sse" / name).read_bytes()).to_dict()
    assert tuple(reading[f] for f in FIELDS) == CHUNKS[name]


def test_chunked_dump_is_put_together() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"
    body = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (EVENT[:20], EVENT[20:])) + b"0\r\n\r\n"
    assert read_stream.read_body("x", head + body) == read_stream.read_body("x", EVENT)


def test_cut_file_is_read_as_far_as_it_goes() -> None:
    chunks = b'{"choices":[{"delta":{"content":"a"}}]}\n{"choices":[{"delta":{"con'
    reading = read_stream.read_body("x", chunks)
    assert (reading.events, reading.outcome) == (1, "truncated")
    reading = read_stream.read_body("x", EVENT + EVENT[:30])
    assert reading.events == 1


@pytest.mark.parametrize("data", [b"", b"hello\n", b"[1, 2]", b"[]", b"file\tbytes\n", b'{"a":\n{"b":'])
def test_what_is_no_stream_is_bad_input(data: bytes) -> None:
    with pytest.raises(BadInput):
        read_stream.read_body("x", data)


def test_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        read_stream.run(argparse.Namespace(file=str(tmp_path / "none"), output="json"))


def test_json_output_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "stream"
    path.write_bytes(EVENT + b"data: [DONE]\n\n")
    assert read_stream.run(argparse.Namespace(file=str(path), output="json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {*FIELDS, "error"}
    assert found["outcome"] == "ok" and found["done"] is True
