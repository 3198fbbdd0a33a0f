"""The parallel layout of a manifest: ranks by kind, accelerators needed and available per replica group.

Called by lint, the ledger and the operator's capacity plan, so that there is one reader of parallel sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from manifests.engines.profiles import profile_of
from manifests.model import Manifest


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks of one replica group. ``data`` replicas share nothing but experts; ``known`` is False where a size is
    unresolved."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    data_attention: bool = False
    experts: bool = False
    known: bool = True
    written: tuple[str, ...] = ()

    @property
    def needed(self) -> int:
        """Accelerators that the group needs; attention-data-parallel ranks live inside the tensor ranks."""
        data = 1 if self.data_attention else self.data
        return self.tensor * self.pipeline * self.context * data

    @property
    def expert_ranks(self) -> int:
        """Ranks that share the experts (1 without expert parallelism)."""
        return self.tensor * (1 if self.data_attention else self.data) if self.experts else 1


def layout_of(manifest: Manifest) -> Layout:
    """The layout that the settings mean; sizes that are not written are 1."""
    names = profile_of(manifest.engine.family).parallel
    if not names:
        return Layout(known=False)
    known = True
    written: list[str] = []
    sizes = []
    for options in names:
        size = 1
        for option in options:
            setting = manifest.settings.get(option)
            if setting is None:
                continue
            if isinstance(setting.value, int) and not isinstance(setting.value, bool) and setting.value > 0:
                size = setting.value
                written.append(f"{option} {size}")
            elif setting.value is None or setting.expression is not None or isinstance(setting.value, str):
                known = False
            break
        sizes.append(size)
    tensor, pipeline, data, context = sizes
    local = manifest.settings.get("data-parallel-size-local")
    if (
        local is not None
        and isinstance(local.value, int)
        and local.value > 0
        and group_gpus(manifest) is not None
        and manifest.resources.get("pods", 1) == 1
    ):
        data = local.value
    external = (
        any(_on(manifest, name) for name in ("data-parallel-external-lb", "data-parallel-hybrid-lb"))
        or "data-parallel-rank" in manifest.settings
    )
    if external and local is None:
        data = 1
    return Layout(
        tensor,
        pipeline,
        data,
        context,
        _on(manifest, "enable-dp-attention") or _on(manifest, "enable-attention-dp"),
        _on(manifest, "enable-expert-parallel")
        or _size(manifest, "ep-size") > 1
        or _size(manifest, "moe-expert-parallel-size") > 1,
        known,
        tuple(written),
    )


def group_gpus(manifest: Manifest) -> int | None:
    """Accelerators of one replica group, None when the input does not say."""
    gpus = manifest.resources.get("gpu")
    return None if gpus is None else int(gpus) * int(manifest.resources.get("pods") or 1)


def _on(manifest: Manifest, name: str) -> bool:
    return manifest.value(name) is True


def _size(manifest: Manifest, name: str) -> int:
    value = manifest.value(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 1
