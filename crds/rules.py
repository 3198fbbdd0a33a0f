"""Rules in CEL that the API server checks when an object is applied: unions, orders, values that contradict.

Read by generate.py alone. The models check the same for files that never meet a server; a rule here and its twin there
change together. `fieldPath` is what the server names in its refusal.
"""

Rule = dict[str, str | bool]

_LATENCIES = "['ttft', 'tpot', 'maxGap', 'e2e']"
_WEIGHT = "has(s.canary) ? s.canary.weight : s.ramp.weight"
_LIVE = "self.steps.filter(s, has(s.canary) || has(s.ramp))"
_WEIGHTS = f"{_LIVE}.map(s, {_WEIGHT})"


def _rule(rule: str, message: str, field: str = "") -> Rule:
    found: Rule = {"rule": rule, "message": message}
    return found | {"fieldPath": f".{field}"} if field else found


def _exactly_one(*fields: str) -> Rule:
    flags = ", ".join(f"has(self.{name})" for name in fields)
    return _rule(f"[{flags}].filter(x, x).size() == 1", f"set exactly one of {', '.join(fields)}")


def _if_set(field: str, rule: str, message: str) -> Rule:
    """A rule about a field that may be absent."""
    return _rule(f"!has(self.{field}) || ({rule})", message, field)


def _when_changed(rule: Rule) -> Rule:
    """A rule that an object from before it need not keep: its status can be written, and it can be deleted."""
    kept = "oldSelf.hasValue() && oldSelf.value() == self"
    return rule | {"rule": f"({kept}) || ({rule['rule']})", "optionalOldSelf": True}


def _between(field: str, low: str, high: str, message: str) -> Rule:
    value = f"double(self.{field})"
    return _if_set(field, f"{value} > {low} && {value} < {high}", message)


_IMMUTABLE = _rule("self == oldSelf", "spec is immutable; create another object")

ROLLOUT_NAME = _rule(
    "oldSelf.hasValue() || self.metadata.name.matches('^[a-z]([-a-z0-9]{0,56}[a-z0-9])?$')",
    "metadata.name must begin with a letter and have at most 58 letters, digits and dashes: its Service is <name>-gate",
) | {"optionalOldSelf": True}
"""Of the whole object; the server takes no `fieldPath` into metadata."""

RULES: dict[str, list[Rule]] = {
    "InferenceRolloutSpec": [
        _exactly_one("template", "roles", "workloadRef"),
        _exactly_one("policy", "policyRef"),
        _if_set(
            "roles",
            "size(self.roles) < 2 || self.roles.filter(r, has(r.entrypoint) && r.entrypoint).size() == 1",
            "exactly one of several roles must be the entrypoint",
        ),
        _when_changed(
            _if_set(
                "steps",
                f"{_WEIGHTS}.isSorted() && {_WEIGHTS}.all(w, {_WEIGHTS}.exists_one(v, v == w))",
                "weights must rise from step to step",
            )
        ),
        _when_changed(
            _if_set(
                "steps",
                "self.steps.filter(s, has(s.shadow)).size() == (has(self.steps[0].shadow) ? 1 : 0)",
                "shadow can only be the first step",
            )
        ),
        _when_changed(
            _if_set(
                "steps",
                f"self.steps.filter(s, has(s.canary)).size() == (size({_LIVE}) > 0 && has({_LIVE}[0].canary) ? 1 : 0)",
                "canary can only be the first live share; write ramp for the others",
            )
        ),
    ],
    "Role": [_exactly_one("template", "leaderWorkerTemplate")],
    "Step": [_exactly_one("shadow", "canary", "ramp", "pause")],
    "TenantSource": [_exactly_one("header", "apiKeyHash", "jwtClaim", "path")],
    "LengthBuckets": [
        _if_set(
            "edges",
            "self.edges.all(e, e > 0 && self.edges.exists_one(f, f == e)) && self.edges.isSorted()",
            "edges must be positive and ascending, without repeats",
        ),
    ],
    "Gate": [
        _rule("has(self.margin) || has(self.limit)", "a gate needs margin, limit or both"),
        _rule(
            f"has(self.percentile) == (self.metric in {_LATENCIES})",
            "percentile belongs to ttft, tpot, maxGap and e2e, and they need one",
        ),
        _between("percentile", "0.0", "100.0", "must lie between 0 and 100, for example 99"),
        _if_set(
            "limit",
            f"(self.limit.endsWith('%') || self.limit.endsWith('pp')) == !(self.metric in {_LATENCIES})",
            "limit has the wrong unit: latencies take a duration (2s), fractions a share (99.5%)",
        ),
        _if_set("limit", "self.limit.matches('[1-9]')", "must be above zero"),
        _if_set(
            "limit",
            "!self.limit.endsWith('%') || double(self.limit.replace('%', '')) < 100.0",
            "100% can never be shown; write for example 99.5%",
        ),
        _rule("self.metric != 'goodput' || !has(self.limit)", "goodput is compared with stable: use margin"),
        _if_set("margin", "self.margin.matches('[1-9]')", "must be above zero"),
        _if_set(
            "margin",
            "!self.margin.endsWith('pp') || self.metric in ['success', 'goodFraction']",
            "points make no sense here; write a share, for example 25%",
        ),
    ],
    "Outcomes": [_if_set("attempted", "'ok' in self.attempted", "must contain ok")],
    "Evidence": [
        _between("alphaRollback", "0.0", "0.5", "must lie between 0 and 0.5, for example 0.01"),
        _between("alphaPromote", "0.0", "0.5", "must lie between 0 and 0.5, for example 0.05"),
        _if_set("phiFloor", "double(self.phiFloor) >= 1.0", "must be 1 or more"),
        _if_set(
            "minStep",
            "!has(self.maxHold) || duration(self.minStep) <= duration(self.maxHold)",
            "is longer than maxHold, so no step could pass",
        ),
    ],
    "RolloutPolicySpec": [
        _rule(
            "self.gates.all(g, !(g.metric in ['goodFraction', 'goodput'])) || (has(self.slo) && "
            "(has(self.slo.ttft) || has(self.slo.tpot) || has(self.slo.maxGap) || has(self.slo.e2e)))",
            "goodFraction and goodput need at least one bound in slo",
            "slo",
        ),
    ],
    "RunManifestSpec": [_IMMUTABLE],
    "RolloutActionSpec": [_IMMUTABLE],
}
