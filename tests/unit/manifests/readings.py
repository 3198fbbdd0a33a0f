"""What tests ask of a reading or a comparison: settings of the first manifest, codes of warnings, changed lines."""

from typing import Any

from manifests.diff import Diff
from manifests.model import ImportResult


def settings(result: ImportResult) -> dict[str, Any]:
    return {name: setting.value for name, setting in result.manifests[0].settings.items()}


def codes(result: ImportResult | Diff) -> set[str]:
    return {warning.code for warning in result.warnings}


def lines(result: Diff) -> list[tuple[str, Any, Any]]:
    return [(line.setting, line.old, line.new) for line in result.changes]
