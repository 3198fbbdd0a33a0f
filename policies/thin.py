"""Opt-in rule for strata that are too thin to pass in time (`thinStrata: parentVeto`): their tenant passes for them.

Called by the judge at every block. It is weaker than proof: a stratum with three times the allowed events gets through
in about one of six cases at 150 effective requests, one with ten times practically never. So it concerns strata alone
that the plan named before the attempt, and the report says so. Knows counts, no policy.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from policies import sequential as seq
from policies.projection import group_sum
from policies.sequential import Array
from policies.track import Track

LEAST_EFFECTIVE = 150.0
"""Candidate requests / phi below which nobody passes for a stratum."""
VETO = 0.2
"""A stratum objects when it is itself beyond the bound at this level (one look)."""


def passes_with_parent(track: Track, alpha: float, good_events: bool = False) -> NDArray[np.bool_]:
    """Strata [S] with enough requests, whose tenant as a whole passes, and which do not object.

    good_events: the event is good (goodput), too few of them are the breach.
    """
    total, phi = track.total, track.phi
    k, trials, bound = _trials(track)
    if good_events:
        worse = betaincinv(k + 1.0, np.maximum(trials - k, 1e-9), 1.0 - VETO) < bound
    else:
        worse = np.where(k > 0, betaincinv(np.maximum(k, 1e-9), trials - k + 1.0, VETO), 0.0) > bound
    enough = (total.n_c / phi >= LEAST_EFFECTIVE) & (track.step_n > 0) & np.isfinite(track.null)
    return np.asarray(enough & ~worse & (_parent_evidence(track) >= -np.log(alpha))[track.strata.tenant_of])


def _trials(track: Track) -> tuple[Array, Array, Array]:
    """(events of the candidate, trials, share at the bound) per stratum, counts divided by phi."""
    total, phi = track.total, track.phi
    if not track.relative:
        return total.k_c / phi, total.n_c / phi, track.null
    allowed = track.null * total.n_c
    both = allowed + total.n_b
    share = np.divide(allowed, both, out=np.full_like(both, 0.5), where=both > 0)
    return total.k_c / phi, (total.k_c + total.k_b) / phi, share


def _parent_evidence(track: Track) -> Array:
    """Log E against a breach of each tenant: the fixed alternatives, summed over its strata (pairs left out)."""
    own = np.maximum(track.log_pass[:, :-1] - track.prior[:, :-1], -1e300)
    return seq.log_mean(group_sum(own, track.strata.tenant_of, len(track.strata.tenants)))
