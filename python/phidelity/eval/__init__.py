"""Accuracy gates: a model must score on tasks what it scored elsewhere.

    from phidelity.eval import read_config, run

    report = run(read_config("gate.yaml"))
    print(report.passed, report.rows)

Tasks with a file of questions (gsm8k's format) are run here, through an LLM in this process or a server;
all others by lm-eval, where it is installed, through a server. `python -m phidelity.eval` is this as a command.
"""
from __future__ import annotations

from .config import Config, ConfigError, Task, read_config
from .runner import run
from .scores import Report, Row, Score, judge, table

__all__ = ["Config", "ConfigError", "Report", "Row", "Score", "Task", "judge", "read_config", "run", "table"]
