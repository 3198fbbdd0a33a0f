"""The judge's state as JSON: arrays bit for bit, compressed. Called by `Judge.state` and `Judge.restore` only."""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from policies.setup import CheckSetup, StratumSetup
from policies.verdict import Culprit

if TYPE_CHECKING:
    from policies.judge import Judge

_VERSION = 3
_PLAIN = (
    *(
        "thresholds_version",
        "passed_at_s",
        "last_seq",
        "now_s",
        "first_s",
        "step",
        "step_start_s",
        "weight",
        "step_kind",
    ),
    *("revisions", "dropped", "blocks_in_step", "missing_in_step", "seen_in_step", "last_data_s"),
)
_TUPLE_KEYED = ("sketches", "step_sketches", "unknown", "routed")


def save(judge: "Judge") -> dict[str, Any]:
    """JSON values: {"v", "data"}; `data` is compressed JSON."""
    fired = judge.fired
    blobs = bytearray()
    body = {
        "plain": {name: getattr(judge, name) for name in _PLAIN},
        "keyed": {name: _pairs(getattr(judge, name), blobs) for name in _TUPLE_KEYED},
        "step_requests": _encode(judge.step_requests, blobs),
        "setups": [asdict(s) for s in judge.setups],
        "tracks": [_encode(t.state(), blobs) for t in judge.tracks],
        "guards": [_encode(g.state(), blobs) for g in judge.guards],
        "fired": None if fired is None else asdict(fired),
    }
    text = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
    packed = zlib.compress(len(text).to_bytes(8, "big") + text + bytes(blobs), 6)
    return {"v": _VERSION, "data": base64.b64encode(packed).decode()}


def load(judge: "Judge", state: Mapping[str, Any]) -> None:
    """Bring a fresh judge of the same setup to `state`; ValueError for another schema version."""
    from policies.judge import Fired

    if state.get("v") != _VERSION:
        raise ValueError("this judge state was written in another schema version; re-judge from the stored blocks")
    raw = zlib.decompress(base64.b64decode(state["data"]))
    end = 8 + int.from_bytes(raw[:8], "big")
    body, blobs = orjson.loads(raw[8:end]), raw[end:]
    _grow(judge, body["setups"])
    for name, value in body["plain"].items():
        setattr(judge, name, value)
    for name, pairs in body["keyed"].items():
        setattr(judge, name, {tuple(key): _value(value, blobs) for key, value in pairs})
    judge.step_requests = _decode(body["step_requests"], blobs)
    for track, saved in zip(judge.tracks, body["tracks"], strict=True):
        track.load(_decode(saved, blobs))
    for guard, saved in zip(judge.guards, body["guards"], strict=True):
        guard.load(_decode(saved, blobs))
    fired = body["fired"]
    judge.fired = None
    if fired is not None:
        judge.fired = Fired(fired["at_s"], fired["evidence"], tuple(Culprit(**c) for c in fired["culprits"]))


def _grow(judge: "Judge", setups: list[dict[str, Any]]) -> None:
    """Number the strata as the saved judge did, then make room for them."""
    strata = judge.strata
    before = (strata.size, len(strata.tenants), len(strata.buckets))
    judge.setups = [StratumSetup(**{**s, "checks": tuple(CheckSetup(**c) for c in s["checks"])}) for s in setups]
    for setup in judge.setups:
        strata.index((setup.tenant, setup.bucket))
    strata.seal()
    judge.renumber(before)


def _pairs(mapping: Mapping[Any, Any], blobs: bytearray) -> list[list[Any]]:
    return [[list(key), _sketch(v, blobs) if isinstance(v, dict) else v] for key, v in mapping.items()]


def _sketch(bins: Mapping[int, int], blobs: bytearray) -> dict[str, Any]:
    """A sketch as dense counts from its first bin on."""
    first = min(bins, default=0)
    dense = np.zeros(max(bins, default=-1) - first + 1, dtype=np.int32)
    for index, count in bins.items():
        dense[index - first] = count
    return {"first": first, "counts": _encode(dense, blobs)}


def _value(value: Any, blobs: bytes) -> Any:
    if not isinstance(value, dict):
        return value
    counts = _decode(value["counts"], blobs).tolist()
    return {value["first"] + i: count for i, count in enumerate(counts) if count}


def _encode(value: Any, blobs: bytearray) -> Any:
    """Arrays go to `blobs`, their place stays."""
    if isinstance(value, np.ndarray):
        start = len(blobs)
        blobs += value.tobytes()
        return {"__array__": [start, len(blobs)], "t": str(value.dtype), "s": list(value.shape)}
    if isinstance(value, dict):
        return {key: _encode(v, blobs) for key, v in value.items()}
    return value


def _decode(value: Any, blobs: bytes) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            start, end = value["__array__"]
            return np.frombuffer(blobs[start:end], dtype=value["t"]).reshape(value["s"]).copy()
        return {key: _decode(v, blobs) for key, v in value.items()}
    return value
