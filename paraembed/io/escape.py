"""Escape names and texts from outside for Markdown, CSV and plain tables; HTML templates do their own escaping."""

import csv
import hashlib
import io
import re
import unicodedata
from collections.abc import Iterable
from typing import TypeVar

Cell = TypeVar("Cell")

_MARKUP = re.compile(r"([\\`\[\]])")
_FORMULA = re.compile(r"\s*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|[\t\r\n]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SHOWN = 100
_STEM_BYTES = 200  # of 255; a temporary name and a suffix take some
_CONTROL = {"Cc", "Cs", "Zl", "Zp"}  # control characters, lone surrogates (bytes that are not UTF-8), line separators


def printable(name: str) -> str:
    """Return a name on one line of valid Unicode; U+FFFD replaces control characters and lone surrogates."""
    if name.isprintable():
        return name
    return "".join("\ufffd" if unicodedata.category(letter) in _CONTROL else letter for letter in name)


def markdown(text: str) -> str:
    """Return text on one line that Markdown and HTML show as it is: no tags, links, images or code.

    Emphasis (``*`` and ``_``) is left as it is, since most names with an underscore show it anyway.
    """
    plain = _MARKUP.sub(r"\\\1", printable(text))
    return plain.replace("<", "&lt;").replace(">", "&gt;")


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(markdown(cell).replace("|", "\\|") for cell in cells) + " |"


def csv_cell(cell: Cell) -> Cell | str:
    """Return a cell that no spreadsheet reads as a formula: a text that looks like a formula is prefixed with an
    apostrophe.

    Numbers, also as text (``-0.5``), stay as they are.
    """
    if not isinstance(cell, str) or not _FORMULA.match(cell) or _NUMBER.fullmatch(cell):
        return cell
    return f"'{cell}"


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return the text of a CSV file with escaped cells (see ``csv_cell``); None is empty."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(map(csv_cell, row) for row in rows)
    return text.getvalue()


def file_stem(name: str) -> str:
    """Return a name of at most 200 bytes for a file or for MLflow; a longer one is truncated and ends with its hash."""
    octets = name.encode()
    if len(octets) <= _STEM_BYTES:
        return name
    return f"{octets[: _STEM_BYTES - 9].decode(errors='ignore')}-{hashlib.sha256(octets).hexdigest()[:8]}"


def listed(names: Iterable[object], most: int = 10) -> str:
    """Return the first names as a readable list, each truncated to 100 characters, and the number of others."""
    every = list(map(str, names))
    shown = ", ".join(printable(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…") for name in every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most:,} more"
