"""The gate as users and engines see it: real Envoy, real xDS, real recorder."""

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from shadow.envoy.bootstrap import Upstream, bootstrap_yaml
from shadow.envoy.process import envoy_binary
from shadow.envoy.xds import XdsServer
from shadow.plan import Stage, copies_to_candidate
from shadow.recorder.serve import Options, RecorderServer
from tests.e2e.gate.conftest import World
from tests.e2e.gate.harness import CANDIDATE, ROLLOUT, STABLE, chat, make_plan, until

pytestmark = pytest.mark.e2e
CHECKOUT = Path(__file__).resolve().parents[3]
DEBUG = {"x-weighlock-debug": "1"}


async def ask(world: World, **more) -> httpx.Response:
    headers = {"x-tenant": "acme", **DEBUG, **more.pop("headers", {})}
    return await world.client.post("/v1/chat/completions", json=chat(**more), headers=headers)


def is_whole(response: httpx.Response) -> bool:
    return response.status_code == 200 and response.content.endswith(b"data: [DONE]\n\n")


async def test_bootstrap_is_valid(tmp_path) -> None:
    path = tmp_path / "bootstrap.yaml"
    path.write_text(bootstrap_yaml(Upstream("weighlock.example.svc", 18000), Upstream("127.0.0.1", 18001)))
    command = [envoy_binary(), "--mode", "validate", "-c", str(path), "--service-node", "n", "--service-cluster", "a/b"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


async def test_split_lies_in_the_binomial_band(world: World) -> None:
    await world.gate.publish(make_plan(20, [world.stable], [world.candidate]))
    n, p = 600, 0.2
    answers = [await ask(world) for _ in range(n)]
    assert all(is_whole(a) for a in answers)
    to_candidate = Counter(a.headers["x-weighlock-variant"] for a in answers)["candidate"]
    assert abs(to_candidate - n * p) < 4.5 * math.sqrt(n * p * (1 - p))
    assert to_candidate == len(world.candidate.arrivals)


async def test_flip_is_quick_and_loses_nobody(world: World) -> None:
    both = ([world.stable], [world.candidate])
    await world.gate.publish(make_plan(50, *both))
    sent: list[tuple[float, httpx.Response]] = []

    async def one() -> None:
        started = time.monotonic()
        sent.append((started, await ask(world)))

    enough = asyncio.Event()

    async def load() -> None:
        tasks = []
        while not enough.is_set():
            tasks.append(asyncio.create_task(one()))
            await asyncio.sleep(0.01)  # 100 requests a second
        await asyncio.gather(*tasks)

    running = asyncio.create_task(load())
    late_ms: list[float] = []
    for _ in range(10):
        served = len(world.candidate.arrivals)
        await until(lambda n=served: len(world.candidate.arrivals) > n + 5, "candidate serves")
        flipped = time.monotonic()
        await world.gate.publish(make_plan(0, *both, stage=Stage.ROLLBACK))
        seen = len(sent)
        await until(lambda n=seen: len(sent) > n + 20, "requests after the flip")
        late = [at - flipped for at, r in sent if r.headers["x-weighlock-variant"] == "candidate" and at > flipped]
        late_ms.append(max(late, default=0.0) * 1000)
        await world.gate.publish(make_plan(50, *both))
    enough.set()
    await running
    assert max(late_ms) < 250, late_ms
    assert all(is_whole(r) for _, r in sent)


async def test_old_streams_end_after_flip_and_removal(world: World) -> None:
    world.candidate.gap_s = world.stable.gap_s = 0.2
    await world.gate.publish(make_plan(100, [world.stable], [world.candidate], stage=Stage.RAMP))
    stream = asyncio.create_task(ask(world))
    await until(lambda: len(world.candidate.arrivals) == 1, "the stream began")
    await world.gate.publish(make_plan(0, [world.stable], [world.candidate], stage=Stage.ROLLBACK))
    # The candidate leaves the plan altogether: its clusters and endpoints go while its stream runs.
    await world.gate.publish(make_plan(0, [world.stable], stage=Stage.IDLE))
    await until(lambda: no_cluster(world, f"live-{CANDIDATE}"), "clusters of the candidate are gone")
    assert not stream.done()
    answer = await stream
    assert is_whole(answer)
    assert answer.headers["x-weighlock-revision"] == CANDIDATE


async def no_cluster(world: World, name: str) -> bool:
    return name not in await world.gate.admin("/clusters")


async def test_candidate_dies_and_no_user_notices(world: World) -> None:
    world.stable.gap_s = world.candidate.gap_s = 0.0
    await world.gate.publish(make_plan(50, [world.stable], [world.candidate]))
    answers: list[httpx.Response] = []

    async def one() -> None:
        answers.append(await ask(world, stream=False))

    for i in range(150):
        if i == 50:
            await world.candidate.stop()
        await one()
    assert Counter(a.status_code for a in answers) == {200: 150}
    assert all(a.headers["x-weighlock-variant"] == "stable" for a in answers[60:])

    async def judged() -> bool:
        records = [r for r in await world.records() if r["variant"] == "candidate" and r["outcome"] == "server_error"]
        return len(records) > 20

    await until(judged, "requests that stable took over count against the candidate")


async def test_usage_is_asked_for_and_hidden(world: World) -> None:
    world.stable.cut = 7
    await world.gate.publish(make_plan(0, [world.stable], stage=Stage.IDLE))
    plain = await ask(world)
    assert is_whole(plain) and b'"usage"' not in plain.content
    asked = await ask(world, stream_options={"include_usage": True})
    assert is_whole(asked) and b'"completion_tokens": 5' in asked.content
    frames = world.stable.frames({})
    assert plain.content == b"".join(frames)

    async def known() -> bool:
        return [r.get("output_tokens") for r in await world.records()] == [5, 5]

    await until(known, "both records know the usage")
    assert {r["tokens_source"] for r in await world.records()} == {"usage"}


async def test_usage_is_left_alone_where_the_policy_says_so(world: World) -> None:
    await world.gate.publish(make_plan(0, [world.stable], stage=Stage.IDLE), include_usage=False)
    assert is_whole(await ask(world))
    assert b"stream_options" not in world.stable.arrivals[0].body


async def test_copies_are_metered_stripped_and_paired(world: World) -> None:
    plan = make_plan(0, [world.stable], [world.candidate], copies_to_candidate=1.0)
    await world.gate.publish(plan)
    secrets = {"authorization": "Bearer s3cret", "cookie": "s3cret", "x-api-key": "s3cret", "api-key": "s3cret"}
    sizes = [10, 3000, 9000, 40_000]
    for size in sizes:
        assert is_whole(await ask(world, prompt="x" * size, headers={**secrets, "x-weighlock-tenant": "forged"}))
    await until(lambda: len(world.candidate.arrivals) == len(sizes), "every copy arrived")
    for live, copy in zip(world.stable.arrivals, world.candidate.arrivals, strict=True):
        assert live.headers["authorization"] == "Bearer s3cret"
        assert "s3cret" not in json.dumps(copy.headers)
        assert copy.headers["x-weighlock-kind"] == "mirror"
        assert copy.headers["x-weighlock-tenant"] == live.headers["x-weighlock-tenant"] == "acme"
        assert copy.body == live.body

    async def all_known() -> bool:
        return len(await world.records()) == 2 * len(sizes)

    await until(all_known, "live requests and copies are recorded")
    records = await world.records()
    live_of = {r["id"]: r for r in records if r["kind"] == "live"}
    copies = [r for r in records if r["kind"] == "mirror"]
    assert len(live_of) == len(copies) == len(sizes)
    for copy in copies:
        live = live_of[copy["pair"]]
        assert (copy["bucket"], copy["tenant"]) == (live["bucket"], live["tenant"])
        assert (copy["variant"], copy["revision"]) == ("candidate", CANDIDATE)
        assert (live["variant"], live["revision"]) == ("stable", STABLE)
        assert copy["outcome"] == live["outcome"] == "ok"
    assert {r["bucket"] for r in copies} == {"0-512", "513-2048", "2049+"}
    assert "s3cret" not in json.dumps(records)


async def test_top_up_brings_one_of_two_replicas_to_half_of_the_requests(world: World) -> None:
    world.stable.gap_s = world.candidate.gap_s = 0.0
    share = copies_to_candidate(20, ready_replicas=1, full_replicas=2)
    await world.gate.publish(make_plan(20, [world.stable], [world.candidate], copies_to_candidate=share))
    sent = 1200
    for _ in range(sent // 20):
        answers = await asyncio.gather(*(ask(world, stream=False) for _ in range(20)))
        assert all(answer.status_code == 200 for answer in answers)

    async def all_known() -> bool:
        return sum(r["kind"] == "live" for r in await world.records()) == sent

    await until(all_known, "live requests are recorded")
    kinds = Counter(a.headers["x-weighlock-kind"] for a in world.candidate.arrivals)
    # Five standard deviations: 0.20 and 0.50 of 1200 requests.
    assert kinds["live"] == pytest.approx(240, abs=70)
    assert kinds.total() == pytest.approx(600, abs=87)


async def test_what_must_not_be_copied_is_counted(world: World) -> None:
    plan = make_plan(0, [world.stable], [world.candidate], copies_to_candidate=1.0)
    await world.gate.publish(plan, mirror_except=("globex",))
    await ask(world, store=True)
    await ask(world, tools=[{"type": "web_search"}])
    await ask(world, headers={"x-tenant": "globex"})
    await ask(world, prompt="x" * 1_300_000)
    await world.client.post("/v1/files", content=b"upload")
    await world.client.get("/v1/models")
    assert is_whole(await ask(world))
    await until(lambda: len(world.candidate.arrivals) == 1, "the one that may be copied arrived")

    async def counted() -> bool:
        skipped = {s["reason"]: s["n"] for s in (await world.api.get("/stats")).json()["skipped"]}
        return skipped == {"store": 1, "tools": 1, "tenant": 1, "large": 1}

    await until(counted, "what was left out is visible")
    assert len(world.candidate.arrivals) == 1
    assert [len(a.body) for a in world.stable.arrivals][3] > 1_300_000


async def test_copies_stop_with_the_plan(world: World) -> None:
    await world.gate.publish(make_plan(0, [world.stable], [world.candidate], copies_to_candidate=1.0))
    await ask(world)
    await until(lambda: len(world.candidate.arrivals) == 1, "a copy arrived")
    await world.gate.publish(make_plan(0, [world.stable], [world.candidate]))
    for _ in range(30):
        await ask(world)
    assert len(world.candidate.arrivals) == 1


async def test_reversed_copies_in_bake(world: World) -> None:
    plan = make_plan(100, [world.stable], [world.candidate], stage=Stage.BAKE, copies_to_stable=1.0)
    await world.gate.publish(plan)
    assert (await ask(world)).headers["x-weighlock-variant"] == "candidate"
    await until(lambda: len(world.stable.arrivals) == 1, "stable got a copy")
    assert world.stable.arrivals[0].headers["x-weighlock-kind"] == "mirror"


async def test_hanging_shadow_never_touches_users(world: World) -> None:
    world.candidate.hang = True
    await world.gate.publish(make_plan(0, [world.stable], [world.candidate], copies_to_candidate=1.0))
    before = [await timed(world) for _ in range(3)]
    slow = await asyncio.gather(*(timed(world) for _ in range(100)))
    assert all(ok for ok, _ in [*before, *slow])
    after = [await timed(world) for _ in range(20)]
    assert all(ok for ok, _ in after)
    assert max(s for _, s in after) < 2.0

    async def open_copies() -> bool:
        listed = (await world.api.get("/open")).json()["open"]
        return sum(g["n"] for g in listed if g["variant"] == "candidate") >= 100

    await until(open_copies, "copies that hang are known while they hang")


async def timed(world: World) -> tuple[bool, float]:
    started = time.monotonic()
    return is_whole(await ask(world)), time.monotonic() - started


async def test_client_that_leaves_is_a_cancel_and_reaches_the_engine(world: World) -> None:
    world.stable.hang = True
    await world.gate.publish(make_plan(0, [world.stable], stage=Stage.IDLE))
    request = asyncio.create_task(ask(world))
    await until(lambda: len(world.stable.arrivals) == 1, "the engine has it")
    request.cancel()
    await until(lambda: world.stable.arrivals[0].ended == "lost", "the engine is told", timeout_s=1.0)

    async def cancelled() -> bool:
        return [r["outcome"] for r in await world.records()] == ["cancelled"]

    await until(cancelled, "a cancel is recorded")
    assert [arrival.ended for arrival in world.stable.arrivals] == ["lost"]


async def test_engine_that_answers_nobody_counts_while_it_is_open(world: World) -> None:
    world.stable.tokens, world.stable.gap_s = 2, 2.5
    await world.gate.publish(make_plan(0, [world.stable], stage=Stage.IDLE))
    request = asyncio.create_task(ask(world))

    async def is_open() -> bool:
        records = await world.records()
        return len(records) == 1 and records[0]["outcome"] == "open" and records[0]["e2e_s"] > 1

    await until(is_open, "an unfinished request is visible")
    assert is_whole(await request)


async def test_candidate_without_pods_gets_no_weight(world: World) -> None:
    await world.gate.publish(make_plan(50, [world.stable], []))
    assert {(await ask(world)).headers["x-weighlock-variant"] for _ in range(20)} == {"stable"}


async def test_gate_outlives_its_server_and_comes_back(world: World) -> None:
    await world.gate.publish(make_plan(0, [world.stable]))
    port = world.xds.port
    await world.xds.stop()
    assert is_whole(await ask(world))
    world.xds = world.gate.xds = XdsServer(f"127.0.0.1:{port}")
    await world.xds.start()
    await until(lambda: world.gate.node in world.xds.connected(ROLLOUT), "the gate is back", 20)
    assert is_whole(await ask(world)), "a server that says nothing changes nothing"
    await world.gate.publish(make_plan(100, [world.stable], [world.candidate], stage=Stage.RAMP))
    assert (await ask(world)).headers["x-weighlock-variant"] == "candidate"


async def test_restarted_gate_gets_its_plan_again(world: World) -> None:
    version = await world.gate.publish(make_plan(100, [world.stable], [world.candidate], stage=Stage.RAMP))
    world.gate.kill()
    await until(lambda: not world.xds.connected(ROLLOUT), "the server noticed")
    world.gate.start()
    await until(lambda: world.xds.acks(ROLLOUT).get(world.gate.node) == version, world.gate.explain())
    assert (await ask(world)).headers["x-weighlock-variant"] == "candidate"


async def test_recorder_restart_loses_no_closed_block(world: World) -> None:
    await world.gate.publish(make_plan(0, [world.stable]))
    for _ in range(20):
        await ask(world)
    first = (await world.api.get("/blocks", params={"wait": 20})).json()
    assert first["blocks"]
    als, http = world.recorder.als_port, world.recorder.port
    await world.recorder.stop()
    options = Options(f"127.0.0.1:{http}", f"127.0.0.1:{als}", world.data / "recorder")
    world.recorder = RecorderServer(options)
    await world.recorder.start()
    after = first["next"]
    second = (await world.api.get("/blocks", params={"after": -1})).json()
    assert second["recorder"] == first["recorder"]
    assert second["blocks"][: len(first["blocks"])] == first["blocks"]
    third = (await world.api.get("/blocks", params={"after": after, "wait": 20})).json()["blocks"]
    assert third[0]["seq"] == after + 1
    assert third[0]["missing"] == ["candidate", "stable"]
    entries = world.recorder.logs.entries

    async def metered() -> bool:
        await ask(world)
        return world.recorder.logs.entries > entries

    await until(metered, "the gate's log found the recorder again", 20)


async def test_deleted_gate_lets_its_streams_end(world: World) -> None:
    """The container's entry point: SIGTERM in the middle of a stream costs nobody the answer."""
    world.gate.kill()
    await until(lambda: not world.xds.connected(ROLLOUT), "the first Envoy is gone")
    world.stable.tokens, world.stable.gap_s = 10, 0.2
    command = [sys.executable, "-m", "shadow.envoy.gate", "--rollout", ROLLOUT, "--grace", "20"]
    command += ["--config", str(world.gate.dir / "bootstrap.yaml")]
    env = {**os.environ, "POD_NAME": world.gate.node, "POD_IP": world.gate.pod_ip, "PYTHONPATH": str(CHECKOUT)}
    process = await asyncio.create_subprocess_exec(*command, env=env)
    try:
        await world.gate.publish(make_plan(0, [world.stable], stage=Stage.IDLE))
        assert (await world.client.get("/weighlock/ready")).status_code == 200
        stream = asyncio.create_task(ask(world))
        await until(lambda: len(world.stable.arrivals) == 1, "the stream began")
        process.terminate()
        assert is_whole(await stream)
        assert await asyncio.wait_for(process.wait(), 15) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
