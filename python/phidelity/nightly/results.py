"""What came out, as results.json holds it, and the folder in which runs follow one another."""
from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FORMAT = 1
PASS, FAIL, NONE = "pass", "fail", "none"  # outcomes; NONE: nothing was run, and that is no failure


@dataclass
class StepResult:
    """outcome: PASS, FAIL or NONE. note: in a few words. why: the reason of FAIL and NONE. code: of the command's
    exit; None: it has none. log_tail: of a command that failed. log, page: paths within the output folder."""

    name: str
    outcome: str
    note: str = ""
    why: str = ""
    command: str = ""
    code: int | None = None
    seconds: float = 0.0
    log_tail: str = ""
    log: str = ""
    page: str = ""
    figures: dict[str, float] = field(default_factory=dict)


@dataclass
class CellResult:
    """commands: what was to run, by which --resume tells whether the cell is the same. program: the SHA-256."""

    name: str
    model: str
    variant: str
    commands: list[str]
    program: str
    date: str
    seconds: float = 0.0
    steps: list[StepResult] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        return FAIL if any(step.outcome == FAIL for step in self.steps) else PASS

    @property
    def figures(self) -> dict[str, float]:
        return {key: value for step in self.steps for key, value in step.figures.items()}

    def failed_steps(self) -> list[StepResult]:
        return [step for step in self.steps if step.outcome == FAIL]

    def step(self, name: str) -> StepResult | None:
        return next((step for step in self.steps if step.name == name), None)


@dataclass
class Results:
    """One run. date: of its start. machine, versions: name to text. changes: the shares of the matrix. finished: all
    cells have had their turn. preparations: the making of references."""

    title: str
    matrix: str
    command: str
    date: str
    machine: dict[str, str]
    versions: dict[str, str]
    changes: dict[str, float]
    seconds: float = 0.0
    finished: bool = False
    preparations: list[StepResult] = field(default_factory=list)
    cells: list[CellResult] = field(default_factory=list)

    def n_failed(self) -> int:
        return sum(cell.outcome == FAIL for cell in self.cells)

    def cell(self, name: str) -> CellResult | None:
        return next((cell for cell in self.cells if cell.name == name), None)


class ResultsError(ValueError):
    """A file that is not what a run wrote."""


def _made(kind: Any, values: Any) -> Any:
    names = {f.name for f in fields(kind)}
    if not isinstance(values, dict) or not set(values) <= names:
        raise TypeError
    return kind(**values)


def read_results(path: str) -> Results:
    """Raises OSError, and ResultsError for anything but a file of this format."""
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        if values.pop("format") != FORMAT:
            raise TypeError
        for holder, key in [*((cell, "steps") for cell in values["cells"]), (values, "preparations")]:
            holder[key] = [_made(StepResult, step) for step in holder[key]]
        values["cells"] = [_made(CellResult, cell) for cell in values["cells"]]
        return _made(Results, values)  # type: ignore[no-any-return]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ResultsError(f"{path}: not the results of a nightly run of this version; remove the file, "
                           "or name another --output-dir") from None


def write_text(path: str, text: str) -> None:
    """Whole or not at all, whatever ends this process."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


class Folder:
    """results.json of the run under way or the last one, and previous.json: each cell's last result before it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.results = os.path.join(path, "results.json")
        self.previous = os.path.join(path, "previous.json")

    def read(self, path: str) -> Results | None:
        return read_results(path) if os.path.exists(path) else None

    def begin(self, resume: bool) -> tuple[Results | None, Results | None]:
        """What to compare with, and what to resume; either may be None. A finished run becomes the previous one;
        cells that it left out keep the result they had."""
        last, previous = self.read(self.results), self.read(self.previous)
        if last and resume:
            return previous, last
        if last and last.finished:
            old = [cell for cell in previous.cells if not last.cell(cell.name)] if previous else []
            last.cells += old
            write_text(self.previous, as_json(last))
            previous = last
        return previous, None

    def write(self, results: Results) -> None:
        write_text(self.results, as_json(results))


def as_json(results: Results) -> str:
    return json.dumps({"format": FORMAT, **asdict(results)}, indent=1, ensure_ascii=False) + "\n"
