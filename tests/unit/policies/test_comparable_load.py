"""Tenants that the arms share unevenly: chance is no shift."""

from policies.guards import uneven_tenants


def test_the_first_requests_of_a_step_are_no_shift() -> None:
    assert uneven_tenants({("stable", "a"): 1, ("candidate", "b"): 1}) == []
    assert uneven_tenants({("stable", "a"): 3, ("stable", "b"): 2, ("candidate", "b"): 4}) == []


def test_a_tenant_that_one_arm_never_gets_is_a_shift() -> None:
    found = uneven_tenants({("stable", "a"): 500, ("stable", "b"): 500, ("candidate", "b"): 1000})
    assert [tenant for tenant, _, _ in found] == ["a", "b"]
