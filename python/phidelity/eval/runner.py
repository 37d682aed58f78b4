"""Runs the tasks of a gate, each where it belongs, and judges what they score."""
from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

from . import gsm8k
from .askers import EngineAsker, ServerAsker
from .config import ConfigError, greedy_settings
from .scores import RTOL, Report, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ..llm import LLM
    from .askers import Asker
    from .config import Config, Task
    from .scores import Row, Score

N_SHOTS = 5  # of lm-eval's gsm8k
CONCURRENCY = 16


def _check_metrics(task: Task, there: Iterable[str]) -> None:
    there = list(there)
    for metric in task.expected:
        if metric not in there:
            raise ConfigError(f"task '{task.name}' has no metric '{metric}'; it has {', '.join(map(repr, there))}")


def _judged(task: Task, scores: Sequence[Score], rtol: float, at_least: bool) -> list[Row]:
    """A row for each metric that something was expected of; all of them when nothing was."""
    by_metric = {score.metric: score for score in scores}
    _check_metrics(task, by_metric)
    expected = task.expected or dict.fromkeys(by_metric)
    return [judge(by_metric[metric], value, rtol, at_least) for metric, value in expected.items()]


def _count(limit: float | None, n: int) -> int | None:
    """A limit as a number of questions: under 1 it is a share of the n."""
    if limit is None:
        return None
    return math.ceil(n * limit) if limit < 1 else int(limit)


class _FileTask:
    """A task whose questions are here. All that can be wrong with its files is found when it is made."""

    def __init__(self, config: Config, task: Task, file: str) -> None:
        _check_metrics(task, (gsm8k.STRICT, gsm8k.FLEXIBLE))
        self.name = task.name
        self.questions = gsm8k.read_questions(file)
        self.pool = None if task.shots is None else gsm8k.read_questions(task.shots)
        max_tokens, stop = greedy_settings(config.gen_kwargs)
        self.settings = gsm8k.Settings(
            N_SHOTS if config.num_fewshot is None else config.num_fewshot, config.apply_chat_template,
            config.fewshot_as_multiturn, _count(config.limit, len(self.questions)), max_tokens, stop,
            config.system_prompt)
        self.prompts = gsm8k.make_prompts(self.questions, self.pool, self.settings)

    def run(self, asker: Asker) -> gsm8k.Result:
        return gsm8k.run(asker, self.name, self.questions, self.prompts, self.settings)


def _run_files(tasks: Sequence[_FileTask], config: Config, server: ServerAsker | None, llm: LLM | None,
               progress: bool) -> dict[str, gsm8k.Result]:
    with ExitStack() as owned:
        asker: Asker
        if server is not None:
            asker = server
        else:
            if llm is None:
                from ..llm import LLM
                llm = owned.enter_context(LLM(config.model, **config.serve))
            asker = EngineAsker(llm, progress)
        return {task.name: task.run(asker) for task in tasks}


def _run_harness(names: Sequence[str], config: Config, manager: Any, url: str | None, api_key: str | None,
                 concurrency: int) -> dict[str, list[Score]]:
    from . import harness
    from ..engine_args import find_checkpoint
    folder = find_checkpoint(config.model)
    with ExitStack() as owned:
        if url is None:
            from ..server_process import ServerProcess, flags_of
            url = owned.enter_context(ServerProcess(folder, flags_of(config.serve))).url
        return harness.run(config, names, manager, folder, url, api_key, concurrency)


def run(config: Config, *, url: str | None = None, api_key: str | None = None, llm: LLM | None = None,
        rtol: float = RTOL, at_least: bool = False, concurrency: int = CONCURRENCY, include_path: str | None = None,
        allow_downloads: bool = False, progress: bool = True) -> Report:
    """Runs all tasks of a gate.

    url: of a server to ask ("http://host:port"); without it files are asked through an LLM in this process
    (`llm`, else one made from config.model and config.serve), and lm-eval's tasks through a server that is
    started for them. rtol, at_least: see judge. concurrency: requests at a time to a server. include_path: a
    folder with more tasks of lm-eval's. allow_downloads: lm-eval may fetch data sets. progress: show bars.

    Raises ConfigError and DataError (files of questions) before anything is asked; OSError, HttpError,
    ServerError, and what LLM raises.
    """
    began_s = time.monotonic()
    files = [_FileTask(config, task, task.file) for task in config.tasks if task.file is not None]
    names = [task.name for task in config.tasks if task.file is None]
    manager = None
    if names:
        from . import harness
        manager = harness.prepare(names, include_path, allow_downloads)
    server = None
    if url is not None and files:
        server = ServerAsker(url, api_key=api_key, concurrency=concurrency, progress=progress)
    results = _run_files(files, config, server, llm, progress) if files else {}
    scores = {name: result.scores for name, result in results.items()}
    if names:
        scores.update(_run_harness(names, config, manager, url, api_key, concurrency))
    rows = [row for task in config.tasks for row in _judged(task, scores[task.name], rtol, at_least)]
    settings = {key: value for key, value in asdict(config).items() if key not in ("model", "tasks")}
    return Report(config.model, url, rtol, at_least, rows, time.monotonic() - began_s, settings,
                  {name: result.samples for name, result in results.items()})
