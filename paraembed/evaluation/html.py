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

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from paraembed.evaluation.analyses import PAGE
from paraembed.evaluation.analyses.content import Analysis, Cell
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
    return TEMPLATES.get_template("report.html.jinja").render(
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
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=StrictUndefined,
)
TEMPLATES.tests["marked"] = re.compile(_MARK).search
TEMPLATES.filters |= {
    "are_numeric": _are_numeric,
    "shown_rows": lambda table: [[_shown(cell, table.decimals) for cell in row] for row in table.rows],
    "size_shown": _size_shown,
    "base64": lambda data: base64.b64encode(data).decode(),
}
