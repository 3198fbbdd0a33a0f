"""The filter's response half without a proxy: what it notes of a stream is what the full reader notes."""

from typing import Any

import orjson
from lupa import luajit21

from shadow.envoy.script import gate_script
from tests.unit.shadow.test_stream import FullMeter

_WORLD = b"""
local load = require
require = function(name) return name == "ffi" and error("the handle says the time") or load(name) end
EnvoyTimestampResolution = { MICROSECOND = 1 }
local chunk_type = { __gc = true, __index = {
  length = function(c) return #c.text end,
  getBytes = function(c, from, n) return string.sub(c.text, from + 1, from + n) end,
} }
function world(pieces, at)
  local notes, i = {}, 0
  local headers = { remove = function() end }
  function headers:get(name) return name == "content-type" and "text/event-stream" or nil end
  local own = { get = function() return { arrival = '{"at":"m--0","id":"x"}' } end }
  function own:set(_, _, text) notes[#notes + 1] = text end
  local info = { dynamicMetadata = function() return own end }
  return {
    headers = function() return headers end, streamInfo = function() return info end,
    timestampString = function() return string.format("%.0f", at[i] * 1e6) end,
    bodyChunks = function()
      return function()
        if i == #pieces then return nil end
        i = i + 1
        return setmetatable({ text = pieces[i] }, chunk_type)
      end
    end,
  }, notes
end
"""


def notes_of(pieces: list[bytes], times: list[float]) -> list[dict[str, Any]]:
    """What the filter writes while `pieces` pass at `times` (seconds from the request)."""
    lua = luajit21.LuaRuntime(encoding=None, unpack_returned_tuples=True)
    lua.execute(_WORLD)
    lua.execute(gate_script().encode())
    handle, notes = lua.globals().world(lua.table(*pieces), lua.table(*times))
    lua.globals().envoy_on_response(handle)
    return [orjson.loads(text) for text in notes.values()]


def frame(text: str, finish: str = "null") -> bytes:
    return b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":%b}]}\n\n' % (
        text.encode(),
        finish.encode(),
    )


def test_counts_and_gaps_are_those_of_the_full_reader() -> None:
    usual = [frame(f"w{i}") for i in range(40)]
    usual[7] = usual[7] + frame("two in one piece")
    usual[20] = b": still here\n\n"  # not usual: what was counted so far is settled
    usual[30], usual[31] = usual[30][:25], usual[30][25:]
    pieces = [*usual, frame("", '"stop"'), b"data: [DONE]\n\n", b""]
    times = [0.5 + 0.11 * n + (0.9 if n >= 26 else 0.0) for n in range(len(pieces))]
    full = FullMeter()
    for piece, at in zip(pieces[:-1], times, strict=False):
        full.feed(piece, at)
    full.finish(times[-1])
    reading, seen, notes = full.reading(), full.times(), notes_of(pieces, times)
    last = notes[-1]
    assert (last["events"], last["content"], last["outcome"]) == (reading.events, reading.content_events, "ok")
    assert last["gaps"] == full._state.gaps and last["chunks"] >= len(pieces) - 1
    for name, at_s in (("ttft", seen["first_at"]), ("gap", seen["gap"]), ("gap_at", seen["gap_at"])):
        assert at_s is not None and abs(last[name] - at_s) < 1e-5
    assert abs(last["last"] - (seen["last_at"] or 0.0)) < 1e-5


def test_a_running_stream_is_noted_at_its_first_content_and_every_second() -> None:
    times = [0.5 + 0.1 * n for n in range(30)]
    notes = notes_of([frame(f"w{n}") for n in range(30)], times)
    assert notes[0]["ttft"] == 0.5 and notes[0]["content"] == 1
    assert [note["content"] for note in notes[1:]] == [11, 21, 30]


def test_a_stream_that_says_little_is_noted_as_json_too() -> None:
    done = b"data: [DONE]\n\n"
    silent, once = notes_of([done], [0.25])[-1], notes_of([frame("a"), done], [0.25, 0.5])[-1]
    assert (silent["content"], silent["outcome"], silent["source"]) == (0, "empty", "none")
    assert not {"ttft", "gap", "prompt", "output", "finish", "model"} & set(silent)
    assert (once["ttft"], once["last"], once["outcome"]) == (0.25, 0.25, "ok")
    assert "gap" not in once
    odd = notes_of([frame("a", '"a \\" b"'), frame("b", '"' + "c" * 60 + '"'), done], [0.25, 0.5, 0.75])
    assert (odd[-1]["finish"], odd[-1]["gap"], odd[-1]["gap_at"]) == ("c" * 40, 0.25, 0.5)
    cut = notes_of([frame("a", '"a \\" b"')], [2000.000001])[-1]
    assert (cut["finish"], cut["ttft"]) == ("a __ b", 2000.000001)


def test_tokens_are_whole_numbers() -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3000000000,"completion_tokens":12}}\n\n'
    note = notes_of([frame("a"), usage, b"data: [DONE]\n\n"], [0.25, 0.5, 0.75])[-1]
    assert (note["prompt"], note["output"], note["source"]) == (3_000_000_000, 12, "usage")
