"""Tagged sentences, an empty line between two.

CoNLL-U, or lines of two or three columns with tabs between: token, tag, dependency label.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.data.lines import read_lines

_COLUMNS = 10  # of CoNLL-U: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC
_NO_WORD = re.compile(r"\d+[-.]\d+")  # a multiword token, an empty node
_EXPECTED = "expected CoNLL-U (10 columns), or two or three: token, tag, dependency label"


@dataclass(frozen=True)
class TaggedSentences:
    """n sentences: sentence i owns ``tokens[offsets[i]:offsets[i + 1]]``, likewise its tags and labels.

    Attributes:
        tokens: as they stand [T].
        tags: part of speech of each [T]: CoNLL-U's XPOS where the file has it, else UPOS.
        labels: dependency label of each [T]; empty where the file has none.
        offsets: int64 [n + 1].
    """

    tokens: pa.StringArray
    tags: tuple[str, ...]
    labels: tuple[str, ...]
    offsets: npt.NDArray[np.int64]


def read_tagged(path: Path) -> TaggedSentences:
    """Read a file of tagged sentences, plain or compressed.

    Of CoNLL-U, comments, multiword tokens (``3-4``) and empty nodes (``3.1``) are passed over.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: a line that is neither (file and line named), or no token at all.
    """
    found: list[tuple[str, str, str]] = []
    ends = [0]
    width = 0
    for number, line in _lines(path):
        if not line.strip(" "):
            ends.append(len(found))
            continue
        cells = line.split("\t")
        if line.startswith("#") and (width == _COLUMNS or len(cells) not in {2, 3}):
            continue  # a comment; the token # has as many columns as the others
        width = width or len(cells)
        if len(cells) != width or width not in {2, 3, _COLUMNS}:
            _refuse(path, number, f"{len(cells)} columns")
        if width == _COLUMNS and not cells[0].isdigit():
            if not _NO_WORD.fullmatch(cells[0]):
                _refuse(path, number, f"the ID is {cells[0][:20]!r}")
            continue
        token, tag, label = _fields(cells)
        if not token.strip() or not tag.strip():
            _refuse(path, number, "no token" if not token.strip() else "no tag")
        found.append((token, tag, label))
    if not found:
        raise ValueError(f"{path} holds no tokens; {_EXPECTED}")
    tokens, tags, labels = zip(*found, strict=True)
    has_labels = any(label != "_" for label in labels)
    offsets = np.unique([*ends, len(found)]).astype(np.int64)
    return TaggedSentences(pa.array(tokens, pa.string()), tags, labels if has_labels else (), offsets)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    for block in read_lines(path):
        for number, line in enumerate(block.text.to_pylist(), start=block.first + 1):
            if line is None:
                _refuse(path, number, "not UTF-8")
            yield number, line


def _fields(cells: list[str]) -> tuple[str, str, str]:
    """Token, tag and label of a line; ``_`` for a label that is not there."""
    if len(cells) == _COLUMNS:
        return cells[1], cells[3] if cells[4] == "_" else cells[4], cells[7]
    return cells[0], cells[1], cells[2] if len(cells) > 2 else "_"


def _refuse(path: Path, at: int, what: str) -> NoReturn:
    raise ValueError(f"{path}, line {at}: {what}; {_EXPECTED}; mend or drop the line")
