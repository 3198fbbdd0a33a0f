"""History of a revision: only blocks in which it alone served live requests, whatever it was called then."""

from policies.baseline import as_history, newest_history
from policies.blocks import Block, Cell

OLD, NEW = "aaaaaaaaaa", "bbbbbbbbbb"


def cell(variant: str, revision: str, kind: str = "live") -> Cell:
    return Cell(variant, revision, kind, "acme", "0-512", f"{revision}-0", routed=5, outcomes={"ok": 5})


def block(seq: int, stage: str, *cells: Cell, missing: tuple[str, ...] = ()) -> Block:
    start_s = 1000.0 + 5 * seq
    return Block(seq, "ns/chat", 1, 0, start_s, start_s + 5, cells, missing=missing, stage=stage)


def test_idle_and_shadow_blocks_of_stable_are_history_without_the_copies() -> None:
    for stage in ("idle", "shadow"):
        found = as_history(block(0, stage, cell("stable", OLD), cell("candidate", NEW, "mirror")), OLD)
        assert found is not None
        assert [(c.variant, c.kind) for c in found.cells] == [("stable", "live")]


def test_a_promoted_revision_brings_its_bake_along_as_stable() -> None:
    found = as_history(block(0, "bake", cell("candidate", NEW), cell("stable", OLD, "mirror")), NEW)
    assert found is not None
    assert [(c.variant, c.revision) for c in found.cells] == [("stable", NEW)]
    assert as_history(block(0, "bake", cell("candidate", NEW)), OLD) is None


def test_what_others_served_too_is_none() -> None:
    assert as_history(block(0, "canary", cell("stable", OLD), cell("candidate", NEW)), OLD) is None
    assert as_history(block(0, "bake", cell("candidate", NEW), cell("stable", OLD)), NEW) is None
    assert as_history(block(0, "idle"), OLD) is None
    assert as_history(block(0, "idle", cell("stable", OLD), missing=("stable",)), OLD) is None


def test_the_newest_blocks_are_taken_over_what_lies_between() -> None:
    idle = [block(i, "idle", cell("stable", OLD)) for i in range(10)]
    ramp = [block(10 + i, "ramp", cell("stable", OLD), cell("candidate", NEW)) for i in range(5)]
    later = [block(15 + i, "idle", cell("stable", OLD)) for i in range(4)]
    found = newest_history([*idle, *ramp, *later], OLD, length_s=30)
    assert [b.seq for b in found] == [8, 9, 15, 16, 17, 18]
