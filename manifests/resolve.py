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
from manifests.engines import sources
from manifests.engines.profiles import profile_of
from manifests.images import ImageFacts, image_facts
from manifests.importers.registry import JsonObject, Scope, Workload, items, text_list
from manifests.launch import Context, read_command_line
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
from manifests.parts import Container, Part, kind_engine, part_of
from manifests.secrets import is_secret_env, is_secret_flag, salted_hash, scrub
from manifests.starts import Arg
from manifests.yamlsafe import Text

MODEL_SETTINGS = ("model", "model-path", "model-id", "hf-repo", "model-name")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the workload's document is."""

    file: str
    index: int


def resolve(
    workload: Workload, scope: Scope, origin: Origin, salt: bytes | None, version: str | None
) -> tuple[list[Manifest], list[Finding]]:
    """The manifests of a workload and what is to be said about it."""
    findings: list[Finding] = []
    containers = [
        _read(workload, scope, origin, spec, path, init, findings) for spec, path, init in _containers(workload)
    ]
    serving = [(container, part_of(workload, container, containers)) for container in containers]
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
) -> Container:
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
    image = _entrypoint_hint(image, kind_engine(workload, spec), command)
    line = read_command_line(command, arguments, image, Context(environment.tokens, files, environment.open))
    line.files = {**files, **line.files}
    return Container(spec, path, line, image, environment, init)


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


def _manifest(
    workload: Workload,
    scope: Scope,
    origin: Origin,
    container: Container,
    part: Part,
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


def _engine(workload: Workload, container: Container, part: Part, version: str | None) -> Engine:
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


def _image_findings(workload: Workload, container: Container, origin: Origin, findings: list[Finding]) -> None:
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
