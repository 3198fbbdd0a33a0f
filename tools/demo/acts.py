"""The four acts of the demo, in the order in which they run.

Each act applies YAML as a user would, waits for what the product does with it, and checks the outcome. Nothing here
moves a weight or decides a verdict. An act raises DemoError when something it waits for does not happen.
"""

import time
from typing import Any

import httpx

from tools.demo import averages, checks, person
from tools.demo.checks import Finding
from tools.demo.story import Act, Story, condition, ended, is_true, phase
from tools.demo.world import NAMESPACE, ROLLOUT, DemoError

HISTORY_SECONDS = 90  # the policy asks for 80 s of A/A history, after the warm-up and the last open blocks
FAULT = {"slow": 2.5}


def install(story: Story) -> None:
    """Act (a): a first install, then history of stable against itself."""
    world, screen = story.world, story.screen
    about = "A first revision has nothing to be compared with: readiness and hard guards only."
    with story.act("Act A · install", about):
        world.apply("base")
        screen.say("kubectl apply -k tools/demo/manifests/base")
        rollout = story.follow("the first install", lambda r: is_true(r, "Completed"), 180)
        screen.good(f"stable is {rollout['status']['stable']}: {rollout['status'].get('message', '')}")
        world.start_load()
        screen.say(
            "real traffic starts: a public trace of a chat service, open loop, three tenants, three prompt lengths"
        )
        until = time.monotonic() + HISTORY_SECONDS
        screen.say(
            f"{HISTORY_SECONDS} s of history: how much stable differs from itself is what a change is measured by"
        )
        story.follow("A/A history", lambda _: time.monotonic() > until, HISTORY_SECONDS + 30)


def good_change(story: Story) -> None:
    """Act (b): one mechanism that holds everywhere; shadow, canary, approval, ramp, promotion, bake."""
    about = "A larger token budget for chunked prefill: one mechanism."
    with story.act("Act B · a good change", about) as act:
        act.attempt = _apply(story, "good")
        _print_diff(story)
        story.screen.say("54 checks: 3 tenants × 3 prompt lengths × 6 gates; every single one must be proven to go on")
        _approve_when_asked(story, act.attempt)
        rollout = story.follow("Completed", lambda r: ended(r, act.attempt))
        story.check(is_true(rollout, "Completed"), f"promoted and completed: {rollout['status'].get('message', '')}")
        story.later("act B", lambda: [*_split_and_load(story, act), _rejudged(story, act)])


def bundle(story: Story) -> None:
    """Act (c): the mean request is faster, the tail of one tenant's long prompts is far worse."""
    world, screen = story.world, story.screen
    about = "Speculation, bundled with prefix caching off."
    with story.act("Act C · better on average, worse for one tenant", about) as act:
        stable = world.rollout()["status"]["stable"]
        before = checks.stable_pods(world, stable)
        act.attempt = _apply(story, "bundle")
        diff = _print_diff(story)
        story.check(bool(diff["primary"]["bundle"]), f"named as a bundle: {', '.join(diff['primary']['mechanisms'])}")
        rollout = story.follow("RolledBack", lambda r: ended(r, act.attempt))
        story.check(is_true(rollout, "RolledBack"), f"rolled back: {rollout['status'].get('message', '')}")
        verdict = rollout["status"].get("verdict") or {}
        worst = verdict.get("worst") or {}
        why = verdict.get("message") or worst.get("label") or "none"
        story.check(worst.get("tenant") == "globex", f"culprit named: {why}")
        met = act.candidate_requests = checks.live_requests_that_met(world.blocks(act.attempt))
        hurt = (str(worst.get("tenant")), str(worst.get("bucket")))
        seen = " — Shadow saw it first" if not met else ""
        screen.say(f"live requests that met the bad revision: {met}{seen}", "bold")
        for finding in checks.serves_what_was_stored(world, stable, before):
            story.check(*finding)
        told = condition(rollout, "InSync")
        story.check(told.get("status") == "False", f"InSync=False: {told.get('message')}")
        world.apply("good")
        synced = story.follow("InSync after the stable revision was applied again", lambda r: is_true(r, "InSync"), 60)
        story.check(is_true(synced, "InSync"), "applying the stable revision again clears it")
        story.later("act C", lambda: [*_averages(story, act, hurt), _rejudged(story, act)])


def late_break(story: Story) -> None:
    """Act (d): passes every step, then breaks after the promotion; one flip puts stable back."""
    world, screen = story.world, story.screen
    about = "A new engine version; the engine slows down once it serves everybody."
    with story.act("Act D · breaks after promotion", about) as act:
        stable = world.rollout()["status"]["stable"]
        before = checks.stable_pods(world, stable)
        act.attempt = _apply(story, "late")
        _print_diff(story)
        _approve_when_asked(story, act.attempt)
        rollout = story.follow("Bake", lambda r: phase(r) == "Bake" or ended(r, act.attempt))
        if phase(rollout) != "Bake":
            raise DemoError(f"attempt {act.attempt} ended before Bake: {rollout['status'].get('message')}")
        world.set_fault(rollout["status"]["candidate"], FAULT)
        slower = f"every candidate pod now runs {FAULT['slow']:g} times slower"
        screen.say(f"{slower} (fault switched on at its control port)", "bold")
        since = time.monotonic()
        story.follow("the flip", lambda r: phase(r) in ("RollingBack", "RolledBack") or ended(r, act.attempt))
        screen.say(f"breach proven and traffic flipped {time.monotonic() - since:.0f} s after the fault", "bold")
        why = (story.world.rollout()["status"].get("verdict") or {}).get("message") or "not told"
        screen.say(f"why: {why}")
        rollout = story.follow("RolledBack", lambda r: ended(r, act.attempt))
        story.check(is_true(rollout, "RolledBack"), f"rolled back in bake: {rollout['status'].get('message', '')}")
        screen.say(f"the last slow answer ended {time.monotonic() - since:.0f} s after the fault")
        for finding in checks.serves_what_was_stored(world, stable, before):
            story.check(*finding)
        story.later("act D", lambda: [*_split_and_load(story, act), _rejudged(story, act)])


def epilogue(story: Story) -> None:
    """What holds over the whole demo."""
    world, screen = story.world, story.screen
    screen.act("Summary", "Over all acts.")
    world.stop_load()
    story.collect(wait=True)
    records = checks.client_records(world.records_file)
    story.check(*checks.nobody_was_cut(records))
    screen.summary(story.acts, checks.felt(records))


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


def _approve_when_asked(story: Story, attempt: int) -> None:
    """Wait for the guarded step; refused people first, then the approver."""
    world, screen = story.world, story.screen
    rollout = story.follow("AwaitingApproval", lambda r: is_true(r, "AwaitingApproval") or ended(r, attempt))
    if not is_true(rollout, "AwaitingApproval"):
        raise DemoError(f"attempt {attempt} ended before it asked for an approval: {rollout['status'].get('message')}")
    screen.say(f"a person is asked: {condition(rollout, 'AwaitingApproval').get('message', '')}", "bold")
    if story.manual:
        screen.say(f"approve it at {world.dashboard_url}/r/{NAMESPACE}/{ROLLOUT}", "bold yellow")
        return
    for user in ("stranger", "viewer"):
        story.check(*person.tries_to_approve_by_kubectl(world, rollout, user))
    screen.say(person.approves_on_dashboard(world, "P99 holds in all nine strata"))


def _split_and_load(story: Story, act: Act) -> list[Finding]:
    """Who got what in an attempt, from the recorder's records and the stored blocks; and what users felt of it."""
    blocks = story.world.blocks(act.attempt)
    act.candidate_requests = checks.live_requests_that_met(blocks)
    return checks.split_within_band(story.world, act.attempt, blocks) + checks.load_parity(blocks)


def _averages(story: Story, act: Act, hurt: tuple[str, str]) -> list[Finding]:
    """What is better on average and what is not, from the live requests of the attempt and their copies."""
    blocks = story.world.blocks(act.attempt)
    if not blocks:
        return [(False, "no block of the attempt was stored")]
    since_s, until_s = min(block.start_s for block in blocks), max(block.end_s for block in blocks)
    return averages.better_on_average(story.world.records(since_s, until_s), act.attempt, *hurt)


def _rejudged(story: Story, act: Act) -> Finding:
    """Whether every verdict of an attempt comes out again from the stored counts alone."""
    verdicts = story.world.patient_evidence(f"/rejudge?attempt={act.attempt}")["verdicts"]
    same = len(verdicts) > 0 and all(entry["same"] for entry in verdicts)
    return same, f"{len(verdicts)} verdicts re-judged from stored counts, all the same"
