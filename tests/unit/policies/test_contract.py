"""A policy as the judge's numbers: what contradicts itself is refused with its field."""

import pytest

from policies.contract import ContractError, contract_from_mapping
from tests.unit.policies.test_judge import LIMIT, MARGIN, SUCCESS


def test_what_lies_just_inside_the_bounds_is_taken_and_a_bare_number_is_told_its_form() -> None:
    gates = [{**LIMIT, "percentile": "99.99"}, {**LIMIT, "percentile": "99"}, {**MARGIN, "percentile": "99"}]
    policy = {"gates": gates, "evidence": {"maxHold": "1h", "stallTolerance": "1h"}}
    assert [check.share for check in contract_from_mapping(policy).checks] == [0.0001, 0.01, 0.01]
    with pytest.raises(ContractError, match='for example "25%"'):
        contract_from_mapping({"gates": [{**MARGIN, "margin": 25}]})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"gates": []}, "gates"),
        ({"gates": [{"metric": "ttft", "percentile": "99"}]}, "gates"),
        ({"gates": [{"metric": "ttft", "percentile": "99", "margin": "0.5%"}]}, "gates[0].margin"),
        ({"gates": [{"metric": "ttft", "percentile": "99", "margin": "1pp"}]}, "gates[0].margin"),
        ({"gates": [{"metric": "ttft", "percentile": "99", "limit": "2"}]}, "gates.0.limit"),
        ({"gates": [{"metric": "success", "limit": "100%"}]}, "gates[0].limit"),
        ({"gates": [{**SUCCESS, "mode": "dryRun"}]}, "gates"),
        ({"gates": [{**LIMIT, "limit": "0.0000001s"}]}, "gates[0].limit"),
        ({"gates": [SUCCESS], "outcomes": {"attempted": ["ok"]}}, "outcomes.attempted"),
        ({"gates": [SUCCESS], "slo": {"ttft": "0s"}}, "slo.ttft"),
        ({"gates": [SUCCESS], "evidence": {"alphaPromote": "0.6"}}, "evidence.alphaPromote"),
        ({"gates": [SUCCESS], "evidence": {"phiFloor": "0.5"}}, "evidence.phiFloor"),
        ({"gates": [SUCCESS], "evidence": {"minStep": "3h"}}, "evidence.minStep"),
        ({"gates": [SUCCESS], "evidence": {"stallTolerance": "2s"}}, "evidence.stallTolerance"),
        ({"gates": [SUCCESS], "evidence": {"minStpe": "3h"}}, "evidence.minStpe"),
        ({"gates": [SUCCESS], "evidence": {"stallTolerance": "5h"}}, "evidence.stallTolerance"),
        ({"gates": [LIMIT, {**LIMIT, "percentile": "99.0", "mode": "dryRun"}]}, "gates[1].limit"),
        ({"gates": [SUCCESS, {**SUCCESS, "limit": "98%"}]}, "gates[1].limit"),
        ({"gates": [{**LIMIT, "percentile": "99.999999"}]}, "gates[0].percentile"),
        ({"gates": [{**MARGIN, "margin": 25}]}, "gates.0.margin"),
    ],
)
def test_contradicting_policies_are_refused_with_the_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(ContractError) as refused:
        contract_from_mapping(change)
    assert refused.value.field.startswith(field)
    assert refused.value.remedy
