"""Scores, what was expected of them, and how the two are told."""
from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

RTOL = 0.05
_NOISE = 1e-9  # so that a score exactly at the limit is within it


@dataclass(frozen=True)
class Score:
    """One metric of one task. stderr: of the mean over n samples, None where it has none."""

    task: str
    metric: str
    value: float
    stderr: float | None
    n: int
    higher_is_better: bool = True


@dataclass(frozen=True)
class Row:
    """A score and its verdict. expected, difference (relative to it) and passed are None where nothing was
    expected; difference is also None for a miss of an expected 0."""

    task: str
    metric: str
    value: float
    stderr: float | None
    n: int
    expected: float | None
    difference: float | None
    passed: bool | None


@dataclass(frozen=True)
class Report:
    """What a run found. model: the folder; url: of the server that was asked, None when the engine ran in this
    process. rtol, at_least: how verdicts were made. settings: what the tasks ran with.
    samples: per task that was run here, {"question", "answer", "response", "strict", "flexible"} of each question."""

    model: str
    url: str | None
    rtol: float
    at_least: bool
    rows: list[Row]
    seconds: float
    settings: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no score missed what was expected of it."""
        return all(row.passed is not False for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"passed": self.passed, **asdict(self)}


def mean_score(task: str, metric: str, hits: Sequence[bool]) -> Score:
    """The mean of right (1) and wrong (0), with the standard error of a mean (n - 1 in the deviation)."""
    n, mean = len(hits), sum(hits) / len(hits)
    stderr = math.sqrt(mean * (1 - mean) / (n - 1)) if n > 1 else None
    return Score(task, metric, mean, stderr, n)


def judge(score: Score, expected: float | None, rtol: float = RTOL, at_least: bool = False) -> Row:
    """Passed: within rtol · |expected| of what was expected, on both sides, as vllm-ascend's tests have it;
    with at_least a better score is no miss however far."""
    if expected is None:
        return Row(score.task, score.metric, score.value, score.stderr, score.n, None, None, None)
    ahead = score.value - expected
    difference = ahead / abs(expected) if expected else 0.0 if ahead == 0 else None
    better = ahead if score.higher_is_better else -ahead
    passed = abs(ahead) <= rtol * abs(expected) + _NOISE or (at_least and better > 0)
    return Row(score.task, score.metric, score.value, score.stderr, score.n, expected, difference, passed)


def _cells(row: Row) -> list[str]:
    def number(x: float | None) -> str:
        return "-" if x is None else f"{x:.4f}"
    difference = "-" if row.difference is None else f"{100 * row.difference:+.2f} %"
    verdict = {None: "-", True: "pass", False: "MISSED"}[row.passed]
    return [row.task, row.metric, str(row.n), number(row.expected), number(row.value), number(row.stderr), difference,
            verdict]


def table(rows: Sequence[Row]) -> str:
    """Lines of columns, for a terminal."""
    heads = ["task", "metric", "n", "expected", "got", "stderr", "difference", "verdict"]
    cells = [heads, *map(_cells, rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    left = (0, 1, 7)
    return "\n".join("  ".join(c.ljust(w) if i in left else c.rjust(w)
                               for i, (c, w) in enumerate(zip(line, widths))).rstrip() for line in cells)
