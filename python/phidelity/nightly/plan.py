"""The commands of a cell, before anything runs: what --dry-run prints and what a report calls exact."""
from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass

from ..server_process import flags_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .cells import Cell, CellModel
    from .matrix import Matrix

URL = "{url}"  # in a command: the address of the cell's server


@dataclass(frozen=True)
class Step:
    """name: one of matrix.STEPS, or "reference". argv: the command.

    output: where its JSON is found afterwards, None: it has none. prints_output: it prints that, and does not
    write it. page: its HTML page. why_not: why there is nothing to run, "" otherwise.
    """

    name: str
    argv: tuple[str, ...] = ()
    output: str | None = None
    prints_output: bool = False
    page: str | None = None
    why_not: str = ""

    @property
    def needs_server(self) -> bool:
        return any(URL in word for word in self.argv)


class Planner:
    """Makes the commands. program: the executable. folder: of all output."""

    def __init__(self, matrix: Matrix, program: str, folder: str) -> None:
        self.matrix = matrix
        self.program = program
        self.folder = folder

    def cell_folder(self, cell: Cell) -> str:
        return os.path.join(self.folder, "cells", *cell.name.split("/"))

    def steps(self, cell: Cell) -> list[Step]:
        """The cell's steps in their order; what stands between "start" and "latency" asks its server."""
        return [getattr(self, "_" + name)(cell) for name in self.matrix.steps]

    # ---------------------------------------------------------------- the reference

    def reference(self, model: CellModel) -> str:
        return model.reference or os.path.join(self.folder, "references", model.name + ".safetensors")

    def making_reference(self, model: CellModel) -> Step | None:
        """The command that writes a model's reference; None when the matrix names one, when one was made
        after the model's files, and when transformers is not installed."""
        path = self.reference(model)
        if model.reference or not has_transformers() or "check" not in self.matrix.steps:
            return None
        sources = [os.path.join(model.path, name) for name in os.listdir(model.path)]
        newest = max(os.path.getmtime(source) for source in [*sources, model.reference_prompts or model.path])
        if os.path.isfile(path) and os.path.getmtime(path) > newest:
            return None
        prompts = [f"--prompts={model.reference_prompts}"] if model.reference_prompts else []
        return Step("reference", (sys.executable, "-m", "phidelity.reference", model.path, path, *prompts))

    # ---------------------------------------------------------------- each step

    def _proof(self, cell: Cell, name: str, *words: str) -> Step:
        """A command of the program that proves something: JSON on standard output, and a page."""
        folder = self.cell_folder(cell)
        page = os.path.join(folder, name + ".html")
        return Step(name, (self.program, *words, "--json", f"--html={page}"),
                    os.path.join(folder, name + ".json"), prints_output=True, page=page)

    def _check(self, cell: Cell) -> Step:
        if not cell.model.reference and not has_transformers():
            return Step("check", why_not="not checked: the matrix names no reference, and transformers is not "
                                         "installed here to make one")
        return self._proof(cell, "check", "check-accuracy", cell.model.path, *cell.model_flags(),
                           f"--reference={self.reference(cell.model)}", *flags_of(cell.limits))

    def _start(self, cell: Cell) -> Step:
        return Step("start", (self.program, "serve", cell.model.path, *cell.model_flags(), *cell.context_flags()))

    def _align(self, cell: Cell) -> Step:
        options = {"judge": "exact", **self.matrix.align}
        return self._proof(cell, "align", "align", cell.model.path, f"--url={URL}", *cell.model_flags(),
                           *cell.context_flags(), *flags_of(options))

    def _eval(self, cell: Cell) -> Step:
        if not cell.model.gate:
            return Step("eval", why_not="not evaluated: the matrix names no gate")
        output = os.path.join(self.cell_folder(cell), "eval.json")
        options = flags_of({name: value for name, value in self.matrix.eval.items() if value is not False})
        return Step("eval", (sys.executable, "-m", "phidelity.eval", f"--model={cell.model.path}", f"--url={URL}",
                             *options, "--quiet", f"--json={output}", cell.model.gate), output)

    def _bench(self, cell: Cell, name: str, options: dict[str, object]) -> Step:
        output = os.path.join(self.cell_folder(cell), name + ".json")
        return Step(name, (self.program, "bench", name, cell.model.path, *flags_of(options), *cell.model_flags(),
                           *cell.context_flags(), f"--output-json={output}"), output)

    def _latency(self, cell: Cell) -> Step:
        options = dict(self.matrix.latency)
        if options["input_len"] == "full":
            options["input_len"] = cell.context - options["output_len"]
        return self._bench(cell, "latency", options)

    def _startup(self, cell: Cell) -> Step:
        return self._bench(cell, "startup", self.matrix.startup)


def has_transformers() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "transformers", "safetensors"))
