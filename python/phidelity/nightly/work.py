"""Runs one cell. Whatever its commands do, what comes back is a result."""
from __future__ import annotations

import json
import os
import shlex
import signal
import time
from contextlib import ExitStack

from ..http_json import HttpError, ask
from ..server_process import ServerError, ServerProcess
from .figures import figure_of, read_figures
from .plan import URL
from .process import Clock, TimeLimit, run_limited, tail
from .results import FAIL, NONE, PASS, StepResult, write_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .plan import Step

SERVED = ("start", "align", "eval")  # the server is stopped before the first step after these


def command_line(argv: Sequence[str], url: str = "http://127.0.0.1:PORT") -> str:
    """As one would type it."""
    return shlex.join(word.replace(URL, url) for word in argv)


class CellRun:
    """folder: of the cell's files, made empty. root: of all output, from which paths are told."""

    def __init__(self, steps: Sequence[Step], folder: str, root: str, time_limit_s: float) -> None:
        self.steps = steps
        self.folder = folder
        self.root = root
        self.clock = Clock(time_limit_s)
        self.server: ServerProcess | None = None
        self.server_failed = ""
        os.makedirs(folder, exist_ok=True)

    def run(self) -> list[StepResult]:
        results: list[StepResult] = []
        with ExitStack() as stack:
            for step in self.steps:
                if step.name not in SERVED:
                    stack.close()
                results.append(self._timed(step, stack))
        return results

    def _timed(self, step: Step, stack: ExitStack) -> StepResult:
        result = StepResult(step.name, FAIL)
        start_s = time.monotonic()
        limit = f"the cell's time limit of {self.clock.limit_s:g} s"
        if self.clock.is_over():
            result.outcome, result.why = NONE, f"not run: {limit} was used up before"
            return result
        try:
            self._one(step, result, stack)
        except TimeLimit:
            result.outcome, result.why = FAIL, f"{limit} was reached"
        except (OSError, HttpError) as error:
            result.outcome, result.why = FAIL, str(error)
        result.seconds = round(time.monotonic() - start_s, 3)
        if result.outcome == FAIL and result.log and not result.log_tail:
            result.log_tail = tail(os.path.join(self.root, result.log))
        return result

    def _one(self, step: Step, result: StepResult, stack: ExitStack) -> None:
        if step.why_not:
            result.outcome, result.why = NONE, step.why_not
        elif step.name == "start":
            self._start(step, result, stack)
        elif step.needs_server and not self.server:
            result.outcome, result.why = NONE, "not run: " + (self.server_failed or "no server was started")
        else:
            self._command(step, result)

    # ---------------------------------------------------------------- the server

    def _start(self, step: Step, result: StepResult, stack: ExitStack) -> None:
        program, _, model, *flags = step.argv
        result.command = command_line(step.argv)
        self.server_failed = "the server did not start"
        start_s = time.monotonic()
        try:
            server = ServerProcess(model, flags, program=program, ready_timeout_s=self.clock.left_s())
        except ServerError as error:
            result.why, _, result.log_tail = str(error).partition("\n")
            self.clock.left_s()  # the time limit is the better reason
            return
        stack.callback(self._stop)
        self.server = server
        ready_s = time.monotonic() - start_s
        ask(server.url, "/v1/completions", {"model": server.model, "prompt": "1 + 1 =", "max_tokens": 4},
            timeout_s=self.clock.left_s())
        self._passed(result, read_figures("start", {"ready_s": ready_s}))

    def _stop(self) -> None:
        """Its log is kept; what a later step does no longer matters to it."""
        if self.server:
            write_text(os.path.join(self.folder, "server.log"), self.server.log_tail(1000) + "\n")
            self.server.stop()
        self.server = None

    # ---------------------------------------------------------------- a command

    def _command(self, step: Step, result: StepResult) -> None:
        argv = [word.replace(URL, self.server.url if self.server else "") for word in step.argv]
        log = os.path.join(self.folder, step.name + ".log")
        result.command = command_line(argv)
        result.log = os.path.relpath(log, self.root)
        for old in (step.output, step.page):
            if old and os.path.exists(old):
                os.unlink(old)
        printed = step.output if step.output and step.prints_output else log
        result.code = run_limited(argv, printed, log, self.clock)
        if step.page and os.path.exists(step.page):
            result.page = os.path.relpath(step.page, self.root)
        output = read_output(step.output) if step.output else {}
        if output is not None:
            result.figures = read_figures(step.name, output)
        if result.code < 0:
            result.why = f"it was ended by signal {signal_name(-result.code)}"
        elif result.code > 0:
            result.why = missed(step.name, output) or tail(log, 1) or f"exit code {result.code}"
        elif output is None:
            result.why = f"exit code 0, but {os.path.basename(step.output or '')} is no JSON"
        else:
            self._passed(result, result.figures, output)

    def _passed(self, result: StepResult, figures: dict[str, float], output: Any = None) -> None:
        result.outcome, result.why, result.figures = PASS, "", figures
        result.note = noted(result.name, figures, output)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def read_output(path: str) -> Any:
    """The JSON of a file; None when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


NOTES = {"check": "KL {max_kl}", "start": "{ready_s}", "latency": "{decode_tok_s} tok/s", "startup": "{warm_startup_s}"}


def noted(name: str, figures: dict[str, float], output: Any) -> str:
    """A step that passed, in a few words; "" when its numbers are not there."""
    if name == "align":
        return agreeing(output)
    if name == "eval":
        first = {row["task"]: row for row in reversed(output["rows"])}
        return ", ".join(f"{row['task']} {row['value']:.4g}" for row in output["rows"] if row is first[row["task"]])
    try:
        return NOTES[name].format_map({key: figure_of(key).write(value) for key, value in figures.items()})
    except KeyError:
        return ""


def agreeing(output: Any) -> str:
    """Of align's JSON."""
    answers = output["answers"]
    return f"{sum(answer['pass'] for answer in answers)} of {len(answers)} agree"


def missed(name: str, output: Any) -> str:
    """Why a proof that ran to its end did not pass; "" when it did not get there."""
    if not isinstance(output, dict) or output.get("pass", output.get("passed")) is not False:
        return ""
    if name == "align":
        return agreeing(output)
    if name == "eval":
        return ", ".join(f"{row['task']}, {row['metric']}: {row['value']:.4g} instead of {row['expected']:.4g}"
                         for row in output["rows"] if row["passed"] is False)
    total, limits = output.get("total", {}), output.get("limits", {})
    told = []
    for key, limit, least in (("top1_percent", "top1_percent", True), ("min_cosine", "cosine", True),
                              ("max_kl", "kl", False)):
        value, bound = total.get(key), limits.get(limit)
        if value is not None and bound is not None and (value < bound if least else value > bound):
            figure = figure_of(key)
            told.append(f"{figure.title} {figure.write(value)} ({'at least' if least else 'at most'} "
                        f"{figure.write(bound)})")
    return ", ".join(told)
