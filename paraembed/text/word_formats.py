"""Word vectors in other forms than text: word2vec's binary files, and static models of other libraries; and the rows
that are skipped in every form.

The binary form has the line ``rows width``, then for each row the word, a space, and ``width`` numbers, float32 in
little-endian order; a line feed may follow. fastText's models end in ``.bin``, too. Of a static model,
``model.safetensors`` is read, with the vocabulary in
``tokenizer.json`` next to it.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paraembed.io.fingerprint import read_json
from paraembed.io.inflate import is_compressed, read_blocks
from paraembed.io.places import require_file
from paraembed.text.fasttext import fasttext_blocks, head_of

Block = tuple[list[str], npt.NDArray[np.float32]]
"""Words [n] and their vectors [n, d]."""

_BYTES = 1 << 24  # at a time
_TABLES = ("embedding.weight", "embeddings")
_FASTTEXT = b"\xba\x16\x4f\x2f"  # the first bytes of a model of fastText
_MOST_HEADER, _MOST_WORD, _MOST_WIDTH = 100, 10_000, 65_536  # bytes; numbers
_FEW = 5

log = logging.getLogger(__name__)


@dataclass
class BadRows:
    """Rows of a word-vector file that are skipped, because they have no word or no vector.

    Published files have some: 3 of 400,000 to 2 of 3,000,000 rows. ``share`` is the fraction of the rows that may be
    bad. Five are allowed in files in which it would allow fewer, if most rows are good; none if it is 0.
    """

    path: Path
    share: float
    unit: str = "row"  # what is numbered in messages
    num_bad: int = 0
    shown: list[str] = field(default_factory=list)  # the first ones

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"`max_bad_words` is {self.share:g}; it must be a fraction from 0 to 1, for example 0.01")

    def add(self, row: int, fault: str) -> None:
        """Count a bad row, given its number, from 1, and its fault."""
        self.num_bad += 1
        if len(self.shown) < _FEW:
            self.shown.append(f"{self.unit} {row}: {fault}")

    def allowed(self, num_rows: int) -> int:
        """Return how many of the rows may be bad."""
        return max(int(self.share * num_rows), min(_FEW, (num_rows - 1) // 2) if self.share else 0)

    def check(self, num_rows: int, *, is_end: bool = False) -> None:
        """Raise ValueError if too many of the rows read are bad: more than half, or at the end those allowed."""
        most = self.allowed(num_rows)
        if self.num_bad > (most if is_end else max(most, num_rows // 2)):
            raise ValueError(
                f"{self.path}, {self.shown[0]}. {self.num_bad:,} of {num_rows:,} rows are not word vectors, but only "
                f"{most:,} may be (`max_bad_words` {self.share:g}); correct or delete them, download the file again, "
                "or give a larger `max_bad_words`"
            )
        if is_end and self.num_bad:
            log.warning(
                "%s: %d of %d rows are not word vectors and are skipped: %s",
                *(self.path, self.num_bad, num_rows, "; ".join(self.shown)),
            )


def is_binary(path: Path) -> bool:
    """Return whether a file is word2vec's binary form, by its name."""
    return re.search(r"\.bin(\.gz|\.bz2|\.zst)?$", path.name) is not None


def binary_blocks(path: Path, bad: BadRows, *, block_bytes: int = _BYTES) -> Iterator[Block]:
    """Yield the rows of a binary file, plain or compressed; add those to ``bad`` whose word is not UTF-8.

    Raise ValueError if it has no header, is truncated or longer than the header says, or has too many bad rows; and the
    errors of ``fasttext_blocks``.
    """
    pieces = read_blocks(path, block_bytes)
    data = next(pieces, b"")
    if data.startswith(_FASTTEXT):
        yield from _of_fasttext(path, bad)
        return
    line, _, data = data.partition(b"\n")
    num_rows, width = _header(line, path)
    num_bytes, done = 4 * width, 0
    while done < num_rows:
        words, vectors, pos, first = list[bytes](), list[bytes](), 0, done + 1
        while done < num_rows:
            space = data.find(b" ", pos)
            end = space + 1 + num_bytes
            if space < 0 or end > len(data):
                break
            words.append(data[pos:space].removeprefix(b"\n"))
            vectors.append(data[space + 1 : end])
            pos, done = end, done + 1
        block = np.frombuffer(b"".join(vectors), "<f4").reshape(len(words), width)
        yield _with_words(words, block, bad, first)
        bad.check(done, is_end=done == num_rows)
        piece = next(pieces, b"") if done < num_rows else b""
        if done < num_rows and (not piece or len(data) - pos > _MOST_WORD + num_bytes):
            raise ValueError(
                f"{path}: row {done + 1:,} of {num_rows:,} is truncated or damaged; download the file again"
            )
        data = data[pos:] + piece
    if any(piece.strip() for piece in chain([data], pieces)):
        raise ValueError(f"{path} is longer than the {num_rows:,} rows of its header; download it again")


def _of_fasttext(path: Path, bad: BadRows) -> Iterator[Block]:
    if is_compressed(path):
        raise ValueError(f"{path} is a compressed fastText model; decompress it, or use the .vec file of its vectors")
    done = 0
    for words, vectors in fasttext_blocks(path):
        yield _with_words(words, vectors, bad, done + 1)
        done += len(words)
        bad.check(done)
    bad.check(done, is_end=True)


def stated_shape(path: Path) -> tuple[int, int] | None:
    """Return the rows and the width that a binary file or a static model states; None for a text file or a model
    without a table. Raise the errors of ``binary_blocks`` and ``model_blocks``.
    """
    if is_binary(path):
        head = next(read_blocks(path, _MOST_HEADER), b"")
        if head.startswith(_FASTTEXT):
            return head_of(head, path)[:2]
        return _header(head.partition(b"\n")[0], path)
    if path.suffix != ".safetensors":
        return None
    with _opened_model(path) as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - not a dict
    table: list[int] = next((shapes[name] for name in _TABLES if name in shapes), [])
    return (shapes.get("mapping", table)[0], table[1]) if len(table) == 2 else None


def _header(line: bytes, path: Path) -> tuple[int, int]:
    header = re.fullmatch(rb"([0-9]+) ([0-9]+) *\r?", line) if len(line) <= _MOST_HEADER else None
    if header is None or not int(header[1]) or not 0 < int(header[2]) <= _MOST_WIDTH:
        raise ValueError(
            f"{path}: the first line is {line[:40]!r}; expected word2vec's binary form, which begins with 'rows width'"
        )
    return int(header[1]), int(header[2])


def _with_words(names: list[bytes], block: npt.NDArray[np.float32], bad: BadRows, first: int) -> Block:
    """Return the good rows of a block of binary rows, of which the first has the number ``first``."""
    words = list[str]()
    for row, name in enumerate(names, start=first):
        try:
            words.append(name.decode())
        except UnicodeDecodeError:
            words.append("")
        if not words[-1]:
            bad.add(row, f"the word is {name[:40]!r}, which is {'not UTF-8' if name else 'empty'}")
    rows = np.array([row for row, word in enumerate(words) if word], np.int64)
    return finite_rows([*filter(None, words)], block[rows], bad, first + rows)


def finite_rows(words: list[str], block: npt.NDArray[np.float32], bad: BadRows, rows: npt.NDArray[np.int64]) -> Block:
    """Return the rows with finite vectors; add the others to ``bad``, with their numbers ``rows`` [n]."""
    is_finite = np.isfinite(block).all(axis=1)
    if is_finite.all():
        return words, block
    for row in np.flatnonzero(~is_finite).tolist():
        bad.add(int(rows[row]), f"the vector of {words[row][:40]!r} has a value that is not a finite number")
    kept = np.flatnonzero(is_finite)
    return [words[row] for row in kept.tolist()], block[kept]


def model_blocks(path: Path, unknown: str, bad: BadRows) -> Iterator[Block]:
    """Yield words and vectors of a static model of sentence-transformers or model2vec, given its ``model.safetensors``.

    The row of OOV tokens gets the name ``unknown``. Rows that are not finite are added to ``bad``. Raise ValueError if
    the model is not static, or its tokenizer divides words.
    """
    words = _vocabulary(path.with_name("tokenizer.json"), unknown)
    with _opened_model(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    table = next((tensors[name] for name in _TABLES if name in tensors), None)
    if table is None or table.ndim != 2:
        raise ValueError(
            f"{path} has no table 'embedding.weight' or 'embeddings' [V, D]; only static models have word vectors"
        )
    if "mapping" in tensors:
        table = table[tensors["mapping"]]
    if "weights" in tensors:
        table = table * tensors["weights"][:, None]
    if len(table) != len(words):
        raise ValueError(
            f"{path} has {len(table):,} rows, but tokenizer.json {len(words):,} words; download both again"
        )
    yield finite_rows(words, np.asarray(table, np.float32), bad, np.arange(1, len(words) + 1))
    bad.check(len(words), is_end=True)


@contextmanager
def _opened_model(path: Path) -> Iterator[Any]:
    require_file(path)
    library = import_module("safetensors")
    try:
        with library.safe_open(path, "numpy") as file:
            yield file
    except (library.SafetensorError, TypeError) as error:  # TypeError: bfloat16
        raise ValueError(f"{path} cannot be read: {str(error)[:200]}; save the model in float32") from None


def _vocabulary(path: Path, unknown: str) -> list[str]:
    """Return the words of a ``tokenizer.json``, by row."""
    document: Any = read_json(path)
    model = document.get("model") if isinstance(document, dict) else None
    model = model if isinstance(model, dict) else {}
    kind, ids = model.get("type"), model.get("vocab")
    is_marked = kind == "BPE" and model.get("ignore_merges") and not model.get("merges")
    if kind != "WordLevel" and not is_marked:
        raise ValueError(
            f"{path} divides words into pieces ({kind}), so the model has no vectors of words; use a model whose "
            "tokenizer is WordLevel"
        )
    if not isinstance(ids, dict) or sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"{path} has no vocabulary with the ids 0 to V - 1; download it again")
    names = sorted(ids, key=lambda word: int(ids[word]))
    oov = " " if is_marked else model.get("unk_token")
    return [unknown if name == oov else name.removeprefix(" " if is_marked else "") for name in names]
