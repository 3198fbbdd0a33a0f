"""The recorder's HTTP interface as calls (docs/architecture.md). Made by the operator's start-up; used by recorder.py,
calibration.py and traffic.py. Knows nothing of judges.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx

from controller.ports import Retryable, Terminal
from crds.v1alpha1.conditions import Reason
from policies.blocks import Block
from shadow.envoy.bootstrap import TlsFiles
from shadow.http_tls import client_context, stamp_of
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
    """Calls to one recorder. Raises Retryable for anything but an answer; Terminal where it will never take a body.

    Args:
        tls: certificate to show, and the authority of the recorder's; read again when the files change.
        http: a client to use as it is (tests).
    """

    def __init__(
        self,
        url: str,
        timeout_seconds: float = 10.0,
        http: httpx.Client | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._url, self._timeout_s, self._tls = url.rstrip("/"), timeout_seconds, tls
        self._lock = threading.Lock()
        self._stamp: tuple[int, ...] = ()
        self._http = http or (self._make() if tls is None else None)

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
        if self._http is not None:
            self._http.close()

    def _make(self) -> httpx.Client:
        verify = client_context(self._tls) if self._tls is not None else True
        return httpx.Client(base_url=self._url, timeout=self._timeout_s, trust_env=False, verify=verify)

    def _client(self) -> httpx.Client:
        """With the certificate as it is now; OSError where there is none yet."""
        with self._lock:
            stamp = stamp_of(self._tls) if self._tls is not None else ()
            if self._http is None or stamp != self._stamp:
                self._http, self._stamp = self._make(), stamp  # calls of other threads end on the old one
            return self._http

    def _call(self, method: str, rollout: str, what: str, none_on_404: bool = False, **given: Any) -> Any:
        if self._tls is not None:
            given["extensions"] = {"sni_hostname": self._tls.server_name}  # whatever the address is called
        try:
            answer = self._client().request(method, f"/v1/rollouts/{rollout}/{what}", **given)
            if none_on_404 and answer.status_code == 404:
                return None
            if method == "PUT" and answer.status_code in (400, 422):
                raise Terminal(Reason.RECORDER_INCOMPATIBLE, _not_understood(what, answer.text))
            if answer.is_error:
                raise Retryable(f"the recorder refuses {method} {what}: {answer.status_code} {answer.text[:300]}", 5.0)
            return answer.json()
        except (httpx.HTTPError, OSError, ValueError) as error:
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
