"""What changed since an earlier run: cells that newly fail or pass, figures that moved, another machine or version."""
from __future__ import annotations

from dataclasses import dataclass, field

from .figures import figure_of
from .results import FAIL, PASS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .figures import Figure
    from .results import CellResult, Results


@dataclass(frozen=True)
class Moved:
    """share: of what it was. better: None where neither way is."""

    cell: str
    figure: Figure
    before: float
    now: float
    share: float

    @property
    def better(self) -> bool | None:
        return self.share * self.figure.better > 0 if self.figure.better else None


@dataclass
class Changes:
    """since: the earlier run's date. failing, passing, new: cells of this run. gone: names of cells that are in
    none of this run's. facts: "name: before -> now" of machine and versions."""

    since: str
    failing: list[CellResult] = field(default_factory=list)
    passing: list[CellResult] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    same_machine: bool = True

    def __bool__(self) -> bool:
        return bool(self.failing or self.passing or self.new or self.gone or self.moved or self.facts)


def _moved(before: CellResult, now: CellResult, shares: dict[str, float]) -> list[Moved]:
    found = []
    for key, value in now.figures.items():
        figure = figure_of(key)
        if figure.group and key in before.figures:
            share = figure.change(before.figures[key], value)
            if abs(share) > shares[figure.group]:
                found.append(Moved(now.name, figure, before.figures[key], value, share))
    return found


def _facts(before: dict[str, str], now: dict[str, str]) -> list[str]:
    names = [*now, *(name for name in before if name not in now)]
    return [f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}" for name in names
            if before.get(name) != now.get(name)]


def compare(before: Results | None, now: Results) -> Changes | None:
    """None when there was no earlier run."""
    if before is None:
        return None
    machine = _facts(before.machine, now.machine)
    changes = Changes(before.date, facts=machine + _facts(before.versions, now.versions), same_machine=not machine)
    for cell in now.cells:
        old = before.cell(cell.name)
        if old is None:
            changes.new.append(cell.name)
            continue
        if (old.outcome, cell.outcome) == (PASS, FAIL):
            changes.failing.append(cell)
        if (old.outcome, cell.outcome) == (FAIL, PASS):
            changes.passing.append(cell)
        changes.moved += _moved(old, cell, now.changes)
    changes.gone = [cell.name for cell in before.cells if not now.cell(cell.name)]
    return changes
