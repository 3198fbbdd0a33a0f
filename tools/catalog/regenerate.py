"""Writes ``manifests/catalog/*.json``: one compact file per engine, from the surveyed facts or from wheels.

Three commands. ``facts FILE`` turns the facts' list (one mapping per engine and flag) plus ``supplement.yaml`` and
``variables.yaml`` into the catalogue. ``variables ENGINE VERSION=PACKAGE...`` surveys an engine's environment variables
over several unpacked wheels into ``variables.yaml``. ``wheel ENGINE PACKAGE VERSION --previous PACKAGE`` adds a
version: what differs between two wheels of an engine (:mod:`wheels`: by syntax, nothing imported) becomes new flags,
flips of defaults, removals. See ``manifests/catalog/README.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from manifests.catalog import parse_default
from tools.catalog import variables, wheels

ROOT = Path(__file__).resolve().parents[2]
CATALOG = ROOT / "manifests" / "catalog"
HERE = Path(__file__).parent
VARIABLES = HERE / "variables.yaml"
FILES = {"dynamo.runtime": "dynamo", "dynamo.frontend": "dynamo", "dynamo.vllm": "dynamo", "dynamo.sglang": "dynamo"}
FILES |= {"dynamo.trtllm": "dynamo", "dynamo.router": "dynamo"}
V0_BOOL = {
    "--disable-log-stats",
    "--disable-mm-preprocessor-cache",
    "--enable-lora",
    "--enable-prompt-adapter",
    "--enable-reasoning",
    "--disable-cascade-attn",
    "--disable-log-requests",
    "--eplb-log-balancedness",
    "--enable-multimodal-encoder-data-parallel",
    "--aggregate-engine-logging",
    "--collect-tokens-histogram",
    "--enable-flashinfer-mla",
    "--enable-flashmla",
    "--enable-piecewise-cuda-graph",
    "--prefill-round-robin-balance",
    "--cpu-moe",
}
STRINGS = {"--debug-tensor-dump-inject", "--fit", "--flash-attn", "--sharded", "--cuda-graphs"}
INTS = {
    "--num-shard",
    "--max-input-tokens",
    "--max-total-tokens",
    "--max-batch-prefill-tokens",
    "--max-batch-total-tokens",
    "--max-batch-size",
}
INTS |= {
    "--speculate",
    "--ctx-size",
    "--parallel",
    "--n-cpu-moe",
    "--seed",
    "--threads-batch",
    "--num_shard",
    "--kv-cache-block-size",
}
INTS |= {
    "--max-num-tokens",
    "--max-seq-len",
    "--max-beam-width",
    "--expert-parallel-size",
    "--gpus-per-node",
    "--engine-request-limit",
}
JSON_TYPE = re.compile(r"dict|Dict|Config\b|HfOverrides|MultiModalDummyOptions")
LIST_TYPE = re.compile(r"(?:^|[^\w])(?:list|List|tuple|set)\[(.*)\]")


def kind_of(entry: dict[str, Any]) -> str:
    """Our type of a switch: bool, int, float, str, json, list:int, list:float, list:str."""
    flag, declared, default = entry["flag"], str(entry["type"]), str(entry["default"])
    if flag in STRINGS:
        return "str"
    if flag in INTS:
        return "int"
    if flag in V0_BOOL or re.match(r"^(?:bool\??$|bool \| None|Optional\[bool\]|bool,)", declared):
        return "bool"
    if default.lower() in ("true", "false") and declared in ("unknown", "env", "nested-config"):
        return "bool"
    if default in ("enabled", "disabled", "on if slots auto"):
        return "bool"
    listed = LIST_TYPE.search(declared)
    if listed and not declared.startswith(("dict", "Optional[Dict")):
        inner = listed[1]
        return "list:int" if inner.startswith("int") else "list:float" if inner.startswith("float") else "list:str"
    if JSON_TYPE.search(declared) and declared != "ConfigFormat" and "ConfigFormat" not in declared:
        return "json"
    if re.match(
        r"^(?:int\??$|int \| None|Optional\[int\]|Optional\[Union\[int\]\]|MaxLoRARanks|OptimizationLevel)", declared
    ):
        return "int"
    if re.match(r"^(?:float\??$|float \| None|Optional\[float\])", declared):
        return "float"
    return "str"


def compact(entry: dict[str, Any]) -> dict[str, Any]:
    """One switch with short keys; absent means the usual value (see ``manifests/catalog/__init__.py``)."""
    out: dict[str, Any] = {"f": entry["flag"], "t": kind_of(entry), "d": str(entry["default"]), "m": entry["mechanism"]}
    out["l"], out["c"] = entry["ledgers"], entry["correctness"]
    optional = {
        "e": entry["engine"] if entry["engine"] in FILES else None,
        "a": entry.get("aliases"),
        "n": entry.get("negation"),
        "r": entry.get("fp_reorder"),
        "x": entry.get("removed_between"),
        "s": entry.get("seen"),
        "h": entry.get("default_history"),
        "o": entry.get("declaration_only"),
        "w": entry.get("witness"),
        "b": str(entry.get("note") or "").split(", see ")[0],
        "v": entry.get("surveyed"),
        "q": entry.get("optional"),
        "k": str(entry["type"]) if str(entry["type"]).startswith(("Choice", "Literal")) else None,
    }
    return out | {key: value for key, value in optional.items() if value}


def write(name: str, sampled: list[str], switches: list[dict[str, Any]]) -> None:
    """One engine's file: a line per switch, so that a review reads the difference."""
    lines = ",\n".join(json.dumps(switch, separators=(",", ":"), ensure_ascii=False) for switch in switches)
    head = json.dumps({"engine": name, "sampled": sampled}, separators=(",", ":"))[:-1]
    (CATALOG / f"{name}.json").write_text(f'{head},"switches":[\n{lines}\n]}}\n', encoding="utf-8")


def version_order(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def from_facts(path: Path) -> None:
    """The whole catalogue from the facts file and the supplement."""
    entries = read_yaml(path)
    listed = {(entry["engine"], entry["flag"]) for entry in entries}
    surveyed = [entry | {"surveyed": True} for entry in read_yaml(VARIABLES)]
    entries += [entry for entry in surveyed if (entry["engine"], entry["flag"]) not in listed]
    entries = merged(entries, [*read_yaml(HERE / "dynamo_older.yaml"), *read_yaml(HERE / "supplement.yaml")])
    parts: dict[str, list[dict[str, Any]]] = {}
    versions: dict[str, set[str]] = {}
    for entry in entries:
        name = FILES.get(entry["engine"], entry["engine"])
        parts.setdefault(name, []).append(compact(entry))
        if entry.get("source") == "wheels of ai-dynamo":
            continue  # only flags that are gone were read from these versions: no defaults of the others are known
        found = [version for version, _ in entry.get("default_history") or []] + list(entry.get("seen") or [])
        versions.setdefault(name, set()).update(
            str(version) for version in found + list(entry.get("removed_between") or [])
        )
    for name, switches in parts.items():
        versions[name].discard("")
        write(name, sorted(versions[name], key=version_order), switches)
        print(f"{name}: {len(switches)} switches, {len(versions[name])} versions")


def merged(entries: list[dict[str, Any]], corrections: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries with corrections: an entry of the same engine and flag is updated, another one is added."""
    out = {(entry["engine"], entry["flag"]): entry for entry in entries}
    for correction in corrections:
        key = (correction["engine"], correction["flag"])
        out[key] = {**out.get(key, {}), **correction}
    return list(out.values())


def survey_variables(engine: str, versions: list[str]) -> None:
    """Rewrites an engine's part of ``variables.yaml``; a variable that the catalogue has from the facts is left out."""
    roots = [(version, Path(package)) for version, _, package in (text.partition("=") for text in versions)]
    found = variables.survey(engine, sorted(roots, key=lambda root: version_order(root[0])))
    others = [entry for entry in read_yaml(VARIABLES) if entry["engine"] != engine] if VARIABLES.exists() else []
    variables.write([*others, *found], VARIABLES)
    print(f"{engine}: {len(found)} variables in {len(roots)} versions")


def read_yaml(path: Path) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return loaded


@dataclass(frozen=True)
class Declared:
    """What one wheel declares: flags and variables by name, each with kind, default and aliases."""

    entries: dict[str, tuple[str, str, tuple[str, ...]]]

    @staticmethod
    def read(engine: str, package: Path) -> Declared:
        found = {flag.flag: (flag.kind, flag.default, flag.aliases) for flag in wheels.flags(engine, package)}
        if engine in variables.PREFIXES:
            for variable in wheels.variables(engine, package, variables.PREFIXES[engine]):
                if variables.meaning(variable.name) is not None:
                    found[f"env:{variable.name}"] = ("env", variable.default, ())
        return Declared(found)


def from_wheel(engine: str, package: Path, version: str, previous: Path) -> None:
    """Adds one version to an engine's part: what the wheel declares otherwise than the previous one."""
    path = CATALOG / f"{engine}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    last = max(data["sampled"], key=version_order)
    if version_order(version) <= version_order(last):
        raise SystemExit(f"{version} is not newer than {last}, the newest version of {path.name}")
    new, old = Declared.read(engine, package).entries, Declared.read(engine, previous).entries
    for switch in data["switches"]:
        if switch["f"] in new:
            _carry(switch, new[switch["f"]][1], old.get(switch["f"], ("", wheels.UNREADABLE, ()))[1], last, version)
        elif switch["f"] in old and "x" not in switch:
            switch["x"] = [last, version]
            switch["h"] = [*(switch.get("h") or [[data["sampled"][0], switch["d"]]]), [version, "ABSENT"]]
            print(f"removed: {switch['f']}")
        elif switch.get("s") and switch["s"][1] == last and "x" not in switch:
            switch["s"] = [switch["s"][0], version]  # declared where no reader looks: taken as unchanged
    known = {switch["f"] for switch in data["switches"]}
    known |= {alias for switch in data["switches"] for alias in switch.get("a", ())}
    for flag, (kind, default, aliases) in new.items():
        if flag not in known and flag not in old:
            data["switches"].append(_added(engine, flag, kind, default, aliases, data["sampled"][0], version))
    write(engine, sorted({*data["sampled"], version}, key=version_order), data["switches"])


def _carry(switch: dict[str, Any], new: str, old: str, last: str, version: str) -> None:
    """A switch that the new version has too: its range grows, a default that differs becomes a flip."""
    if switch.get("s"):
        switch["s"] = [switch["s"][0], version]
    if new in (old, wheels.UNREADABLE) or old == wheels.UNREADABLE or parse_default(new) == parse_default(old):
        return
    switch["h"] = [*(switch.get("h") or [[last, switch["d"]]]), [version, new]]
    switch["d"] = new
    print(f"default: {switch['f']} {old} -> {new}")


def _added(
    engine: str, flag: str, kind: str, default: str, aliases: tuple[str, ...], first: str, version: str
) -> dict[str, Any]:
    is_variable = flag.startswith("env:")
    meaning = variables.meaning(flag.removeprefix("env:")) if is_variable else None
    meaning = meaning or {"mechanism": "lifecycle", "ledgers": [], "correctness": "contract-change"}
    default = "(declared elsewhere)" if default == wheels.UNREADABLE else default
    entry = {"engine": engine, "flag": flag, "type": kind, "default": default, "aliases": list(aliases), **meaning}
    history = [[first, "ABSENT"], [version, default]]
    note = "" if is_variable else " (mechanism, ledgers and class must be set by hand: supplement.yaml)"
    print(f"new: {flag} default {default}{note}")
    return compact(entry | {"seen": [version, version], "default_history": history, "surveyed": is_variable})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    facts = commands.add_parser("facts")
    facts.add_argument("file", type=Path)
    survey = commands.add_parser("variables")
    survey.add_argument("engine", choices=sorted(variables.PREFIXES))
    survey.add_argument("versions", nargs="+", metavar="VERSION=PACKAGE", help="0.20.0=/tmp/x/vllm ...")
    wheel = commands.add_parser("wheel")
    wheel.add_argument("engine", choices=["vllm", "sglang", "dynamo"])
    wheel.add_argument("package", type=Path, help="directory of the unpacked package, e.g. site-packages/vllm")
    wheel.add_argument("version")
    wheel.add_argument("--previous", type=Path, required=True, help="the package of the newest version known so far")
    wheel.add_argument("--catalog", type=Path, help="another folder of catalogue files")
    options = parser.parse_args()
    if options.command == "facts":
        from_facts(options.file)
    elif options.command == "variables":
        survey_variables(options.engine, options.versions)
    else:
        globals()["CATALOG"] = options.catalog or CATALOG
        from_wheel(options.engine, options.package, options.version, options.previous)
    return 0


if __name__ == "__main__":
    sys.exit(main())
