"""Revisions as they are asked for, stored and compared: spec, policy, target, RunManifests, diff.

Called by observe.py. Expensive parts (digests, imports, diffs) are kept by content.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from controller.core import freezing, times, variants
from controller.core.snapshot import DiffSummary, Frozen
from controller.jsonable import digest_of
from controller.ports import Clock, Cluster, Ref, Retryable
from controller.reads.memo import Memo
from controller.reads.parsing import first_error, parse_spec, read_stored
from crds.v1alpha1.policy import RolloutPolicySpec
from crds.v1alpha1.rollout import InferenceRolloutSpec, InferenceRolloutStatus
from manifests.diff import Diff
from policies.contract import ContractError, contract_from_mapping


class RevisionReader:
    """Reads specs, policies and revisions from caches."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock, self._memo = cluster, clock, Memo()

    def spec(
        self, obj: Mapping[str, Any], status: InferenceRolloutStatus, stored: Mapping[str, Frozen]
    ) -> tuple[InferenceRolloutSpec | None, str]:
        """The spec, or the last usable one and what is wrong with the object's own."""
        key = ("spec", obj["metadata"]["uid"], digest_of(obj.get("spec")))
        found = self._memo.get(key, lambda: parse_spec(obj.get("spec") or {}))
        if isinstance(found, InferenceRolloutSpec):
            return found, ""
        last = stored.get(status.candidate) or stored.get(status.stable)
        return (freezing.spec_from(last) if last is not None else None), found

    def policy(self, namespace: str, spec: InferenceRolloutSpec | None) -> tuple[RolloutPolicySpec | None, str]:
        """The policy as it stands now, and what is wrong with it."""
        if spec is None:
            return None, ""
        if spec.policy is not None:
            return spec.policy, self._contract_error(spec.policy, "spec.policy")
        name = spec.policy_ref.name if spec.policy_ref else ""
        obj = self._cluster.get_cached("rolloutpolicies", namespace, name)
        if obj is None:
            return None, f"spec.policyRef names RolloutPolicy {name}, which does not exist in {namespace}; create it."
        try:
            policy = RolloutPolicySpec.model_validate(obj["spec"])
        except ValidationError as error:
            return None, f"RolloutPolicy {name}: {first_error(error)}"
        return policy, self._contract_error(policy, f"RolloutPolicy {name}")

    def _contract_error(self, policy: RolloutPolicySpec, where: str) -> str:
        def check() -> str:
            try:
                contract_from_mapping(freezing.dump(policy))
            except ContractError as error:
                return f"{where}: {error}"
            return ""

        return self._memo.get(("contract", where, policy.model_dump_json()), check)

    def target(
        self, obj: Mapping[str, Any], spec: InferenceRolloutSpec | None, policy: RolloutPolicySpec | None
    ) -> tuple[Frozen | None, str]:
        """The revision that spec asks for, and why there is none."""
        if spec is None or spec.workload_ref is not None:
            text = "spec.workloadRef is not supported yet; write spec.template or spec.roles."
            return None, text if spec is not None else ""
        namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
        needed = freezing.needed_config_maps(freezing.frozen_roles(spec))
        contents: dict[str, Mapping[str, str] | None] = {}
        for source in sorted(needed):
            try:
                found = self._cluster.fetch(Ref("v1", "configmaps", namespace, source))
            except Retryable:
                return None, ""
            if found is not None and found.get("binaryData"):
                text = f"ConfigMap {source} holds binaryData, which a RunManifest cannot keep, so it could not be put"
                return None, f"{text} back; move it into data, the image or a volume. Nothing moves until then."
            contents[source] = dict(found.get("data") or {}) if found is not None else None
        policy_text = policy.model_dump_json() if policy else ""
        key = ("target", obj["metadata"]["uid"], digest_of(obj["spec"]), digest_of(contents), policy_text)
        created = times.to_short_text(self._clock.now())
        return self._memo.get(key, lambda: freezing.freeze(namespace, name, spec, policy, contents, created)), ""

    def stored(self, namespace: str, name: str) -> dict[str, Frozen]:
        """Revisions that have a RunManifest, by rev10."""
        found = {}
        for obj in self._cluster.cached("runmanifests", namespace, {variants.ROLLOUT: name}):
            meta = obj["metadata"]
            if meta.get("deletionTimestamp"):
                continue
            key = ("stored", meta["uid"], meta.get("resourceVersion"))
            frozen = self._memo.get(key, lambda obj=obj: read_stored(obj))  # type: ignore[misc]
            if frozen is not None:
                found[frozen.rev10] = frozen
        return found

    def attempt_policy(self, frozen: Frozen | None) -> RolloutPolicySpec | None:
        """The policy as it was frozen with a revision."""
        if frozen is None or not frozen.manifest.policy:
            return None
        key = ("policy", frozen.rev10, frozen.stored_attempt)
        return self._memo.get(key, lambda: RolloutPolicySpec.model_validate(frozen.manifest.policy))

    def diff_between(self, old: Frozen | None, new: Frozen | None) -> Diff | None:
        """The effective comparison of two revisions, for people."""
        if old is None or new is None:
            return None
        return self._memo.get(("diff", old.rev10, new.rev10), lambda: freezing.effective_diff(old, new))

    def summary(self, old: Frozen | None, new: Frozen | None) -> DiffSummary | None:
        """What the machine needs of a comparison."""
        return (
            freezing.summarise(old, new, self.diff_between(old, new)) if old is not None and new is not None else None
        )
