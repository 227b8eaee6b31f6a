"""Write the word vectors of an encoder in word2vec's text format: a line ``rows width``, then ``word v1 … vd``, UTF-8.

A value is written with the fewest digits that give the same float32 when read, so ``read_words`` (for
``words`` of jobs/train.py) and gensim's ``KeyedVectors.load_word2vec_format`` read the same bits.

The vector of out-of-vocabulary tokens is the row ``UUUNKKK``, as in the files of the papers' authors. BOS and EOS are
``<s>`` and ``</s>``, as in other files, so a training with BOS/EOS tokens starts from their vectors (see
``training.initial``).
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.encoders.averages import ScaledAvg, vectors_of
from paraembed.encoders.base import Encoder
from paraembed.encoders.composition import Composition
from paraembed.io.atomic import write_file
from paraembed.text.vocabulary import END, START, Words

_VALUES = 1 << 20  # at a time, some 30 MB as text
_NOT_IN_A_WORD = "[ \n\r\0]"  # ends a word or a line of the format, or makes the file binary


def words_of(encoder: Encoder) -> Words:
    """Return the words of an encoder and their vectors; for ``scaled_avg``, vectors times scales.

    Other parameters of the encoder are not included. BOS and EOS become lower case and replace the words ``<s>`` and
    ``</s>`` of the vocabulary, from which they were initialized.
    """
    boundary = pa.array([START, END]).filter(pc.is_in(pa.array([START, END]), encoder.vocabulary))
    keep = pc.invert(pc.is_in(encoder.vocabulary, pc.utf8_lower(boundary)))
    kept = encoder.vocabulary.filter(keep)
    names = pc.if_else(pc.is_in(kept, boundary), pc.utf8_lower(kept), kept)
    return Words(names, vectors_of(encoder)[np.asarray(keep)])


def is_in_words(composition: Composition) -> bool:
    """Return whether ``words_of`` includes all parameters of an encoder."""
    return isinstance(composition, ScaledAvg) or not list(composition.parameters())


def write_word2vec(words: Words, path: Path, *, overwrite: bool = False) -> str:
    """Write words [V] and vectors [V, d] atomically; gzipped if the name ends in ``.gz``. Equal words give equal bytes.
    Return the SHA-256 of the file, hexadecimal. Raise ValueError if a word cannot be written in the format, or a vector
    is not finite.
    """
    _check(words)

    def write(file: BinaryIO) -> None:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                packed.writelines(_lines(words))
        else:
            file.writelines(_lines(words))

    return write_file(path, write, overwrite=overwrite)


def _check(words: Words) -> None:
    bad = pc.or_(pc.match_substring_regex(words.vocabulary, _NOT_IN_A_WORD), pc.equal(words.vocabulary, ""))
    if pc.any(bad).as_py():
        wrong = words.vocabulary.filter(bad)
        raise ValueError(
            f"the vocabulary has {len(wrong)} words that word2vec's text format cannot represent, such as "
            f"{wrong[0].as_py()!r} (empty, or with a space, a line end or NUL); remove them from the word vectors, "
            "and train again"
        )
    finite = np.isfinite(words.matrix).all(axis=1)
    if not finite.all():
        word = words.vocabulary[int(np.argmin(finite))].as_py()
        raise ValueError(
            f"the vector of {word!r} is not finite, so the encoder is damaged; download it or train it again"
        )


def _lines(words: Words) -> Iterator[bytes]:
    """Yield the lines of the file, in pieces."""
    num_words, width = words.matrix.shape
    yield f"{num_words} {width}\n".encode()
    at_once = max(1, _VALUES // width)
    for start in range(0, num_words, at_once):
        block = words.matrix[start : start + at_once]
        values = pa.array(np.ascontiguousarray(block).reshape(-1)).cast(pa.string())
        rows = pc.binary_join(pa.FixedSizeListArray.from_arrays(values, width).cast(pa.list_(pa.string())), " ")
        lines = pc.binary_join_element_wise(words.vocabulary.slice(start, at_once), rows, " ")
        yield "".join(f"{line}\n" for line in lines.to_pylist()).encode()
