"""Word-vector files ↔ vocabulary and matrix; the unknown word.

The text format is one row a word: ``word v1 … vd``, separated by single spaces, plain or gzipped; word2vec's
header line (``rows width``) is accepted. The unknown word is the row ``UUUNKKK`` where the file has one (the papers'
authors' files do), else the mean of the rows beyond the vocabulary cut (Wieting 2015 §5), else the mean of all rows.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.files import open_binary, require_file

UNKNOWN = "UUUNKKK"
_BLOCK_ROWS = 20_000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Words:
    """A vocabulary with one vector a word; ``UNKNOWN`` is always one of the words.

    Attributes:
        vocabulary: string array [V], distinct.
        matrix: float32 [V, d].
    """

    vocabulary: pa.StringArray
    matrix: npt.NDArray[np.float32]

    @property
    def unknown(self) -> int:
        """Row of the unknown word."""
        return unknown_row(self.vocabulary)


def unknown_row(vocabulary: pa.StringArray) -> int:
    """Row of the unknown word in a vocabulary [V]."""
    row = int(pc.index(vocabulary, UNKNOWN).as_py())
    if row < 0:
        raise ValueError(f"the vocabulary has no row {UNKNOWN!r} for unknown words")
    return row


def word_ids(tokens: pa.StringArray, vocabulary: pa.StringArray) -> npt.NDArray[np.int32]:
    """Rows of T tokens in the vocabulary, int32 [T]; a token that is not in it gets the unknown row."""
    found = pc.fill_null(pc.index_in(tokens, value_set=vocabulary), unknown_row(vocabulary))
    return np.asarray(found, np.int32)


def read_words(path: Path, max_words: int | None = None) -> Words:
    """Read a word-vector text file.

    Repeated words keep their first row and are counted in a warning; an empty word is malformed.

    Args:
        path: text file, plain or ``.gz``.
        max_words: vocabulary cut: only so many rows are kept (files are ordered by frequency); the rest makes the
            unknown word, unless the file names one.

    Returns:
        The words of the file in its order; an unknown row is added at the end where the file has none.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: empty or binary file, a row of another width, a value that is no number (file and line named).
    """
    if max_words is not None and max_words < 1:
        raise ValueError(f"max_words is {max_words}; it must be at least 1, or left out to keep every word")
    rows: dict[str, int] = {}
    kept: list[npt.NDArray[np.float32]] = []
    repeated = beyond = 0
    sum_all = sum_beyond = np.zeros(1)
    for words, block in _blocks(path):
        fresh = []
        for row, word in enumerate(words):
            if word in rows:
                repeated += 1
            elif max_words is None or len(rows) < max_words or word == UNKNOWN:
                rows[word] = len(rows)
                fresh.append(row)
        sum_all = sum_all + block.sum(axis=0, dtype=np.float64)
        cut = np.ones(len(words), bool)
        cut[fresh] = False
        cut &= np.fromiter((word not in rows for word in words), bool, len(words))
        beyond += int(cut.sum())
        sum_beyond = sum_beyond + block[cut].sum(axis=0, dtype=np.float64)
        kept.append(block[fresh])
    if repeated:
        log.warning("%s: %d repeated words; the first row of each was kept", path, repeated)
    total = len(rows) + repeated + beyond
    if UNKNOWN not in rows:
        rows[UNKNOWN] = len(rows)
        mean = sum_beyond / beyond if beyond else sum_all / total
        kept.append(mean.astype(np.float32)[None])
    return Words(pa.array(list(rows), pa.string()), np.concatenate(kept))


def _blocks(path: Path) -> Iterator[tuple[list[str], npt.NDArray[np.float32]]]:
    """Words [n] and vectors float32 [n, d] of a file, some thousand rows at a time."""
    require_file(path)
    width: int | None = None
    words: list[str] = []
    values: list[str] = []
    first_line = 1
    number = 0
    with open_binary(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                fields = line.decode("utf-8").rstrip().split(" ")
            except UnicodeDecodeError:
                raise ValueError(f"{path}, line {number}: not UTF-8; expected text rows 'word v1 … vd'") from None
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                first_line = 2
                continue
            if width is None:
                width = len(fields) - 1
            if len(fields) - 1 != width or width < 1 or not fields[0].strip():
                raise ValueError(
                    f"{path}, line {number}: a word with {len(fields) - 1} values; expected 'word v1 … vd' with "
                    f"{width or 'some'} values, as in the rows before; mend or drop the line"
                )
            words.append(fields[0])
            values.extend(fields[1:])
            if len(words) == _BLOCK_ROWS:
                yield words, _parse(values, width, path, first_line)
                words, values, first_line = [], [], number + 1
    if words and width is not None:
        yield words, _parse(values, width, path, first_line)
    if width is None:
        raise ValueError(f"{path} is empty; expected text rows 'word v1 … vd'")


def _parse(values: list[str], width: int, path: Path, first_line: int) -> npt.NDArray[np.float32]:
    try:
        block = pa.array(values, pa.string()).cast(pa.float32()).to_numpy()
        bad = np.flatnonzero(~np.isfinite(block))
    except pa.ArrowInvalid:
        bad = np.array([next(i for i, value in enumerate(values) if not _is_number(value))])
    if len(bad):
        line, value = first_line + int(bad[0]) // width, values[int(bad[0])]
        raise ValueError(f"{path}, line {line}: {value!r} is not a finite number; mend or drop the line")
    return np.asarray(block, np.float32).reshape(-1, width)


def _is_number(value: str) -> bool:
    try:
        pa.array([value]).cast(pa.float32())
    except pa.ArrowInvalid:
        return False
    return True


def add_random_words(words: Words, unseen: pa.StringArray, seed: int) -> Words:
    """Add words that have no vector, with random ones of the length that the file's vectors have.

    Args:
        words: the vocabulary to extend, [V] and [V, d].
        unseen: string array [k] of new words.
        seed: decides the vectors: N(0, s²) with s the root mean square of the matrix.

    Returns:
        Words [V + k]; the rows that were there keep their place.
    """
    scale = float(np.sqrt(np.mean(np.square(words.matrix, dtype=np.float64))))
    drawn = np.random.default_rng(seed).standard_normal((len(unseen), words.matrix.shape[1]), dtype=np.float32)
    return Words(
        pa.concat_arrays([words.vocabulary, unseen]), np.concatenate([words.matrix, drawn * np.float32(scale)])
    )


def save_vocabulary(vocabulary: pa.StringArray, path: Path) -> None:
    """Write a vocabulary [V], one word a line, UTF-8."""
    path.write_text("".join(f"{word}\n" for word in vocabulary.to_pylist()), encoding="utf-8", newline="\n")


def load_vocabulary(path: Path) -> pa.StringArray:
    """Read what ``save_vocabulary`` wrote; words may hold any character but a line feed."""
    return pa.array(path.read_bytes().decode("utf-8").split("\n")[:-1], pa.string())
