"""Report as one self-contained HTML file: scores, plots and tables of the analyses, and analyses that could not be
made.
"""

import base64
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path

from jinja2 import DictLoader, Environment, StrictUndefined

from paraembed.evaluation.analyses import PAGE
from paraembed.evaluation.analyses.content import Analysis, AnalysisTable, Cell
from paraembed.evaluation.paired import BEST, TIE
from paraembed.evaluation.report import Report, write_files
from paraembed.evaluation.tables import Table, summary_table

_PIXELS_SHOWN = 0.8  # of a picture's: its letters are then as large as the page's
_DIGITS = r"[-−]?\d[\d,]*(\.\d+)?"
_MARK = rf"[{BEST}{TIE}]"
_NUMBER = re.compile(rf"{_DIGITS}(?:{_MARK}|[~*])*(\s?[(\[][^)\]]*[)\]])?|{_DIGITS} – {_DIGITS}|–?")
"""Pattern of a numeric cell: a number with an optional mark and an optional interval or second number in brackets; an
interval; or an empty cell.
"""

_TABLE = """
{% macro table(head, rows, bold=()) %}
{% set numeric = rows | are_numeric(head | length) %}
{% macro look(at, best=false) %}{% if numeric[at] %} class="number{{ " best" if best }}"{% endif %}{% endmacro %}
<div class="wide"><table>
<thead><tr>
{%- for name in head %}<th scope="col"{{ look(loop.index0) }}>{{ name }}</th>{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr{% if bold and bold[loop.index0] %} class="mean"{% endif %}>
{%- for cell in row %}<td{{ look(loop.index0, cell is marked) }}>{{ cell }}</td>{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>
{% endmacro %}
"""
_PAGE = """
{%- from "table" import table %}
{% macro list(notes) %}
{% if notes %}
<ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>
{% endif %}
{% endmacro %}
{% macro numbers(tables) %}
{% for one in tables %}
{% if one.title %}<h3>{{ one.title }}</h3>{% endif %}
{{ table(one.head, one | shown_rows) }}
{%- endfor %}
{% endmacro %}
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; --line: #d5d8dc; --faint: #5b6470; --band: #f4f6f8; --link: #0059a3;
  --best: #d6eddc }
@media (prefers-color-scheme: dark) { :root { --line: #3a4149; --faint: #a2abb5; --band: #1d2126; --link: #7cc0ff;
  --best: #1c4029 } }
body { font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; max-width: 86rem; margin: 0 auto;
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
tbody tr:nth-child(even), .wide tr:nth-child(even) td:first-child { background: var(--band) }
tr.mean td { font-weight: 700 } .best { background: var(--best) }
#summary .number { white-space: pre }
img { max-width: 100%; box-sizing: border-box; height: auto; background: #fff; padding: .4rem; margin: .5rem 0;
  border: 1px solid var(--line) }
summary { cursor: pointer; color: var(--link) }
@media (max-width: 40rem) {
  body { padding: .75rem } th, td { padding: .2rem .35rem } th.number { white-space: normal }
  td:not(.number), td:not(.number):first-child { min-width: 5.5rem }
}
</style>
</head>
<body>
<h1>{{ title }}</h1>
<section id="summary"><h2>{{ summary.title }}</h2>
{{ table(summary.head, summary.rows) }}{{ list(summary.notes) }}</section>
<dl>{% for column in report.columns %}<dt>{{ column.label }}</dt><dd>{{ column.description }}</dd>{% endfor %}</dl>
<nav aria-label="Contents"><ul>
<li><a href="#summary">Summary</a></li>
<li><a href="#scores">Scores</a></li>
{% for one in made %}
<li><a href="#{{ one.name }}">{{ one.title }}</a></li>
{% endfor %}
{% if missing %}
<li><a href="#not-made">What was not made</a></li>
{% endif %}
</ul></nav>
<section id="scores"><h2>Scores</h2>
{% for brief, whole in scores %}
<h3>{{ brief.title }}</h3>
{{ table(brief.head, brief.rows, brief.bold) }}{{ list(brief.notes) }}
<details><summary>All columns</summary>
{{ table(whole.head, whole.rows, whole.bold) }}{{ list(whole.notes) }}</details>
{% endfor %}
{{ list(report.notes) }}</section>
{% for one in made %}
<section id="{{ one.name }}"><h2>{{ one.title }}</h2>
<p class="source">{{ one.source }}</p>
<p>{{ spell(one.content.text) }}</p>
{% if one.content.picture %}
{% set width, height = one.content.picture | size_shown %}
<img alt="{{ one.title }}" width="{{ width }}" height="{{ height }}"
  src="data:image/png;base64,{{ one.content.picture | base64 }}">
{% endif %}
{% if one.content.picture and not one.content.tables_matter %}
<details><summary>The numbers</summary>
{{ numbers(one.content.tables) }}</details>
{% else %}
{{ numbers(one.content.tables) }}
{%- endif %}
</section>
{% endfor %}
{% if missing %}
<section id="not-made"><h2>What was not made</h2>
<dl>{% for one in missing %}<dt>{{ one.title }}</dt><dd>{{ spell(one.reason) }}</dd>{% endfor %}</dl></section>
{% endif %}
</body>
</html>
"""


def write_html(report: Report, analyses: Sequence[Analysis], out: Path, spell: Callable[[str], str] = str) -> Path:
    """Write ``report.html`` into a folder, which exists; the same report and analyses give the same bytes.

    The page has no scripts and refers to no other file: plots are embedded, and its content security policy forbids all
    requests. Analyses that could not be made are listed with the reason. ``spell`` spells the parameters in the texts
    of analyses, which are in backquotes, for the reader, for example as flags.
    """
    (path,) = write_files(out, {PAGE: page(report, analyses, spell).encode()})
    return path


def page(report: Report, analyses: Sequence[Analysis], spell: Callable[[str], str] = str) -> str:
    """Return the HTML document, with every name and text escaped."""
    labels = [column.label for column in report.columns]
    return TEMPLATES.get_template("page").render(
        title=f"Scores of {', '.join(labels)}",
        report=report,
        spell=spell,
        summary=summary_table(report.columns),
        scores=[
            (_without_zeros(brief, labels), whole)
            for brief, whole in zip(report.tables(brief=True), report.tables(), strict=True)
        ],
        made=[analysis for analysis in analyses if analysis.content is not None],
        missing=[analysis for analysis in analyses if analysis.content is None],
    )


def _without_zeros(table: Table, labels: Sequence[str]) -> Table:
    """Return the table without columns of zeros, such as those of OOV tokens; the scores of encoders are kept."""
    columns = zip(table.head, zip(*table.rows, strict=True), strict=True)
    shown = [name in labels or not {*cells} <= {"0.0", "0", ""} for name, cells in columns]
    head, *rows = (tuple(compress(row, shown)) for row in (table.head, *table.rows))
    return replace(table, head=head, rows=tuple(rows))


def _are_numeric(rows: Sequence[Sequence[str]], width: int) -> list[bool]:
    """Return which columns contain only numbers; these are right-aligned."""
    return [all(_NUMBER.fullmatch(row[column]) for row in rows) for column in range(width)]


def _shown_rows(table: AnalysisTable) -> list[list[str]]:
    return [[_shown(cell, table.decimals) for cell in row] for row in table.rows]


def _shown(cell: Cell, decimals: int) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return cell
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.{decimals}f}"


def _size_shown(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return round(_PIXELS_SHOWN * width), round(_PIXELS_SHOWN * height)


TEMPLATES = Environment(
    loader=DictLoader({"table": _TABLE, "page": _PAGE}),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.tests["marked"] = re.compile(_MARK).search
TEMPLATES.filters |= {
    "are_numeric": _are_numeric,
    "shown_rows": _shown_rows,
    "size_shown": _size_shown,
    "base64": lambda data: base64.b64encode(data).decode(),
}
