"""The meter's reading of streams: files that nobody here wrote, and protocol variants, whole and cut anywhere."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from shadow.stream import Meter, Reading

# Read off the files by eye and by a reader of their JSON: outcome, events, content events, first content event,
# prompt tokens, output tokens, source, finish reason, terminator.
EXPECTED: dict[str, tuple[object, ...]] = {
    "aisdk-anthropic-fallback-tool-call.sse": ("ok", 9, 5, 1, None, None, "none", "tool_calls", True),
    "cassette-crusoe-vllm.sse": ("ok", 17, 13, 1, 46, 14, "usage", "stop", True),
    "cassette-groq-tool-use-failed.sse": ("client_error", 95, 93, 1, None, None, "none", None, False),
    "cassette-openai-moderation.sse": ("ok", 7, 2, 1, 13, 11, "usage", "stop", True),
    "cassette-openrouter-stream-with-reasoning.sse": ("ok", 103, 98, 2, 9, 104, "usage", "stop", True),
    "cassette-openrouter-streaming-reasoning.sse": ("ok", 15, 5, 2, 43, 36, "usage", "stop", True),
    "cassette-snowflake-thinking.sse": ("ok", 17, 12, 0, 45, 73, "usage", None, True),
    "derived-crlf-of-crusoe-vllm.sse": ("ok", 17, 13, 1, 46, 14, "usage", "stop", True),
    "handmade-agent-parallel-tools.sse": ("ok", 6, 2, 1, 40, 22, "usage", "tool_calls", True),
    "handmade-agent-text.sse": ("ok", 5, 1, 1, 5, 2, "usage", "stop", True),
    "kserve-fixture-chat-completion-chunk-stream.sse": ("ok", 10, 7, 1, None, None, "none", "length", True),
    "kubeai-openai-completions.sse": ("ok", 8, 6, 0, None, None, "none", "stop", True),
    "kubeai-vllm-chat.sse": ("ok", 394, 391, 1, None, None, "none", "stop", True),
    "kubeai-vllm-completions.sse": ("ok", 8, 7, 0, None, None, "none", "length", True),
    "llamacpp-ik-usage-timings.sse": ("ok", 4, 2, 0, 12, 25, "usage", "length", True),
    "nim-edge-valid-comments-per-response.sse": ("ok", 4, 2, 1, None, None, "none", None, True),
    "nim-edge-valid.sse": ("truncated", 4, 2, 1, None, None, "none", None, False),
    "nim-llama31-8b-chat-1.sse": ("ok", 66, 64, 1, None, None, "none", "length", True),
    "nim-llama31-8b-completions.sse": ("ok", 65, 64, 0, None, None, "none", "length", True),
    "tgi-error-midstream.sse": ("server_error", 2, 1, 0, None, None, "none", None, False),
    "vllm-0.9-r1-distill-logprobs.sse": ("ok", 34, 32, 1, None, None, "none", "length", True),
}


def read(*parts: bytes, hide: bool = False) -> tuple[Reading, bytes]:
    """(reading, bytes for the client) of a stream that came in these parts."""
    meter = Meter(hide_usage=hide)
    out = b"".join(meter.feed(part) for part in parts) + meter.finish()
    return meter.reading(), out


def sse(*events: object, end: str = "\n") -> bytes:
    lines = [f"data: {e if isinstance(e, str) else json.dumps(e, ensure_ascii=False)}{end}{end}" for e in events]
    return "".join(lines).encode()


def chunk(content: object = None, finish: str | None = None, **more: object) -> dict[str, object]:
    delta = {} if content is None else {"content": content}
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


USAGE = {"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_stream(shared_data: Path, name: str) -> None:
    reading, out = read(data := (shared_data / "sse" / name).read_bytes())
    found = (
        reading.outcome,
        reading.events,
        reading.content_events,
        reading.first_content_event,
        reading.prompt_tokens,
        reading.output_tokens,
        reading.tokens_source,
        reading.finish_reason,
        reading.done,
    )
    assert found == EXPECTED[name]
    assert out == data


def test_every_recorded_stream_is_expected(shared_data: Path) -> None:
    assert {p.name for p in (shared_data / "sse").glob("*.sse")} == set(EXPECTED)


@pytest.mark.parametrize(
    "name", ["cassette-crusoe-vllm.sse", "derived-crlf-of-crusoe-vllm.sse", "tgi-error-midstream.sse"]
)
def test_cut_at_every_byte_reads_the_same(shared_data: Path, name: str) -> None:
    data = (shared_data / "sse" / name).read_bytes()
    whole, _ = read(data)
    for at in range(1, len(data)):
        reading, out = read(data[:at], data[at:])
        assert reading == whole, at
        assert out == data, at


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_and_script_reads_the_same(end: str) -> None:
    data = sse(chunk("\u4f60\u597d"), chunk("\U0001f600 ok"), chunk(finish="stop"), USAGE, "[DONE]", end=end)
    whole, _ = read(data)
    assert (whole.outcome, whole.content_events, whole.output_tokens, whole.done) == ("ok", 2, 3, True)
    for at in range(1, len(data)):
        assert read(data[:at], data[at:])[0] == whole, at
    assert read(*(data[i : i + 1] for i in range(len(data))))[0] == whole


def test_two_line_event_is_one_event() -> None:
    text = json.dumps(chunk("a"), indent=1).split("\n")
    data = "".join(f"data: {line}\n" for line in text).encode() + b"\n" + sse("[DONE]")
    reading, _ = read(data)
    assert (reading.events, reading.content_events, reading.outcome) == (2, 1, "ok")


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((chunk("a"), chunk(finish="stop")), "ok"),  # some engines never send a terminator
        ((chunk("a"), "[DONE]"), "ok"),
        ((chunk("a"),), "truncated"),
        ((chunk("", finish="stop"), "[DONE]"), "empty"),
        ((chunk("a"), {"error": {"message": "x", "code": 503}}, "[DONE]"), "server_error"),
        ((chunk("a"), {"error": {"message": "x", "code": "429"}}, "[DONE]"), "client_error"),
        (({"object": "error", "message": "bad", "code": 400},), "client_error"),
        (({"choices": [], "error": {"message": "x"}}, "[DONE]"), "server_error"),
        ((chunk("a"), {"usage": None}, chunk(finish="length"), " [DONE] "), "ok"),
    ],
)
def test_outcome(events: tuple[object, ...], outcome: str) -> None:
    assert read(sse(*events))[0].outcome == outcome


@pytest.mark.parametrize(
    "delta",
    [
        {"content": [{"type": "text", "text": "a"}]},
        {"reasoning_content": "a"},
        {"reasoning": "a"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "a"}]},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"name": "f"}},
    ],
)
def test_what_counts_as_content(delta: dict[str, object]) -> None:
    assert read(sse({"choices": [{"delta": delta}]}))[0].content_events == 1


@pytest.mark.parametrize(
    "delta",
    [
        {},
        {"role": "assistant", "content": ""},
        {"content": None, "reasoning_content": ""},
        {"content": [{"type": "text", "text": ""}]},
        {"tool_calls": []},
        {"tool_calls": [{"index": 0, "function": {"name": "", "arguments": ""}}]},
    ],
)
def test_what_is_no_content(delta: dict[str, object]) -> None:
    assert read(sse({"choices": [{"delta": delta, "logprobs": {"content": [{"token": "a"}]}}]}))[0].content_events == 0


def test_frames_of_one_make_are_told_apart() -> None:
    """The reader remembers makes of frames; what differs in more than its text must still be read."""
    events = [
        chunk("a"),
        chunk("b"),
        chunk(""),
        chunk('quote " and \\ end\\'),
        chunk("d", finish="stop"),
        {**chunk("e"), "usage": {"prompt_tokens": 1, "completion_tokens": 4}},
        {**chunk("f"), "error": {"message": "x"}},
    ]
    reading, _ = read(sse(*events))
    assert reading.content_events == 6
    assert (reading.finish_reason, reading.output_tokens, reading.outcome) == ("stop", 4, "server_error")
    again, _ = read(sse(*events))
    assert again == reading


def test_text_that_looks_like_structure_is_text() -> None:
    reading, _ = read(sse(chunk('{"error":1,"choices":[],"finish_reason":"stop"}\n\ndata: [DONE]')))
    assert (reading.content_events, reading.outcome, reading.done) == (1, "truncated", False)


def test_counters_in_comments_are_the_engines() -> None:
    data = b'event: llm_metrics\n: {"input_tokens":5,"output_tokens":9}\n\n' + sse(chunk("a", finish="stop"))
    reading, _ = read(data)
    assert (reading.prompt_tokens, reading.output_tokens, reading.tokens_source) == (5, 9, "engine")
    assert reading.events == 1


def test_what_follows_the_terminator_is_ignored() -> None:
    reading, _ = read(sse(chunk("a", finish="stop"), "[DONE]", {"error": "late"}, chunk("b")))
    assert (reading.events, reading.content_events, reading.outcome) == (2, 1, "ok")


def test_anthropic_messages() -> None:
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 8, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 6}},
        {"type": "message_stop"},
    ]
    data = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()
    reading, _ = read(data)
    assert (reading.outcome, reading.events, reading.content_events) == ("ok", 4, 1)
    assert (reading.prompt_tokens, reading.output_tokens) == (8, 6)
    assert (reading.finish_reason, reading.done) == ("end_turn", True)


def test_gap_ends_at_content_not_at_usage() -> None:
    meter = Meter(start_s=100.0)
    meter.feed(sse(chunk("a")), 100.5)
    meter.feed(sse(chunk("b")), 101.5)
    meter.feed(sse(chunk("c")), 101.75)
    meter.feed(sse(chunk(finish="stop")), 101.8)
    meter.feed(sse(USAGE), 103.8)
    meter.feed(sse("[DONE]"), 103.8)
    times = meter.times()
    assert times == {"first_at": 100.5, "gap": 1.0, "gap_at": 101.5, "last_at": 101.75}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_usage_is_hidden_wherever_the_stream_is_cut(end: str) -> None:
    kept = sse(chunk("a"), chunk(finish="stop"), end=end), sse("[DONE]", end=end)
    data = kept[0] + sse(USAGE, end=end) + kept[1]
    for at in range(1, len(data)):
        reading, out = read(data[:at], data[at:], hide=True)
        assert out == b"".join(kept), at
        assert reading.output_tokens == 3, at
    assert read(*(data[i : i + 1] for i in range(len(data))), hide=True)[1] == b"".join(kept)


def test_hiding_takes_nothing_else() -> None:
    data = sse(chunk("a"), {**chunk("b"), "usage": {"completion_tokens": 2}}, {"choices": [], "error": "x"})
    assert read(data, hide=True)[1] == data
    whole = sse(chunk("a"))
    for at in range(1, len(whole)):
        assert read(whole[:at], whole[at:], hide=True)[1] == whole, at


class FullMeter(Meter):
    """Reads everything with the full reader: what the quick one must agree with."""

    def feed(self, data: bytes, now_s: float = 0.0) -> bytes:
        self._is_framed = True
        replaced = self._module.feed(self._state, data, now_s)
        return data if replaced is None else bytes(replaced)


class QuickMeter(Meter):
    """Counts what the quick reader took."""

    taken = 0

    def feed(self, data: bytes, now_s: float = 0.0) -> bytes:
        before = self._state.chunks
        if self._module.quick(self._state, data, now_s):
            self.taken += 1
            return data
        assert self._state.chunks == before, "the quick reader changed what it did not take"
        return super().feed(data, now_s)


def both(parts: list[bytes], hide: bool) -> int:
    """Read `parts` with both readers, compare all that they say at every step; returns what the quick one took."""
    quick, full = QuickMeter(hide_usage=hide), FullMeter(hide_usage=hide)
    for number, part in enumerate(parts):
        assert quick.feed(part, number * 0.25) == full.feed(part, number * 0.25), part
        assert (quick.reading(), quick.times()) == (full.reading(), full.times()), part
        assert (quick._state.chunks, quick._state.gaps) == (full._state.chunks, full._state.gaps)
    assert quick.finish(99.0) == full.finish(99.0)
    assert (quick.reading(), quick.times()) == (full.reading(), full.times())
    return quick.taken


def events_of(data: bytes) -> list[bytes]:
    """A stream as one part per event."""
    mark = b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
    parts = data.split(mark)
    return [*(p + mark for p in parts[:-1]), parts[-1]] if parts[-1] else [p + mark for p in parts[:-1]]


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_quick_reader_says_what_the_full_one_says(shared_data: Path, name: str, hide: bool) -> None:
    data = (shared_data / "sse" / name).read_bytes()
    events = events_of(data)
    cut = random.Random(name)
    both(events, hide)
    both([b"".join(events[i : i + 3]) for i in range(0, len(events), 3)], hide)
    for size in (40, 300, 2000):
        edges = sorted({0, len(data), *(cut.randrange(len(data)) for _ in range(len(data) // size))})
        both([data[a:b] for a, b in pairwise(edges)], hide)


@pytest.mark.parametrize("hide", [False, True])
def test_quick_reader_takes_what_it_is_made_for(shared_data: Path, hide: bool) -> None:
    data = (shared_data / "sse" / "kubeai-vllm-chat.sse").read_bytes()
    assert both(events_of(data), hide) > 300


ODD = [
    chunk('say \\"hi\\"'),
    chunk("back\\"),
    chunk("\u2028 \x00 \r \n"),
    chunk(""),
    chunk("b", finish="stop"),
    chunk("c", usage={"prompt_tokens": 1, "completion_tokens": 2}),
    chunk("d", error={"message": "x"}),
    {"id": "other", "choices": [{"index": 0, "delta": {"content": "e"}, "finish_reason": None}]},
    USAGE,
    "[DONE]",
]


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("odd", range(len(ODD)))
def test_quick_reader_leaves_odd_frames_to_the_full_one(odd: int, hide: bool) -> None:
    plain = sse(*(chunk(f"word{i}") for i in range(4)))
    frame = sse(ODD[odd])
    assert both([*events_of(plain), *events_of(plain), frame, *events_of(plain)], hide) > 4
    both([plain, plain + frame + plain, plain], hide)
    raw = sse(chunk("x")).replace(b'"x"', [b'"a\nb"', b'"a\rb"', b'"a\n\nb"', b'"a"b"', b'"\\"'][odd % 5])
    both([*events_of(plain), raw, *events_of(plain)], hide)
    for at in range(1, len(frame), 5):
        both([plain, frame[:at], frame[at:] + plain, plain], hide)


def raw_usage(inside: str, key_first: bool = True) -> bytes:
    parts = ['"choices":[]', '"usage":{' + inside + "}"]
    return ('data: {"id":"c",' + ",".join(parts if key_first else parts[::-1]) + "}\n\n").encode()


@pytest.mark.parametrize(
    "inside",
    [
        '"prompt_tokens":7,"total_tokens":10,"completion_tokens":3',
        '"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10',
        '"prompt_tokens":7,"completion_tokens":3',
        '"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":null',
        '"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}',
        '"prompt_tokens":7,"completion_tokens":3,"completion_tokens":4',
        '"prompt_tokens":7,"completion_tokens":3.5',
        '"prompt_tokens":7,"completion_tokens":-3',
        '"prompt_tokens":7,"completion_tokens":1e999',
        '"prompt_tokens":7,"completion_tokens":"3"',
        '"prompt_tokens":7,"total_tokens":7',
        '"completion_tokens":3,"prompt_tokens":7',
        '"prompt_tokens":7,"completion_tokens":3}',
        '"prompt_tokens":7,"completion_tokens":',
        "",
    ],
)
@pytest.mark.parametrize("before", [b"", b'data: {"error":{"message":"x"}}\n\n'])
def test_usage_in_its_usual_order_says_what_decoding_says(inside: str, before: bytes) -> None:
    """Usage before the choices is of no usual make, and is decoded."""
    for hide in (False, True):
        usual, decoded = (read(sse(chunk("a")) + before + raw_usage(inside, f), hide=hide) for f in (True, False))
        assert usual[0] == decoded[0]
        assert (raw_usage(inside) in usual[1]) == (raw_usage(inside, False) in decoded[1])


@pytest.mark.parametrize(
    "head",
    [
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"},
        {"id": 'say "c"', "object": "chat.completion.chunk", "created": 1, "model": "m"},
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": 'an "m"'},
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": ""},
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m" * 201},
        {"id": "c", "object": "chat.completion.chunk", "created": 1.5, "model": "m"},
        {"id": "c", "object": "error", "created": 1, "model": "m"},
        {"id": "c", "object": "error", "code": 400, "model": "m"},
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "error": {"code": 429}},
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": {"prompt_tokens": 2}},
        {"id": 5, "model": None},
    ],
)
@pytest.mark.parametrize("gap", ["", " "])
def test_a_beginning_says_what_decoding_says(head: dict[str, object], gap: str) -> None:
    """Choices before everything else are of no usual make, and are decoded."""
    choices = {"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": None}]}
    models = []
    for event in ({**head, **choices}, {**choices, **head}):
        meter = Meter()
        data = f"data: {json.dumps(event, separators=(',' + gap, ':' + gap))}\n\n".encode()
        meter.feed(data * 3)
        models.append((meter.reading(), meter._state.model))
    assert models[0] == models[1]
