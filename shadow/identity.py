"""Who shows which certificate: a gate's names its rollout, so that no gate hears or reports for another one.

Written into certificates by controller/adapters/certificates.py, checked by the xDS server and the recorder.
"""

from collections.abc import Iterable, Mapping

CONTROL_NAME = "weighlock-xds"
"""DNS name in the certificates of operator and recorder."""
_GATE = "weighlock://gate/"
_LONGEST_COMMON_NAME = 64

Authentication = Mapping[str, Iterable[bytes]]
"""`auth_context()` of a gRPC call."""


def gate_identity(rollout: str) -> str:
    """URI in the certificate of the gates of a rollout (`namespace/name`)."""
    return _GATE + rollout


def is_control(names: Iterable[tuple[str, str]]) -> bool:
    """Whether a certificate with these names (`subjectAltName` of Python's ssl) is the operator's or the recorder's."""
    return ("DNS", CONTROL_NAME) in tuple(names)


def is_gate_of(authentication: Authentication, rollout: str) -> bool:
    """Whether the peer showed a certificate of this rollout's gates.

    Gates of an installation that was just upgraded show one without a URI until theirs is renewed, which is within
    minutes: its common name counts, where it was not cut off.
    """
    names = tuple(authentication.get("x509_subject_alternative_name") or ())
    if names:
        return gate_identity(rollout).encode() in names
    common = tuple(authentication.get("x509_common_name") or ())
    return common == (rollout.encode(),) and len(rollout) < _LONGEST_COMMON_NAME
