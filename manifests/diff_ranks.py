"""Lines that choose between collectives, where one rank has nobody to talk to.

Called by :mod:`manifests.diff` when all lines of a pair are known. The facts give such switches the ledger COMM alone
(bytes between ranks), which is zero with a single rank on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from manifests.layout import layout_of
from manifests.lines import Change
from manifests.model import Manifest

NO_COLLECTIVES = "inert: one rank on both sides (every parallel size is 1), so no collective runs"
_COLLECTIVE = re.compile(r"all-?_?reduce|all2all", re.IGNORECASE)


def without_idle_collectives(old: Manifest, new: Manifest, lines: Iterable[Change]) -> list[Change]:
    """The same lines; those that act on all-reduce or all-to-all alone move nothing where both sides have one rank."""
    if not (_has_one_rank(old) and _has_one_rank(new)):
        return list(lines)
    return [_inert(line) if _is_collective(line) else line for line in lines]


def _is_collective(line: Change) -> bool:
    only_bytes_between = line.mechanism == "parallelism" and line.ledgers == ("COMM",)
    return only_bytes_between and bool(_COLLECTIVE.search(line.setting))


def _inert(line: Change) -> Change:
    return replace(line, ledgers=(), correctness="none", fp_reorder=False, witness=None, why=NO_COLLECTIVES)


def _has_one_rank(manifest: Manifest) -> bool:
    """Whether this is certain: sizes that cannot be read, and ranks that are started one by one, may be more."""
    layout = layout_of(manifest)
    hidden = any(entry.what == "command" for entry in manifest.unresolved)
    apart = any(
        name.startswith("data-parallel") and not (name == "data-parallel-size" and setting.value == 1)
        for name, setting in manifest.settings.items()
    )
    by_variable = any(name.startswith("VLLM_DP_") for name in manifest.environment)
    return layout.known and layout.needed == 1 and not (hidden or apart or by_variable)
