"""Which cell a request belongs to: names of tenants, buckets, pods and revisions, each bounded in number.

Used by the block builder only. Names are kept for an attempt; what comes beyond a cap is pooled.
"""

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.contract import OTHER_TENANT
from policies.records import RequestRecord
from policies.tallies import CellKey

if TYPE_CHECKING:
    from policies.builder import BuilderSetup

_MAX_PODS = 2000
_MAX_REVISIONS = 16


class CellNames:
    """The names seen so far in one attempt."""

    def __init__(self, setup: "BuilderSetup") -> None:
        self._setup = setup
        self._tenants: dict[str, str] = {}
        self._pods: dict[str, set[str]] = {}
        self._revisions: set[str] = set()

    def key(self, record: RequestRecord, drop: Callable[[str], None]) -> CellKey | None:
        """The cell of a request; None where the policy ignores its tenant. drop: told of tenants beyond the cap."""
        tenant = self._tenant(record.tenant, drop)
        if tenant is None:
            return None
        pods = self._pods.setdefault(record.variant, set())
        pod = record.pod or ""
        if pod not in pods:
            pod = pod if len(pods) < _MAX_PODS else "*"
            pods.add(pod)
        half = zlib.crc32(record.id.encode()) & 1 if len(pods) == 1 else -1
        revision = record.revision or ""
        if revision not in self._revisions:
            revision = revision if len(self._revisions) < _MAX_REVISIONS else "*"
            self._revisions.add(revision)
        return record.variant, revision, record.kind, tenant, self._bucket(record), pod, half

    def _tenant(self, name: str, drop: Callable[[str], None]) -> str | None:
        known = self._tenants.get(name)
        if known is not None:
            return known
        if name in self._setup.required:
            known = name
        elif self._setup.other == "ignore":
            return None
        elif self._setup.other == "pooled":
            return OTHER_TENANT
        elif len(self._tenants) < self._setup.max_tenants + len(self._setup.required):
            known = name
        else:
            drop("pooledTenants")
            return OTHER_TENANT
        self._tenants[name] = known
        return known

    def _bucket(self, record: RequestRecord) -> str:
        if record.bucket in self._setup.bucket_names:
            return record.bucket
        tokens = record.prompt_tokens
        if tokens is None:
            return ""
        for name, edge in zip(self._setup.bucket_names, self._setup.bucket_edges, strict=False):
            if tokens <= edge:
                return name
        return self._setup.bucket_names[-1]
