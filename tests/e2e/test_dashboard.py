"""The dashboard in a real browser, over a fake API server and over a real one.

The `world` fixture is the only thing that knows what stands behind it.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.e2e.dashboard_data import SECRET, XSS
from tests.e2e.dashboard_world import World, start_world

pytestmark = pytest.mark.e2e
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(params=["fake", "cluster"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        with start_world() as world:
            yield world
        return
    from tests.e2e.dashboard_cluster import start_cluster_world

    with start_cluster_world(request.getfixturevalue("cluster")) as world:
        yield world


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = os.environ.get("WEIGHLOCK_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        pytest.skip("no Chromium here: install it, or name one with WEIGHLOCK_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()


OpenAs = Callable[..., Page]


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained about: errors, CSP violations, requests to other places."""
    return []


@pytest.fixture
def open_as(world: World, browser: Browser, complaints: list[str]) -> Iterator[OpenAs]:
    """Signs a person in and opens a path."""
    contexts: list[BrowserContext] = []

    def watch(page: Page) -> None:
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss())[1])
        page.on("request", lambda r: None if r.url.startswith(world.url) else complaints.append(f"request {r.url}"))

    def open_as(person: str, path: str, javascript: bool = True) -> Page:
        context = browser.new_context(java_script_enabled=javascript)
        contexts.append(context)
        page = context.new_page()
        watch(page)
        page.goto(f"{world.url}{path}")
        page.get_by_label("Kubernetes token").fill(world.tokens[person])
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{world.url}{path}")
        return page

    yield open_as
    for context in contexts:
        context.close()


def rollout_path(world: World) -> str:
    return f"/r/{world.namespace}/{world.name}"


def test_sign_in_list_and_sign_out(world: World, open_as: OpenAs, complaints: list[str]) -> None:
    page = open_as("viewer", "/")
    expect(page.get_by_role("link", name=re.compile(world.name))).to_be_visible()
    page.get_by_role("link", name=re.compile(world.name)).click()
    expect(page.get_by_role("heading", name=world.name, level=1)).to_be_visible()
    cookies = {cookie["name"]: cookie for cookie in page.context.cookies()}
    cookie = cookies["weighlock_session"]
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert world.tokens["viewer"] not in cookie["value"]
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(re.compile("/login"))
    page.goto(f"{world.url}{rollout_path(world)}")
    assert "/login" in page.url
    assert complaints == []


def test_a_wrong_token_stays_outside(world: World, browser: Browser) -> None:
    page = browser.new_context().new_page()
    page.goto(world.url)
    page.get_by_label("Kubernetes token").fill("forged")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not know this token")
    page.context.close()


def test_c99_a_header_names_nobody(world: World) -> None:
    spoof = {"X-Forwarded-User": "admin", "X-Remote-User": "admin", "Impersonate-User": "admin"}
    answer = httpx.get(f"{world.url}{rollout_path(world)}", headers=spoof)
    assert answer.status_code == 303 and answer.headers["location"].startswith("/login")


def test_a_cell_opens_its_numbers_and_stays_live(world: World, open_as: OpenAs, complaints: list[str]) -> None:
    page = open_as("viewer", rollout_path(world))
    expect(page.locator("#lamp")).to_have_attribute("data-state", "live")
    page.locator("a.cell.hold").first.click()
    cell = page.locator("#f-cell")
    expect(cell).to_contain_text("P99 time to first token vs stable")
    expect(cell).to_contain_text("globex")
    expect(cell).to_contain_text("EvidenceRising")
    assert "tenant=globex" in page.url
    assert cell.locator("svg.interval").count() >= 5
    world.change_live(diff_sentences=("A sentence that was not there before.",))
    expect(page.locator("#f-diff")).to_contain_text("A sentence that was not there before.")
    expect(cell).to_contain_text("globex")
    assert complaints == []


def test_approval_without_javascript_signs_what_it_shows(world: World, open_as: OpenAs) -> None:
    page = open_as("approver", rollout_path(world), javascript=False)
    page.get_by_role("link", name="Approve").click()
    for part in ("approver", "a83f2d7710", "7", "canary 5", "9f2c61d07ab34e18"):
        expect(page.locator("dl.signed")).to_contain_text(part)
    page.get_by_label("Reason").fill("Tails are fine; looked at globex.")
    page.get_by_role("button", name="Approve").click()
    page.wait_for_url(f"{world.url}{rollout_path(world)}")
    expect(page.locator("main").get_by_role("status").first).to_contain_text("approve was signed")
    spec = world.actions()[-1]["spec"]
    assert spec == {
        "rollout": world.name,
        "action": "approve",
        "revision": "a83f2d7710",
        "attempt": 7,
        "step": 1,
        "evidence": "9f2c61d07ab34e18",
        "user": "approver",
        "reason": "Tails are fine; looked at globex.",
    }
    expect(page.locator("#f-chronicle")).to_contain_text("Tails are fine; looked at globex.")


def test_c101_evidence_that_turned_is_not_signed(world: World, open_as: OpenAs) -> None:
    page = open_as("approver", f"{rollout_path(world)}/act/approve", javascript=False)
    before = len(world.actions())
    world.change_evidence("0000000000000000")
    page.get_by_label("Reason").fill("fine")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert")).to_contain_text("What you saw has changed")
    expect(page.locator("dl.signed")).to_contain_text("0000000000000000")
    assert len(world.actions()) == before


def test_c101_a_form_sent_twice_acts_once(world: World, open_as: OpenAs) -> None:
    page = open_as("approver", f"{rollout_path(world)}/act/pause", javascript=False)
    before = len(world.actions())
    fields = {
        name: page.locator(f"#main input[name={name}]").input_value()
        for name in ("csrf", "form", "revision", "attempt", "step")
    }
    url, origin = f"{world.url}{rollout_path(world)}/act/pause", {"Origin": world.url}
    for _ in range(2):
        answer = page.request.post(url, form=fields, headers=origin, max_redirects=0)
        assert answer.status == 303
    assert len(world.actions()) == before + 1


@pytest.mark.parametrize(
    ("headers", "csrf"),
    [({"Origin": "https://evil.example"}, True), ({"Origin": "null"}, True), ({}, True), (None, False)],
    ids=["other origin", "opaque origin", "no origin", "no csrf field"],
)
def test_a_form_from_elsewhere_is_refused(
    world: World, open_as: OpenAs, headers: dict[str, str] | None, csrf: bool
) -> None:
    page = open_as("approver", f"{rollout_path(world)}/act/abort", javascript=False)
    before = len(world.actions())
    names = ("form", "revision", "attempt", "step", *(("csrf",) if csrf else ()))
    fields = {name: page.locator(f"#main input[name={name}]").input_value() for name in names}
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    sent = {"Origin": world.url} if headers is None else headers
    answer = httpx.post(f"{world.url}{rollout_path(world)}/act/abort", data=fields, headers=sent, cookies=cookies)
    assert answer.status_code == 403
    assert len(world.actions()) == before


def test_who_may_not_sees_why_and_a_refusal_is_audited(world: World, open_as: OpenAs) -> None:
    page = open_as("viewer", rollout_path(world))
    expect(page.locator("#f-act [id^=act-]")).to_have_count(0)
    expect(page.locator("#no-right")).to_contain_text("You may look at this rollout, not act on it: that needs create")
    expect(page.locator("#no-right")).to_contain_text("weighlock-approver")
    page.goto(f"{world.url}{rollout_path(world)}/act/approve")
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    page.get_by_label("Reason").fill("please")
    page.locator("button[type=submit]", has_text="Approve").evaluate("b => { b.disabled = false; }")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("alert").first).to_contain_text("viewer may not approve inferencerollout")
    assert [(who, what) for who, what, _ in world.audit] == [("viewer", "approve refused")]


def test_a_stranger_sees_nothing(world: World, open_as: OpenAs) -> None:
    page = open_as("stranger", rollout_path(world))
    expect(page.get_by_role("alert")).to_contain_text("forbidden")
    expect(page.get_by_role("heading", name=world.name)).to_have_count(0)
    page.goto(world.url)
    expect(page.locator("main")).to_contain_text(f"You may not list InferenceRollouts in {world.namespace}")


def test_c103_markup_is_text_everywhere(world: World, open_as: OpenAs, complaints: list[str]) -> None:
    view = {"tenant": XSS, "bucket": XSS, "metric": "ttft"}
    page = open_as("viewer", rollout_path(world))
    expect(page.locator("#lamp")).to_have_attribute("data-state", "live")
    base = world.live_view()
    row = {**base.verdict["rows"][0], **view, "reason": XSS}
    verdict = {**base.verdict, "rows": [row], "holds": [{"reason": "Sentinel", "message": XSS, **view}]}
    world.change_live(verdict=verdict, policy=base.policy.model_copy(update={"tenants": (XSS,), "buckets": (XSS,)}))
    link = page.locator("a.cell").first
    expect(link).to_have_attribute("href", re.compile("tenant=%22%3E%3Cimg"))
    link.click()
    expect(page.locator("#f-cell")).to_contain_text(XSS)
    for fragment in ("notices", "matrix", "cell", "diff", "chronicle"):
        expect(page.locator(f"#f-{fragment}")).to_contain_text(XSS)
    page.goto(page.url)
    expect(page.locator("#f-cell")).to_contain_text(XSS)
    assert page.locator("img").count() == 0
    assert SECRET not in page.content()
    assert complaints == []


def test_every_answer_is_guarded(world: World, open_as: OpenAs) -> None:
    page = open_as("viewer", "/")
    for path in (
        "/",
        rollout_path(world),
        "/login",
        "/static/style.css",
        "/nowhere",
        f"{rollout_path(world)}/act/nonsense",
    ):
        answer = page.request.get(f"{world.url}{path}")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "traceback" not in answer.text().lower()
    stylesheet = page.request.get(f"{world.url}/static/style.css")
    assert stylesheet.headers["content-type"].startswith("text/css")


def test_keyboard_reaches_a_cell_and_focus_survives_a_swap(world: World, open_as: OpenAs) -> None:
    page = open_as("viewer", rollout_path(world))
    expect(page.locator("#lamp")).to_have_attribute("data-state", "live")
    cell = page.locator("a.cell").nth(4)
    cell.focus()
    name = cell.get_attribute("id")
    world.change_live(verdict={**world.live_view().verdict, "rows": world.live_view().verdict["rows"][::-1]})
    expect(page.locator(f"a.cell[id='{name}']")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#f-cell h2")).to_be_visible()


def test_on_a_phone_what_can_be_done_comes_before_the_numbers(world: World, open_as: OpenAs) -> None:
    page = open_as("approver", rollout_path(world))
    page.set_viewport_size({"width": 390, "height": 844})
    places = [page.locator(name).bounding_box() for name in ("#f-head", "#act-approve", "#f-matrix")]
    tops = [place["y"] for place in places if place is not None]
    assert len(tops) == 3 and tops == sorted(tops)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_the_operator_the_page_says_so(world: World, open_as: OpenAs) -> None:
    world.change_live(rollout="chat/another")
    page = open_as("viewer", rollout_path(world))
    expect(page.locator("#f-head")).to_contain_text("The evidence API says: the operator does not know this rollout")
    expect(page.locator("#f-head")).to_contain_text("Canary")
