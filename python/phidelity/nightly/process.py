"""Running one command under a time limit, its output in files."""
from __future__ import annotations

import os
import signal
import subprocess
import time

from ..server_process import clean_environment, dying_with_us

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

KILL_AFTER_S = 5.0
TAIL_LINES = 20
TAIL_BYTES = 1 << 14


class TimeLimit(Exception):
    """The command was ended because its time was over."""


class Clock:
    """What is left of a cell's time. limit_s: all of it."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._end_s = time.monotonic() + limit_s

    def is_over(self) -> bool:
        return time.monotonic() >= self._end_s

    def left_s(self) -> float:
        """Above 0. Raises TimeLimit when nothing is left."""
        if self.is_over():
            raise TimeLimit
        return max(1e-3, self._end_s - time.monotonic())


def _end(process: subprocess.Popen[bytes]) -> None:
    """The command and what it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(KILL_AFTER_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def run_limited(argv: Sequence[str], out_path: str, log_path: str, clock: Clock) -> int:
    """The exit code (below 0: minus a signal's number); standard output and standard error go to the two files,
    which may be one. Raises TimeLimit, and OSError when the command cannot be started."""
    for path in (out_path, log_path):
        open(path, "wb").close()
    with open(out_path, "ab") as out, open(log_path, "ab") as log:
        process = subprocess.Popen(dying_with_us(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                   env=clean_environment(), start_new_session=True)
        try:
            return process.wait(clock.left_s())
        except subprocess.TimeoutExpired:
            raise TimeLimit from None
        finally:
            _end(process)


def tail(path: str, n_lines: int = TAIL_LINES) -> str:
    """The last lines of a log; of lines that a progress bar wrote over one another, the last."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - TAIL_BYTES))
        lines = file.read().decode("utf-8", "replace").rstrip().split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines[-n_lines:])
