"""Do we read a command line as the engine's own parser does? 500 generated lines, theirs against ours.

``python tools/catalog/agreement.py vllm WHEEL_PYTHON VERSION`` runs this file again with the interpreter of an
environment in which the wheel is installed (``pip install --no-deps``; it is no dependency of the product), lets the
engine's parser describe its flags and read the lines, and compares every value that a line sets. Prints how many
lines differ and each kind of difference once.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

HEAVY = {
    "vllm": (
        "vllm.env_override",
        "vllm.model_executor",
        "vllm.distributed",
        "vllm._custom_ops",
        "vllm.v1",
        "vllm.platforms",
        "vllm.triton_utils",
        "vllm.compilation",
        "vllm.transformers_utils",
        "vllm.multimodal",
        "vllm.lora",
        "vllm.plugins",
        "vllm.ray",
        "vllm.usage",
        "vllm.tracing",
    ),
    "sglang": (
        "sglang.srt.layers",
        "sglang.srt.lora",
        "sglang.srt.hardware_backend",
        "sglang.srt.connector",
        "sglang.srt.distributed",
        "sglang.srt.configs",
        "sglang.kernel_api_logging",
        "sglang.jit_kernel",
        "sglang.srt.models",
        "sglang.srt.model_executor",
        "sglang.srt.sampling",
        "sglang.srt.utils",
    ),
}
LINES = 500


def their_parser(engine: str) -> Any:
    """The engine's own parser (inside the wheel's environment)."""
    sys.path.insert(0, str(Path(__file__).parent))
    import stub_imports  # type: ignore[import-not-found,unused-ignore]

    stub_imports.install(HEAVY[engine])
    if engine == "vllm":
        from vllm.engine.arg_utils import AsyncEngineArgs  # type: ignore[import-not-found,unused-ignore]
        from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found,unused-ignore]

        parser = FlexibleArgumentParser()
        AsyncEngineArgs.add_cli_args(parser)
        return parser
    import argparse

    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found,unused-ignore]

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def describe(parser: Any) -> list[dict[str, Any]]:
    """Flags of a parser as plain data."""
    out = []
    for action in parser._actions:
        flags = [flag for flag in action.option_strings if flag.startswith("-")]
        if not flags or action.dest == "help":
            continue
        choices = [str(choice) for choice in action.choices or [] if isinstance(choice, str | int)]
        kind = getattr(action.type, "__name__", str(action.type))
        out.append(
            {
                "flags": flags,
                "dest": action.dest,
                "nargs": action.nargs,
                "type": kind,
                "choices": choices,
                "class": type(action).__name__,
            }
        )
    return out


def theirs(engine: str) -> None:
    """Reads lines on standard input, answers with the values that differ from the parser's defaults."""
    parser = their_parser(engine)
    asked = json.loads(sys.stdin.read())
    if asked == "describe":
        print("@@" + json.dumps(describe(parser)))
        return
    answers: list[Any] = []
    for words, dests in asked:
        try:
            found = parser.parse_args(list(words))
            answers.append({dest: getattr(found, dest) for dest in dests})
        except SystemExit:
            answers.append(None)
        except Exception as error:  # noqa: BLE001  whatever the engine does with a line is its answer
            answers.append(repr(error))
    print("@@" + json.dumps(answers, default=str))


def ask(python: str, engine: str, question: Any) -> Any:
    """Runs this file with the wheel's interpreter."""
    command = [python, __file__, "--theirs", engine]
    done = subprocess.run(command, input=json.dumps(question), capture_output=True, text=True, check=False)
    marked = [line for line in done.stdout.splitlines() if line.startswith("@@")]
    if not marked:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(marked[-1][2:])


def sample(flag: dict[str, Any], chance: random.Random) -> list[str] | None:
    """Words that set a flag, None where no valid value can be made up."""
    name = chance.choice(flag["flags"])
    if flag["nargs"] == 0 or "Boolean" in flag["class"] or ("Store" in flag["class"] and flag["nargs"] == 0):
        return [name]
    if flag["class"] != "_StoreAction" or name.startswith("--no-"):
        return None
    if flag["choices"]:
        value = chance.choice(flag["choices"])
    elif flag["type"] == "int" or "human" in flag["type"]:
        value = str(chance.randrange(1, 5000))
    elif flag["type"] == "float":
        value = str(round(chance.uniform(0.05, 0.95), 3))
    elif flag["type"] in ("str", "None", "<lambda>", "NoneType"):
        value = chance.choice(["a", "org/m", "/x/y", "b-1"])
    else:
        return None
    values = [value, *([value] if flag["nargs"] in ("+", "*") and chance.random() < 0.5 else [])]
    if len(values) == 1 and chance.random() < 0.5:
        return [f"{name}={value}"]
    return [name, *values]


def generate(flags: list[dict[str, Any]], engine: str) -> list[tuple[list[str], list[str]]]:
    """Command lines with the destinations that they set."""
    chance = random.Random(20261129)
    out: list[tuple[list[str], list[str]]] = []
    while len(out) < LINES:
        words, dests = (["--model-path", "org/m"], []) if engine == "sglang" else (["--model", "org/m"], [])
        for flag in chance.sample(flags, 6):
            made = sample(flag, chance) if flag["dest"] not in ("model", "model_path", "config", "tokenizer") else None
            if made is not None:
                if engine == "vllm" and chance.random() < 0.3:
                    made[0] = (
                        "--" + made[0][2:].split("=")[0].replace("-", "_") + made[0][made[0].find("=") :]
                        if "=" in made[0] and made[0].startswith("--")
                        else made[0]
                    )
                words += made
                dests.append(flag["dest"])
        out.append((words, dests))
    return out


def compare(engine: str, python: str, version: str) -> int:
    """Counts lines on which the two readings differ."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from manifests.engines.grammar import parse
    from manifests.starts import Arg, Launch

    flags = ask(python, engine, "describe")
    lines = generate(flags, engine)
    answers = ask(python, engine, lines)
    names = {flag["dest"]: [f.lstrip("-").replace("_", "-") for f in flag["flags"]] for flag in flags}
    differing = refused = checked = skipped = 0
    kinds: dict[str, str] = {}
    for (words, dests), answer in zip(lines, answers, strict=True):
        if not isinstance(answer, dict):
            refused += 1
            continue
        settings = parse(Launch(engine, engine, tuple(Arg(word) for word in words)), version).settings
        wrong = []
        for dest in dests:
            mine = next((settings[n].value for n in (dest.replace("_", "-"), *names[dest]) if n in settings), "absent")
            if mine == "<redacted>" or "stub" in str(answer[dest]):  # a secret, or a type that the stubs do not have
                skipped += 1
                continue
            checked += 1
            if not alike(answer[dest], mine):
                wrong.append(f"{dest}: theirs {answer[dest]!r}, ours {mine!r}")
        differing += bool(wrong)
        for text in wrong:
            kinds.setdefault(text.split(":")[0], text)
    print(f"{engine} {version}: {len(lines)} lines, {refused} refused by the engine; {checked} values compared")
    print(f"  {skipped} left out (secrets, types of modules that are not installed); {differing} lines differ:")
    for text in kinds.values():
        print(f"  {text}")
    return 0


def alike(theirs_value: Any, ours: Any) -> bool:
    """Equal after JSON: numbers as numbers, one element as itself."""
    if isinstance(theirs_value, list) and len(theirs_value) == 1 and not isinstance(ours, list):
        theirs_value = theirs_value[0]
    if (
        isinstance(theirs_value, int | float)
        and isinstance(ours, int | float)
        and isinstance(theirs_value, bool) == isinstance(ours, bool)
    ):
        return float(theirs_value) == float(ours)
    return bool(theirs_value == ours) or str(theirs_value) == str(ours)


if __name__ == "__main__":
    if sys.argv[1] == "--theirs":
        theirs(sys.argv[2])
    else:
        raise SystemExit(compare(*sys.argv[1:4]))
