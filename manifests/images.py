"""What an image name says: the engine inside, its version, and the command line it starts with.

Called when a container names no command, and to learn the engine's version from a tag. A tag of another product
(llm-d, Ray, LMCache) says nothing about the engine's version: None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from manifests.engines.profiles import ImageRule, profiles
from manifests.versions import version_key

_VERSION = re.compile(r"^v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:post|dev|rc|a|b)\d+)?)(?=$|[-+_.])")
_MOVING = re.compile(r"^(?:latest|nightly|main|master|dev|edge|stable|head|rolling|canary)(?:$|[-_.])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Engine family as ``engine.name``, its version, the image's own command line, and whether the tag
    moves."""

    engine: str = "unknown"
    version: str | None = None
    entrypoint: tuple[str, ...] = ()
    moving: bool = False
    digest: str | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class ImageName:
    """Repository, tag and digest of an image reference."""

    repository: str
    tag: str | None
    digest: str | None


def split_image(image: str) -> ImageName:
    """``registry:5000/a/b:tag@sha256:..`` in its parts."""
    rest, _, digest = image.partition("@")
    head, slash, last = rest.rpartition("/")
    name, colon, tag = last.partition(":")
    return ImageName(f"{head}{slash}{name}", tag if colon else None, digest or None)


def image_facts(image: str | None) -> ImageFacts:
    """Facts about an image reference; everything unknown where it says nothing."""
    if not image:
        return ImageFacts()
    name = split_image(image)
    repository = name.repository.lower()
    last = repository.rsplit("/", 1)[-1]
    tag_version = _tag_version(name.tag)
    moving = name.digest is None and (name.tag is None or _moves(name.tag, repository))
    common = {"moving": moving, "digest": name.digest}
    engine, version, entrypoint, kind = _by_name(repository, last, tag_version, name.tag)
    return ImageFacts(engine, version, entrypoint, kind=kind, **common)  # type: ignore[arg-type]


def _moves(tag: str, repository: str) -> bool:
    """Whether a tag is one that its publisher moves: by the usual words, or by the engine's own."""
    rules = (rule for profile in profiles().values() for rule in profile.images if rule.moving)
    own = any(re.search(rule.match, repository) and re.search(rule.moving or "", tag) for rule in rules)
    return own or bool(_MOVING.match(tag))


def _tag_version(tag: str | None) -> str | None:
    match = _VERSION.match(tag) if tag else None
    return match[1] if match and version_key(match[1]) else None


def _by_name(
    repository: str, last: str, version: str | None, tag: str | None
) -> tuple[str, str | None, tuple[str, ...], str]:
    if re.search(r"inference-sim|llm-d-sim|vllm-mock|mock-", repository):
        return "unknown", None, (), "simulator"
    if re.search(
        r"lmstack-router|vllm-router|sglang-router|routing-sidecar|pd-routing|(?:^|/)epp(?:$|-)|endpoint-picker|llm-d-router",
        repository,
    ):
        return "unknown", None, (), "router"
    if "ai-dynamo/" in repository or re.search(r"(?:vllm|sglang|tensorrtllm|trtllm)-runtime$", last):
        backend = (
            "vllm"
            if "vllm" in last
            else "sglang"
            if "sglang" in last
            else "trtllm"
            if "t" in last and "llm" in last
            else ""
        )
        return (f"dynamo-{backend}" if backend else "unknown"), version, (), "dynamo"
    if "huggingfaceserver" in last:
        return "huggingfaceserver", version, ("python3", "-m", "huggingfaceserver"), ""
    inside = re.search(r"text-generation-inference-cu\d+\.(\d+)-(\d+)", last)
    if "text-generation-inference" in repository:
        return "tgi", f"{inside[1]}.{inside[2]}" if inside else version, ("text-generation-launcher",), ""
    if "tritonserver" in last:
        return (
            ("triton-trtllm" if "trtllm" in last else "triton-vllm" if "vllm" in last else "triton-trtllm"),
            version,
            (),
            "triton",
        )
    for profile in profiles().values():
        for rule in profile.images:
            if re.search(rule.match, repository):
                return profile.name, _own_version(rule, tag, version), rule.entrypoint, ""
    return _vllm(repository, last, version)


def _own_version(rule: ImageRule, tag: str | None, usual: str | None) -> str | None:
    """The version in a tag by the engine's own pattern, else the usual one."""
    if rule.version is None:
        return usual
    match = re.search(rule.version, tag or "")
    return match[1] if match else None


def _vllm(repository: str, last: str, version: str | None) -> tuple[str, str | None, tuple[str, ...], str]:
    named = re.search(r"vllm[-_]?v?(\d+\.\d+\.\d+)", last)
    if named:
        return "vllm", named[1], (), ""
    if re.search(r"llm-d|lmcache|lmstack|ray(?:-|project|$)|kserve|aibrix/runtime", repository):
        entry: tuple[str, ...] = ("vllm", "serve") if re.search(r"lmcache/vllm-openai|llm-d-cuda", repository) else ()
        return (
            ("vllm" if re.search(r"vllm|llm-d-cuda|llm-d-(?:xpu|cpu|tpu|rocm|hpu)", repository) else "unknown"),
            None,
            entry,
            "",
        )
    if "vllm" in last:
        api_server = ("python3", "-m", "vllm.entrypoints.openai.api_server")
        key = version_key(version)
        recent = key is not None and key >= ((0, 12), 0, 0)
        return "vllm", version, ("vllm", "serve") if recent else api_server, ""
    return "unknown", None, (), ""
