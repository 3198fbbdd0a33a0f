"""`weighlock` and `kubectl weighlock`: finds the command, loads its module, turns its outcome into an exit code.

Called by the console scripts of pyproject.toml. A command is a module with `register(parser)` and `run(args) -> int`;
it is imported only when it is asked for, so that `weighlock diff` never pays for the web framework. This file knows no
command's arguments and no domain type.
"""

import argparse
import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol, cast

from controller.cli.errors import BadInput

EXIT_OK = 0
EXIT_FAIL = 1
EXIT_BAD_INPUT = 2
EXIT_INCONCLUSIVE = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class CommandModule(Protocol):
    """What a module must offer to be a command."""

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code. Raises BadInput for what a person must mend."""


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of the registry: its name, the module that does it, one line for the help."""

    name: str
    module: str
    help: str

    @property
    def exists(self) -> bool:
        """Whether the module is part of this build."""
        return importlib.util.find_spec(self.module) is not None

    def load(self) -> CommandModule:
        """The imported module."""
        return cast(CommandModule, importlib.import_module(self.module))


_OFFLINE = (
    ("import", "import_", "read Kubernetes YAML and print the run manifests in it"),
    ("diff", "diff", "compare two manifests by their effective values"),
    ("lint", "lint", "find what will not do what its author meant"),
    ("ledger", "ledger", "memory, KV capacity and step-time floor per GPU, with formulas"),
    ("diagnose", "diagnose", "say which bottleneck an engine's metrics point to"),
    ("plan", "plan", "how long a step will need for every tenant and length bucket"),
    ("judge", "judge", "PASS, FAIL or INCONCLUSIVE from request records"),
    ("replay", "replay", "replay a trace of requests, open loop"),
    ("read-stream", "read_stream", "read a recorded response stream as the meter does"),
    ("metrics", "metrics", "an engine's /metrics under canonical names"),
    ("convert", "convert", "turn Argo, Flagger and Kruise rollouts into ours"),
)
_CLUSTER = (
    ("status", "status", "where a rollout is, what is missing, who must act"),
    ("history", "history", "attempts, decisions and verdicts; --rejudge proves them from stored counts"),
    ("approve", "act_commands", "let the next guarded step set its weight"),
    ("reject", "act_commands", "refuse the next guarded step: the attempt rolls back"),
    ("pause", "act_commands", "nothing moves forward until a resume"),
    ("resume", "act_commands", "undo a pause, or end an open pause step"),
    ("abort", "act_commands", "end the attempt: roll back"),
    ("rollback", "act_commands", "put a stored manifest back, also after completion"),
    ("retry", "act_commands", "weigh a rejected revision again"),
    ("skip", "act_commands", "end a pause step early"),
)
_SERVERS = (
    ("demo", "demo", "bring up everything on this machine and roll a good and a bad candidate"),
    ("operator", "operator", "run the operator"),
    ("recorder", "recorder", "run the recorder"),
    ("dashboard", "dashboard", "run the dashboard"),
    ("crds", "crds", "print the CustomResourceDefinitions and the admission policy"),
)
GROUPS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    ("Files, no cluster needed", _OFFLINE),
    ("On a cluster, by kubeconfig", _CLUSTER),
    ("Running Weighlock", _SERVERS),
)
COMMANDS = {
    name: Command(name, f"controller.cli.{module}", text) for _, group in GROUPS for name, module, text in group
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaint is one line, like every other bad input."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit 2."""
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(EXIT_BAD_INPUT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and never raises for what a person did wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    prog = "kubectl weighlock" if Path(sys.argv[0]).name.startswith("kubectl-") else "weighlock"
    try:
        code = _dispatch(prog, arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): keep the interpreter's own flush at exit from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except BadInput as error:
        return _complain(str(error))
    except OSError as error:
        what = f"{error.filename}: {(error.strerror or 'unusable').lower()}" if error.filename else f"system: {error}"
        return _surprise(error, f"{what}; check that it exists and can be used")
    except Exception as error:  # noqa: BLE001 - the last resort: a defect of ours must not look like a crash of theirs
        return _surprise(error, f"internal error: {type(error).__name__}: {error}; this is a defect of weighlock")
    return code


def _dispatch(prog: str, arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        return _help(prog, arguments[1:])
    if arguments[0] in ("-V", "--version", "version"):
        print(f"weighlock {_version()}")
        return EXIT_OK
    command = COMMANDS.get(arguments[0])
    if command is None or not command.exists:
        return _complain(_unknown(prog, arguments[0]))
    return _run(prog, command, arguments[1:])


def _run(prog: str, command: Command, arguments: list[str]) -> int:
    module = command.load()
    parser = Parser(prog=f"{prog} {command.name}", description=command.help)
    parser.add_argument(
        "-o", "--output", choices=("text", "json", "yaml"), default="text", help="how to print the answer"
    )
    parser.set_defaults(command=command.name)
    module.register(parser)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_BAD_INPUT
    return module.run(args)


def _help(prog: str, topics: list[str]) -> int:
    if topics and topics[0] in COMMANDS:
        return _dispatch(prog, [topics[0], "--help"])
    print(f"usage: {prog} COMMAND [arguments]\n\nRoll out inference optimizations only as far as every tenant allows.")
    for title, group in GROUPS:
        lines = [(name, text) for name, _, text in group if COMMANDS[name].exists]
        if lines:
            print(f"\n{title}:")
            print("\n".join(f"  {name:<12} {text}" for name, text in lines))
    print(f"\n{prog} COMMAND --help explains one command. Every command takes -o json.")
    print("Exit codes: 0 fine or PASS, 1 FAIL or a difference, 2 bad input, 3 INCONCLUSIVE.")
    return EXIT_OK


def _unknown(prog: str, name: str) -> str:
    near = difflib.get_close_matches(name, [c.name for c in COMMANDS.values() if c.exists], n=1)
    remedy = f"did you mean {near[0]}?" if near else f"{prog} --help lists the commands"
    return f"{name}: is not a command; {remedy}"


def _complain(line: str) -> int:
    print("weighlock: " + " ".join(line.split()), file=sys.stderr)
    return EXIT_BAD_INPUT


def _surprise(error: Exception, line: str) -> int:
    """Report what no command foresaw; WEIGHLOCK_DEBUG=1 shows where it came from."""
    if os.environ.get("WEIGHLOCK_DEBUG"):
        raise error
    return _complain(f"{line} (WEIGHLOCK_DEBUG=1 shows more)")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("weighlock")
    except PackageNotFoundError:
        return "unknown (not installed)"


if __name__ == "__main__":
    raise SystemExit(main())
