"""`phidelity serve` as a child of a Python program: ready when it returns, gone when the program is.

    with ServerProcess("models/phi3-tiny-chat", ["--dtype=float32"]) as server:
        ask(server.url, "/v1/completions", {"prompt": "Tom has", "model": server.model})

It listens on a free port of 127.0.0.1 and takes its settings from the flags alone. However this process
ends, the server does too: a `with` block, stop(), the interpreter's exit, and the kernel when it is killed.
"""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref

from .__main__ import find_program
from .http_json import HttpError, ask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO, Any

POLL_S = 0.02
STOP_TIMEOUT_S = 30.0
LOG_LINES = 12

# Becomes the program after asking the kernel for SIGTERM on our death. A process of its own does that
# because code between fork and exec may not take locks that other threads hold.
_LAUNCHER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerError(RuntimeError):
    """The server did not start, or is gone; the text ends with the last lines of its log."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def flags_of(options: Mapping[str, Any]) -> list[str]:
    """Command line flags for names as Python spells them: {"max_model_len": 512, "enforce_eager": True} is
    ["--max-model-len=512", "--enforce-eager"]. None leaves a flag out, False negates it."""
    flags = []
    for name, value in options.items():
        name = name.replace("_", "-")
        if value is not None:
            flags.append(f"--{name}" if value is True else f"--no-{name}" if value is False else f"--{name}={value}")
    return flags


def clean_environment() -> dict[str, str]:
    """Ours without what would set the program's flags."""
    return {name: value for name, value in os.environ.items()
            if name == "PHI_ISA" or not name.startswith(("PHI_", "VLLM_"))}


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command in a form that the kernel ends when the thread that starts it does."""
    return [sys.executable, "-S", "-E", "-c", _LAUNCHER, str(os.getpid()), *command]


def _stop(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    log.close()


class ServerProcess:
    """One server, ready to answer.

    model: a checkpoint folder. flags: of `phidelity serve`, as a list (flags_of makes one).
    program: the executable, by default the one of this package. ready_timeout_s: how long loading may take.
    url: "http://127.0.0.1:port". model: the name to put into requests. pid: of the process.

    Raises ServerError when the server ends or is not ready in time, with the tail of its log;
    FileNotFoundError when there is no program. The thread that makes it must live as long as the server.
    """

    def __init__(self, model: str, flags: Sequence[str] = (), *, program: str | None = None,
                 ready_timeout_s: float = 1800.0) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = tempfile.TemporaryFile(prefix="phidelity-serve-")  # noqa: SIM115 (lives as long as we)
        command = [program or find_program(), "serve", str(model), "--host=127.0.0.1", f"--port={self.port}", *flags]
        # A session of its own: Ctrl-C is for us, who then stop it.
        self._process = subprocess.Popen(
            dying_with_us(command), stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            env=clean_environment(), start_new_session=True)
        self._stopper = weakref.finalize(self, _stop, self._process, self._log)
        self.pid = self._process.pid
        try:
            self._wait_until_ready(ready_timeout_s)
            self.model = str(ask(self.url, "/v1/models")["data"][0]["id"])
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while not self._answers():
            if self._process.poll() is not None:
                raise ServerError(f"the server did not start (exit code {self._process.returncode}):\n"
                                  f"{self.log_tail()}")
            if time.monotonic() > end_s:
                raise ServerError(f"the server was not ready within {timeout_s:g} s:\n{self.log_tail()}")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            ask(self.url, "/health", timeout_s=5.0)
            return True
        except (OSError, HttpError):
            return False

    def check(self) -> None:
        """Raises ServerError when the server has ended."""
        if self._process.poll() is not None:
            raise ServerError(f"the server ended (exit code {self._process.returncode}):\n{self.log_tail()}")

    def log_tail(self, n_lines: int = LOG_LINES) -> str:
        """The last lines of what it wrote, "" after stop()."""
        if self._log.closed:
            return ""
        data = os.pread(self._log.fileno(), 1 << 16, max(0, os.fstat(self._log.fileno()).st_size - (1 << 16)))
        return "\n".join(data.decode("utf-8", "replace").splitlines()[-n_lines:])

    def stop(self) -> int | None:
        """Lets it finish what runs, and waits; may be called twice. Returns its exit code."""
        self._stopper()
        return self._process.returncode

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
