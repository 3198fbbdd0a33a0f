"""One reader per kind of object; see :mod:`manifests.importers.registry` for the extension point."""

from __future__ import annotations


def load_readers() -> None:
    """Imports every reader that the product ships (each registers itself)."""
    from manifests.importers import kubernetes, platforms, serving  # noqa: F401  registration is the effect
