"""One reader per kind of object; see :mod:`manifests.importers.registry` for the extension point."""

from __future__ import annotations


def load_readers() -> None:
    """Imports every reader that the product ships (each registers itself)."""
    from manifests.importers import (  # noqa: F401  registration is the effect
        aibrix,
        dynamo,
        gitops,
        groups,
        kaito,
        kserve,
        kubeai,
        kubernetes,
        ome,
        production_stack,
        ray,
    )
