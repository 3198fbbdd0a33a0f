"""The entry point: finding a command, its errors and its exit codes."""

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType

import pytest

from controller.cli import main as cli
from controller.cli.errors import BadInput
from controller.cli.output import emit

Install = Callable[[Callable[[argparse.Namespace], int]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a command `weigh FILE` into the registry whose `run` is the given function."""

    def add(run: Callable[[argparse.Namespace], int]) -> None:
        module = ModuleType("controller.cli.test_weigh")
        module.register = lambda parser: parser.add_argument("file")  # type: ignore[attr-defined]
        module.run = run  # type: ignore[attr-defined]
        module.__spec__ = argparse.__spec__
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.COMMANDS, "weigh", cli.Command("weigh", module.__name__, "weigh a file"))

    return add


def test_bad_input_is_one_line_and_code_2(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def run(args: argparse.Namespace) -> int:
        raise BadInput(args.file, "spec.gates[0]", "has no limit", "add margin\nor limit")

    install(run)
    assert cli.main(["weigh", "policy.yaml"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "weighlock: policy.yaml: spec.gates[0]: has no limit; add margin or limit\n"


def test_a_file_that_cannot_be_read_is_bad_input(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def run(args: argparse.Namespace) -> int:
        with open(args.file) as handle:  # noqa: PTH123 - the point is the OSError of open
            return len(handle.read())

    install(run)
    assert cli.main(["weigh", "/nowhere/at/all"]) == 2
    assert capsys.readouterr().err.startswith("weighlock: /nowhere/at/all: no such file or directory; ")


def test_interruption_is_130(install: Install) -> None:
    def run(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    install(run)
    assert cli.main(["weigh", "x"]) == 130


def test_exit_code_and_output_option_reach_the_command(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    def run(args: argparse.Namespace) -> int:
        emit(args, {"file": args.file, "unknown": math.nan, "e": math.inf}, lambda: "text")
        return 3

    install(run)
    assert cli.main(["weigh", "x", "-o", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document == {"file": "x", "unknown": None, "e": sys.float_info.max}


def test_wrong_usage_is_one_line(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(lambda args: 0)
    assert cli.main(["weigh"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_unknown_command_names_the_nearest(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(lambda args: 0)
    assert cli.main(["wiegh"]) == 2
    assert "did you mean weigh?" in capsys.readouterr().err


def test_only_existing_commands_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(cli.COMMANDS, "diff", cli.Command("diff", "controller.cli.nowhere", "not built"))
    assert cli.main([]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert "diff" not in listed
    assert listed == {c.name for c in cli.COMMANDS.values() if c.exists}
    assert cli.main(["diff", "a", "b"]) == 2


def test_a_reader_that_goes_away_is_quiet() -> None:
    code = (
        "import sys\nfrom types import ModuleType\nfrom controller.cli import main as cli\n"
        "m = ModuleType('weigh'); m.register = lambda p: None\n"
        "m.run = lambda a: print('x' * 10_000_000) or 0\nm.__spec__ = sys.__spec__\nsys.modules['weigh'] = m\n"
        "cli.COMMANDS['weigh'] = cli.Command('weigh', 'weigh', '')\ncli.Command.exists = property(lambda s: True)\n"
        "sys.exit(cli.main(['weigh']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 141


def test_start_up_loads_no_framework() -> None:
    code = (
        "import sys\nfrom controller.cli.main import main\nmain(['--help'])\n"
        "heavy = {'fastapi', 'kubernetes', 'sqlmodel', 'numpy', 'rich', 'yaml', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 5


def test_a_defect_of_ours_is_one_line_without_traceback(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(lambda args: int("seven"))
    assert cli.main(["weigh", "x"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("weighlock: internal error: ValueError") and err.count("\n") == 1
