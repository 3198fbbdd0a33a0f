"""A workload becomes manifests: one per container that takes part in serving.

Called by :mod:`manifests.importing`. Puts together what the parts know: command line (:mod:`manifests.launch`), flags
(:mod:`manifests.engines.grammar`), config files and environment twins (:mod:`manifests.engines.sources`), images,
resources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from manifests import digest, pods
from manifests.codes import make_finding
from manifests.compare import leaves
from manifests.engines import grammar, sources
from manifests.engines.profiles import catalog_files, profile_of, profiles
from manifests.images import ImageFacts, image_facts
from manifests.importers.registry import JsonObject, Scope, Workload, items, text_list
from manifests.launch import Arg, CommandLine, Context, Launch, read_command_line
from manifests.model import (
    REDACTED,
    Backend,
    Engine,
    Finding,
    Manifest,
    Model,
    Setting,
    Source,
    Unresolved,
    canonical_json,
)
from manifests.secrets import is_secret_env, is_secret_flag, salted_hash, scrub
from manifests.yamlsafe import Text

MODEL_SETTINGS = ("model", "model-path", "model-id", "hf-repo", "model-name")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the workload's document is."""

    file: str
    index: int


@dataclass(slots=True)
class _Container:
    spec: JsonObject
    path: str
    line: CommandLine
    image: ImageFacts
    environment: pods.Environment
    init: bool


def resolve(
    workload: Workload, scope: Scope, origin: Origin, salt: bytes | None, version: str | None
) -> tuple[list[Manifest], list[Finding]]:
    """The manifests of a workload and what is to be said about it."""
    findings: list[Finding] = []
    containers = [
        _read(workload, scope, origin, spec, path, init, findings) for spec, path, init in _containers(workload)
    ]
    serving = [(container, _part(workload, container, containers)) for container in containers]
    manifests = []
    for container, part in serving:
        if part is not None:
            named = [str(other.spec.get("name")) for other, its in serving if its is not None]
            manifests.append(_manifest(workload, scope, origin, container, part, salt, version, findings, named))
    servers = [m for m in manifests if m.role not in ("sidecar", "router", "frontend") and m.engine.name != "unknown"]
    if len(servers) > 1:
        names = ", ".join(f"{m.name}/{m.container}" for m in servers)
        findings.append(
            make_finding(
                "ambiguous-command",
                f"these containers of one pod all look like model servers: {names}; choose one with --select "
                "NAME/CONTAINER",
                origin.file,
                workload.path,
            )
        )
    return manifests, findings


def _containers(workload: Workload) -> list[tuple[JsonObject, str, bool]]:
    out = []
    for index, spec in enumerate(items(workload.pod.get("initContainers"))):
        if spec.get("restartPolicy") == "Always":
            out.append((spec, f"{workload.path}.initContainers[{index}]", True))
    for index, spec in enumerate(items(workload.pod.get("containers"))):
        out.append((spec, f"{workload.path}.containers[{index}]", False))
    return out


def _read(
    workload: Workload, scope: Scope, origin: Origin, spec: JsonObject, path: str, init: bool, findings: list[Finding]
) -> _Container:
    image_text = spec.get("image")
    image = image_facts(str(image_text) if image_text else None)
    environment = pods.read_environment(workload, spec, scope)
    files = {**pods.mounted_files(workload, spec, scope), **workload.files}
    for what, message in environment.problems:
        findings.append(make_finding(what, message, origin.file, f"{path}.env"))
    command, arguments = (
        _strings(spec, "command", path, origin, findings),
        _strings(spec, "args", path, origin, findings),
    )
    if (workload.server and str(spec.get("name")) in workload.server) or (not workload.server and not init):
        arguments = arguments + list(workload.added_args)
    image = _entrypoint_hint(image, _kind_engine(workload, spec), command)
    line = read_command_line(command, arguments, image, Context(environment.tokens, files, environment.open))
    line.files = {**files, **line.files}
    return _Container(spec, path, line, image, environment, init)


def _kind_engine(workload: Workload, spec: JsonObject) -> str | None:
    """The engine that the kind fixes, for the containers that it means."""
    return workload.engine if not workload.server or str(spec.get("name")) in workload.server else None


def _entrypoint_hint(image: ImageFacts, engine: str | None, command: list[Any]) -> ImageFacts:
    """A custom resource that fixes the engine starts it by its operator's own entrypoint."""
    if command or not engine or image.entrypoint:
        return image
    return replace(image, entrypoint=profile_of(engine).entrypoint)


def _strings(spec: JsonObject, name: str, path: str, origin: Origin, findings: list[Finding]) -> list[Any]:
    value = spec.get(name)
    if value is not None and not isinstance(value, list):
        findings.append(
            make_finding(
                "not-a-string", f"`{name}` is no list; Kubernetes refuses it", origin.file, f"{path}.{name}", "error"
            )
        )
    out: list[Any] = []
    for index, part in enumerate(text_list(value)):
        if not isinstance(part, str):
            findings.append(
                make_finding(
                    "not-a-string",
                    f"`{name}[{index}]` is the {type(part).__name__} {part!r}, no string; quote it",
                    origin.file,
                    f"{path}.{name}[{index}]",
                )
            )
        out.append(part if isinstance(part, str) else _as_text(part))
    return out


def _as_text(part: Any) -> str:
    if isinstance(part, bool):
        return "true" if part else "false"
    return str(getattr(part, "raw", part)) if part is not None else ""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a container does in serving: role, engine name, launch (None where its arguments cannot be read), reason."""

    role: str
    engine: str
    launch: Launch | None
    reason: str | None = None


def _part(workload: Workload, container: _Container, pod: list[_Container]) -> _Part | None:
    launch, image = container.line.launch, container.image
    name = str(container.spec.get("name") or "")
    if workload.patch and launch is None and not container.spec.get("image"):
        return _patch_part(workload, container)
    fixed = name in workload.server
    if launch is not None and launch.kind != "ray":
        role = _role(workload, container, launch)
        simulated = "an inference simulator, no engine" if launch.engine == "unknown" else None
        return _Part(role, _engine_name(workload, image, launch), launch, simulated)
    if (
        image.kind == "router"
        or (container.init and _ROUTING_NAME.search(name))
        or (fixed and workload.role == "router")
    ):
        return _Part(
            "sidecar" if container.init or _has_server(workload, container) else "router",
            "unknown",
            _plain_launch(container),
            "a router or endpoint picker, no engine",
        )
    if image.kind == "simulator":
        return _Part(
            workload.role or "server",
            "unknown",
            Launch("unknown", "", container.line.argv, style="generic"),
            "an inference simulator, no engine",
        )
    of_kind = _kind_engine(workload, container.spec)
    engine = of_kind or image.engine
    wants = (
        engine != "unknown"
        or fixed
        or (workload.role == "frontend" and image.kind == "dynamo")
        or bool(pods.accelerators(container.spec))
        or (launch is not None and launch.kind == "ray")
    )
    if not wants or (container.init and not fixed):
        return None
    beside = _program_beside(container, pod)
    if beside is not None:
        return beside
    joins = workload.rank == "worker" or (launch is not None and launch.kind == "ray") or _joins_ray(container.line)
    readable = launch is not None or (bool(container.line.argv) and not _opaque(container.line))
    if joins and readable and (engine == "unknown" or launch is None or launch.kind == "ray"):
        return _Part("worker", "unknown", None, "starts no engine of its own: it joins the leader's group")
    if (
        launch is None
        and container.line.argv
        and not _opaque(container.line)
        and not workload.patch
        and of_kind is None
        and image.engine == "unknown"
    ):
        return _Part(
            workload.role or "server",
            "unknown",
            None,
            "asks for accelerators, but starts nothing that is known as an engine"
            if pods.accelerators(container.spec)
            else "starts nothing that is known as an engine",
        )
    role = "worker" if workload.rank == "worker" and launch is None else _role(workload, container, None)
    if launch is None and _WAITS.match(" ".join(argument.text for argument in container.line.argv)):
        return _Part(role, "unknown", None, "only waits: an engine is started in it by hand, or not at all")
    return _Part(role, engine, _argument_launch(workload, container, engine), _no_launch_reason(workload, container))


_WAITS = re.compile(
    r"^(?:\S*sh -\w*c )?\s*(?:exec )?(?:sleep \S+|tail -f /dev/null|while (?:true|:);? ?do sleep \S+; ?done)\s*$"
)
_PROGRAM = re.compile(r"^[\w.-]+$|/bin/[\w.-]+$")


def _plain_launch(container: _Container) -> Launch | None:
    """Arguments of a program whose flags no catalogue holds, as they are written."""
    argv = container.line.argv
    first = next((index for index, argument in enumerate(argv[:2]) if argument.text.startswith("-")), None)
    return None if first is None else Launch("unknown", "", argv[first:], style="generic")


def _program_beside(container: _Container, pod: list[_Container]) -> _Part | None:
    """A program of its own next to the container that starts the pod's engine: a sidecar, whatever its image."""
    argv = container.line.argv
    if container.line.launch is not None or not argv or not _PROGRAM.search(argv[0].text):
        return None
    others = [other.line.launch for other in pod if other is not container]
    if not any(launch is not None and launch.kind == "server" for launch in others):
        return None
    reason = f"starts `{argv[0].text}`: the engine of this pod runs in another container"
    return _Part("sidecar", "unknown", _plain_launch(container), reason)


def _patch_part(workload: Workload, container: _Container) -> _Part | None:
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
        return _Part(role, engine, Launch(engine, engine, argv, style=profile_of(engine).style), reason)
    return _Part(role, "unknown", Launch("unknown", "", argv, style="generic") if flags else None, reason)


def _has_server(workload: Workload, container: _Container) -> bool:
    return any(pods.accelerators(spec) for spec in items(workload.pod.get("containers")) if spec is not container.spec)


def _joins_ray(line: CommandLine) -> bool:
    text = " ".join(argument.text for argument in line.argv)
    return bool(re.search(r"multi-node-serving\.sh\s+worker|ray start .*--address|ray_init\.sh worker", text))


def _opaque(line: CommandLine) -> bool:
    """Whether the container runs a script of the image that nobody can read from outside."""
    first = line.argv[0].text if line.argv else ""
    return first.endswith(".sh") or ("/" in first and not re.search(r"/(?:sh|bash|dash|python[\d.]*)$", first))


def _argument_launch(workload: Workload, container: _Container, engine: str) -> Launch | None:
    """Arguments without a known launcher: read them by the engine's grammar where the kind or the image fixes it."""
    argv = container.line.argv
    if engine == "unknown" or not argv or not argv[0].text.startswith("-"):
        return None
    name = engine if engine in catalog_files() else ""
    return Launch(engine, name, argv, style=profile_of(engine).style if name else "generic")


def _no_launch_reason(workload: Workload, container: _Container) -> str | None:
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


def _role(workload: Workload, container: _Container, launch: Launch | None) -> str:
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


def _manifest(
    workload: Workload,
    scope: Scope,
    origin: Origin,
    container: _Container,
    part: _Part,
    salt: bytes | None,
    version: str | None,
    findings: list[Finding],
    serving: list[str],
) -> Manifest:
    engine = _engine(workload, container, part, version)
    read = sources.read_settings(part.launch, engine, container.line, container.environment, workload.fields)
    for mount, missing in pods.missing_configmaps(workload, container.spec, scope):
        text = f"ConfigMap `{missing}`, mounted at `{mount}`, is not in the input; add it"
        findings.append(make_finding("missing-configmap", text, origin.file, container.path))
    claims = pods.missing_claims(workload, container.spec, scope) if workload.gpu is None else []
    secrets = {**{f"env:{k}": v for k, v in container.environment.secrets.items()}, **read.secrets}
    known = _known_secrets(secrets)
    for code, message in [*container.line.findings, *read.findings]:
        findings.append(make_finding(code, scrub(message, known), origin.file, container.path))
    _image_findings(workload, container, origin, findings)
    unresolved = [Unresolved(what, scrub(why, known)) for what, why in [*read.unresolved, *container.line.unresolved]]
    if part.reason and part.engine != "unknown" and part.launch is None and not workload.patch:
        unresolved.append(Unresolved("command", part.reason))
    unresolved += [Unresolved("command", note) for note in workload.notes]
    unresolved += [
        Unresolved("resources.gpu", f"the ResourceClaimTemplate `{claim}` is not in the input; add it")
        for claim in claims
    ]
    if workload.patch:
        findings.append(
            make_finding(
                "patch",
                f"`{workload.name}` has no image: a patch, of which only what it sets is known; render it first "
                "(kubectl kustomize)",
                origin.file,
                workload.path,
            )
        )
    settings = {name: _scrubbed(name, setting, known, secrets) for name, setting in read.settings.items()}
    files = {
        path: _shown_file(path, text, known, secrets)
        for path, text in container.line.files.items()
        if path in read.used_files or path in container.environment.mounted
    }
    shown = {name: _shown_value(name, value, known, secrets) for name, value in container.environment.shown.items()}
    model = _model(workload, settings)
    return Manifest(
        name=scrub(workload.name, known),
        namespace=scrub(workload.namespace, known),
        role=part.role,
        rank=workload.rank,
        container=scrub(str(container.spec.get("name") or ""), known) or None,
        source=Source(origin.file, origin.index, scrub(workload.kind, known), scrub(container.path, known)),
        engine=replace(engine, image=scrub(engine.image, known)),
        model=Model(scrub(model.id, known), scrub(model.revision, known)),
        replicas=workload.replicas,
        argv=tuple(_shown_argv(container.line.argv, known)),
        settings=settings,
        environment=shown,
        resources=pods.resources(workload, container.spec, scope),
        unresolved=tuple(
            unresolved
            + [
                Unresolved(f"env:{k}", why)
                for k, why in container.environment.unresolved
                if f"env:{k}" not in {u.what for u in unresolved}
            ]
        ),
        files=files,
        pod=scrub(digest.pod_facts(workload.pod, container.spec, serving), known),
        extra=_shown_extra(workload.extra, known, secrets),
        secrets={name: salted_hash(value, salt) for name, value in secrets.items()} if salt else {},
        patch=workload.patch,
        reason=scrub("; ".join([*([part.reason] if part.reason else []), *workload.notes]), known) or None,
    )


def _known_secrets(secrets: Mapping[str, str]) -> frozenset[str]:
    """Values that may be printed nowhere, whatever text they were put into; short ones would hit ordinary words."""
    return frozenset(value for value in secrets.values() if len(value) >= 6 and not re.match(r"[$<]", value))


def _scrubbed(name: str, setting: Setting, known: frozenset[str], secrets: dict[str, str]) -> Setting:
    """The setting without secrets inside its value; that they changed is still told by ``secrets``."""
    value = scrub(setting.value, known)
    written = scrub(setting.written, known)
    if value != setting.value and name not in secrets:
        secrets[name] = canonical_json(setting.value)
    expression = scrub(setting.expression, known)
    if value == setting.value and written == setting.written and expression == setting.expression:
        return setting
    return replace(setting, value=value, written=written, expression=expression)


def _shown_file(path: str, text: str, known: frozenset[str], secrets: dict[str, str]) -> str:
    hidden = is_secret_env(path.rsplit("/", 1)[-1], text)
    shown = REDACTED if hidden else str(scrub(text, known))
    if shown != text:
        secrets[f"file:{path}"] = text
    return shown


def _shown_extra(extra: Mapping[str, Any], known: frozenset[str], secrets: dict[str, str]) -> Any:
    shown = scrub(dict(extra), known)
    hidden = leaves(shown, "")
    for name, value in leaves(dict(extra), "").items() if shown != extra else ():
        if value != hidden.get(name):
            secrets[f"extra:{name}"] = canonical_json(value)
    return shown


def _shown_value(name: str, value: Any, known: frozenset[str], secrets: dict[str, str]) -> Any:
    shown = scrub(value, known) if value != REDACTED else value
    if shown != value:
        secrets.setdefault(f"env:{name}", str(value))
    return shown


def _engine(workload: Workload, container: _Container, part: _Part, version: str | None) -> Engine:
    image_text = str(container.spec.get("image") or "") or None
    same = container.image.engine == part.engine or (
        part.engine.startswith("triton") and container.image.engine.startswith("triton")
    )
    found = version or workload.version or (container.image.version if same else None)
    if part.role in ("router",) and not part.engine.startswith("dynamo"):
        found = container.image.version if same else None
    if part.engine.startswith("dynamo-"):
        return Engine(part.engine, found, image_text, Backend(part.engine.removeprefix("dynamo-"), None))
    return Engine(part.engine, found if part.engine != "unknown" else None, image_text)


def _image_findings(workload: Workload, container: _Container, origin: Origin, findings: list[Finding]) -> None:
    image = str(container.spec.get("image") or "")
    path = f"{container.path}.image"
    if not image:
        return
    if re.search(r"IMAGE|replace|<.*>|\$\(|\{\{|placeholder", image):
        findings.append(
            make_finding("image-placeholder", f"`{image}` is a placeholder; put the real image in", origin.file, path)
        )
    elif container.image.moving:
        findings.append(
            make_finding("moving-tag", f"`{image}` has a tag that moves; pin a version or a digest", origin.file, path)
        )


def _shown_argv(argv: tuple[Arg, ...], known: frozenset[str]) -> list[str]:
    out: list[str] = []
    hide = False
    for argument in argv:
        text = argument.text
        key, equals, _ = text.partition("=")
        secret = key.startswith("-") and is_secret_flag(key.lstrip("-"))
        if hide:
            out.append(REDACTED)
        elif secret and equals:
            out.append(f"{key}={REDACTED}")
        else:
            out.append(str(scrub(text, known)))
        hide = secret and not equals and not hide
    return out


def _model(workload: Workload, settings: Mapping[str, Setting]) -> Model:
    written = next((settings[name].value for name in MODEL_SETTINGS if name in settings and settings[name].value), None)
    identity = workload.model_id or (str(written) if written else None)
    revision = settings["revision"].value if "revision" in settings else workload.model_revision
    if identity and identity.startswith("hf://"):
        identity, _, tail = identity[5:].partition(":")
        revision = revision or tail or None
    return Model(identity, str(revision) if revision else None)


def text(value: str, line: int | None = None) -> Text:
    """A string with a line, for readers that compose arguments."""
    out = Text(value)
    out.line = line or 1
    out.literal = False
    return out
