"""Golden files of what Envoy is told; `python -m tests.unit.shadow.golden` rewrites them, review reads the diff."""

import json
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from shadow.envoy.bootstrap import Upstream, make_bootstrap
from shadow.envoy.snapshot import make_snapshot
from shadow.envoy.workload import GateWorkload, make_gate_objects
from shadow.plan import Stage
from tests.unit.shadow.builders import ENDPOINTS, make_config, make_plan

GOLDEN = Path(__file__).with_name("golden")
_PLANS = {
    "idle": {"weight": 0, "stage": Stage.IDLE, "attempt": 0, "candidate": None, "endpoints": ENDPOINTS[:2]},
    "shadow": {"weight": 0, "stage": Stage.SHADOW, "copies_to_candidate": 1.0},
    "canary": {},
    "bake": {"weight": 100, "stage": Stage.BAKE, "copies_to_candidate": 0.0},
}


def gate_workload() -> GateWorkload:
    xds, recorder = Upstream("weighlock-operator.ops.svc", 18000), Upstream("weighlock-recorder.ops.svc", 18001)
    return GateWorkload("prod", "chat", 8000, 2, "weighlock/gate:0.1.0", xds, recorder, "weighlock-operator")


def _plain(message: Message) -> Any:
    return json_format.MessageToDict(message)


def render(name: str) -> Any:
    """Content of one golden file."""
    if name == "bootstrap":
        return make_bootstrap(Upstream("127.0.0.1", 18000), Upstream("recorder.example", 18001))
    if name == "workload":
        return list(make_gate_objects(gate_workload()))
    snapshot = make_snapshot(make_config(make_plan(**_PLANS[name])))
    return {
        "clusters": {n: _plain(c) for n, c in sorted(snapshot.clusters.items())},
        "endpoints": {n: _plain(a) for n, a in sorted(snapshot.assignments.items())},
        "routes": {n: _plain(r) for n, r in sorted(snapshot.routes.items())},
    }


def main() -> None:
    """Rewrite every file."""
    GOLDEN.mkdir(exist_ok=True)
    for name in (*_PLANS, "bootstrap", "workload"):
        text = json.dumps(render(name), indent=1, sort_keys=True)
        (GOLDEN / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
