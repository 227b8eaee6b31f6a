"""Word vectors of fastText's models, ``.bin`` of versions 11 and 12 that are not quantized.

As in fastText's ``.vec`` files, the vector of a word is the mean of its row and those of its character n-grams
(Bojanowski et al. 2017 §3.2). Words outside the vocabulary get no vector from their n-grams.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from paraembed.compiled import compiled
from paraembed.io.places import open_regular

_HEAD = struct.Struct("<2i12id3i2q")  # magic, version; arguments; sizes of the dictionary
_AT_ONCE, _SUPERVISED = 1024, 3  # words; model


def head_of(data: bytes, path: Path) -> tuple[int, int, int, tuple[int, int, int]]:
    """Return the words, dimensions and dictionary entries that a model states; and its buckets, shortest and longest
    n-grams. Raise ValueError if it is not supported.
    """
    values = _HEAD.unpack_from(data.ljust(_HEAD.size, b"\0"))
    version, width, kind, *ngrams, entries, words, pruned = (values[n] for n in (1, 2, 9, 10, 11, 12, 15, 16, 19))
    if version not in {11, 12} or not 0 < width <= 65_536 or not 0 < words <= entries or pruned > 0:
        _refuse(path, f"version {version}, {words:,} words of {width:,} dimensions, {max(0, pruned):,} pruned n-grams")
    has_ngrams = pruned < 0 < ngrams[0] and (version, kind) != (11, _SUPERVISED)
    return words, width, entries, (ngrams[0], ngrams[1], ngrams[2]) if has_ngrams else (1, 0, 0)


def _refuse(path: Path, fault: str) -> NoReturn:
    raise ValueError(f"{path} is a fastText model that cannot be read ({fault}); use the .vec file of its vectors")


def fasttext_blocks(path: Path) -> Iterator[tuple[list[bytes], npt.NDArray[np.float32]]]:
    """Yield words and their vectors [n, d]; raise ValueError if the model is quantized or truncated."""
    with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        num_words, width, num_entries, (buckets, least, most) = head_of(data[: _HEAD.size], path)
        words, pos = list[bytes](), _HEAD.size
        while len(words) < num_entries and (stop := data.find(b"\0", pos)) >= 0:
            words.append(data[pos:stop])
            pos = stop + 10  # behind a count and a type
        is_quantized, num_rows, _ = struct.unpack("<?2q", data[pos : pos + 17].ljust(17, b"\0"))
        if is_quantized or num_rows < num_words + buckets * (most > 0) or pos + 17 + 4 * num_rows * width > len(data):
            _refuse(path, "quantized" if is_quantized else "truncated")
        for first in range(0, num_words, _AT_ONCE):
            rows, starts, block = list[int](), list[int](), words[first : min(first + _AT_ONCE, num_words)]
            for number, word in enumerate(block, start=first):
                octets = np.frombuffer(b"<" + word + b">", np.uint8)
                starts.append(len(rows))
                rows += [number, *(num_words + _ngrams(octets, buckets, least, most * (word != b"</s>"))).tolist()]
            vectors = np.ndarray((num_rows, width), "<f4", data, pos + 17)[rows]
            counts = np.diff([*starts, len(rows)])[:, None]
            yield block, (np.add.reduceat(vectors, starts) / counts).astype(np.float32)


@compiled
def _ngrams(octets: npt.NDArray[np.uint8], buckets: int, least: int, most: int) -> npt.NDArray[np.int64]:
    """Return the buckets of a word's n-grams: 32-bit FNV-1a of their UTF-8, of signed bytes."""
    rows, count = np.empty(len(octets) * most, np.int64), 0
    for begin in range(len(octets)):
        code, stop, length = 2166136261, begin, 0
        while stop < len(octets) and octets[begin] & 0xC0 != 0x80:
            octet = int(octets[stop])
            code = ((code ^ (octet | 0xFFFFFF00 if octet >= 0x80 else octet)) * 16777619) & 0xFFFFFFFF
            stop += 1
            if stop < len(octets) and octets[stop] & 0xC0 == 0x80:
                continue  # within a character
            length += 1
            if length > most:
                break
            if length >= least and not (length == 1 and (begin == 0 or stop == len(octets))):
                rows[count] = code % buckets
                count += 1
    return rows[:count]
