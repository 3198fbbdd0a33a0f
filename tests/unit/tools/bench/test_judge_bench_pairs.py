"""Pairs of the bench: correlated as asked, counted like the builder counts them, and read by the product's judge."""

import numpy as np
import pytest

from policies.pairevidence import PairSums
from policies.pairing import Pairing
from policies.records import RequestRecord
from tools.bench.judge.ours import Ours, count, make_setup, names
from tools.bench.judge.scenarios import STRATA, find
from tools.bench.judge.traffic import Source

SPAN = (36, 36 + 24)


@pytest.fixture(scope="module")
def source() -> Source:
    return Source(find("null")[0], seed=3, run=0, history_s=240.0)


def test_log_latencies_correlate_within_a_pair(source: Source) -> None:
    stable, candidate, pairs = source.paired(*SPAN, 0.7)
    assert (stable.attempted == candidate.attempted).all() and (stable.failed != candidate.failed).any()
    own, other = (log - source.log_median[pairs.cell % STRATA] for log in (pairs.log_stable, pairs.log_candidate))
    assert np.corrcoef(own, other)[0, 1] == pytest.approx(0.7, abs=0.02)
    assert own.std() == pytest.approx(other.std(), rel=0.02)


def test_pairs_are_counted_as_the_builder_counts_them(source: Source) -> None:
    setup = make_setup(source)
    stable, candidate, pairs = source.paired(*SPAN, 0.7)
    counted = count(setup, stable, candidate, pairs)
    place, pairing = 40, Pairing()
    tenant, bucket = names()[place]
    values = setup.strata[place].checks[0]
    pairing.set_thresholds({(tenant, bucket, "ttft"): ((values.stable_us, values.candidate_us),)})
    nothing = (None, None, None)
    for number in np.nonzero(pairs.cell % STRATA == place)[0]:
        live = RequestRecord(f"{number}", 0.0, "stable", tenant, "ok")
        copy = RequestRecord(f"c{number}", 0.0, "candidate", tenant, "ok", pair=f"{number}")
        for record, log_ttft in ((live, pairs.log_stable[number]), (copy, pairs.log_candidate[number])):
            pairing.add(record, tenant, bucket, ((float(np.exp(log_ttft)), True), *nothing), 0.0)
    (found,) = pairing.take()
    sums = PairSums(*(a[:, place].sum() for a in counted.pairs))
    assert found.both + found.neither + found.only_candidate + found.only_stable == sums.n
    assert (found.only_candidate, found.only_stable) == (sums.only_c, sums.only_s)
    assert found.moments == pytest.approx((sums.m, sums.x, sums.y, sums.xx, sums.yy, sums.xy))


def test_the_judge_chooses_pairs_that_correlate_and_only_those(source: Source) -> None:
    setup = make_setup(source)
    used = {}
    for correlation in (0.2, 0.9):
        ours = Ours(setup)
        counted = count(setup, *source.paired(36, 36 + 60, correlation))
        for row in range(60):
            ours.take(counted, row)
        evidence = ours.judge.tracks[0].pairs
        assert evidence is not None
        used[correlation] = evidence.pairs.sum()
        assert np.nanmedian(evidence.correlation()) == pytest.approx(correlation, abs=0.1)
    assert used[0.2] == 0.0 < used[0.9]
