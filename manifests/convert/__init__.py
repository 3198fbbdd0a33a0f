"""Rollouts of other tools as ours: Argo Rollouts, Flagger, Kruise Rollout.

Called by `weighlock convert`. Pure: bytes in, objects and notes out. What has no counterpart is noted with its path,
and a limit is taken over only where the query says what it limits; nothing is guessed. Knows no cluster and applies
nothing.

Order to read: `convert_files` (which document is whose), one module per tool, `draft` (what they fill in), `measures`
(what a PromQL query measures) and `conditions` (what a metric's condition demands).
"""

from __future__ import annotations

from collections.abc import Iterable

from manifests.convert import argo, flagger, kruise
from manifests.convert.draft import Converted, ConvertRefused, Source, read_sources
from manifests.model import Finding, Refusal

__all__ = ["ConvertRefused", "Converted", "convert_files"]

_TOOLS = (argo, flagger, kruise)


def convert_files(files: Iterable[tuple[str, bytes]]) -> Converted:
    """Our objects for the rollouts and metric templates in `files`; templates of one file serve rollouts of another.

    Args:
        files: ``(name, content)`` of Kubernetes YAML or JSON.

    Raises:
        ConvertRefused: a file that is no YAML, a field that its own tool would refuse, or nothing to convert.
    """
    sources = [source for name, content in files for source in read_sources(name, content)]
    converted = Converted()
    taken: set[int] = set()
    for tool in _TOOLS:
        mine = [source for source in sources if tool.is_mine(source)]
        taken |= {id(source) for source in mine}
        tool.convert(mine, converted)
    if not converted.objects:
        raise ConvertRefused(_nothing(sources))
    converted.notes += [_left(source) for source in sources if id(source) not in taken]
    return converted


def _nothing(sources: list[Source]) -> Refusal:
    found = ", ".join(dict.fromkeys(source.kind or "a document without kind" for source in sources)) or "no document"
    file = sources[0].file if sources else "-"
    remedy = "give an Argo Rollout or AnalysisTemplate, a Flagger Canary or MetricTemplate, or a Kruise Rollout"
    return Refusal(file, "", f"nothing to convert (found {found})", remedy)


def _left(source: Source) -> Finding:
    message = f"{source.label} is not converted: it is no rollout; apply it as it is if it is still needed"
    return Finding("not-converted", "info", source.file, source.at() or "[0]", message)
