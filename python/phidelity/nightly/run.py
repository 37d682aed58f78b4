"""A whole run: references first, then cell after cell, each written down as soon as it is done."""
from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timezone

from .compare import compare
from .machine import machine, origin, sha256_of, versions
from .markdown import markdown
from .page import page
from .plan import Planner
from .report import duration, report
from .results import PASS, CellResult, Folder, Results, write_text
from .work import CellRun, command_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cells import Cell, CellModel
    from .matrix import Matrix


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


class Run:
    """cells: those of the matrix that are to run. folder: of all output. command: how this run was asked for. resume:
    cells that passed in the run before, with the same commands and program, are kept.

    Raises OSError for a folder that cannot be written, ResultsError for one that holds something else's results.
    """

    def __init__(self, matrix: Matrix, cells: Sequence[Cell], program: str, folder: str, command: str,
                 resume: bool = False) -> None:
        self.matrix = matrix
        self.cells = cells
        os.makedirs(folder, exist_ok=True)
        self.folder = Folder(folder)
        self.planner = Planner(matrix, program, folder)
        self.digest = sha256_of(program)
        self.before, earlier = self.folder.begin(resume)
        self.results = Results(
            title=matrix.title, matrix=matrix.path, command=command, date=_now(),
            machine=machine(program, cells[0].model.path), versions=versions(program, self.digest),
            changes=matrix.changes)
        self.results.cells = [cell for cell in earlier.cells if self._is_kept(cell)] if earlier else []

    def run(self) -> Results:
        """Every cell has its turn. When this is interrupted, what was found until then is written down."""
        start_s = time.monotonic()
        try:
            self._prepare()
            for number, cell in enumerate(self.cells, 1):
                result = self.results.cell(cell.name)
                if result:
                    self._say(number, f"{cell.name}: kept")
                    continue
                self._say(number, cell.name)
                result = self._run_cell(cell)
                self._add(result)
                self._say(number, f"{cell.name}: {result.outcome} in {duration(result.seconds)}")
                for step in result.failed_steps():
                    self._say(number, f"{cell.name}: {step.name}: {step.why}")
            self.results.finished = True
        finally:
            self.results.seconds = round(time.monotonic() - start_s, 1)
            self._write()
        return self.results

    # ---------------------------------------------------------------- cells

    def _commands(self, cell: Cell) -> list[str]:
        return [command_line(step.argv) or step.why_not for step in self.planner.steps(cell)]

    def _is_kept(self, result: CellResult) -> bool:
        return result.outcome == PASS and result.program == self.digest and any(
            cell.name == result.name and self._commands(cell) == result.commands for cell in self.cells)

    def _prepare(self) -> None:
        """References that the matrix does not name are made; of all it is noted who made them."""
        for model in dict.fromkeys(cell.model for cell in self.cells):
            self._make_reference(model)
            path = self.planner.reference(model)
            if "check" in self.matrix.steps and os.path.exists(path):
                self.results.versions[f"reference of {model.name}"] = f"{origin(path)} ({path})"

    def _make_reference(self, model: CellModel) -> None:
        step = self.planner.making_reference(model)
        if step:
            print(f"reference of {model.name}", file=sys.stderr, flush=True)
            folder = os.path.join(self.folder.path, "references")
            path = self.planner.reference(model)
            if os.path.exists(path):
                os.unlink(path)  # an outdated one must not stand in for one that cannot be made
            self.results.preparations += CellRun([step], folder, self.folder.path, self.matrix.time_limit_s).run()

    def _run_cell(self, cell: Cell) -> CellResult:
        result = CellResult(cell.name, cell.model.name, cell.variant, self._commands(cell), self.digest, _now())
        start_s = time.monotonic()
        result.steps = CellRun(self.planner.steps(cell), self.planner.cell_folder(cell), self.folder.path,
                               self.matrix.time_limit_s).run()
        result.seconds = round(time.monotonic() - start_s, 1)
        return result

    def _add(self, result: CellResult) -> None:
        order = [cell.name for cell in self.cells]
        self.results.cells.append(result)
        self.results.cells.sort(key=lambda cell: order.index(cell.name))
        self.folder.write(self.results)

    # ---------------------------------------------------------------- telling

    def _say(self, number: int, text: str) -> None:
        n = len(self.cells)
        print(f"[{number:{len(str(n))}}/{n}] {text}", file=sys.stderr, flush=True)

    def _write(self) -> None:
        self.folder.write(self.results)
        document = report(self.results, self.before, compare(self.before, self.results))
        write_text(os.path.join(self.folder.path, "report.md"), markdown(document))
        write_text(os.path.join(self.folder.path, "report.html"), page(document))
