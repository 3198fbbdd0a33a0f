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

_VERSION = 1
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
    body = {
        "plain": {name: getattr(judge, name) for name in _PLAIN},
        "keyed": {name: _pairs(getattr(judge, name)) for name in _TUPLE_KEYED},
        "step_requests": _encode(judge.step_requests),
        "setups": [asdict(s) for s in judge.setups],
        "tracks": [_encode(t.state()) for t in judge.tracks],
        "guards": [_encode(g.state()) for g in judge.guards],
        "fired": None if fired is None else asdict(fired),
    }
    packed = zlib.compress(orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS), 6)
    return {"v": _VERSION, "data": base64.b64encode(packed).decode()}


def load(judge: "Judge", state: Mapping[str, Any]) -> None:
    """Bring a fresh judge of the same setup to `state`; ValueError for another schema version."""
    from policies.judge import Fired

    if state.get("v") != _VERSION:
        raise ValueError("this judge state was written in another schema version; re-judge from the stored blocks")
    body = orjson.loads(zlib.decompress(base64.b64decode(state["data"])))
    _grow(judge, body["setups"])
    for name, value in body["plain"].items():
        setattr(judge, name, value)
    for name, pairs in body["keyed"].items():
        setattr(judge, name, {tuple(key): _value(value) for key, value in pairs})
    judge.step_requests = _decode(body["step_requests"])
    for track, saved in zip(judge.tracks, body["tracks"], strict=True):
        track.load(_decode(saved))
    for guard, saved in zip(judge.guards, body["guards"], strict=True):
        guard.load(_decode(saved))
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


def _pairs(mapping: Mapping[Any, Any]) -> list[list[Any]]:
    return [[list(key), list(v.items()) if isinstance(v, dict) else v] for key, v in mapping.items()]


def _value(value: Any) -> Any:
    return {int(k): v for k, v in value} if isinstance(value, list) else value


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"__array__": base64.b64encode(value.tobytes()).decode(), "t": str(value.dtype), "s": list(value.shape)}
    if isinstance(value, dict):
        return {key: _encode(v) for key, v in value.items()}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if "__array__" in value:
            raw = base64.b64decode(value["__array__"])
            return np.frombuffer(raw, dtype=value["t"]).reshape(value["s"]).copy()
        return {key: _decode(v) for key, v in value.items()}
    return value
