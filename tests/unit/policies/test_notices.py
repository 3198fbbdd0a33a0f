"""Sentences of a verdict: what holds for many rows is said once."""

from policies.notices import reasons
from policies.verdict import Hold, HoldReason


def test_one_finding_of_many_rows_is_one_sentence() -> None:
    words = "stable's threshold is not known yet"
    holds = [Hold(HoldReason.NO_BASELINE, f"a, {i}: {words}", "a", str(i), "ttft") for i in range(5)]
    assert reasons(holds) == (f"NoBaseline: a, 0; a, 1; a, 2 and 2 more: {words}",)


def test_a_row_that_repeats_what_is_said_of_all_is_left_out() -> None:
    general = Hold(HoldReason.CANCEL_SHIFT, "requests cancelled by clients: 30% on the candidate, 5% on stable")
    row = Hold(HoldReason.CANCEL_SHIFT, f"a, 0-512, TTFT P99: not comparable: {general.message}", "a", "0-512", "ttft")
    other = Hold(HoldReason.NO_BASELINE, "a, 0-512, TTFT P99: no threshold", "a", "0-512", "ttft")
    assert reasons([general, row, other]) == (
        f"CancelShift: {general.message}",
        "NoBaseline: a, 0-512, TTFT P99: no threshold",
    )
    assert reasons([row]) == (f"CancelShift: {row.message}",), "what is said of no one else is said of the row"
