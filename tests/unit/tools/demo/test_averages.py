"""Act C's figures: means over pairs of the same work, and the tail of the stratum that is hurt."""

from typing import Any

from tools.demo.averages import better_on_average

STRATUM = ("globex", "1101+")


def pair(
    number: int, stable: tuple[float, float], candidate: tuple[float, float], **values: Any
) -> list[dict[str, Any]]:
    """A live request on stable and its copy; each arm: seconds to the first token, seconds per token after it."""
    common = {"attempt": 3, "tenant": "acme", "bucket": "0-420", "outcome": "ok", "output_tokens": 11, **values}
    arms = [("stable", f"r{number}", None, *stable), ("candidate", f"r{number}-copy", f"r{number}", *candidate)]
    return [
        {**common, "variant": variant, "id": name, "pair": of, "ttft_s": ttft, "e2e_s": ttft + 10 * tpot}
        for variant, name, of, ttft, tpot in arms
    ]


def of_globex(number: int, candidate: tuple[float, float]) -> list[dict[str, Any]]:
    return pair(number, (0.4, 0.01), candidate, tenant=STRATUM[0], bucket=STRATUM[1])


def test_faster_on_average_and_a_worse_tail_are_both_said() -> None:
    records = [record for number in range(9) for record in pair(number, (0.4, 0.01), (0.4, 0.005))]
    means, tail = better_on_average([*records, *of_globex(9, (0.8, 0.005))], 3, *STRATUM)
    assert means[0] and tail[0]
    assert "mean of 10 requests" in means[1] and "time per token 10.00 → 5.00 ms (-50 %)" in means[1]
    assert "whole request 500 → 490 ms (-2 %)" in means[1] and "first token 400 → 440 ms (+10 %)" in means[1]
    assert tail[1] == "P99 time to first token of globex/1101+ (1 of them): 400 → 800 ms (+100 %)"


def test_what_is_not_so_does_not_hold() -> None:
    means, tail = better_on_average(of_globex(1, (0.3, 0.02)), 3, *STRATUM)
    assert not means[0] and not tail[0]
    means, tail = better_on_average(of_globex(1, (0.4, 0.01)), 3, *STRATUM)
    assert not means[0] and not tail[0]  # equal is neither better nor worse


def test_a_request_without_its_copy_is_no_comparison() -> None:
    lone, cut = of_globex(1, (0.3, 0.01))[:1], of_globex(2, (0.3, 0.01))
    cut[1]["outcome"] = "truncated"
    elsewhere = pair(3, (9.0, 0.01), (9.0, 0.01), attempt=2, tenant=STRATUM[0], bucket=STRATUM[1])
    (finding,) = better_on_average([*lone, *cut, *elsewhere], 3, *STRATUM)
    assert finding == (False, "no request of globex/1101+ was answered by both revisions")
