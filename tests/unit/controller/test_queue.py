"""The work queue: one entry per rollout, urgent first, back-off, never two workers on one rollout."""

from controller.queue import WorkQueue


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_entries_are_merged_and_the_sooner_time_counts() -> None:
    hand = Hand()
    queue = WorkQueue(hand)
    queue.add("a", 100.0)
    queue.add("a", 5.0)
    queue.add("a", 50.0)
    assert queue.take(0.0) is None
    hand.now_s += 5.0
    assert queue.take(0.0) == "a"
    queue.done("a")
    hand.now_s += 1000.0
    assert queue.take(0.0) is None


def test_urgent_overtakes_what_is_due() -> None:
    queue = WorkQueue(Hand())
    queue.add("slow")
    queue.add("failing", urgent=True)
    assert queue.take(0.0) == "failing" and queue.take(0.0) == "slow"


def test_a_rollout_in_work_waits_and_does_not_block_others() -> None:
    queue = WorkQueue(Hand())
    queue.add("a")
    assert queue.take(0.0) == "a"
    queue.add("a", urgent=True)
    queue.add("b")
    assert queue.take(0.0) == "b"
    assert queue.take(0.0) is None
    queue.done("a")
    assert queue.take(0.0) == "a"


def test_back_off_doubles_and_is_forgotten_on_success() -> None:
    queue = WorkQueue(Hand())
    assert [queue.retry("a") for _ in range(4)] == [0.5, 1.0, 2.0, 4.0]
    assert max(queue.retry("a") for _ in range(200)) == 60.0
    queue.succeeded("a")
    assert queue.retry("a") == 0.5


def test_closing_lets_workers_go() -> None:
    queue = WorkQueue()
    queue.close()
    assert queue.take(60.0) is None
