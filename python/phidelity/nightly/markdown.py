"""A report as Markdown, as GitHub reads it."""
from __future__ import annotations

import html
import re
from urllib.parse import quote

from .document import BAD, Details, Heading, Items, Paragraph, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .document import Block, Document, Span


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]|~])", r"\\\1", html.escape(text, quote=False)).replace("\n", "<br>")


def _span(span: Span) -> str:
    text = _escaped(span.text)
    if span.mark == BAD:
        text = f"**{text}**"
    return f"[{text}]({quote(span.link)})" if span.link else text


def _line(spans: Sequence[Span]) -> str:
    return "".join(map(_span, spans))


def _table(table: Table) -> str:
    rule = "---" if table.is_text else "---:"
    lines = [" | ".join(map(_escaped, table.columns)), " | ".join(["---", *[rule] * (len(table.columns) - 1)])]
    for row in table.rows:
        name = f"`{row.name}`" if row.cells else f"**{_escaped(row.name)}**"
        cells = [_line(cell.spans) for cell in row.cells] or [""] * (len(table.columns) - 1)
        lines.append(" | ".join([name, *cells]))
    return "\n".join(f"| {line} |" for line in lines)


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return "## " + _escaped(block.text)
    if isinstance(block, Paragraph):
        return _line(block.spans)
    if isinstance(block, Items):
        return "\n".join("- " + _line(item) for item in block.items)
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Details):
        return "\n\n".join(["### " + _escaped(block.title), *map(_block, block.blocks)])
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
    return f"{fence}{block.language}\n{block.text}\n{fence}"


def markdown(document: Document) -> str:
    verdict = f"**{'PASS' if document.is_good else 'FAIL'}**: {_escaped(document.verdict)}"
    parts = ["# " + _escaped(document.title), verdict, _escaped(document.subtitle), *map(_block, document.blocks)]
    return "\n\n".join(parts) + "\n"
