"""What the model of continuous batching must show: the trades that the mechanisms make in a real engine."""

import pytest

from tests.unit.tools.enginesim.support import Probe, Simulation, batcher
from tools.enginesim.sequence import State

NGRAM = '{"method":"ngram","num_speculative_tokens":3}'
EAGLE = '{"method":"eagle","num_speculative_tokens":3}'


def test_a_lone_request_decodes_at_the_weight_reading_floor() -> None:
    core = batcher()
    probe = Probe(0.0, 100, 200)
    Simulation(core).run([probe])
    floor = core.settings.model.parameters * 2 / core.settings.accelerator.bandwidth
    assert floor <= probe.tpot < 1.4 * floor
    assert probe.finish_reason == "length"
    assert probe.times[-1][1] == 200


def test_chunked_prefill_steadies_decodes_and_delays_the_long_prompt() -> None:
    def run(*flags: str) -> tuple[float, float]:
        decoding = [Probe(0.0, 200, 400) for _ in range(16)]
        long_prompt = Probe(0.5, 15000, 4)
        Simulation(batcher(*flags)).run([*decoding, long_prompt])
        return max(probe.max_gap for probe in decoding), long_prompt.ttft

    gap_chunked, ttft_chunked = run("--max-num-batched-tokens", "1024")
    gap_whole, ttft_whole = run("--no-enable-chunked-prefill")
    assert gap_chunked < 0.3 * gap_whole
    assert ttft_chunked > 1.02 * ttft_whole


def test_a_prefix_hit_lowers_ttft_and_is_counted_in_tokens() -> None:
    core = batcher("--max-num-batched-tokens", "2048")
    first, second = (Probe(at, 8000, 4, prefix="s" * 4 * 7600) for at in (0.0, 5.0))
    Simulation(core).run([first, second])
    assert second.ttft < 0.3 * first.ttft
    assert core.metrics.prefix_hits == 7600
    assert core.metrics.prefix_queries == 16000


def test_without_prefix_caching_nothing_is_looked_up() -> None:
    core = batcher("--no-enable-prefix-caching")
    first, second = (Probe(at, 8000, 4, prefix="s" * 4 * 7600) for at in (0.0, 5.0))
    Simulation(core).run([first, second])
    assert second.ttft == pytest.approx(first.ttft, rel=0.02)
    assert core.metrics.prefix_queries == 0


def test_short_kv_preempts_the_latest_and_everybody_still_finishes() -> None:
    core = batcher("--num-gpu-blocks-override", "1024", "--no-enable-prefix-caching")
    probes = [Probe(0.0, 1500, 600) for _ in range(10)]
    Simulation(core).run(probes)
    assert core.metrics.preemptions > 0
    assert all(probe.times[-1][1] == 600 for probe in probes)
    assert core.metrics.generation_tokens == 6000
    assert core.pool.used == 0
    roomy = batcher("--no-enable-prefix-caching")
    Simulation(roomy).run([Probe(0.0, 1500, 600) for _ in range(10)])
    assert roomy.metrics.preemptions == 0


@pytest.mark.parametrize("config", [NGRAM, EAGLE])
def test_speculation_speeds_up_decoding_of_a_small_batch(config: str) -> None:
    plain, drafted = Probe(0.0, 200, 400), Probe(0.0, 200, 400, acceptance=0.6)
    core = batcher("--speculative-config", config)
    Simulation(batcher()).run([plain])
    Simulation(core).run([drafted])
    assert drafted.tpot < 0.7 * plain.tpot
    metrics = core.metrics
    assert metrics.draft_tokens == 3 * metrics.drafts
    assert sum(metrics.accepted_per_position) == metrics.accepted_tokens
    assert metrics.accepted_per_position == sorted(metrics.accepted_per_position, reverse=True)


def test_speculation_with_poor_acceptance_loses_at_a_large_batch() -> None:
    plain = [Probe(0.0, 64, 120) for _ in range(400)]
    drafted = [Probe(0.0, 64, 120, acceptance=0.1) for _ in range(400)]
    Simulation(batcher("--max-num-seqs", "400")).run(plain)
    Simulation(batcher("--max-num-seqs", "400", "--speculative-config", NGRAM)).run(drafted)
    assert sum(probe.tpot for probe in drafted) > sum(probe.tpot for probe in plain)


def test_max_num_seqs_makes_the_rest_wait() -> None:
    core = batcher("--max-num-seqs", "4")
    probes = [Probe(0.0, 100, 50) for _ in range(8)]
    simulation = Simulation(core)
    simulation.run(probes, until=0.05)
    assert (len(core.running), len(core.waiting)) == (4, 4)
    simulation.run([])
    assert core.metrics.queue.sum > 0


def test_no_step_exceeds_the_token_budget() -> None:
    core = batcher("--max-num-batched-tokens", "1024")
    Simulation(core).run([Probe(0.01 * index, 700, 30) for index in range(40)])
    at_most = core.metrics.iteration_tokens.edges.index(1024.0)
    assert sum(core.metrics.iteration_tokens.counts[at_most + 1 :]) == 0


def test_long_prompts_take_their_threshold_a_step_so_that_short_ones_pass() -> None:
    def short_ttft(*flags: str) -> float:
        short = Probe(0.01, 100, 4)
        Simulation(batcher("--max-num-batched-tokens", "2048", *flags)).run([Probe(0.0, 15000, 4), short])
        return short.ttft

    assert short_ttft("--long-prefill-token-threshold", "256") < 0.5 * short_ttft()


def test_abort_frees_blocks_and_is_counted() -> None:
    core = batcher()
    probes = [Probe(0.0, 500, 500), Probe(0.0, 500, 20)]
    simulation = Simulation(core)
    simulation.run(probes, until=0.1)
    sequence = probes[0].sequence
    assert sequence is not None
    core.abort(sequence)
    core.abort(sequence)
    simulation.run([])
    assert sequence.state is State.DONE
    assert probes[0].finish_reason is None
    assert core.metrics.finished["abort"] == 1
    assert core.metrics.finished["length"] == 1
    assert core.pool.used == 0
    assert core.context == pytest.approx(0.0)


def test_stream_interval_bundles_tokens_into_chunks() -> None:
    probe = Probe(0.0, 100, 100, interval=16)
    Simulation(batcher()).run([probe])
    assert [count for _, count in probe.times] == [1, 17, 33, 49, 65, 81, 97, 100]


def test_first_requests_are_slow_while_the_engine_is_cold() -> None:
    probes = [Probe(at, 100, 4) for at in (0.0, 2.0, 4.0)]
    Simulation(batcher(ENGINESIM_WARMUP_REQUESTS="2")).run(probes)
    assert probes[0].ttft > 5 * probes[2].ttft
    assert probes[1].ttft > 5 * probes[2].ttft


def test_work_of_one_request_can_be_made_slow() -> None:
    probes = [Probe(0.0, 100, 100) for _ in range(2)]
    simulation = Simulation(batcher())
    simulation.run(probes, until=0.0)
    core = simulation.core
    for probe in probes:
        simulation._submit(probe)
    assert probes[0].sequence is not None
    probes[0].sequence.work_scale = 3.0
    simulation.run([])
    assert core.metrics.generation_tokens == 200
    assert probes[0].tpot == pytest.approx(3 * probes[1].tpot, rel=0.25)
