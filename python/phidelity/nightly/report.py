"""What a run's report tells, in the order in which a reader asks: did it pass, what changed, which cell is what, why
did it fail, the numbers, how to do it again, and on what."""
from __future__ import annotations

import math

from .document import BAD, GOOD, SOFT, Cell, Code, Details, Document, Heading, Items, Paragraph, Row, Span, Table
from .figures import FIGURES, figure_of
from .results import FAIL, NONE, PASS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .compare import Changes, Moved
    from .document import Block
    from .results import CellResult, Results, StepResult

TITLES = {"check": "checked", "start": "started", "align": "aligned", "eval": "evaluated", "latency": "latency",
          "startup": "startup"}
BARS = ("prefill_tok_s", "decode_tok_s", "warm_startup_s", "peak_rss_bytes", "max_kl")
BARS_SAY = "A bar is a share of the column's largest; the tick is the run before."
MOST_OPEN = 12  # figures that moved: more are folded away
DECADES = 12  # that a bar of a divergence spans, below the largest


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")


def verdict(results: Results, changes: Changes | None) -> str:
    n, n_failed = len(results.cells), results.n_failed()
    told = f"{n_failed} of {_count(n, 'cell')} failed" if n_failed else f"all {_count(n, 'cell')} passed" if n > 1 \
        else "the cell passed"
    if changes and n_failed:
        told += f", {len(changes.failing) or 'none'} of them newly"
    n_unchecked = sum(step.name == "check" and step.outcome == NONE for cell in results.cells for step in cell.steps)
    if n_unchecked:
        told += f"; {n_unchecked} not checked against a reference"
    return told if results.finished else told + "; the run was ended early"


# ---------------------------------------------------------------- what changed

def _failed_steps(cell: CellResult) -> str:
    return ", ".join(f"{TITLES.get(step.name, step.name)}: {step.why}" for step in cell.failed_steps())


def _percent(share: float) -> str:
    return f"{100 * share:+.0f} %" if abs(share) < 10 else f"× {1 + share:.3g}"


def _mark(better: bool | None) -> str:
    return SOFT if better is None else GOOD if better else BAD


def _moved_table(moved: Sequence[Moved]) -> Table:
    rows = [Row(m.cell, [Cell([Span(m.figure.title)]), Cell([Span(m.figure.write(m.before))]),
                         Cell([Span(m.figure.write(m.now))]), Cell([Span(_percent(m.share), _mark(m.better))])])
            for m in moved]
    return Table(["cell", "figure", "before", "now", "change"], rows)


def _changes(results: Results, changes: Changes | None) -> list[Block]:
    if changes is None:
        return [Heading("What changed"), Paragraph([Span("Nothing to compare with: this is the first run here.", SOFT)])]
    items = [[Span("newly failing", BAD), Span(f": {cell.name} ({_failed_steps(cell)})")] for cell in changes.failing]
    items += [[Span("newly passing", GOOD), Span(f": {cell.name}")] for cell in changes.passing]
    for word, names in (("new", changes.new), ("not in this run", changes.gone)):
        items += [[Span(f"{word}: {', '.join(names)}")]] if names else []
    items += [[Span(fact)] for fact in changes.facts]
    blocks: list[Block] = [Heading(f"What changed since {changes.since}")]
    blocks += [Items(items)] if items else []
    shares = ", ".join(f"{name} {100 * share:g} %" for name, share in results.changes.items())
    if changes.moved:
        n_worse = sum(moved.better is False for moved in changes.moved)
        n_better = sum(moved.better is True for moved in changes.moved)
        told = f"{_count(len(changes.moved), 'figure')} moved by more than a share ({shares})"
        blocks.append(Details(f"{told}: {n_worse} for the worse, {n_better} for the better",
                              [_moved_table(changes.moved)], len(changes.moved) <= MOST_OPEN))
    else:
        blocks.append(Paragraph([Span(f"No figure moved by more than a share ({shares}).", SOFT)]))
    if not changes.same_machine:
        blocks.append(Paragraph([Span("The earlier run was on another machine, or on one set up otherwise: speeds do not "
                                      "compare.", BAD)]))
    return blocks


# ---------------------------------------------------------------- tables of cells

def _grouped(results: Results, columns: list[str], cells: Callable[[CellResult], list[Cell]], is_text: bool) -> Table:
    """A row for each cell, under its model."""
    rows: list[Row] = []
    model = None
    for cell in results.cells:
        if cell.model != model:
            rows.append(Row(cell.model))
            model = cell.model
        rows.append(Row(cell.variant, cells(cell)))
    return Table(["dtype / quantisation / context", *columns], rows, is_text)


def _step_cell(step: StepResult | None) -> Cell:
    if step is None:
        return Cell([Span("")])
    if step.outcome == NONE:
        return Cell([Span(step.why.partition(":")[0], SOFT)])
    word, mark = ("pass", GOOD) if step.outcome == PASS else ("FAIL", BAD)
    said = step.note if step.outcome == PASS else step.why
    return Cell([Span(word, mark, step.page), Span("\n" + said if said else "", SOFT)])


def _overview(results: Results) -> list[Block]:
    names = [name for name in TITLES if any(cell.step(name) for cell in results.cells)]

    def cells(cell: CellResult) -> list[Cell]:
        return [*(_step_cell(cell.step(name)) for name in names), Cell([Span(duration(cell.seconds))])]
    reasons = dict.fromkeys(step.why for cell in results.cells for step in cell.steps if step.outcome == NONE)
    notes: list[Block] = [Items([[Span(why, SOFT)] for why in reasons])] if reasons else []
    return [Heading("Cells"), _grouped(results, [*(TITLES[name] for name in names), "took"], cells, True), *notes]


def _failures(results: Results) -> list[Block]:
    blocks: list[Block] = []
    failed = [(result.name, result) for result in results.preparations if result.outcome == FAIL]
    failed += [(cell.name, step) for cell in results.cells for step in cell.failed_steps()]
    for name, step in failed:
        blocks.append(Paragraph([Span(f"{name}, {TITLES.get(step.name, step.name)}", BAD), Span(f": {step.why}"),
                                 *([Span(" "), Span("log", "", step.log)] if step.log else [])]))
        if step.log_tail.strip():
            blocks.append(Code(step.log_tail))
    return [Heading("Failures"), *blocks] if blocks else []


class _Column:
    """One figure over all cells, now and before."""

    def __init__(self, key: str, results: Results, before: Results | None) -> None:
        self.key = key
        self.figure = figure_of(key)
        self.share = results.changes.get(self.figure.group, math.inf)
        self.now = {cell.name: cell.figures[key] for cell in results.cells if key in cell.figures}
        self.before = {cell.name: cell.figures[key] for cell in (before.cells if before else []) if key in cell.figures}
        self.most = max([*self.now.values(), *(self.before[name] for name in self.now if name in self.before)], default=0)

    def bar(self, value: float | None) -> float | None:
        if value is None or self.key not in BARS or self.most <= 0:
            return None
        if self.figure.group == "accuracy":
            return max(0.0, 1 + math.log10(max(value, 1e-300) / self.most) / DECADES)
        return value / self.most

    def cell(self, name: str) -> Cell:
        if name not in self.now:
            return Cell([Span("–", SOFT)])
        now, before = self.now[name], self.before.get(name)
        spans = [Span(self.figure.write(now))]
        change = self.figure.change(before, now) if before is not None else 0.0
        if abs(change) > self.share:
            better = change * self.figure.better > 0 if self.figure.better else None
            spans.append(Span(" " + _percent(change), _mark(better)))
        return Cell(spans, self.bar(now), self.bar(before))


def _figures(results: Results, before: Results | None, title: str, note: str, section: str) -> list[Block]:
    found = {key for cell in results.cells for key in cell.figures if figure_of(key).section == section}
    keys = [figure.key for figure in FIGURES if figure.key in found]
    keys += sorted(found.difference(keys))  # scores
    if not keys:
        return []
    columns = [_Column(key, results, before) for key in keys]
    table = _grouped(results, [column.figure.title for column in columns],
                     lambda cell: [column.cell(cell.name) for column in columns], False)
    return [Heading(title), table, Paragraph([Span(note, SOFT)])]


# ---------------------------------------------------------------- how, and on what

def _commands(results: Results) -> list[Block]:
    def told(step: StepResult) -> str:
        code = "" if step.code is None else f", exit code {step.code}"
        return f"# {step.name}: {step.outcome}{code}, {duration(step.seconds)}\n{step.command or '# ' + step.why}"

    blocks: list[Block] = [Heading("Commands"), Code(results.command, "sh")]
    if results.preparations:
        blocks.append(Details("references", [Code("\n".join(map(told, results.preparations)), "sh")]))
    return blocks + [Details(cell.name, [Code("\n".join(map(told, cell.steps)), "sh")]) for cell in results.cells]


def _facts(results: Results) -> list[Block]:
    rows = [Row(name, [Cell([Span(text)])]) for name, text in {**results.machine, **results.versions}.items()]
    return [Heading("Machine and versions"), Table(["", ""], rows, True)]


def report(results: Results, before: Results | None, changes: Changes | None) -> Document:
    """before: the results that `changes` compares with."""
    machine = results.machine
    return Document(
        results.title, not results.n_failed() and results.finished, verdict(results, changes),
        f"{results.date}, {duration(results.seconds)}, {machine.get('host')}: {machine.get('processor')}; "
        f"{results.versions.get('program', '').partition(',')[0]}; {results.matrix}",
        [*_changes(results, changes), *_overview(results), *_failures(results),
         *_figures(results, before, "Accuracy",
                   "Top-1: positions whose likeliest token is the reference's. KL: from the reference, in nats; its bars "
                   f"span {DECADES} decades. Scores are those of the gate's tasks.", "accuracy"),
         *_figures(results, before, "Speed",
                   "Medians. Percentages of peak and bandwidth are of this machine's limits, measured in the same run "
                   "(docs/BENCHMARKS.md); weights that fit into caches are read faster than memory. " + BARS_SAY, "speed"),
         *_figures(results, before, "Start and memory",
                   "From a process's start: until /health answers, and medians until the first token of an answer. Memory "
                   "is the most that was resident. " + BARS_SAY, "start"),
         *_commands(results), *_facts(results)])
