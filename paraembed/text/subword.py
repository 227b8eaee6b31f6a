"""Subwords: the ids of any ``tokenizer.json`` of Hugging Face, computed by its library ``tokenizers``.

The library takes 33 times as long as the compiled loops for uncased BERT (``text.tokens``; 24 pieces per text).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.options import json_value
from paraembed.process import HUB, set_environment
from paraembed.text import SUBWORD
from paraembed.text.bigrams import is_bigram
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import END, START, UNKNOWN, unknown_row

_AROUND = ("truncation", "padding", "post_processor")
"""Parts of a ``tokenizer.json`` that are left out: they add special tokens, or cut or fill up a text."""
_AT_ONCE = 4096  # texts
_SHOWN = 200  # characters of an error of the library


class SubwordTokenizer(str):
    """Name of the tokenizer ``SUBWORD``, with the ``tokenizer.json`` that decides the tokens.

    It is a string, because most code reads no more than the name of a tokenizer. Whatever passes the name on passes the
    file on, too.
    """

    contents: bytes  # contents of ``tokenizer.json``

    def __new__(cls, contents: bytes) -> "SubwordTokenizer":
        """Return the name, with the file."""
        tokenizer = super().__new__(cls, SUBWORD)
        tokenizer.contents = contents
        return tokenizer

    def __getnewargs__(self) -> tuple[bytes]:  # type: ignore[override] # other processes get the file
        return (self.contents,)


def without_ends(contents: bytes, name: str = "tokenizer.json") -> SubwordTokenizer:
    """Return the tokenizer of a ``tokenizer.json``, without truncation, padding, special tokens around a text, and
    dropout of merges, which would draw the tokens at random.

    Raise ValueError, with the name of the file, if it is not a ``tokenizer.json``, or the library is not installed.
    """
    document = json_value(contents, name)
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ValueError(f"{name} has no object 'model', so it is not a tokenizer.json of Hugging Face")
    model = {key: None if key == "dropout" else value for key, value in document["model"].items()}
    kept = {**document, **dict.fromkeys(_AROUND), "model": model}
    tokenizer = SubwordTokenizer(json.dumps(kept, ensure_ascii=False, sort_keys=True).encode())
    _parsed(tokenizer.contents)
    return tokenizer


def contents_of(tokenizer: str) -> bytes:
    """Return the ``tokenizer.json`` of a tokenizer, empty without one; raise ValueError if only its name is known."""
    if tokenizer == SUBWORD and not isinstance(tokenizer, SubwordTokenizer):
        raise ValueError(f"the tokenizer {SUBWORD} has no tokenizer.json; load it with its encoder folder")
    return tokenizer.contents if isinstance(tokenizer, SubwordTokenizer) else b""


def vocabulary_of(tokenizer: SubwordTokenizer) -> pa.StringArray:
    """Return the pieces of a tokenizer in the order of their ids, as in ``Subwords``.

    ``UNKNOWN`` replaces the OOV token of the model; it is the last piece if the model has no such token. Raise
    ValueError if a piece has this name.
    """
    ids, names = _pieces(_parsed(tokenizer.contents))
    oov = _oov_id(tokenizer.contents)
    if UNKNOWN in names:
        raise ValueError(f"tokenizer.json has the piece {UNKNOWN}, which is the name of OOV tokens here; rename it")
    words = [UNKNOWN if number == oov else name for number, name in zip(ids.tolist(), names, strict=True)]
    return pa.array(words if UNKNOWN in words else [*words, UNKNOWN], pa.string())


class Subwords:
    """Function that maps texts to word ids; ``ids`` holds the id of each piece in ``tokenizer.json``, -1 if it has
    none.

    The vocabulary [V] holds pieces of the tokenizer, as ``_line`` writes them. Tokens of the tokenizer without a row
    are OOV tokens. Raise ValueError if the file of the tokenizer is damaged, or lacks a piece of the vocabulary; or the
    library is not installed.
    """

    def __init__(self, vocabulary: pa.StringArray, tokenizer: SubwordTokenizer) -> None:
        self._library, oov = _parsed(tokenizer.contents), _oov_id(tokenizer.contents)
        self._prefix = json.loads(tokenizer.contents)["model"].get("continuing_subword_prefix") or ""
        self._every, names = _pieces(self._library)
        pieces = pa.array(names, pa.string())
        known = pc.is_in(vocabulary, pa.concat_arrays([pieces, pa.array([UNKNOWN, START, END])]))
        known = pc.or_(known, pa.array(is_bigram(vocabulary)))
        if other := vocabulary.filter(pc.invert(known)).to_pylist():
            raise ValueError(f"the vocabulary has {other[0][:80]!r}, which is not a piece of tokenizer.json")
        self._oov = unknown_row(vocabulary)
        self._rows = np.array(pc.fill_null(pc.index_in(pieces, value_set=vocabulary), self._oov), np.int32)
        self._rows[self._every == oov] = self._oov
        self.ids = np.full(len(vocabulary), -1, np.int64)
        self.ids[self._rows] = self._every
        self.ids[self._oov] = oov

    @property
    def keeps_ids(self) -> bool:
        """Whether the row of every piece is its id in ``tokenizer.json``."""
        return bool(np.array_equal(self._every, np.arange(len(self._every))) and (self._rows == self._every).all())

    def __call__(self, texts: pa.StringArray) -> Ragged:
        """Return the rows of the tokens of a string array [n] in the vocabulary; null counts as empty.

        Raise ValueError if a text is not UTF-8, or the library cannot divide it.
        """
        lengths, parts = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for start in range(0, len(texts), _AT_ONCE):
            block = [text or "" for text in texts[start : start + _AT_ONCE].to_pylist()]
            with _errors("cannot divide a text"):
                encodings = self._library.encode_batch_fast(block, add_special_tokens=False)
            ids = [encoding.ids for encoding in encodings]
            lengths.append(np.array([len(of_text) for of_text in ids], np.int64))
            flat = np.array([number for of_text in ids for number in of_text], np.int64)
            places = np.minimum(np.searchsorted(self._every, flat), len(self._every) - 1)
            parts.append(np.where(self._every[places] == flat, self._rows[places], np.int32(self._oov)))
        return Ragged(np.concatenate(parts), np.cumsum(np.concatenate(lengths)))

    def alone(self) -> list[str]:
        """Return the text of each piece [V], which a teacher embeds; empty for OOV tokens, and for a piece that is no
        text, such as one of the bytes of a character.
        """
        texts = []
        for row, number in enumerate(self.ids.tolist()):
            name = "" if number < 0 or row == self._oov else self._library.id_to_token(number) or ""
            if self._prefix and name.startswith(self._prefix):
                text = name.removeprefix(self._prefix)
            else:
                text = self._library.decode([number], skip_special_tokens=False) if name else ""
            texts.append("" if "\ufffd" in text else text)
        return texts


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn the library's errors into ValueError: ``Exception`` itself, and panics of Rust, which are no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"tokenizer.json {what}: {str(error)[:_SHOWN] or type(error).__name__}") from error


def _pieces(library: Any) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the ids of all pieces, sorted, int64 [P], and their names as in a vocabulary file."""
    pieces = sorted((number, name) for name, number in library.get_vocab(with_added_tokens=True).items())
    return np.array([number for number, _ in pieces], np.int64), [_line(name) for _, name in pieces]


def _oov_id(contents: bytes) -> int:
    """Return the id of the model's OOV token; -1 if it has none, as models of bytes."""
    model = json.loads(contents)["model"]
    number = model.get("unk_id")
    if isinstance(model.get("unk_token"), str):
        number = _parsed(contents).token_to_id(model["unk_token"])
    return number if isinstance(number, int) else -1


def _line(piece: str) -> str:
    """Return a piece for a vocabulary file, which has a word per line: backslash and line feed as in JSON."""
    return piece.replace("\\", "\\\\").replace("\n", "\\n")


@lru_cache(maxsize=2)
def _parsed(contents: bytes) -> Any:
    """Return the library's object, which threads can share, since nothing changes it."""
    set_environment(HUB)  # with one thread, as each worker has one
    try:
        library = import_module("tokenizers")
    except ModuleNotFoundError:
        raise ValueError("the tokenizer subword needs the package tokenizers; run pip install tokenizers") from None
    with _errors("is not one that tokenizers can read"):
        check_merges(contents)
        return library.Tokenizer.from_str(contents.decode("utf-8"))


def check_merges(contents: bytes) -> None:
    """Raise ValueError for a merge at which the library aborts the process: it removes as many bytes of the second
    piece as the prefix of continuing pieces has characters, and must not divide a character.
    """
    model = json.loads(contents)["model"]
    prefix = model.get("continuing_subword_prefix")
    for merge in model.get("merges", []) if isinstance(prefix, str) else ():
        second = merge.split(" ")[-1] if isinstance(merge, str) else merge[-1]
        rest = second.encode()[len(prefix) :]
        if rest and rest[0] & 0xC0 == 0x80:
            raise ValueError(f"the second piece of the merge {merge!r} does not begin with the prefix {prefix!r}")
