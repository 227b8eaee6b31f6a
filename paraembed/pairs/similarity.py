"""Scored pairs: how alike two sentences are, as people judged it; for evaluation only.

A TSV file, plain or ``.gz``, without quoting: ``score  sentence1  sentence2``, with that header line or without one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.io.escape import printable
from paraembed.io.lines import Lines, read_lines

HEADER = "score\tsentence1\tsentence2"
_EXPECTED = "expected three columns, separated by tabs: score, first sentence, second sentence"


@dataclass(frozen=True)
class ScoredPairs:
    """n pairs of sentences with their gold scores.

    Attributes:
        name: name of the set.
        scores: float64 [n], finite; the scale is the file's own.
        first: string array [n].
        second: string array [n].
    """

    name: str
    scores: npt.NDArray[np.float64]
    first: pa.StringArray
    second: pa.StringArray

    @property
    def texts(self) -> tuple[pa.StringArray, ...]:
        """Both sides."""
        return self.first, self.second

    def __len__(self) -> int:
        return len(self.scores)


def read_scored_pairs(path: Path) -> ScoredPairs:
    """Read a file of scored pairs; the set is named as the file, without ``.tsv`` and ``.gz``.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: a line that is no scored pair (file and line named), or a file without any.
    """
    scores: list[float] = []
    first: list[str] = []
    second: list[str] = []
    for block in read_lines(path):
        for at, text in enumerate(_texts(path, block)):
            if block.first == at == 0 and text.removeprefix("\ufeff").lower() == HEADER:
                continue
            score, one, other = _pair(path, block.first + at, text)
            scores.append(score)
            first.append(one)
            second.append(other)
    if not scores:
        raise ValueError(f"{path} holds no pairs; {_EXPECTED}")
    name = printable(path.name.removesuffix(".gz").removesuffix(".tsv"))
    return ScoredPairs(name, np.array(scores), pa.array(first, pa.string()), pa.array(second, pa.string()))


def _texts(path: Path, block: Lines) -> list[str]:
    if block.text.null_count:
        at = int(np.argmax(block.text.is_null().to_numpy(zero_copy_only=False)))
        _refuse(path, block.first + at, "not UTF-8")
    texts: list[str] = block.text.to_pylist()
    return texts


def _pair(path: Path, at: int, text: str) -> tuple[float, str, str]:
    cells = text.split("\t")
    if len(cells) != 3:
        _refuse(path, at, f"{len(cells)} columns" if text.strip() else "an empty line")
    score = float(cells[0]) if _is_number(cells[0]) else np.nan
    if not np.isfinite(score):
        _refuse(path, at, f"the score is {cells[0][:40]!r}, which is no finite number")
    return score, cells[1], cells[2]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _refuse(path: Path, at: int, what: str) -> NoReturn:
    raise ValueError(f"{path}, line {at + 1}: {what}; {_EXPECTED}; mend or drop the line")
