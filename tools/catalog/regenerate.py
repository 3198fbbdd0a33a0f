"""Writes ``manifests/catalog/*.json``: one compact file per engine, from the surveyed facts or from an installed
engine.

Two commands. ``facts FILE`` turns the facts' list (one mapping per engine and flag) plus ``supplement.yaml`` into
the catalogue. ``wheel ENGINE PATH VERSION`` reads the argument parser of an installed wheel (its source tree, by
syntax, nothing imported) and adds that version to the engine's part: flags seen, their aliases, types and defaults;
a default that differs from the newest version known becomes an entry of the history. See ``README.md`` beside this
file.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CATALOG = ROOT / "manifests" / "catalog"
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
    entries: list[dict[str, Any]] = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    entries += yaml.safe_load((Path(__file__).parent / "supplement.yaml").read_text(encoding="utf-8"))
    parts: dict[str, list[dict[str, Any]]] = {}
    versions: dict[str, set[str]] = {}
    for entry in entries:
        name = FILES.get(entry["engine"], entry["engine"])
        parts.setdefault(name, []).append(compact(entry))
        found = [version for version, _ in entry.get("default_history") or []] + list(entry.get("seen") or [])
        versions.setdefault(name, set()).update(
            str(version) for version in found + list(entry.get("removed_between") or [])
        )
    for name, switches in parts.items():
        versions[name].discard("")
        write(name, sorted(versions[name], key=version_order), switches)
        print(f"{name}: {len(switches)} switches, {len(versions[name])} versions")


def parser_calls(tree: ast.AST) -> list[dict[str, Any]]:
    """Every ``add_argument`` of a source file: flags, default and type as written."""
    found = []
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        ):
            continue
        flags = [
            a.value
            for a in node.args
            if isinstance(a, ast.Constant) and isinstance(a.value, str) and a.value.startswith("-")
        ]
        if flags:
            words = {word.arg: ast.unparse(word.value).strip("'\"") for word in node.keywords if word.arg}
            found.append({"flags": flags, **words})
    return found


def dataclass_fields(tree: ast.AST) -> dict[str, str]:
    """Defaults of annotated class attributes (the engines keep their arguments in dataclasses)."""
    out: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            out.setdefault(node.target.id, ast.unparse(node.value).strip("'\""))
    return out


def from_wheel(engine: str, root: Path, version: str) -> None:
    """Adds one version, read from an installed wheel's source, to an engine's part."""
    path = CATALOG / f"{engine}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    calls: list[dict[str, Any]] = []
    defaults: dict[str, str] = {}
    for source in sorted(root.rglob("*arg*.py")) + sorted(root.rglob("config/*.py")):
        tree = ast.parse(source.read_text(encoding="utf-8"))
        calls += parser_calls(tree)
        defaults |= dataclass_fields(tree) if "arg" in source.name else {}
    by_flag = {switch["f"]: switch for switch in data["switches"]}
    seen: set[str] = set()
    for call in calls:
        flag = next((f for f in call["flags"] if f.startswith("--")), None)
        if flag is None or flag in seen:
            continue
        seen.add(flag)
        default = call.get("default", "None")
        default = defaults.get(flag[2:].replace("-", "_"), default) if "." in default else default
        switch = by_flag.get(flag)
        if switch is None:
            kind = (
                "bool"
                if "store_true" in call.get("action", "") or "Boolean" in call.get("action", "")
                else call.get("type", "str")
            )
            new = {
                "flag": flag,
                "engine": engine,
                "type": kind,
                "default": default,
                "aliases": [f for f in call["flags"] if f != flag],
            }
            data["switches"].append(
                compact(
                    new
                    | {
                        "mechanism": "lifecycle",
                        "ledgers": [],
                        "correctness": "contract-change",
                        "seen": [version, version],
                    }
                )
            )
            print(f"new: {flag} (mechanism, ledgers and class must be set by hand)")
            continue
        history = switch.get("h") or [[data["sampled"][0], switch["d"]]]
        if version_order(version) > version_order(history[-1][0]) and history[-1][1] != default and "." not in default:
            switch["h"] = [*history, [version, default]]
            print(f"default: {flag} {history[-1][1]} -> {default}")
        if switch.get("s"):
            switch["s"] = [switch["s"][0], max(switch["s"][1], version, key=version_order)]
    write(engine, sorted({*data["sampled"], version}, key=version_order), data["switches"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    facts = commands.add_parser("facts")
    facts.add_argument("file", type=Path)
    wheel = commands.add_parser("wheel")
    wheel.add_argument("engine", choices=["vllm", "sglang", "dynamo", "trtllm"])
    wheel.add_argument("path", type=Path, help="directory of the installed package, e.g. site-packages/vllm")
    wheel.add_argument("version")
    options = parser.parse_args()
    if options.command == "facts":
        from_facts(options.file)
    else:
        from_wheel(options.engine, options.path, options.version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
