"""Files of rows and cells, small enough to be held; what is wrong with one is said with file and line."""

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.io.lines import read_lines


@dataclass(frozen=True)
class Cells:
    """Rows of one number of cells.

    Attributes:
        path: where they are from.
        first: number of the line of the first row, from 1.
        rows: the cells.
    """

    path: Path
    first: int
    rows: list[list[str]]

    def texts(self, column: int) -> pa.StringArray:
        """A column of texts [n]."""
        return pa.array([row[column] for row in self.rows], pa.string())

    def numbers(self, column: int) -> npt.NDArray[np.float64]:
        """A column of finite numbers, float64 [n]; ValueError names the row that has another cell."""
        values = np.empty(len(self.rows))
        for at, row in enumerate(self.rows):
            try:
                values[at] = float(row[column])
            except ValueError:
                values[at] = np.nan
            if not np.isfinite(values[at]):
                self.refuse(at, f"the score is {row[column][:40]!r}, which is no finite number")
        return values

    def refuse(self, at: int, what: str) -> NoReturn:
        """Raise ValueError for a row."""
        raise ValueError(f"{self.path}, line {self.first + at}: {what}; mend the file or fetch it again")


def read_cells(path: Path, separator: str, num_columns: int, *, has_header: bool = False) -> Cells:
    """Read a file, plain or compressed.

    Args:
        path: UTF-8 text, LF or CRLF; quotes are characters like others.
        separator: between cells.
        num_columns: of every row.
        has_header: whether the first line holds names.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: an empty or binary file; a row of another number of cells.
    """
    lines = read_text(path)
    cells = Cells(path, 2 if has_header else 1, [line.split(separator) for line in lines[has_header:]])
    for at, row in enumerate(cells.rows):
        if len(row) != num_columns:
            cells.refuse(at, f"{len(row)} columns; expected {num_columns}, separated by {separator!r}")
    if not cells.rows:
        raise ValueError(f"{path} holds a header and no rows; fetch it again")
    return cells


def read_text(path: Path) -> list[str]:
    """The lines of a file; ValueError for one that is not UTF-8."""
    lines: list[str] = []
    for block in read_lines(path):
        if block.text.null_count:
            at = int(np.argmax(block.text.is_null().to_numpy(zero_copy_only=False)))
            raise ValueError(f"{path}, line {block.first + at + 1}: not UTF-8; mend the file or fetch it again")
        lines += block.text.to_pylist()
    return lines
