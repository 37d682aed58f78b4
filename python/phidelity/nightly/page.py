"""A report as one HTML page that needs nothing beside itself. It looks like the pages of src/cli/page.c."""
from __future__ import annotations

import html
from urllib.parse import quote

from .document import Details, Heading, Items, Paragraph, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .document import Block, Cell, Document, Row, Span

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2024;--soft:#5b6470;--line:#d5d9df;--paper:#fff;--code:#f4f5f7;
--good:#157f3c;--bad:#c0262d;--bar:#3b6fb6;--track:#e8ebef}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa3ad;--line:#3a4048;--paper:#16181b;--code:#1f2226;
--good:#4cc38a;--bad:#ff6369;--bar:#7aa7e6;--track:#2a2f35}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:72rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.verdict{font-size:1.15rem;font-weight:600;margin:1rem 0;padding:.7rem 1rem;border-left:.4rem solid var(--good)}
.verdict.fail{border-color:var(--bad)}.verdict b{color:var(--good)}.verdict.fail b{color:var(--bad)}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}.soft{color:var(--soft)}
.wide{overflow-x:auto}ul{padding-left:1.2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;min-width:100%}
th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
td{white-space:nowrap}.text td{white-space:normal;min-width:6rem}
thead th{font-weight:600;color:var(--soft);vertical-align:bottom}
th:first-child,.text td,.text th{text-align:left}
tbody th{font-weight:400;white-space:nowrap;font-family:ui-monospace,monospace;font-size:.85rem}
tbody th.group{font:600 1rem system-ui,sans-serif;padding-top:.8rem}
td svg{display:block;width:100%;min-width:4rem;height:5px;margin-top:3px}
svg .track{fill:var(--track)}svg .bar{fill:var(--bar)}svg .was{fill:var(--ink)}
pre{background:var(--code);padding:.6rem .8rem;overflow-x:auto;font-size:.8rem;line-height:1.4;white-space:pre-wrap;
overflow-wrap:anywhere}
details{margin:.4rem 0}summary{cursor:pointer}
a{color:inherit;text-decoration-color:var(--soft)}
""".strip()


def _escaped(text: str) -> str:
    kept = "".join(c if c >= " " or c in "\n\t" else "\ufffd" for c in text)
    return html.escape(kept)


def _span(span: Span) -> str:
    text = _escaped(span.text).replace("\n", "<br>")
    if span.link:
        text = f'<a href="{html.escape(quote(span.link))}">{text}</a>'
    return f'<span class="{span.mark}">{text}</span>' if span.mark else text


def _line(spans: Sequence[Span]) -> str:
    return "".join(map(_span, spans))


def _bar(cell: Cell) -> str:
    """Two rectangles over a track of 100 by 5: now, and as a tick what was."""
    if cell.bar is None:
        return ""
    was = f'<rect class="was" x="{min(99.0, 100 * cell.was):.1f}" width="1" height="5"/>' if cell.was is not None else ""
    return (f'<svg viewBox="0 0 100 5" preserveAspectRatio="none" role="img"><rect class="track" width="100" height="5"/>'
            f'<rect class="bar" width="{100 * cell.bar:.1f}" height="5"/>{was}</svg>')


def _row(row: Row, n_columns: int) -> str:
    if not row.cells:
        return f'<tr><th class="group" colspan="{n_columns}">{_escaped(row.name)}</th></tr>'
    cells = "".join(f"<td>{_line(cell.spans)}{_bar(cell)}</td>" for cell in row.cells)
    return f"<tr><th>{_escaped(row.name)}</th>{cells}</tr>"


def _table(table: Table) -> str:
    heads = "".join(f"<th>{_escaped(title)}</th>" for title in table.columns)
    rows = "\n".join(_row(row, len(table.columns)) for row in table.rows)
    kind = ' class="text"' if table.is_text else ""
    return f'<div class="wide"><table{kind}><thead><tr>{heads}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{_escaped(block.text)}</h2>"
    if isinstance(block, Paragraph):
        return f"<p>{_line(block.spans)}</p>"
    if isinstance(block, Items):
        return "<ul>\n" + "\n".join(f"<li>{_line(item)}</li>" for item in block.items) + "\n</ul>"
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Details):
        inside = "\n".join(map(_block, block.blocks))
        return f"<details{' open' if block.is_open else ''}><summary>{_escaped(block.title)}</summary>\n{inside}\n</details>"
    return f"<pre>{_escaped(block.text)}</pre>"


def page(document: Document) -> str:
    word, mark = ("PASS", "") if document.is_good else ("FAIL", " fail")
    title = _escaped(document.title)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{word}: {title}</title>
<style>
{_STYLE}
</style></head><body>
<h1>{title}</h1>
<p class="verdict{mark}"><b>{word}</b> {_escaped(document.verdict)}</p>
<p class="soft">{_escaped(document.subtitle)}</p>
{chr(10).join(map(_block, document.blocks))}
</body></html>
"""
