"""What an installed engine declares: flags with their defaults, variables with their defaults. Read by syntax, nothing
is imported and nothing runs.

Called by ``regenerate.py``. Knows four ways in which engines declare flags (``add_argument``, keyword tables made from
config classes, annotated fields, Dynamo's helper with ``flag_name`` and ``env_var``) and three for variables (vLLM's
table in ``envs.py``, SGLang's ``EnvBool``-like fields, plain reads of the environment).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNREADABLE = "?"
_ALIAS_ONLY = frozenset({"version", "help"})


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag as declared; ``default`` and ``kind`` are source text, ``?`` where syntax alone does not tell."""

    flag: str
    aliases: tuple[str, ...]
    kind: str
    default: str


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable with its default as source text."""

    name: str
    default: str


Classes = dict[str, dict[str, tuple[str, ast.expr | None]]]


def _trees(root: Path, patterns: tuple[str, ...]) -> list[ast.Module]:
    found = sorted({path for pattern in patterns for path in root.glob(pattern)})
    return [ast.parse(path.read_text(encoding="utf-8")) for path in found]


def text_of(node: ast.expr | None) -> str:
    """Source text of a default: quotes of plain strings fall away, a factory is marked."""
    if node is None:
        return "None"
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        words = {word.arg: word.value for word in node.keywords if word.arg}
        if name in ("Field", "field") and ("default" in words or "default_factory" in words or node.args):
            if "default_factory" in words:
                return f"factory:{ast.unparse(words['default_factory'])}"
            return text_of(words.get("default") or node.args[0])
    return ast.unparse(node)


# --- classes


def _classes(trees: list[ast.Module]) -> Classes:
    """Annotated fields of every class: class -> field -> (annotation, default)."""
    out: Classes = {}
    for tree in trees:
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            fields = out.setdefault(node.name, {})
            for base in node.bases:
                fields |= {name: found for name, found in out.get(ast.unparse(base), {}).items() if name not in fields}
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    fields[statement.target.id] = (ast.unparse(statement.annotation), statement.value)
    return out


def _resolved(node: ast.expr | None, classes: Classes, depth: int = 0) -> str:
    """A default that names a field of another class, followed to its value."""
    while isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_field") and len(node.args) == 2:
        owner, name = ast.unparse(node.args[0]), ast.literal_eval(node.args[1])
        node = classes.get(owner, {}).get(name, ("", None))[1]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and depth < 8:
        found = classes.get(node.value.id, {}).get(node.attr)
        if found is not None:
            return _resolved(found[1], classes, depth + 1)
    return text_of(node)


# --- flags


def flags(engine: str, root: Path) -> list[Flag]:
    """Every flag that the engine's serving parsers declare."""
    trees = _trees(root, _SOURCES[engine])
    classes = _classes(trees)
    owner = {"vllm": ("AsyncEngineArgs", "EngineArgs", "FrontendArgs", "BaseFrontendArgs")}.get(engine, ("ServerArgs",))
    defaults: dict[str, tuple[str, ast.expr | None]] = {}
    for name in reversed(owner):
        defaults |= classes.get(name, {})
    out: dict[str, Flag] = {}
    for tree in trees:
        tables = _keyword_tables(tree, classes)
        for call in _calls(tree):
            found = _flag(call, defaults, classes, tables)
            if found is not None:
                out.setdefault(found.flag, found)
    for fields in classes.values():
        for name, (annotation, value) in fields.items():
            annotated = _annotated(name, annotation, value)
            if annotated is not None:
                out.setdefault(annotated.flag, annotated)
    if engine == "vllm":
        for name in ("FrontendArgs", "BaseFrontendArgs"):
            for field, (annotation, value) in classes.get(name, {}).items():
                flag = "--" + field.replace("_", "-")
                out.setdefault(flag, Flag(flag, (), annotation, _resolved(value, classes)))
    return list(out.values())


_SOURCES = {
    "vllm": (
        "engine/arg_utils.py",
        "config/*.py",
        "config.py",
        "entrypoints/**/cli_args.py",
        "entrypoints/cli/serve.py",
    ),
    "sglang": ("srt/server_args.py", "srt/arg_groups/fields/*.py"),
    "dynamo": (
        "common/**/*args*.py",
        "common/config_dump/config_dumper.py",
        "frontend/main.py",
        "frontend/frontend_args.py",
        "router/*args*.py",
        "vllm/*args*.py",
        "sglang/*args*.py",
        "trtllm/*args*.py",
        "trtllm/utils/trtllm_utils.py",
    ),
}


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("add_argument", "add_negatable_bool_argument"):
                yield node


def _assigned_call(node: ast.AST) -> tuple[str, ast.Call] | None:
    """Name and call of ``name = call(...)``."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id, node.value
    return None


def _keyword_tables(tree: ast.Module, classes: Classes) -> Classes:
    """vLLM's ``cache_kwargs = get_kwargs(CacheConfig)``: variable -> fields of the class."""
    out: Classes = {}
    for node in ast.walk(tree):
        found = _assigned_call(node)
        if found is not None and ast.unparse(found[1].func).endswith("get_kwargs") and found[1].args:
            out[found[0]] = classes.get(ast.unparse(found[1].args[0]), {})
    return out


def _flag(
    call: ast.Call, defaults: dict[str, tuple[str, ast.expr | None]], classes: Classes, tables: Classes
) -> Flag | None:
    words = {word.arg: word.value for word in call.keywords if word.arg}
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if "flag_name" in words:
        texts = [text_of(words["flag_name"]), *_strings(words.get("obsolete_flag"))]
    spellings = [text for text in texts if text.startswith("-")]
    flag = next((text for text in spellings if text.startswith("--")), None)
    if flag is None or flag.lstrip("-") in _ALIAS_ONLY:
        return None
    field = text_of(words["dest"]) if "dest" in words else flag.lstrip("-").replace("-", "_")
    table, key = _keyword_field(call)
    declared = defaults.get(field) or tables.get(table, {}).get(key) or defaults.get(key)
    aliases = [text for text in spellings if text != flag]
    if "env_var" in words and text_of(words["env_var"]) != "None":
        aliases.append(f"env:{text_of(words['env_var'])}")
    default = words.get("default")
    if default is not None and "_declared_default" not in ast.unparse(default):
        written = _resolved(default, classes)
    else:
        written = _resolved(declared[1], classes) if declared is not None else UNREADABLE
    written = _environment_default(default) or written
    return Flag(flag, tuple(aliases), _kind(call, words, declared), _plain(written, words))


def _strings(node: ast.expr | None) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _keyword_field(call: ast.Call) -> tuple[str, str]:
    """Table and field of ``**model_kwargs["field"]``."""
    for word in call.keywords:
        if word.arg is None and isinstance(word.value, ast.Subscript) and isinstance(word.value.slice, ast.Constant):
            return ast.unparse(word.value.value), str(word.value.slice.value)
    return "", ""


def _environment_default(node: ast.expr | None) -> str | None:
    """The fallback of ``os.environ.get("DYN_X", "fallback")``, bare or inside ``int(...)``."""
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Call) and _reads_environment(part):
            return text_of(part.args[1]) if len(part.args) > 1 else "None"
    return None


def _kind(call: ast.Call, words: dict[str, ast.expr], declared: tuple[str, ast.expr | None] | None) -> str:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    action = ast.unparse(words["action"]) if "action" in words else ""
    if name == "add_negatable_bool_argument" or re.search(r"store_true|store_false|Boolean|StoreTrue", action):
        return "bool"
    if "type" in words or "arg_type" in words:
        kind = ast.unparse(words.get("type") or words["arg_type"])
        many = text_of(words.get("nargs")) in ("+", "*")
        return f"list[{kind}]" if many and kind in ("int", "float", "str") else kind
    return declared[0] if declared is not None else "str"


def _plain(written: str, words: dict[str, ast.expr]) -> str:
    if written == UNREADABLE and "action" in words and "store_true" in ast.unparse(words["action"]):
        return "False"
    return written


def _annotated(name: str, annotation: str, value: ast.expr | None) -> Flag | None:
    """SGLang's ``field: A[type, "help"]`` and ``A[type, Arg(aliases=[..], cli_name=..)]``."""
    if not annotation.startswith(("A[", "Annotated[")):
        return None
    node = ast.parse(annotation, mode="eval").body
    parts = node.slice.elts if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else []
    if not parts:
        return None
    words = {word.arg: word.value for part in parts if isinstance(part, ast.Call) for word in part.keywords if word.arg}
    if "no_cli" in words and ast.unparse(words["no_cli"]) == "True":
        return None
    flag = text_of(words["cli_name"]) if "cli_name" in words else "--" + name.replace("_", "-")
    listed = words.get("aliases")
    aliases = [text for item in listed.elts for text in _strings(item)] if isinstance(listed, ast.List) else []
    return Flag(flag, tuple(aliases), ast.unparse(parts[0]), text_of(value))


# --- variables


def variables(engine: str, root: Path, prefixes: tuple[str, ...]) -> list[Variable]:
    """Every variable with one of the prefixes that the engine declares or reads."""
    out: dict[str, str] = {}
    declared = {"vllm": root / "envs.py", "sglang": root / "srt" / "environ.py"}[engine]
    if declared.is_file():
        tree = ast.parse(declared.read_text(encoding="utf-8"))
        out |= _vllm_table(tree) if engine == "vllm" else _sglang_fields(tree)
    if engine == "sglang":
        for name, default in _reads(root).items():
            if out.get(name, UNREADABLE) == UNREADABLE:
                out[name] = default
    return [Variable(name, out[name]) for name in sorted(out) if name.startswith(prefixes)]


def _vllm_table(tree: ast.Module) -> dict[str, str]:
    """vLLM: names of the table ``environment_variables``; the getter's own fallback before the annotation above it."""
    annotated: dict[str, str] = {}
    names: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if isinstance(node.value, ast.Dict) and node.target.id == "environment_variables":
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant):
                    names[str(key.value)] = value
        else:
            annotated[node.target.id] = text_of(node.value)
    return {name: _fallback(name, getter) or annotated.get(name, UNREADABLE) for name, getter in names.items()}


def _fallback(name: str, getter: ast.expr) -> str | None:
    """The literal that a getter falls back to, where its form leaves no doubt."""
    body = getter.body if isinstance(getter, ast.Lambda) else None
    if isinstance(body, ast.Compare):
        return _compared(name, body)
    if not isinstance(body, ast.Call):
        return None
    inner, converters = body, []
    while not _reads_environment(inner):
        if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Name) or len(inner.args) != 1:
            return None
        converters.append(inner.func.id)
        if not isinstance(inner.args[0], ast.Call):
            return None
        inner = inner.args[0]
    if len(inner.args) != 2 or not isinstance(inner.args[1], ast.Constant) or text_of(inner.args[0]) != name:
        return None
    value = inner.args[1].value
    if converters == ["bool", "int"] and str(value) in ("0", "1"):
        return str(str(value) == "1")
    return str(value) if converters in ([], ["int"], ["float"], ["str"]) else None


def _compared(name: str, test: ast.Compare) -> str | None:
    """``os.getenv("X", "1") == "1"`` and ``os.getenv("X", "0").lower() in ("1", "true")``."""
    left: ast.expr = test.left
    while isinstance(left, ast.Call) and isinstance(left.func, ast.Attribute) and left.func.attr in ("lower", "strip"):
        left = left.func.value
    if not isinstance(left, ast.Call) or not _reads_environment(left) or text_of(left.args[0]) != name:
        return None
    given = left.args[1].value if len(left.args) > 1 and isinstance(left.args[1], ast.Constant) else None
    try:
        wanted = ast.literal_eval(test.comparators[0])
    except ValueError:
        return None
    if isinstance(test.ops[0], ast.Eq):
        return str(given == wanted)
    return str(given in wanted) if isinstance(test.ops[0], ast.In) and isinstance(given, str) else None


def _reads_environment(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.getenv", "os.environ.get") and bool(node.args)


def _sglang_fields(tree: ast.Module) -> dict[str, str]:
    """SGLang: ``NAME = EnvBool(default)`` in the class of variables."""
    out: dict[str, str] = {}
    for node in ast.walk(tree):
        found = _assigned_call(node)
        if found is not None and re.fullmatch(r"_?Env\w*", ast.unparse(found[1].func)) and found[1].args:
            literal = found[1].args[0]
            computed = isinstance(literal, ast.Name | ast.Lambda | ast.Call)
            out[found[0]] = UNREADABLE if computed else text_of(literal)
    return out


_READ = re.compile(
    r"""(getenv|environ\.get|get_\w*env_var)\(\s*["']((?:SGLANG|SGL)_[A-Z0-9_]+)["']\s*(?:,\s*([^,()]+?)\s*)?[,)]"""
)


def _reads(root: Path) -> dict[str, str]:
    """Plain reads of the environment anywhere in the serving code."""
    out: dict[str, str] = {}
    for path in sorted(root.glob("srt/**/*.py")):
        if "/test" in str(path):
            continue
        for function, name, written in _READ.findall(path.read_text(encoding="utf-8", errors="replace")):
            default = written.rpartition("=")[2].strip().strip("'\"") if written else ""
            computed = bool(re.search(r"[A-Za-z_]\w*[.(]", default))
            out.setdefault(name, UNREADABLE if computed else default or ("False" if "bool" in function else "None"))
    return out
