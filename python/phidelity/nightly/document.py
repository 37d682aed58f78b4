"""A report as blocks, which markdown.py and page.py write down each in its way."""
from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    Block = Union["Heading", "Paragraph", "Items", "Table", "Code", "Details"]

GOOD, BAD, SOFT = "good", "bad", "soft"  # marks of text; "" is plain


@dataclass
class Span:
    """A piece of text. link: a path beside the report."""

    text: str
    mark: str = ""
    link: str = ""


@dataclass
class Heading:
    text: str


@dataclass
class Paragraph:
    spans: list[Span]


@dataclass
class Items:
    """A list, an item's spans after one another."""

    items: list[list[Span]]


@dataclass
class Cell:
    """Of a table. bar: the share of the column's largest value that is drawn below the text (pages only), was: the
    same of the earlier run, as a tick."""

    spans: list[Span]
    bar: float | None = None
    was: float | None = None


@dataclass
class Row:
    """name: of the row, in fixed width; a row without cells is a heading over those that follow."""

    name: str
    cells: list[Cell] = field(default_factory=list)


@dataclass
class Table:
    """columns: their titles, the first over the rows' names. is_text: cells are words and not numbers."""

    columns: list[str]
    rows: list[Row]
    is_text: bool = False


@dataclass
class Code:
    """Lines as they are. Markdown names their language."""

    text: str
    language: str = ""


@dataclass
class Details:
    """What a page shows after a click, or hides after one."""

    title: str
    blocks: list[Block]
    is_open: bool = False


@dataclass
class Document:
    """verdict: the sentence behind PASS or FAIL. subtitle: when and where."""

    title: str
    is_good: bool
    verdict: str
    subtitle: str
    blocks: list[Block]
