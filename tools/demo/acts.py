"""The four acts of the demo, in the order in which they run.

Each act applies YAML as a user would, waits for what the product does with it, and checks the outcome. Nothing here
moves a weight or decides a verdict. An act raises DemoError when something it waits for does not happen.
"""

import time
from collections.abc import Callable
from typing import Any

import httpx

from tools.demo import checks, person
from tools.demo.screen import Screen, felt_sentence
from tools.demo.world import NAMESPACE, ROLLOUT, DemoError, World

HISTORY_SECONDS = 96  # the policy asks for 80 s of A/A history, after the warm-up and the last open blocks
ATTEMPT_SECONDS = 480
FAULT = {"slow": 2.5}


class Story:
    """State that the acts share: the world, the screen, what went wrong, who approves."""

    def __init__(self, world: World, screen: Screen, manual: bool) -> None:
        self.world, self.screen, self.manual = world, screen, manual
        self.failures: list[str] = []
        self.split_attempts: list[int] = []

    def check(self, holds: bool, sentence: str) -> None:
        """Print a finding; one that does not hold fails the demo."""
        if holds:
            self.screen.good(sentence)
            return
        self.failures.append(sentence)
        self.screen.bad(sentence)

    def follow(
        self, what: str, done: Callable[[dict[str, Any]], bool], seconds: float = ATTEMPT_SECONDS
    ) -> dict[str, Any]:
        """Show the rollout until `done(rollout)`; returns the rollout."""

        def probe() -> dict[str, Any] | None:
            if self.world.load_died():
                raise DemoError(f"the load generator ended; see {self.world.folder / 'load.log'}")
            rollout = self.world.rollout()
            self.screen.show(rollout, self._rows(rollout), self.world.felt())
            return rollout if done(rollout) else None

        found: dict[str, Any] = self.world.wait(what, probe, seconds)
        return found

    def _rows(self, rollout: dict[str, Any]) -> list[dict[str, Any]]:
        if phase(rollout) in ("", "Idle", "Pending", "Completed", "RolledBack"):
            return []
        try:
            verdict = self.world.evidence().get("verdict") or {}
        except httpx.HTTPError:  # the operator is being restarted; the view shows the rest
            return []
        rows: list[dict[str, Any]] = verdict.get("rows", [])
        return rows

    def approve_when_asked(self, attempt: int) -> None:
        """Wait for the guarded step; refused people first, then the approver."""
        rollout = self.follow("AwaitingApproval", lambda r: is_true(r, "AwaitingApproval") or ended(r, attempt))
        if not is_true(rollout, "AwaitingApproval"):
            raise DemoError(
                f"attempt {attempt} ended before it asked for an approval: {rollout['status'].get('message')}"
            )
        self.screen.say(f"a person is asked: {condition(rollout, 'AwaitingApproval').get('message', '')}", "bold")
        if self.manual:
            self.screen.say(f"approve it at {self.world.dashboard_url}/r/{NAMESPACE}/{ROLLOUT}", "bold yellow")
            return
        for user in ("stranger", "viewer"):
            self.check(*person.tries_to_approve_by_kubectl(self.world, rollout, user))
        self.screen.say(person.approves_on_dashboard(self.world, "P99 and goodput hold in all nine strata"))


def install(story: Story) -> None:
    """Act (a): a first install, then history of stable against itself."""
    world, screen = story.world, story.screen
    screen.act("Act A · install", "A first revision has nothing to be compared with: readiness and hard guards only.")
    world.apply("base")
    screen.say("kubectl apply -k tools/demo/manifests/base")
    rollout = story.follow("the first install", lambda r: is_true(r, "Completed"), 180)
    screen.good(f"stable is {rollout['status']['stable']}: {rollout['status'].get('message', '')}")
    world.start_load()
    screen.say("real traffic starts: a public trace of a chat service, open loop, three tenants, three prompt lengths")
    until = time.monotonic() + HISTORY_SECONDS
    story.follow("A/A history", lambda _: time.monotonic() > until, HISTORY_SECONDS + 30)
    screen.say(f"stable against itself for {HISTORY_SECONDS} s; {felt_sentence(world.felt())}")


def good_change(story: Story) -> None:
    """Act (b): one mechanism that holds everywhere; shadow, canary, approval, ramp, promotion, bake."""
    story.screen.act("Act B · a good change", "A larger token budget for chunked prefill: one mechanism.")
    attempt = _apply(story, "good")
    _print_diff(story)
    story.approve_when_asked(attempt)
    rollout = story.follow("Completed", lambda r: ended(r, attempt))
    story.check(is_true(rollout, "Completed"), f"promoted and completed: {rollout['status'].get('message', '')}")
    _print_split(story, attempt)


def bundle(story: Story) -> None:
    """Act (c): the mean improves, one tenant's long prompts do not."""
    world, screen = story.world, story.screen
    screen.act("Act C · better on average, worse for one tenant", "Speculation, bundled with prefix caching off.")
    stable = world.rollout()["status"]["stable"]
    before = checks.stable_pods(world, stable)
    attempt = _apply(story, "bundle")
    diff = _print_diff(story)
    story.check(bool(diff["primary"]["bundle"]), f"named as a bundle: {', '.join(diff['primary']['mechanisms'])}")
    rollout = story.follow("RolledBack", lambda r: ended(r, attempt))
    story.check(is_true(rollout, "RolledBack"), f"rolled back: {rollout['status'].get('message', '')}")
    worst = (rollout["status"].get("verdict") or {}).get("worst") or {}
    story.check(worst.get("tenant") == "globex", f"culprit named: {worst.get('label') or worst}")
    blocks = world.blocks(attempt)
    met = checks.live_requests_that_met(blocks)
    screen.say(
        f"live requests that met the bad revision: {met}" + (" — Shadow saw it first" if not met else ""), "bold"
    )
    for finding in checks.serves_what_was_stored(world, stable, before):
        story.check(*finding)
    story.check(
        condition(rollout, "InSync").get("status") == "False",
        f"InSync=False: {condition(rollout, 'InSync').get('message')}",
    )
    world.apply("good")
    synced = story.follow("InSync after the stable revision was applied again", lambda r: is_true(r, "InSync"), 60)
    story.check(is_true(synced, "InSync"), "applying the stable revision again clears it")


def late_break(story: Story) -> None:
    """Act (d): passes every step, then breaks after the promotion; one flip puts stable back."""
    world, screen = story.world, story.screen
    screen.act(
        "Act D · breaks after promotion", "A new engine version; the engine slows down once it serves everybody."
    )
    stable = world.rollout()["status"]["stable"]
    before = checks.stable_pods(world, stable)
    attempt = _apply(story, "late")
    _print_diff(story)
    story.approve_when_asked(attempt)
    rollout = story.follow("Bake", lambda r: phase(r) == "Bake" or ended(r, attempt))
    if phase(rollout) != "Bake":
        raise DemoError(f"attempt {attempt} ended before Bake: {rollout['status'].get('message')}")
    world.set_fault(rollout["status"]["candidate"], FAULT)
    screen.say(
        f"every candidate pod now runs {FAULT['slow']:g} times slower (fault switched on at its control port)", "bold"
    )
    since = time.monotonic()
    rollout = story.follow("RolledBack", lambda r: ended(r, attempt))
    story.check(is_true(rollout, "RolledBack"), f"rolled back in bake: {rollout['status'].get('message', '')}")
    screen.say(
        f"{time.monotonic() - since:.0f} s from the fault to the end of the rollback; {felt_sentence(world.felt())}"
    )
    for finding in checks.serves_what_was_stored(world, stable, before):
        story.check(*finding)
    _print_split(story, attempt)


def epilogue(story: Story) -> None:
    """What holds over the whole demo."""
    world, screen = story.world, story.screen
    screen.act("Summary", "Over all acts.")
    world.stop_load()
    story.check(*checks.nobody_was_cut(checks.client_records(world.records_file)))
    history = world.patient_evidence("/history")
    for attempt in sorted({entry["attempt"] for entry in history["verdicts"] if entry["attempt"]}):
        answer = world.patient_evidence(f"/rejudge?attempt={attempt}")
        same = all(entry["same"] for entry in answer["verdicts"])
        story.check(
            same, f"attempt {attempt}: {len(answer['verdicts'])} verdicts re-judged from stored counts, all the same"
        )


def _apply(story: Story, overlay: str) -> int:
    attempt = int(story.world.rollout()["status"]["attempt"]) + 1
    story.screen.say(f"kubectl apply -k tools/demo/manifests/{overlay}")
    story.world.apply(overlay)
    story.follow(f"attempt {attempt}", lambda r: int(r["status"].get("attempt", 0)) >= attempt, 60)
    return attempt


def _print_diff(story: Story) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def probe(_: dict[str, Any]) -> bool:
        try:
            live = story.world.evidence()
        except httpx.HTTPError:  # the operator is being restarted
            return False
        if live.get("diff"):
            found.append({**live["diff"], "sentences": live.get("diff_sentences", [])})
        return bool(found)

    story.follow("the diff", probe, 60)
    diff = found[-1]
    for sentence in diff.get("sentences", []):
        story.screen.say(f"diff: {sentence}", "cyan")
    return diff


def _print_split(story: Story, attempt: int) -> None:
    blocks = story.world.blocks(attempt)
    for finding in checks.split_within_band(story.world, attempt, blocks):
        story.check(*finding)
    for finding in checks.load_parity(blocks):
        story.check(*finding)


def phase(rollout: dict[str, Any]) -> str:
    """Phase, empty before the first reconcile."""
    return str(rollout.get("status", {}).get("phase", ""))


def condition(rollout: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition, empty where it is not there."""
    found = [c for c in rollout.get("status", {}).get("conditions", []) if c["type"] == kind]
    return found[0] if found else {}


def is_true(rollout: dict[str, Any], kind: str) -> bool:
    """Whether a condition is True."""
    return condition(rollout, kind).get("status") == "True"


def ended(rollout: dict[str, Any], attempt: int) -> bool:
    """Whether this attempt (not an earlier one) is over."""
    status = rollout.get("status", {})
    return int(status.get("attempt", 0)) >= attempt and phase(rollout) in ("Completed", "RolledBack", "Idle")
