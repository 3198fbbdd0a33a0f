"""What every reader of a custom resource needs: fields as settings, composed arguments, and the rest of a spec.

Called by the readers of this package. A field that a reader does not turn into a setting is never dropped: it goes
into :func:`left_over`, which a comparison names under its own path.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from manifests.importers.registry import Field, JsonObject
from manifests.yamlsafe import Text, line_of, text_of


def field(name: str, value: Any, key: str) -> Field:
    """A custom resource's field as an engine setting."""
    return Field(name, value, f"{key}: {value}", line_of(value))


def added(text: Any, origin: str, line: int | None = None) -> Text:
    """An argument that an operator or a chart composes, with the place it comes from (``origin`` of a setting)."""
    out = Text(text_of(text))
    out.line, out.literal = line or line_of(text), False
    out.origin = origin
    return out


def left_over(value: JsonObject, read: Collection[str], above: str = "") -> JsonObject:
    """A mapping without the paths that were read (``a.b``: that key alone; ``a``: all of it); empty parts go."""
    out: JsonObject = {}
    for key, item in value.items():
        here = f"{above}{key}"
        if here in read:
            continue
        if isinstance(item, dict) and any(path.startswith(f"{here}.") for path in read):
            item = left_over(item, read, f"{here}.")
        if item not in (None, {}, [], ""):
            out[key] = item
    return out


def under(name: str, rest: JsonObject) -> JsonObject:
    """``{name: rest}``, nothing where nothing is left: the shape of ``Workload.extra``."""
    return {name: rest} if rest else {}


def laid_over(base: JsonObject, over: JsonObject) -> JsonObject:
    """``over`` laid on ``base``: mappings deep, containers, variables and volumes by name, other lists replaced."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            out[key] = laid_over(old, value)
        elif key in _BY_NAME and isinstance(old, list) and isinstance(value, list):
            named = {str(entry.get("name")): entry for entry in old if isinstance(entry, dict)}
            for entry in (entry for entry in value if isinstance(entry, dict)):
                name = str(entry.get("name"))
                named[name] = laid_over(named.get(name, {}), entry)
            out[key] = list(named.values())
        else:
            out[key] = value
    return out


_BY_NAME = frozenset({"containers", "initContainers", "env", "volumes", "volumeMounts"})
