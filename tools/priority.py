"""Scheduling priority of the development tools, so that a busy machine does not look like a slow engine."""

import os
import sys
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")


def set_priority(nice: int) -> None:
    """Sets this process's nice value; below 0 it needs the right to, else a warning on stderr.

    Linux groups processes by session (autogroup) and weighs nice values only within a group, so a session leader sets
    the value of its group as well.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        if os.getsid(0) == os.getpid() and AUTOGROUP.exists():
            AUTOGROUP.write_text(str(nice))
    except OSError as error:
        print(f"WARNING: cannot take priority {nice}: {error}", file=sys.stderr, flush=True)
