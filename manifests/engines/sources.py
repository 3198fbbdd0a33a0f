"""All sources of an engine's settings in the order of that engine: command line, config file, environment, custom
resource.

Called by :mod:`manifests.resolve`. The command line comes from :mod:`manifests.engines.grammar`; this module adds
config files (vLLM and SGLang ``--config``, TensorRT-LLM and Dynamo YAML), environment twins and switches that exist
only as variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from manifests import catalog
from manifests.catalog import Catalog, Switch
from manifests.engines import grammar, values
from manifests.engines.profiles import profile_of
from manifests.importers.registry import Field
from manifests.launch import CommandLine
from manifests.model import Engine, Setting
from manifests.secrets import redact_text
from manifests.starts import Arg, Launch
from manifests.versions import version_key
from manifests.yamlsafe import YamlRefused, load_all, text_of

if TYPE_CHECKING:
    from manifests.pods import Environment

_TRTLLM_FLIP = ((1, 3), 0, 0)
_TRTLLM_FLIP_STARTS = ((1, 3), -5, 0)


@dataclass(slots=True)
class Read:
    """Settings by canonical name with what is to be said about them; ``used_files``: config files that the engine
    reads."""

    settings: dict[str, Setting] = field(default_factory=dict)
    findings: list[tuple[str, str]] = field(default_factory=list)
    unresolved: list[tuple[str, str]] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    used_files: set[str] = field(default_factory=set)


def read_settings(
    launch: Launch | None, engine: Engine, line: CommandLine, environment: Environment, fields: tuple[Field, ...] = ()
) -> Read:
    """The effective settings of one container."""
    out = Read()
    if launch is not None:
        parsed = grammar.parse(launch, engine.family_version, engine.version)
        out.settings, out.findings = parsed.settings, parsed.findings
        out.unresolved, out.secrets = parsed.unresolved, parsed.secrets
        _config_file(launch, engine, line, environment, out)
    name = launch.catalog if launch is not None and launch.catalog else engine.name
    _environment(name, engine, line, environment, out)
    for entry in fields:
        _field(name, entry, out)
    return out


def _field(name: str, entry: Field, out: Read) -> None:
    found = grammar.find_switch(grammar.catalogs_of(name), entry.name)
    value = entry.value
    if isinstance(value, str) and found is not None:
        value, _ = values.convert(
            found[0].kind.removeprefix("list:") if found[0].kind.startswith("list") else found[0].kind,
            value,
            entry.name,
            name,
        )
    elif hasattr(value, "raw"):
        value = float(value)
    if entry.name in out.settings:
        return
    origin = "configmap" if entry.written.startswith("configmap ") else "custom-resource"
    out.settings[entry.name] = Setting(value, origin, redact_text(entry.written), entry.line)


# --- config files


def _config_file(launch: Launch, engine: Engine, line: CommandLine, environment: Environment, out: Read) -> None:
    flag = profile_of(launch.catalog).config_flag
    setting = out.settings.get(flag) if flag else None
    if setting is None or not isinstance(setting.value, str):
        return
    path = setting.value
    text = line.files.get(path)
    if text is None:
        out.unresolved.append((f"file:{path}", "the config file is not in the input: its values are not known"))
        out.findings.append(
            (
                "config-file-not-found",
                f"`{path}` is read by the engine but is not in the input; add the ConfigMap that holds it",
            )
        )
        return
    out.used_files.add(path)
    origin = "configmap" if path in environment.mounted else "config-file"
    try:
        documents = load_all(text)
    except YamlRefused as refused:
        out.findings.append(("bad-value", f"config file `{path}`: {refused}"))
        return
    content = documents[0].value if documents else {}
    if not isinstance(content, dict):
        out.findings.append(("bad-value", f"config file `{path}` is no mapping of flags to values"))
        return
    if launch.catalog in ("trtllm", "dynamo-trtllm"):
        _trtllm(content, path, origin, engine, out)
    else:
        _flat(content, path, origin, launch, engine, out)


def _flat(content: Mapping[str, Any], path: str, origin: str, launch: Launch, engine: Engine, out: Read) -> None:
    """vLLM and SGLang: keys are flags; the command line wins; a ``false`` is dropped by the reader."""
    arguments: list[Arg] = []
    for key, value in content.items():
        flag = f"--{key}"
        line = getattr(value, "line", None)
        if isinstance(value, bool):
            if value:
                arguments.append(Arg(flag, True, line, origin))
            else:
                out.findings.append(
                    (
                        "config-false-ignored",
                        f"`{key}: false` in `{path}` is dropped by the reader and changes nothing; write `no-{key}: "
                        "true`",
                    )
                )
        elif isinstance(value, list):
            arguments.append(Arg(flag, True, line, origin))
            arguments += [Arg(text_of(item), True, line, origin) for item in value]
        elif isinstance(value, dict):
            import json

            arguments += [Arg(flag, True, line, origin), Arg(json.dumps(value), True, line, origin)]
        else:
            arguments += [Arg(flag, True, line, origin), Arg(text_of(value), True, line, origin)]
    parsed = grammar.parse(
        Launch(launch.engine, launch.catalog, tuple(arguments), style=launch.style), engine.family_version
    )
    out.findings += parsed.findings
    out.secrets.update({name: secret for name, secret in parsed.secrets.items() if name not in out.secrets})
    for name, setting in parsed.settings.items():
        mine = out.settings.get(name)
        if mine is None:
            out.settings[name] = Setting(
                setting.value, origin, setting.written.removeprefix("--"), None, setting.expression
            )
        elif mine.value != setting.value:
            out.findings.append(
                (
                    "config-overridden",
                    f"`{name}` is {setting.value!r} in `{path}` but {mine.value!r} on the command line, which wins",
                )
            )


def _trtllm(content: Mapping[str, Any], path: str, origin: str, engine: Engine, out: Read) -> None:
    """TensorRT-LLM: the YAML wins over flags before 1.3, explicit flags win from 1.3 on (NVIDIA/TensorRT-LLM pull
    request 14812)."""
    known = catalog.load("trtllm")
    flat = dict(_leaves(content, ""))
    for key, value in flat.items():
        name = trtllm_name(key, known)
        cli = out.settings.get(name) or out.settings.get(_twin(name))
        if cli is None:
            out.settings[name] = Setting(_plain(value), origin, f"{key}: {text_of(value)}"[:200], None)
        elif cli.value != _plain(value):
            _precedence(
                name,
                _twin(name) if name not in out.settings else name,
                cli,
                _plain(value),
                key,
                path,
                origin,
                engine,
                out,
            )


def _precedence(
    name: str, own: str, cli: Setting, value: Any, key: str, path: str, origin: str, engine: Engine, out: Read
) -> None:
    version = version_key(engine.version if engine.name == "trtllm" else None)
    if version is not None and version >= _TRTLLM_FLIP:
        out.findings.append(
            (
                "config-overridden",
                f"`{key}` is {value!r} in `{path}` but {cli.value!r} on the command line, which wins from 1.3 on",
            )
        )
        return
    if engine.name == "dynamo-trtllm" or (version is not None and version < _TRTLLM_FLIP_STARTS):
        out.settings.pop(own, None)
        out.settings[name] = Setting(value, origin, f"{key}: {value}")
        out.findings.append(
            (
                "config-overridden",
                f"`{cli.written}` is overridden by `{key}: {value}` in `{path}`, which wins before 1.3",
            )
        )
        return
    low = f"{cli.value} or {value}"
    out.settings.pop(own, None)
    out.settings[name] = Setting(
        None,
        origin,
        f"{cli.written}; {key}: {value}",
        cli.line,
        f"ambiguous: {low} (which one wins depends on the version)",
    )
    out.unresolved.append(
        (name, f"ambiguous: {low}; whether the command line or `{path}` wins depends on the engine's version")
    )
    out.findings.append(
        (
            "ambiguous-precedence",
            f"`{name}` is {cli.value!r} on the command line and {value!r} in `{path}`; this version's precedence is "
            f"not known: ambiguous: {low}",
        )
    )


def _leaves(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for key, item in value.items():
        here = f"{prefix}.{key}" if prefix else str(key)
        out += _leaves(item, here) if isinstance(item, dict) and item else [(here, item)]
    return out


def _plain(value: Any) -> Any:
    if hasattr(value, "raw") and isinstance(value, float):
        return float(value)
    return str(value) if isinstance(value, str) else value


def trtllm_name(key: str, known: Catalog | None) -> str:
    """The setting of a YAML key: ``llm_args.KEY`` where the catalogue lists it so, the flag where one has the same
    name."""
    full = f"llm_args.{key}"
    if known is not None and full in known.switches:
        return full
    name = key.replace("_", "-")
    return name if known is not None and "." not in key and name in known.switches else full


_TWINS = {
    "llm_args.kv_cache_config.free_gpu_memory_fraction": "free-gpu-memory-fraction",
    "llm_args.kv_cache_config.dtype": "kv-cache-dtype",
}


def _twin(name: str) -> str:
    return _TWINS.get(name, name)


# --- environment


def _environment(name: str, engine: Engine, line: CommandLine, environment: Environment, out: Read) -> None:
    catalogs = grammar.catalogs_of(name)
    tokens = {key: token for key, token in line.env.items() if key in environment.origins or key in line.env}
    for variable, token in tokens.items():
        switch_and_part = twin_of(variable, name, catalogs)
        if switch_and_part is None:
            _unread(variable, name, out)
            continue
        switch, part, is_env = switch_and_part
        if is_env and part.has_at(switch, engine.family_version) is False:
            out.findings.append(
                (
                    "env-ignored",
                    f"`{variable}` is not read by {engine.name} {engine.family_version} and changes nothing; delete "
                    "it or use the flag that replaced it",
                )
            )
            continue
        if switch.variable_only:
            continue  # stays a variable: the diff names what it acts on
        setting_name = switch.name if not is_env or "*" not in switch.name else f"env:{variable}"
        if setting_name in out.settings:
            continue
        if not token.known:
            out.settings[setting_name] = Setting(None, "env", variable, environment.lines.get(variable), token.text)
            out.unresolved.append((setting_name, f"`{variable}` is known only at run time"))
            continue
        if is_env and "*" in switch.name:
            continue
        kind = _env_kind(switch)
        value, problem = (
            values.convert(kind, token.text, switch.name, name)
            if kind != "str"
            else (values.guess(token.text) if is_env else token.text, None)
        )
        if problem:
            out.findings.append(("bad-value", f"`{variable}={redact_text(token.text)}`: {problem}"))
        shown = environment.shown.get(variable, token.text)
        out.settings[setting_name] = Setting(
            shown if shown == "<redacted>" else value, "env", f"{variable}={shown}", environment.lines.get(variable)
        )


def _env_kind(switch: Switch) -> str:
    if switch.kind != "str":
        return switch.kind.removeprefix("list:") if switch.kind.startswith("list") else switch.kind
    written = {value for _, value in switch.history} | {switch.default}
    return "bool" if written & {"True", "False"} else "str"


def twin_of(variable: str, name: str, catalogs: list[Catalog]) -> tuple[Switch, Catalog, bool] | None:
    """The switch that a variable sets: an ``env:`` switch of its own, or the flag whose twin it is."""
    for part in catalogs:
        own = part.spellings.get(f"env:{variable}")
        if own is not None:
            switch = part.switches[own]
            return switch, part, switch.is_env
    twins = profile_of(name).twins
    if twins is None or not catalogs or not re.fullmatch(r"[A-Z][A-Z0-9_]*", variable):
        return None
    named = twins.variables.get(variable)
    if named is None and not variable.startswith(twins.prefix):
        return None
    tail = variable.removeprefix(twins.prefix)
    flag = named or twins.names.get(tail) or tail.lower().replace("_", "-")
    found = catalogs[0].spellings.get(f"--{flag}")
    return (catalogs[0].switches[found], catalogs[0], False) if found else None


def _unread(variable: str, name: str, out: Read) -> None:
    profile = profile_of(name)
    if profile.twins is None:
        return
    right = profile.twins.unread.get(variable)
    if right is not None:
        out.findings.append(
            (
                "env-unread",
                f"`{variable}` is no variable of {profile.title} (it reads `{right}`) and changes nothing; correct its "
                "name",
            )
        )
    elif profile.twins.prefix and variable.startswith(profile.twins.prefix):
        out.findings.append(
            (
                "env-unread",
                f"`{variable}` is no variable of {profile.title} that the catalogue knows; check its spelling",
            )
        )
