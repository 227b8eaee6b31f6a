"""One HTML file a report, which needs no other: scores, pictures and tables of the analyses, what was not made."""

import base64
import re
import struct
from collections.abc import Sequence
from html import escape
from pathlib import Path

from paraembed.evaluation.analyses.content import Analysis, Cell, Content, Table
from paraembed.evaluation.report import Report
from paraembed.files import write_file

NAME = "report.html"
_PIXELS_SHOWN = 0.8  # of a picture's: its letters are then as large as the page's
_DIGITS = r"[-−]?\d[\d,]*(\.\d+)?"
_NUMBER = re.compile(rf"{_DIGITS}[~*]*( ?[(\[][^)\]]*[)\]])?|{_DIGITS} – {_DIGITS}|–?")
"""A number, maybe marked, maybe with an interval or another number in brackets; an interval; or none."""

_STYLE = """
:root { color-scheme: light dark; --line: #d5d8dc; --faint: #5b6470; --band: #f4f6f8; --link: #0059a3 }
@media (prefers-color-scheme: dark) { :root { --line: #3a4149; --faint: #a2abb5; --band: #1d2126; --link: #7cc0ff } }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; max-width: 76rem; margin: 0 auto;
  padding: 1.5rem 1.5rem 4rem; background: Canvas; color: CanvasText }
h1 { font-size: 1.6rem; margin: 0 0 .5rem } h2 { font-size: 1.2rem; margin: 2.5rem 0 .3rem }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem }
a { color: var(--link) } p { max-width: 60rem; margin: .4rem 0 } .source { color: var(--faint) }
nav ul { columns: 20rem; padding-left: 1.2rem; margin: .3rem 0 } dt { font-weight: 600 } dd { margin: 0 0 .3rem 1.2rem }
.wide { overflow-x: auto; margin: .3rem 0 1rem }
table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) }
th { vertical-align: bottom; border-bottom-width: 2px } .number { text-align: right; white-space: nowrap }
td:not(.number) { min-width: 7rem; max-width: 30rem; overflow-wrap: break-word }
.wide :is(th, td):first-child { position: sticky; left: 0; background: Canvas }
td:not(.number):first-child { min-width: 10rem }
tbody tr:nth-child(even) { background: var(--band) } tr.mean td { font-weight: 700 }
img { max-width: 100%; height: auto; background: #fff; padding: .4rem; border: 1px solid var(--line); margin: .5rem 0 }
summary { cursor: pointer; color: var(--link) }
"""


def write_html(report: Report, analyses: Sequence[Analysis], out: Path) -> Path:
    """Write ``report.html`` into a folder; the same report and analyses give the same bytes.

    The page has no script and names no other file: pictures are in it, and its own policy forbids it every request.

    Args:
        report: the scores.
        analyses: of ``analyse``; those that were not made are listed with the reason.
        out: folder; made if it is not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / NAME
    write_file(path, lambda file: file.write(page(report, analyses).encode()))
    return path


def page(report: Report, analyses: Sequence[Analysis]) -> str:
    """The HTML document."""
    made = [(one, one.content) for one in analyses if one.content is not None]
    missing = [one for one in analyses if one.content is None]
    title = "Scores of " + ", ".join(column.label for column in report.columns)
    parts = ["scores", *(one.heading.name for one, _ in made), *(["not-made"] if missing else [])]
    titles = ["Scores", *(one.heading.title for one, _ in made), *(["What was not made"] if missing else [])]
    links = "".join(
        f'<li><a href="#{escape(name)}">{escape(said)}</a></li>' for name, said in zip(parts, titles, strict=True)
    )
    described = "".join(
        f"<dt>{escape(column.label)}</dt><dd>{escape(column.description)}</dd>" for column in report.columns
    )
    notes = _list(report.notes)
    body = [
        f"<h1>{escape(title)}</h1><dl>{described}</dl>",
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>',
        f'<section id="scores"><h2>Scores</h2>{_scores(report)}{notes}</section>',
        *(_section(one, content) for one, content in made),
    ]
    if missing:
        reasons = "".join(f"<dt>{escape(one.heading.title)}</dt><dd>{escape(one.reason)}</dd>" for one in missing)
        body.append(f'<section id="not-made"><h2>What was not made</h2><dl>{reasons}</dl></section>')
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], bold: Sequence[bool] = ()) -> str:
    """A table of texts; columns of numbers are set to the right, rows of ``bold`` [n] in bold."""
    numeric = [all(_NUMBER.fullmatch(row[at]) for row in rows) for at in range(len(head))]
    looks = [' class="number"' if one else "" for one in numeric]
    heads = "".join(f'<th scope="col"{look}>{escape(name)}</th>' for name, look in zip(head, looks, strict=True))
    lines = []
    for at, row in enumerate(rows):
        cells = "".join(f"<td{look}>{escape(one)}</td>" for one, look in zip(row, looks, strict=True))
        look = ' class="mean"' if at < len(bold) and bold[at] else ""
        lines.append(f"<tr{look}>{cells}</tr>")
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _scores(report: Report) -> str:
    """The tables of the terminal, and under each the whole one."""
    shown = []
    for brief, whole in zip(report.tables(brief=True), report.tables(), strict=True):
        short, long = (table(one.head, one.rows, one.bold) + _list(one.notes) for one in (brief, whole))
        more = f"<details><summary>All columns</summary>{long}</details>"
        shown.append(f"<h3>{escape(brief.title)}</h3>{short}{more}")
    return "".join(shown)


def _list(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<ul>{items}</ul>" if items else ""


def _section(analysis: Analysis, content: Content) -> str:
    heading = analysis.heading
    tables = "".join(_titled(one) for one in content.tables)
    picture = _image(content.picture, heading.title) if content.picture else ""
    numbers = (
        f"<details><summary>The numbers</summary>{tables}</details>"
        if picture and not content.tables_matter
        else tables
    )
    return (
        f'<section id="{escape(heading.name)}"><h2>{escape(heading.title)}</h2>'
        f'<p class="source">{escape(heading.source)}</p><p>{escape(content.text)}</p>{picture}{numbers}</section>'
    )


def _image(png: bytes, title: str) -> str:
    width, height = (round(_PIXELS_SHOWN * pixels) for pixels in struct.unpack(">II", png[16:24]))
    data = base64.b64encode(png).decode()
    return f'<img alt="{escape(title)}" width="{width}" height="{height}" src="data:image/png;base64,{data}">'


def _titled(one: Table) -> str:
    title = f"<h3>{escape(one.title)}</h3>" if one.title else ""
    return title + table(one.head, [[_told(cell, one.decimals) for cell in row] for row in one.rows])


def _told(cell: Cell, decimals: int) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.{decimals}f}"
