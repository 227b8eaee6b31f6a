"""Word vectors in other forms than text: word2vec's binary files, and static models of other libraries.

The binary form has the line ``rows width``, then for each row the word, a space, and ``width`` numbers, float32 in
little-endian order; a line feed may follow. Of a static model, ``model.safetensors`` is read, with the vocabulary in
``tokenizer.json`` next to it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paraembed.io.fingerprint import read_json
from paraembed.io.inflate import read_blocks
from paraembed.io.places import require_file

Block = tuple[list[str], npt.NDArray[np.float32]]
"""Words [n] and their vectors [n, d]."""

_BYTES = 1 << 24  # at a time
_TABLES = ("embedding.weight", "embeddings")
_MOST_HEADER, _MOST_WORD, _MOST_WIDTH = 100, 10_000, 65_536  # bytes; numbers


def is_binary(path: Path) -> bool:
    """Return whether a file is word2vec's binary form, by its name."""
    return re.search(r"\.bin(\.gz|\.bz2|\.zst)?$", path.name) is not None


def binary_blocks(path: Path, *, block_bytes: int = _BYTES) -> Iterator[Block]:
    """Yield the rows of a binary file, plain or compressed.

    Raise ValueError if it has no header, is truncated or longer than the header says, or a word is not UTF-8.
    """
    pieces = read_blocks(path, block_bytes)
    data = next(pieces, b"")
    line, _, data = data.partition(b"\n")
    num_rows, width = _header(line, path)
    num_bytes, done = 4 * width, 0
    while done < num_rows:
        words, vectors, pos = list[str](), list[bytes](), 0
        while done < num_rows:
            space = data.find(b" ", pos)
            end = space + 1 + num_bytes
            if space < 0 or end > len(data):
                break
            words.append(_word(data[pos:space], path, done + 1))
            vectors.append(data[space + 1 : end])
            pos, done = end, done + 1
        if words:
            yield words, _finite(np.frombuffer(b"".join(vectors), "<f4").reshape(len(words), -1), words, path)
        piece = next(pieces, b"") if done < num_rows else b""
        if done < num_rows and (not piece or len(data) - pos > _MOST_WORD + num_bytes):
            raise ValueError(
                f"{path}: row {done + 1:,} of {num_rows:,} is truncated or damaged; download the file again"
            )
        data = data[pos:] + piece
    if any(piece.strip() for piece in chain([data], pieces)):
        raise ValueError(f"{path} is longer than the {num_rows:,} rows of its header; download it again")


def stated_shape(path: Path) -> tuple[int, int] | None:
    """Return the rows and the width that a binary file or a static model states; None for a text file or a model
    without a table. Raise the errors of ``binary_blocks`` and ``model_blocks``.
    """
    if is_binary(path):
        return _header(next(read_blocks(path, _MOST_HEADER), b"").partition(b"\n")[0], path)
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


def _word(octets: bytes, path: Path, row: int) -> str:
    try:
        word = octets.removeprefix(b"\n").decode()
    except UnicodeDecodeError:
        word = ""
    if not word:
        raise ValueError(f"{path}: the word of row {row:,} is {octets[:40]!r}, which is not UTF-8; download it again")
    return word


def _finite(block: npt.NDArray[np.float32], words: list[str], path: Path) -> npt.NDArray[np.float32]:
    bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
    if len(bad):
        raise ValueError(f"{path}: the vector of {words[int(bad[0])]!r} is not finite; download the file again")
    return block.astype(np.float32)


def model_blocks(path: Path, unknown: str) -> Iterator[Block]:
    """Yield words and vectors of a static model of sentence-transformers or model2vec, given its ``model.safetensors``.

    The row of OOV tokens gets the name ``unknown``. Raise ValueError if the model is not static, or its tokenizer
    divides words.
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
    yield words, _finite(np.asarray(table, np.float32), words, path)


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
