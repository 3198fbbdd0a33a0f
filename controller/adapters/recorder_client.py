"""The recorder's HTTP interface as calls (docs/architecture.md). Made by the operator's start-up; used by recorder.py,
calibration.py and traffic.py. Knows nothing of judges.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from controller.ports import Retryable, Terminal
from crds.v1alpha1.conditions import Reason
from policies.blocks import Block
from shadow.protocol import PROTOCOL, UNSTATED


class OtherRelease(Retryable):
    """The recorder is of a release that this operator cannot work with; the text says what to do."""


def check_protocol(said: object) -> None:
    """OtherRelease unless the recorder speaks what this operator does."""
    if said == PROTOCOL:
        return
    older = "recorder" if not isinstance(said, int) or said < PROTOCOL else "operator"
    raise OtherRelease(
        f"The recorder speaks protocol {said} and this operator {PROTOCOL}, so its counts are not used: update the"
        f" {older}, so that both are of one release (one `helm upgrade` with one image tag does it).",
        5.0,
    )


class RecorderClient:
    """Calls to one recorder. Raises Retryable for anything but an answer; Terminal where it will never take a body."""

    def __init__(self, url: str, timeout_seconds: float = 10.0, http: httpx.Client | None = None) -> None:
        self._http = http or httpx.Client(base_url=url.rstrip("/"), timeout=timeout_seconds, trust_env=False)

    def blocks(self, rollout: str, **query: Any) -> tuple[list[Block], int]:
        """Blocks and the sequence number to ask after next; OtherRelease where they cannot be trusted."""
        wait_s = float(query.get("wait", 0.0))
        answer = self._call("GET", rollout, "blocks", params=query, timeout=10.0 + wait_s)
        check_protocol(answer.get("protocol", UNSTATED))
        about = {entry["seq"]: entry for entry in answer.get("about", ())}
        found = [_block(raw, about.get(raw["seq"], {})) for raw in answer["blocks"]]
        return found, int(answer["next"])

    def setup(self, rollout: str, attempt: int) -> dict[str, Any] | None:
        """The body that was put for an attempt; None where there is none."""
        found = self._call("GET", rollout, "setup", params={"attempt": attempt}, none_on_404=True)
        return None if found is None else dict(found)

    def put_setup(self, rollout: str, body: Mapping[str, Any]) -> None:
        """Make a setup durable."""
        self._call("PUT", rollout, "setup", json=dict(body))

    def open_requests(self, rollout: str) -> dict[str, Any]:
        """Unfinished requests."""
        return dict(self._call("GET", rollout, "open", timeout=2.0))

    def stats(self, rollout: str) -> dict[str, Any]:
        """Rates of the last seconds."""
        return dict(self._call("GET", rollout, "stats", timeout=2.0))

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def _call(self, method: str, rollout: str, what: str, none_on_404: bool = False, **given: Any) -> Any:
        try:
            answer = self._http.request(method, f"/v1/rollouts/{rollout}/{what}", **given)
            if none_on_404 and answer.status_code == 404:
                return None
            if method == "PUT" and answer.status_code in (400, 422):
                raise Terminal(Reason.RECORDER_INCOMPATIBLE, _not_understood(what, answer.text))
            if answer.is_error:
                raise Retryable(f"the recorder refuses {method} {what}: {answer.status_code} {answer.text[:300]}", 5.0)
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise Retryable(f"the recorder does not answer {method} {what}: {error}", 2.0) from error


def _not_understood(what: str, said: str) -> str:
    return (
        f"The recorder does not understand this operator's {what} ({said[:200]}): they are of different releases."
        " Update the older one (one `helm upgrade` with one image tag does it)."
    )


def _block(raw: Mapping[str, Any], about: Mapping[str, Any]) -> Block:
    block = Block.from_mapping(raw)
    if block.stage or not about:
        return block
    return replace(block, stage=str(about.get("stage") or ""), weight=int(about.get("weight") or 0))
