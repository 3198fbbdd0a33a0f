"""The digest in the docs is of the files that a run imports, and a reader can make it again."""

import subprocess
from pathlib import Path

import pytest

from tools.bench.judge import code


def test_files_are_those_that_a_run_imports() -> None:
    files = code.code_files()
    for expected in ("policies/track.py", "policies/histogram.py", "tools/bench/judge/traffic.py"):
        assert expected in files
    for other in ("tools/bench/judge/table.py", "tools/bench/judge/plot.py", "policies/builder.py"):
        assert other not in files
    assert all((code.CHECKOUT / path).is_file() for path in files)


def test_comments_do_not_count_and_code_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / code.ENTRY
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(code, "CHECKOUT", tmp_path)

    def digest(text: str) -> str:
        path.write_text(text)
        code.code_digest.cache_clear()
        return code.code_digest()

    first = digest("VALUE = 1\n")
    assert digest('"""Says more."""\nVALUE = 1  # one\n') == first
    assert digest("VALUE = 2\n") != first
    code.code_digest.cache_clear()
    assert code.last_commit() == "?"


def test_a_commit_has_the_digest_of_its_files() -> None:
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=code.CHECKOUT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git checkout here")
    assert len(code.code_digest(head)) == 10
    assert code.code_digest(head) == code.code_digest(head + "~0")
    with pytest.raises(ValueError, match="no commit"):
        code.code_digest("0" * 40)
