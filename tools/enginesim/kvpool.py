"""The paged KV pool: counted private blocks, shared blocks by content hash, and an LRU of cached blocks nobody holds.

Used by ``batcher.py``. A block is either private (being filled, or a duplicate), shared (hash known, held by at least
one sequence) or idle (hash known, free to be evicted, oldest first). Only full prompt blocks are ever shared; blocks
of generated tokens are not, which is the one simplification against vLLM.
"""

from collections import OrderedDict
from collections.abc import Sequence as SequenceOf


class KvPool:
    """Block accounting in O(blocks touched)."""

    def __init__(self, total_blocks: int) -> None:
        self.total = total_blocks
        self.private = 0
        self.shared = 0
        self.holders: dict[int, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks that sequences hold now."""
        return self.private + self.shared

    @property
    def free(self) -> int:
        """Blocks that can be had, cached idle ones included."""
        return self.total - self.private - self.shared

    def count_hits(self, hashes: SequenceOf[int], limit: int) -> int:
        """Leading blocks of a prompt that are cached, at most ``limit``."""
        holders = self.holders
        hits = 0
        for block in hashes[:limit]:
            if block not in holders:
                break
            hits += 1
        return hits

    def hold(self, hashes: SequenceOf[int]) -> None:
        """Takes cached blocks; all must be known (``count_hits``)."""
        for block in hashes:
            count = self.holders[block]
            if count == 0:
                del self.idle[block]
                self.shared += 1
            self.holders[block] = count + 1

    def idle_among(self, hashes: SequenceOf[int]) -> int:
        """How many of these blocks nobody holds; taking them uses up free room."""
        return sum(1 for block in hashes if self.holders[block] == 0)

    def allocate(self, count: int) -> bool:
        """Takes ``count`` private blocks, evicting idle ones if need be; False, unchanged, when there are too few."""
        if count > self.free:
            return False
        self.private += count
        while len(self.idle) > self.free:
            block, _ = self.idle.popitem(last=False)
            del self.holders[block]
        return True

    def publish(self, block: int) -> bool:
        """A private block is full of prompt tokens: share it, unless another copy is known already (False)."""
        if block in self.holders:
            return False
        self.holders[block] = 1
        self.private -= 1
        self.shared += 1
        return True

    def release(self, private: int, hashes: SequenceOf[int]) -> None:
        """Gives blocks back; the tail of a prompt becomes evictable before its head."""
        self.private -= private
        for block in reversed(hashes):
            count = self.holders[block] - 1
            self.holders[block] = count
            if count == 0:
                self.shared -= 1
                self.idle[block] = None

    def reset(self) -> None:
        """Forgets idle cached blocks."""
        for block in self.idle:
            del self.holders[block]
        self.idle.clear()
