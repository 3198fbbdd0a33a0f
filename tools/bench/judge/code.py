"""Which code a table was made with: a digest of the files that a run imports, and the last commit that touched them.

`python -m tools.bench.judge --digest [COMMIT]` prints both, of a commit or of the working tree, so that a reader can
check the digest in docs/judge-bench.md. Comments, docstrings and the layout of the code do not count.
"""

import ast
import hashlib
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
ENTRY = "tools/bench/judge/run.py"
Read = Callable[[str], str | None]
"""Text of a file of the checkout, None where there is none."""


@cache
def code_digest(commit: str = "") -> str:
    """Digest of every file that `run` imports, directly or not; of the working tree, or as it was in a commit."""
    read = _reader(commit)
    digest = hashlib.sha256()
    for path in code_files(read):
        digest.update(f"{path} {ast.dump(_without_docstrings(ast.parse(read(path) or '')))}".encode())
    return digest.hexdigest()[:10]


def last_commit(commit: str = "") -> str:
    """Short hash of the last commit (up to `commit`) that touched one of those files; "?" outside a git checkout.

    A working tree that differs from it is marked with `+`.
    """
    files = code_files(_reader(commit))
    found = _git("log", "-1", "--format=%h", commit or "HEAD", "--", *files)
    changed = "" if commit or not _git("status", "--porcelain", "--", *files) else "+"
    return f"{found.strip()}{changed}" if found else "?"


def code_files(read: Read | None = None) -> list[str]:
    """Files of the checkout that `run` imports, sorted."""
    read = read or _reader("")
    found: set[str] = set()
    waiting = [ENTRY]
    while waiting:
        path = waiting.pop()
        if path in found or (text := read(path)) is None:
            continue
        found.add(path)
        for module in _imports(ast.parse(text)):
            waiting += [f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"]
    return sorted(found)


def _imports(tree: ast.Module) -> list[str]:
    """Modules that may be imported; `from package import name` names the package and perhaps a module in it."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found


def _reader(commit: str) -> Read:
    if not commit:
        return lambda path: (CHECKOUT / path).read_text() if (CHECKOUT / path).is_file() else None
    known = set((_git("ls-tree", "-r", "--name-only", commit) or "").splitlines())
    if not known:
        raise ValueError(f"no commit {commit!r} here")
    return lambda path: _git("show", f"{commit}:{path}") if path in known else None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree
