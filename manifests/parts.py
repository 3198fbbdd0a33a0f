"""What each container of a pod does in serving: its role, its engine, and why where that cannot be read.

Called by :mod:`manifests.resolve`, which has read the containers' command lines. Knows programs, images and groups;
reads no flag's value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from manifests import pods
from manifests.engines import grammar
from manifests.engines.profiles import catalog_files, profile_of, profiles
from manifests.images import ImageFacts
from manifests.importers.registry import JsonObject, Workload, items
from manifests.launch import CommandLine
from manifests.starts import Launch

SIMULATOR = "an inference simulator, no engine"


@dataclass(slots=True)
class Container:
    """A container with its command line, its image's facts and its environment; ``init``: a native sidecar."""

    spec: JsonObject
    path: str
    line: CommandLine
    image: ImageFacts
    environment: pods.Environment
    init: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What a container does in serving: role, engine name, launch (None where its arguments cannot be read), reason."""

    role: str
    engine: str
    launch: Launch | None
    reason: str | None = None


def kind_engine(workload: Workload, spec: JsonObject) -> str | None:
    """The engine that the kind fixes, for the containers that it means."""
    return workload.engine if not workload.server or str(spec.get("name")) in workload.server else None


def part_of(workload: Workload, container: Container, pod: list[Container]) -> Part | None:
    """What a container of ``pod`` does in serving; None for one that takes no part in it."""
    launch = container.line.launch
    if workload.patch and launch is None and not container.spec.get("image"):
        return _patch_part(workload, container)
    if launch is not None and launch.kind != "ray":
        simulated = SIMULATOR if launch.engine == "unknown" else None
        return Part(
            _role(workload, container, launch), _engine_name(workload, container.image, launch), launch, simulated
        )
    return _around(workload, container) or _unlaunched(workload, container, pod)


def _around(workload: Workload, container: Container) -> Part | None:
    """Routers and simulators: programs that are known for what they are, and are no engine."""
    name, kind = str(container.spec.get("name") or ""), container.image.kind
    routes = kind == "router" or (container.init and bool(_ROUTING_NAME.search(name)))
    if routes or (name in workload.server and workload.role == "router"):
        beside = container.init or _has_server(workload, container)
        role = "sidecar" if beside else "router"
        return Part(role, "unknown", _plain_launch(container), "a router or endpoint picker, no engine")
    if kind == "simulator":
        launch = Launch("unknown", "", container.line.argv, style="generic")
        return Part(workload.role or "server", "unknown", launch, SIMULATOR)
    return None


def _unlaunched(workload: Workload, container: Container, pod: list[Container]) -> Part | None:
    """A container whose command starts no engine that is known here: by its kind, image, accelerators, group."""
    launch, line = container.line.launch, container.line
    fixed = str(container.spec.get("name") or "") in workload.server
    of_kind = kind_engine(workload, container.spec)
    engine = of_kind or container.image.engine
    wants = engine != "unknown" or fixed or launch is not None or bool(pods.accelerators(container.spec))
    wants = wants or (workload.role == "frontend" and container.image.kind == "dynamo")
    if not wants or (container.init and not fixed):
        return None
    beside = _program_beside(container, pod)
    if beside is not None:
        return beside
    written = bool(line.argv) and not _opaque(line)
    if (workload.rank == "worker" or launch is not None or _joins_ray(line)) and (launch is not None or written):
        return Part("worker", "unknown", None, _joining(launch))
    if written and not workload.patch and of_kind is None and container.image.engine == "unknown":
        asks = "asks for accelerators, but " if pods.accelerators(container.spec) else ""
        return Part(workload.role or "server", "unknown", None, f"{asks}starts nothing that is known as an engine")
    role = "worker" if workload.rank == "worker" else _role(workload, container, None)
    if _WAITS.match(" ".join(argument.text for argument in line.argv)):
        return Part(role, "unknown", None, "only waits: an engine is started in it by hand, or not at all")
    return Part(role, engine, _argument_launch(workload, container, engine), _no_launch_reason(workload, container))


_WAITS = re.compile(
    r"^(?:\S*sh -\w*c )?\s*(?:exec )?(?:sleep \S+|tail -f /dev/null|while (?:true|:);? ?do sleep \S+; ?done)\s*$"
)
_PROGRAM = re.compile(r"^[\w.-]+$|/bin/[\w.-]+$")


def _joining(launch: Launch | None) -> str:
    """Why a container without an engine takes part: what it joins, as far as its command says."""
    words = [argument.text for argument in launch.args] if launch is not None and launch.kind == "ray" else []
    if "--head" in words:
        return "starts the head of a Ray cluster and no engine: what serves is submitted from elsewhere"
    text = " ".join(words)
    found = re.search(r"--address[= ](\S+)", text)
    address = found[1] if found else None
    if address:
        return f"starts no engine of its own: it joins the Ray cluster at {address}, whose head runs the engine"
    return "starts no engine of its own: it joins the leader's group"


def _plain_launch(container: Container) -> Launch | None:
    """Arguments of a program whose flags no catalogue holds, as they are written."""
    argv = container.line.argv
    first = next((index for index, argument in enumerate(argv[:2]) if argument.text.startswith("-")), None)
    return None if first is None else Launch("unknown", "", argv[first:], style="generic")


def _program_beside(container: Container, pod: list[Container]) -> Part | None:
    """A program of its own next to the container that starts the pod's engine: a sidecar, whatever its image."""
    argv = container.line.argv
    if container.line.launch is not None or not argv or not _PROGRAM.search(argv[0].text):
        return None
    others = [other.line.launch for other in pod if other is not container]
    if not any(launch is not None and launch.kind == "server" for launch in others):
        return None
    reason = f"starts `{argv[0].text}`: the engine of this pod runs in another container"
    return Part("sidecar", "unknown", _plain_launch(container), reason)


def _patch_part(workload: Workload, container: Container) -> Part | None:
    """What a patch sets: its engine is known only where its flags belong to one engine alone."""
    if not any(container.spec.get(key) for key in ("command", "args", "env", "resources")):
        return None
    argv = container.line.argv
    flags = [argument for argument in argv if argument.text.startswith("-")]
    fitting = []
    for name, profile in profiles().items():
        if not profile.in_patches:
            continue
        parsed = grammar.parse(Launch(name, name, argv, style=profile.style), None)
        if flags and not any(code in ("unknown-flag", "unknown-short-flag") for code, _ in parsed.findings):
            fitting.append(name)
    role = workload.role or "server"
    reason = "a patch: only what it sets is known"
    if len(fitting) == 1:
        engine = fitting[0]
        return Part(role, engine, Launch(engine, engine, argv, style=profile_of(engine).style), reason)
    return Part(role, "unknown", Launch("unknown", "", argv, style="generic") if flags else None, reason)


def _has_server(workload: Workload, container: Container) -> bool:
    return any(pods.accelerators(spec) for spec in items(workload.pod.get("containers")) if spec is not container.spec)


def _joins_ray(line: CommandLine) -> bool:
    text = " ".join(argument.text for argument in line.argv)
    return bool(re.search(r"multi-node-serving\.sh\s+worker|ray start .*--address|ray_init\.sh worker", text))


def _opaque(line: CommandLine) -> bool:
    """Whether the container runs a script of the image that nobody can read from outside."""
    first = line.argv[0].text if line.argv else ""
    return first.endswith(".sh") or ("/" in first and not re.search(r"/(?:sh|bash|dash|python[\d.]*)$", first))


def _argument_launch(workload: Workload, container: Container, engine: str) -> Launch | None:
    """Arguments without a known launcher: read them by the engine's grammar where the kind or the image fixes it."""
    argv = container.line.argv
    if engine == "unknown" or not argv or not argv[0].text.startswith("-"):
        return None
    name = engine if engine in catalog_files() else ""
    return Launch(engine, name, argv, style=profile_of(engine).style if name else "generic")


def _no_launch_reason(workload: Workload, container: Container) -> str | None:
    if workload.patch:
        return "a patch: the command line is not in it"
    if container.line.argv and _opaque(container.line):
        return f"starts `{container.line.argv[0].text}`, a script inside the image, which cannot be read from outside"
    if container.line.argv and not container.line.argv[0].text.startswith("-"):
        return f"starts `{container.line.argv[0].text}`, in which no engine is known here"
    if (
        not container.line.argv
        and container.image.engine in ("sglang", "trtllm", "unknown")
        and workload.engine is None
    ):
        return "no command and no arguments: the image decides"
    return None


def _engine_name(workload: Workload, image: ImageFacts, launch: Launch) -> str:
    if launch.engine == "dynamo":
        for hint in (workload.engine, image.engine):
            if hint and hint.startswith("dynamo-"):
                return hint
        return "unknown"
    if launch.engine == "triton-trtllm" and image.engine == "triton-vllm":
        return image.engine
    return launch.engine


_ROUTING_NAME = re.compile(r"rout(?:er|ing)|pd-sidecar|pd-proxy|epp$")
_ROLE_LABELS = ("role", "component", "app.kubernetes.io/component", "app")
_ROLE_WORDS = (
    ("prefill", re.compile(r"prefill")),
    ("decode", re.compile(r"decode")),
    ("router", re.compile(r"rout(?:er|ing)|epp$|mini-lb|gateway")),
)


def _role(workload: Workload, container: Container, launch: Launch | None) -> str:
    if launch is not None and launch.kind in ("router", "frontend"):
        return launch.kind
    if launch is not None and launch.kind == "render":
        return "sidecar"
    if workload.role:
        return workload.role
    for argument_name in ("disaggregation-mode",):
        text = " ".join(argument.text for argument in (launch.args if launch else ()))
        match = re.search(rf"--{argument_name}[ =](prefill|decode)\b", text)
        if match:
            return match[1]
    if re.search(r"kv_producer", " ".join(a.text for a in (launch.args if launch else ()))):
        return "prefill"
    if re.search(r"kv_consumer", " ".join(a.text for a in (launch.args if launch else ()))):
        return "decode"
    if re.search(r"--is-(prefill|decode)-worker\b", text := " ".join(a.text for a in (launch.args if launch else ()))):
        return "prefill" if "--is-prefill-worker" in text else "decode"
    label = str(workload.labels.get("llm-d.ai/role") or workload.labels.get("role-name") or "").lower()
    for role, pattern in _ROLE_WORDS:
        if pattern.search(label):
            return role
    words = re.split(
        r"[^a-z]+", " ".join([workload.name, *(str(workload.labels.get(key) or "") for key in _ROLE_LABELS)]).lower()
    )
    return next((role for role in ("prefill", "decode") if role in words), "server")
