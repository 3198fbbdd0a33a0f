"""What the controller needs of the outside, as protocols; controller/adapters and controller/store implement them.

Used by observe.py and reads/, act.py and writes/, reconcile.py. An adapter raises `Retryable` where trying again may
help and `Terminal` where a person must mend something; nothing else is expected.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from controller.core.snapshot import DataPlane as DataPlaneView
from controller.core.snapshot import JudgeView, Traffic
from crds.v1alpha1.conditions import Reason
from policies.blocks import Block
from policies.setup import JudgeSetup
from policies.verdict import Hold, Verdict
from shadow.plan import GateConfig


class Retryable(Exception):
    """The world was not ready (conflict, timeout, refused connection); try again after `delay_s`."""

    def __init__(self, message: str, delay_s: float = 1.0) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class Terminal(Exception):
    """Trying again cannot help; `reason` and the message go to the rollout's conditions."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Ref:
    """Which object: API version, plural resource name, namespace ("" for cluster objects), name."""

    api_version: str
    plural: str
    namespace: str
    name: str = ""


class Cluster(Protocol):
    """The API server. Reads come from caches where a cache exists; objects are plain dicts."""

    def cached(self, plural: str, namespace: str, labels: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Objects of a watched kind, oldest first."""

    def get_cached(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        """One object of a watched kind."""

    def get_known(self, plural: str, namespace: str, name: str) -> dict[str, Any] | None:
        """The same, also while the rest of its namespace is not (or not any more) to be read."""

    def get(self, ref: Ref) -> dict[str, Any] | None:
        """One object from the server; None where there is none."""

    def apply(self, obj: Mapping[str, Any], plural: str) -> dict[str, Any]:
        """Server-side apply as `weighlock`, with force."""

    def try_apply(self, obj: Mapping[str, Any], plural: str) -> None:
        """The same as a dry run of the server: its defaults, validation and admission, and nothing is written."""

    def patch(self, ref: Ref, patch: Any, subresource: str = "") -> dict[str, Any] | None:
        """Merge patch (a mapping) or JSON patch (a list); None where the object is gone."""

    def delete(self, ref: Ref) -> None:
        """Delete with background propagation; gone already is fine."""

    def replace_status(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """Write status with the resourceVersion of `obj`: a write based on an old state is refused (Retryable)."""

    def has_ready_pods(self, namespace: str, selector: Mapping[str, str]) -> bool:
        """Whether a ready pod matches these labels (asked at the server)."""

    def emit(self, obj: Mapping[str, Any], reason: str, message: str, warning: bool) -> None:
        """Write an event about an object; never raises."""

    def is_reachable(self) -> bool:
        """Whether the API server answered lately."""

    def fetch(self, ref: Ref) -> dict[str, Any] | None:
        """An object of a kind that is not watched, a few seconds old at most."""

    def refresh(self, ref: Ref) -> None:
        """Read one watched object now."""


class Lease(Protocol):
    """Who may write."""

    def is_held(self) -> bool:
        """Whether this process holds the lease now, by its own clock."""

    def may_lower(self) -> bool:
        """Held, or lost only because the API server cannot be reached: nobody else can have taken it."""


class DataPlane(Protocol):
    """The gates."""

    def publish(self, config: GateConfig) -> None:
        """Send a configuration to all gates of a rollout; the same one again is harmless."""

    def forget(self, rollout: str) -> None:
        """Stop serving a deleted rollout's gates."""

    def view(self, rollout: str, gates: Sequence[str]) -> DataPlaneView:
        """What is connected and acknowledged (`gates`: names of ready gate pods)."""


class Judgement(Protocol):
    """Blocks in, verdicts out, one judge per rollout."""

    def view(
        self, rollout: str, attempt: int, rev10: str, step: int, since_s: float, guards: tuple[Hold, ...] = ()
    ) -> JudgeView:
        """What the judge of this attempt says now (attempt 0: nothing is weighed); never waits for the network.

        Starts following the rollout where nobody does yet. since_s: when the attempt began; guards: what the counts
        cannot know and what forbids a PASS from now on.
        """

    def put_setup(self, rollout: str, attempt: int, policy: Mapping[str, Any], stable: str) -> None:
        """Make the setup from history and make it durable at the recorder; Retryable where it does not answer."""

    def put_history_contract(self, rollout: str, policy: Mapping[str, Any]) -> None:
        """Tell the recorder how to count while nothing is weighed; the same policy again is free."""

    def open_requests(self, rollout: str) -> Mapping[str, int] | None:
        """Unfinished live requests by revision; None where the recorder does not answer."""

    def prepared(self, rollout: str) -> tuple[JudgeSetup, Mapping[str, Any] | None] | None:
        """Setup of the running attempt and how long proof takes (shape of `weighlock plan -o json`)."""

    def traffic(self, rollout: str) -> Traffic | None:
        """What started in the last seconds; None where nobody knows now."""

    def body_size(self, rollout: str) -> tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]]:
        """Calibration in force for the rollout: (bytes per prompt token, overhead bytes), each by model."""

    def forget(self, rollout: str) -> None:
        """Stop following a deleted rollout."""


class Prober(Protocol):
    """One-token completions straight to engine pods."""

    def watch(self, rollout: str, targets: Mapping[str, str]) -> None:
        """Probe exactly these pods of a rollout: pod uid -> base URL."""

    def result(self, uid: str) -> tuple[bool, int, str]:
        """(answered once and not lost since, failures in a row, last error) of a pod."""


class Store(Protocol):
    """The SQL sink. No method raises or waits; `healthy` says whether rows arrive."""

    def put_blocks(self, blocks: Iterable[Block]) -> None:
        """Keep closed blocks."""

    def put_setup(self, rollout: str, attempt: int, setup: Mapping[str, Any], at_s: float | None = None) -> None:
        """Keep a judge's setup."""

    def put_verdict(self, rollout: str, attempt: int, last_seq: int, verdict: Verdict, evidence: str = "") -> str:
        """Keep a verdict; returns its key."""

    def put_decision(
        self, rollout: str, attempt: int, step: int, content: Mapping[str, Any], at_s: float | None = None
    ) -> str:
        """Keep a decision; `content` holds phase, reason and weight."""

    def put_action(
        self, rollout: str, uid: str, spec: Mapping[str, Any], outcome: str, at_s: float | None = None
    ) -> str:
        """Keep a person's action and what became of it."""

    def put_audit(
        self, rollout: str, who: str, what: str, content: Mapping[str, Any], attempt: int = 0, step: int = 0
    ) -> str:
        """Keep anything else that must be found later."""

    def healthy(self) -> bool:
        """Whether the database takes what it is given."""


class Clock(Protocol):
    """Time that never jumps."""

    def now(self) -> float:
        """Unix seconds; never goes back within a process."""
