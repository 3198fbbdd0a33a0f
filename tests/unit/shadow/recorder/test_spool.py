"""The append-only log: what was written is there after a kill, what was torn is not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from shadow.recorder.spool import Log, frame, unframe


def time_of(payload: bytes) -> float:
    return float(orjson.loads(payload)["t"])


def payload(t: float, text: str = "x") -> bytes:
    return orjson.dumps({"t": t, "text": text})


def test_numbers_go_on_after_reopening(tmp_path: Path) -> None:
    log = Log(tmp_path, time_of)
    assert [log.append(payload(t)) for t in range(3)] == [0, 1, 2]
    log.close()
    again = Log(tmp_path, time_of)
    assert again.next_number == 3
    assert again.after(0, 10) == [payload(1), payload(2)]
    assert again.append(payload(3)) == 3
    assert again.last() == payload(3)


@pytest.mark.parametrize("cut", range(1, 24))
def test_torn_last_line_is_cut_off(tmp_path: Path, cut: int) -> None:
    log = Log(tmp_path, time_of)
    log.append(payload(1))
    log.append(payload(2))
    log.close()
    path = next(tmp_path.glob("*.log"))
    os.truncate(path, path.stat().st_size - cut)
    again = Log(tmp_path, time_of)
    assert again.after(-1, 10) == [payload(1)]
    assert again.append(payload(9)) == 1
    again.close()
    assert Log(tmp_path, time_of).after(-1, 10) == [payload(1), payload(9)]


def test_damage_inside_a_line_is_noticed() -> None:
    line = frame(b'{"t":1}')[:-1]
    assert unframe(line) == b'{"t":1}'
    for at in range(len(line)):
        damaged = line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]
        assert unframe(damaged) is None, at


def test_retention_drops_whole_old_segments_and_keeps_numbers(tmp_path: Path) -> None:
    log = Log(tmp_path, time_of, max_age_s=10.0, segment_bytes=200)
    for t in range(40):
        log.append(payload(t, "y" * 50))
    log.prune(45.0)
    assert log.first_number() > 0
    assert log.last() == payload(39, "y" * 50)
    kept = [time_of(p) for p in log.after(-1, 100)]
    assert kept == sorted(kept) and kept[-1] == 39.0
    log.close()
    again = Log(tmp_path, time_of, segment_bytes=200)
    assert again.next_number == 40
    assert [time_of(p) for p in again.after(-1, 100)] == kept


def test_size_is_bounded(tmp_path: Path) -> None:
    log = Log(tmp_path, time_of, max_bytes=1000, segment_bytes=200)
    for t in range(100):
        log.append(payload(t, "y" * 50))
    log.prune(0.0)
    assert sum(p.stat().st_size for p in tmp_path.glob("*.log")) <= 1300


def test_between_is_by_time(tmp_path: Path) -> None:
    log = Log(tmp_path, time_of)
    for t in range(10):
        log.append(payload(t))
    assert [time_of(p) for p in log.between(3, 6, 100)] == [3.0, 4.0, 5.0]


def test_kill_loses_nothing_that_append_returned_for(tmp_path: Path) -> None:
    script = (
        "import sys, orjson\n"
        "from pathlib import Path\n"
        "from shadow.recorder.spool import Log\n"
        "log = Log(Path(sys.argv[1]), lambda p: float(orjson.loads(p)['t']))\n"
        "while True:\n"
        "    print(log.append(orjson.dumps({'t': log.next_number})), flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    seen = [int(child.stdout.readline()) for _ in range(50)]
    child.send_signal(signal.SIGKILL)
    seen += [int(line) for line in child.stdout.read().splitlines()]
    child.wait()
    log = Log(tmp_path, time_of)
    stored = [int(time_of(p)) for p in log.after(-1, 100_000)]
    assert stored[: len(seen)] == seen
    assert stored == list(range(len(stored)))
