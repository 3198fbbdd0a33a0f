"""What PromQL queries measure, and what conditions demand."""

from decimal import Decimal

import pytest

from manifests.convert.conditions import threshold_of
from manifests.convert.measures import MAX, MIN, Measure, measure_of


@pytest.mark.parametrize(
    ("query", "threshold", "direction", "gate"),
    [
        (
            "histogram_quantile(0.99, sum(rate(vllm:time_to_first_token_seconds_bucket[5m])) by (le))",
            "2",
            MAX,
            {"metric": "ttft", "percentile": "99", "limit": "2s"},
        ),
        (
            'histogram_quantile(0.95, sum(rate(request_duration_milliseconds_bucket{app=~"{{args.a}}"}[1m])) by (le))',
            "750",
            MAX,
            {"metric": "e2e", "percentile": "95", "limit": "750ms"},
        ),
        (
            "histogram_quantile(0.99,sum(rate(request_duration_milliseconds_bucket[{{ interval }}])) by (le))/1000",
            "0.5",
            MAX,
            {"metric": "e2e", "percentile": "99", "limit": "500ms"},
        ),
        (
            "histogram_quantile(0.9, rate(http_request_duration_seconds_bucket[1m])) * 1000",
            "1500",
            MAX,
            {"metric": "e2e", "percentile": "90", "limit": "1500ms"},
        ),
        (
            'sum(rate(requests_total{path="/v1/x",code!~"5.*"}[1m])) / sum(rate(requests_total[1m]))',
            "0.95",
            MIN,
            {"metric": "success", "limit": "95%"},
        ),
        (
            'sum(rate(requests_total{status=~"5.*"}[1m])) / sum(rate(requests_total[1m])) * 100',
            "1",
            MAX,
            {"metric": "success", "limit": "99%"},
        ),
        (
            '100 - sum(rate(requests_total{response_code!~"5.*"}[1m])) / sum(rate(requests_total[1m])) * 100',
            "0.5",
            MAX,
            {"metric": "success", "limit": "99.5%"},
        ),
        (
            'sum(rate(response_total{classification="success"}[1m])) / sum(rate(response_total[1m]))',
            "0.99",
            MIN,
            {"metric": "success", "limit": "99%"},
        ),
    ],
)
def test_a_query_that_says_what_it_measures_becomes_a_gate(
    query: str, threshold: str, direction: str, gate: dict[str, str]
) -> None:
    measure = measure_of(query)
    assert isinstance(measure, Measure)
    assert measure.gate(Decimal(threshold), direction) == gate


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("rate(latency_seconds_sum[1m]) / rate(latency_seconds_count[1m])", "average"),
        ("histogram_quantile(0.99, rate(http_request_duration_bucket[1m]))", "unit"),
        ("histogram_quantile(0.99, rate(batch_size_bucket[1m]))", "which latency"),
        ("sum(rate(requests_total[1m])) / sum(rate(tokens_total[1m]))", "which requests"),
        ("up == 1", "neither"),
        ("", "neither"),
    ],
)
def test_a_query_that_does_not_say_it_is_named_not_guessed(query: str, reason: str) -> None:
    measure = measure_of(query)
    assert isinstance(measure, str)
    assert reason in measure


def test_a_limit_on_the_wrong_side_is_no_gate() -> None:
    success, errors, latency = Measure("success"), Measure("success", bad=True), Measure("e2e", "99")
    assert success.gate(Decimal("0.9"), MAX) is None
    assert errors.gate(Decimal("0.1"), MIN) is None
    assert latency.gate(Decimal(1), MIN) is None
    assert success.gate(Decimal(95), MIN) is None  # 9,500 %


@pytest.mark.parametrize(
    ("condition", "failure", "demanded"),
    [
        ("result[0] >= 0.95", False, (MIN, Decimal("0.95"))),
        ("result < 0.5", False, (MAX, Decimal("0.5"))),
        ("isNaN(result) || result[0] <= 1", False, (MAX, Decimal(1))),
        ("len(result) == 0 || result[0] > 0.9", False, (MIN, Decimal("0.9"))),
        ("0.95 <= asFloat(result[0])", False, (MIN, Decimal("0.95"))),
        ("all(result, # < 300)", False, (MAX, Decimal(300))),
        ("default(result, 0) < 5", False, (MAX, Decimal(5))),
        ("result[0] > 0.05", True, (MAX, Decimal("0.05"))),
        ("result[0] > 1 && result[0] < 3", False, None),
        ("result == 'ok'", False, None),
        ("", False, None),
    ],
)
def test_a_condition_demands_one_threshold_or_none(
    condition: str, failure: bool, demanded: tuple[str, Decimal] | None
) -> None:
    assert threshold_of(condition, failure) == demanded
