"""A gate's certificate is good for its own rollout alone."""

import pytest

from shadow.identity import gate_identity, is_gate_of

LONG = "a-namespace-with-a-rather-long-name/" + "r" * 60


@pytest.mark.parametrize(
    ("shown", "is_taken"),
    [
        ({"x509_subject_alternative_name": [gate_identity("ns/chat").encode()]}, True),
        ({"x509_subject_alternative_name": [gate_identity("ns/chat-2").encode()]}, False),
        ({"x509_subject_alternative_name": [b"weighlock-xds"], "x509_common_name": [b"ns/chat"]}, False),
        ({"x509_common_name": [b"ns/chat"]}, True),  # of the release before
        ({"x509_common_name": [b"ns/code"]}, False),
        ({}, False),
    ],
)
def test_who_is_a_gate_of_a_rollout(shown: dict[str, list[bytes]], is_taken: bool) -> None:
    assert is_gate_of(shown, "ns/chat") is is_taken


def test_a_common_name_that_was_cut_off_proves_nothing() -> None:
    assert not is_gate_of({"x509_common_name": [LONG[:64].encode()]}, LONG)
    assert not is_gate_of({"x509_common_name": [LONG[:64].encode()]}, LONG[:64])
