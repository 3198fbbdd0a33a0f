"""Block accounting: sharing, eviction order, never more than there is."""

from hypothesis import given
from hypothesis import strategies as st

from tools.enginesim.kvpool import KvPool


def test_released_prompt_blocks_stay_findable_until_evicted_tail_first() -> None:
    pool = KvPool(4)
    assert pool.allocate(3)
    held = [block for block in (1, 2, 3) if pool.publish(block)]
    pool.release(0, held)
    assert pool.used == 0
    assert pool.count_hits([1, 2, 3], 3) == 3
    assert pool.allocate(2)  # one was never used, one must be evicted: the tail
    assert pool.count_hits([1, 2, 3], 3) == 2


def test_two_holders_share_one_block() -> None:
    pool = KvPool(4)
    pool.allocate(1)
    pool.publish(7)
    pool.hold([7])
    assert pool.used == 1
    pool.release(0, [7])
    assert pool.used == 1
    pool.release(0, [7])
    assert pool.used == 0


def test_a_duplicate_stays_private() -> None:
    pool = KvPool(4)
    pool.allocate(2)
    assert pool.publish(7)
    assert not pool.publish(7)
    assert (pool.private, pool.shared) == (1, 1)


def test_too_much_is_refused_without_change() -> None:
    pool = KvPool(2)
    assert not pool.allocate(3)
    assert pool.free == 2


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), max_size=60))
def test_blocks_are_conserved(moves: list[tuple[int, int]]) -> None:
    pool = KvPool(12)
    sequences: list[tuple[int, list[int]]] = []
    for prefix, length in moves:
        hashes = [prefix * 100 + index for index in range(length)]
        hits = pool.count_hits(hashes, length)
        if length - hits + pool.idle_among(hashes[:hits]) > pool.free:
            if sequences:
                pool.release(*sequences.pop(0))
            continue
        pool.hold(hashes[:hits])
        assert pool.allocate(length - hits)
        held = hashes[:hits] + [block for block in hashes[hits:] if pool.publish(block)]
        sequences.append((length - len(held), held))
        assert pool.used + pool.free == 12
        assert len(pool.holders) + pool.private <= 12
    for private, held in sequences:
        pool.release(private, held)
    assert pool.used == 0
