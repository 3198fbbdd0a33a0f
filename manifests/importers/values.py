"""Helm values of serving charts that are known: which chart a mapping without kind belongs to, and its reader."""

from __future__ import annotations

from manifests.importers.modelservice import read_modelservice_values
from manifests.importers.production_stack import read_operator_values, read_stack_values
from manifests.importers.registry import JsonObject, Reader, Scope, Workload


def _reader_of(obj: JsonObject) -> Reader | None:
    if "servingEngineSpec" in obj:
        return read_stack_values
    if "vllmRuntimes" in obj:
        return read_operator_values
    if "modelArtifacts" in obj and ("decode" in obj or "prefill" in obj):
        return read_modelservice_values
    return None


def looks_like_values(obj: JsonObject) -> bool:
    """Whether a mapping without kind is the values file of a chart that is known."""
    return _reader_of(obj) is not None


def read_values(obj: JsonObject, scope: Scope) -> list[Workload]:
    """The workloads that the chart would render, none for a chart that is not known."""
    found = _reader_of(obj)
    return found(obj, scope) if found else []
