"""Two rules of the machine, read off its source: who may write a weight, and who may start a rollback."""

import ast
from collections.abc import Iterator
from pathlib import Path

import controller.core as core

CORE = Path(core.__path__[0])


def sources() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(CORE.rglob("*.py")):
        yield path.relative_to(CORE).as_posix(), ast.parse(path.read_text())


def writes_weight(node: ast.AST) -> bool:
    """A StepStatus with a weight, or a copy of one with another weight; 0 takes traffic away and is no rise."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "StepStatus":
        values = [keyword.value for keyword in node.keywords if keyword.arg == "weight"]
    elif isinstance(node, ast.Dict):
        values = [
            v
            for k, v in zip(node.keys, node.values, strict=True)
            if isinstance(k, ast.Constant) and k.value == "weight"
        ]
    else:
        return False
    return any(not (isinstance(value, ast.Constant) and value.value == 0) for value in values)


def test_only_enter_step_and_the_rollback_write_a_weight() -> None:
    writers = {name for name, tree in sources() if any(writes_weight(node) for node in ast.walk(tree))}
    told = {"finish.py"}  # the record of a decision repeats the weight of its status
    assert writers - told == {"phases/enter_step.py", "phases/rollback.py"}


def test_only_start_rollback_moves_to_rolling_back_and_only_guards_call_it() -> None:
    movers, callers = set(), set()
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                goals = [ast.unparse(argument) for argument in node.args]
                if node.func.id in ("move", "Outcome") and "Phase.ROLLING_BACK" in goals:
                    movers.add(name)
                if node.func.id == "start_rollback":
                    callers.add(name)
    assert movers == {"phases/rollback.py"} and callers == {"guards.py"}
