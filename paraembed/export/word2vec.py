"""Word vectors of an encoder as word2vec's text format: a line ``rows width``, then ``word v1 … vd``, UTF-8.

A value is written with the fewest digits that read as the same float32, so whoever reads the file has the same bits:
``read_words`` (``jobs/train.py --words``), gensim's ``KeyedVectors.load_word2vec_format``.

The unknown word is the row ``UUUNKKK``, as in the files of the papers' authors; boundary words are ``<s>`` and
``</s>``, as other files have them: so a training that wants some begins with these (see ``training.inputs``).
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.encoders.base import Composition, Encoder
from paraembed.encoders.scaled_avg import ScaledAvg
from paraembed.evaluation.analyses.words import vectors_of
from paraembed.io.atomic import write_file
from paraembed.text.vocabulary import END, START, Words

_VALUES = 1 << 20  # at a time, some 30 MB as text
_NOT_IN_A_WORD = "[ \n\r\0]"  # what ends a word or a line of the format, or makes the file a binary one


def words_of(encoder: Encoder) -> Words:
    """The words of an encoder and their vectors as they enter a text: those of ``scaled_avg`` times their numbers.

    What else a composition does is not in them. Boundary words are in lower case, in the place of such words of the
    vocabulary, which are those that they began as.
    """
    boundary = pa.array([START, END]).filter(pc.is_in(pa.array([START, END]), encoder.vocabulary))
    keep = pc.invert(pc.is_in(encoder.vocabulary, pc.utf8_lower(boundary)))
    kept = encoder.vocabulary.filter(keep)
    names = pc.if_else(pc.is_in(kept, boundary), pc.utf8_lower(kept), kept)
    return Words(names, vectors_of(encoder)[np.asarray(keep)])


def is_in_words(composition: Composition) -> bool:
    """Return whether ``words_of`` holds all that an encoder learned."""
    return isinstance(composition, ScaledAvg) or not list(composition.parameters())


def write_word2vec(words: Words, path: Path) -> str:
    """Write words [V] and vectors [V, d], whole or not at all; gzipped where the name ends in ``.gz``.

    Equal words give equal bytes.

    Returns:
        SHA-256 of the file, hexadecimal.

    Raises:
        ValueError: a word that the format cannot hold, a vector that is not finite.
        OSError: the file cannot be written.
    """
    _check(words)

    def write(file: BinaryIO) -> None:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                packed.writelines(_lines(words))
        else:
            file.writelines(_lines(words))

    return write_file(path, write)


def _check(words: Words) -> None:
    bad = pc.or_(pc.match_substring_regex(words.vocabulary, _NOT_IN_A_WORD), pc.equal(words.vocabulary, ""))
    if pc.any(bad).as_py():
        some = words.vocabulary.filter(bad)
        raise ValueError(
            f"the vocabulary has {len(some)} words that word2vec's text cannot hold, such as {some[0].as_py()!r}: "
            "empty, or with a space, a line end or NUL in them; leave them out of the word vectors, and train again"
        )
    finite = np.isfinite(words.matrix).all(axis=1)
    if not finite.all():
        word = words.vocabulary[int(np.argmin(finite))].as_py()
        raise ValueError(f"the vector of {word!r} is not finite; the encoder is broken: fetch or train it again")


def _lines(words: Words) -> Iterator[bytes]:
    """The file, in pieces."""
    num_words, width = words.matrix.shape
    yield f"{num_words} {width}\n".encode()
    at_once = max(1, _VALUES // width)
    for start in range(0, num_words, at_once):
        block = words.matrix[start : start + at_once]
        values = pa.array(np.ascontiguousarray(block).reshape(-1)).cast(pa.string())
        rows = pc.binary_join(pa.FixedSizeListArray.from_arrays(values, width).cast(pa.list_(pa.string())), " ")
        lines = pc.binary_join_element_wise(words.vocabulary.slice(start, at_once), rows, " ")
        yield "".join(f"{line}\n" for line in lines.to_pylist()).encode()
