"""Cut the texts of rows into chunks of whole sentences, of at most some tokens of the encoder; elements of lists.

A chunk is a range of the text, and the chunks of a text without overlap are the text. They depend on the text, the
tokenizer of the encoder and the settings alone. The tokens are computed once, if they do not depend on the cuts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.embedding.settings import CHUNK_TEXTS, Settings
from paraembed.encoders.own import OwnEncoder
from paraembed.encoders.protocol import Embedded, OnRows, TextEncoder
from paraembed.io.lines import gather
from paraembed.text.ragged import Ragged, joined, string_bytes
from paraembed.text.sentences import blocks, characters, halves, pack, sentences, words

Numbers = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
_LEVELS: dict[str, tuple[Callable[..., int], ...]] = {
    "token": (words,),
    "sentence": (sentences, words),
    "markdown": (blocks, sentences, words),
}
"""What cuts texts, and then the pieces that are too long."""
_STRINGS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


@dataclass(frozen=True)
class Chunks:
    """m chunks of n texts, in their order."""

    rows: Numbers  # int64 [m], number of the text
    numbers: npt.NDArray[np.int32]  # int32 [m], number of the chunk in its text, from 0
    starts: npt.NDArray[np.int32]  # int32 [m], first character
    ends: npt.NDArray[np.int32]  # int32 [m], the character after the last
    octets: Octets  # bytes of the texts
    spans: tuple[Numbers, Numbers]  # first byte of each chunk, and the byte after its last
    tokens: Ragged | None  # tokens of the pieces, if the encoder need not compute them again
    pieces: tuple[Numbers, Numbers]  # first piece of each chunk, and the piece after its last
    is_stripped: bool = True  # whether the encoder reads chunks without the white space at their ends

    def __len__(self) -> int:
        return len(self.rows)

    def texts(self, start: int, stop: int) -> pa.LargeStringArray:
        """Return the texts of chunks ``start`` to ``stop`` - 1."""
        return _strings(self.octets, *(places[start:stop] for places in self.spans))

    def sizes(self, carried: list[pa.Array], settings: Settings) -> Numbers:
        """Return the bytes of each chunk's row, int64 [m], but for numbers: its text, and what it repeats, see
        ``columns``.
        """
        of_rows = np.zeros(len(carried[0]), np.int64)
        for name, column in zip(("", *settings.keep), carried, strict=True):
            if name == CHUNK_TEXTS[0] or pa.types.is_primitive(column.type) or pa.types.is_dictionary(column.type):
                continue
            if column.type in _STRINGS:
                of_rows += pc.fill_null(pc.binary_length(column), 0).to_numpy()
            else:  # lists and structs
                of_rows += [column.slice(row, 1).nbytes for row in range(len(column))]
        return of_rows[self.rows] + self.spans[1] - self.spans[0]

    def columns(self, start: int, stop: int, carried: list[pa.Array], settings: Settings) -> list[pa.Array]:
        """Return the columns before the vectors of chunks ``start`` to ``stop`` - 1; ``carried`` are those of the rows:
        the id, and then ``settings.keep``.
        """
        rows = pa.array(self.rows[start:stop])
        of_chunks = [pa.array(values[start:stop]) for values in (self.numbers, self.starts, self.ends)]
        kept = [
            self.texts(start, stop).cast(pa.string()) if name == CHUNK_TEXTS[0] else column.take(rows)
            for name, column in zip(settings.keep, carried[1:], strict=True)
        ]
        return [carried[0].take(rows), *of_chunks, *kept]

    def read(self, start: int, stop: int) -> pa.LargeStringArray:
        """Return chunks ``start`` to ``stop`` - 1 as the encoder reads them."""
        texts = self.texts(start, stop)
        return pc.utf8_rtrim_whitespace(texts) if self.is_stripped and self.tokens is None else texts

    def known(self, start: int, stop: int) -> Ragged | None:
        """Return the tokens of chunks ``start`` to ``stop`` - 1, if they are known."""
        return None if self.tokens is None else self.tokens.spans(*(pieces[start:stop] for pieces in self.pieces))

    def progress(self, on_rows: OnRows, num_texts: int) -> OnRows:
        """Return a function that calls ``on_rows`` with the share of the texts that some more chunks are."""
        done = 0

        def on_chunks(count: int) -> None:
            nonlocal done
            on_rows((done + count) * num_texts // len(self) - done * num_texts // len(self))
            done += count

        return on_chunks


def cut(
    encoder: TextEncoder, texts: pa.StringArray, settings: Settings, lists: pa.LargeListArray | None = None
) -> Chunks:
    """Cut a string array [n] into chunks; an empty text or null has one, without characters. If the texts are the
    strings of ``lists`` joined by spaces, each of these is a chunk, or is cut into chunks, and so is an empty list.
    """
    if lists is None:
        return _cut(encoder, texts, settings)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    rows = np.repeat(np.arange(len(lists)), np.maximum(lengths, 1))
    is_empty = lengths[rows] == 0
    elements = lists.flatten().take(pa.array(np.cumsum(~is_empty) - 1, mask=is_empty)).fill_null("")
    sizes = pc.utf8_length(elements).to_numpy().astype(np.int32)
    if settings.chunk_tokens is None:
        octets, places = string_bytes(elements)
        numbers, zeros = np.arange(len(rows)), np.zeros_like(sizes)
        spans = places[:-1], places[1:]
        chunks = Chunks(numbers, zeros, zeros, sizes, octets, spans, None, spans, is_stripped=False)
    else:
        chunks = _cut(encoder, elements, settings)
    before = np.cumsum(sizes + 1, dtype=np.int32) - sizes - 1
    before = (before - before[np.searchsorted(rows, rows)])[chunks.rows]
    rows = rows[chunks.rows]
    in_rows = (np.arange(len(rows)) - np.searchsorted(rows, rows)).astype(np.int32)
    return replace(chunks, rows=rows, numbers=in_rows, starts=chunks.starts + before, ends=chunks.ends + before)


def _cut(encoder: TextEncoder, texts: pa.StringArray, settings: Settings) -> Chunks:
    octets, places = string_bytes(pc.fill_null(texts, ""))
    joins = isinstance(encoder, OwnEncoder) and encoder.joins_tokens
    limit = settings.chunk_tokens or 0

    def tokens_of(starts: Numbers, stops: Numbers) -> Ragged:
        strings = _strings(octets, starts, stops)
        return encoder.token_ids(strings if joins else pc.utf8_rtrim_whitespace(strings))

    bounds, breaks, tokens = _pieces(octets, places, settings, tokens_of, joins)
    pieces, limits = np.searchsorted(bounds[:-1], places), np.full(len(texts), limit)
    most = len(bounds) + len(texts)
    while True:
        firsts, lasts, rows = np.empty((3, most), np.int64)
        count = pack(tokens.lengths, pieces, breaks, limits, settings.chunk_overlap, firsts, lasts, rows)
        firsts, lasts, rows = firsts[:count], lasts[:count], rows[:count]
        if joins:
            break
        over = np.where(lasts - firsts > 1, tokens_of(bounds[firsts], bounds[lasts]).lengths - limit, 0)
        if over.max(initial=0) <= 0:
            break
        too_many = np.zeros_like(limits)  # the tokens of a chunk can be more than those of its pieces
        np.maximum.at(too_many, rows, over)
        limits -= too_many
    before = np.empty(len(bounds), np.int64)
    characters(octets, bounds, before)
    numbers = np.arange(count) - np.searchsorted(rows, rows)
    starts, ends = (before[places] - before[pieces[rows]] for places in (firsts, lasts))
    return Chunks(
        rows,
        numbers.astype(np.int32),
        starts.astype(np.int32),
        ends.astype(np.int32),
        octets,
        (bounds[firsts], bounds[lasts]),
        tokens if joins else None,
        (firsts, lasts),
    )


def _pieces(
    octets: Octets, places: Numbers, settings: Settings, tokens_of: Callable[[Numbers, Numbers], Ragged], joins: bool
) -> tuple[Numbers, Octets, Ragged]:
    """Return the bounds of the k pieces, int64 [k + 1], which begin a chunk, uint8 [k], and their tokens."""
    limit = settings.chunk_tokens or 0
    bounds = places[np.diff(places, prepend=-1) > 0]
    first, *later = _LEVELS[settings.chunk_by]
    cuts, breaking = _cuts(first, octets, bounds[:-1], bounds[1:])
    bounds = _merged(bounds, cuts)
    if joins and later[:1] == [sentences]:  # the tokens of a large block are those of its sentences, and computed once
        large = np.flatnonzero(np.diff(bounds) > 4 * limit)  # in bytes; most have too many tokens
        finer = _merged(bounds, _cuts(sentences, octets, bounds[large], bounds[large + 1])[0])
        tokens, firsts = tokens_of(finer[:-1], finer[1:]), np.searchsorted(finer, bounds)
        is_kept = np.append(np.repeat(np.diff(tokens.offsets[firsts]) > limit, np.diff(firsts)), True)
        is_kept[firsts] = True  # a block that is not too long stays whole
        bounds, tokens = finer[is_kept], Ragged(tokens.ids, tokens.offsets[is_kept])
    else:
        tokens = tokens_of(bounds[:-1], bounds[1:])
    while True:
        is_long = tokens.lengths > limit
        long = np.flatnonzero(is_long)
        split = later.pop(0) if later else halves
        more, breaks = _cuts(split, octets, bounds[long], bounds[long + 1])
        if not len(long) or (split is halves and not len(more)):
            return bounds, np.isin(bounds[:-1], breaking).astype(np.uint8), tokens
        wider = _merged(bounds, more)
        owners = np.searchsorted(bounds, wider[:-1], side="right") - 1
        is_new = is_long[owners]
        owners[is_new] = len(tokens) + np.arange(np.count_nonzero(is_new))
        tokens = joined(tokens, tokens_of(wider[:-1][is_new], wider[1:][is_new])).take(owners)
        bounds, breaking = wider, np.concatenate([breaking, breaks])


def _merged(first: Numbers, second: Numbers) -> Numbers:
    """Return two ascending arrays as one; this sort only merges them."""
    return np.sort(np.concatenate([first, second]), kind="stable")


def _cuts(split: Callable[..., int], octets: Octets, starts: Numbers, stops: Numbers) -> tuple[Numbers, Numbers]:
    """Return where ``split`` cuts texts, and those of these places where a chunk begins."""
    size = int((stops - starts).sum())
    cuts, breaks = np.empty(size, np.int64), np.empty(size, np.uint8)
    count = split(octets, starts, stops, cuts, breaks)
    return cuts[:count].copy(), cuts[:count][breaks[:count] > 0]


def _strings(octets: Octets, starts: Numbers, stops: Numbers) -> pa.LargeStringArray:
    if len(starts) and np.array_equal(starts[1:], stops[:-1]):
        offsets, data = np.append(starts, stops[-1]), octets
    else:
        offsets = np.concatenate(([0], np.cumsum(stops - starts)))
        data = np.empty(offsets[-1], np.uint8)
        gather(octets, starts, stops, data)
    return pa.LargeStringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(data))


class MeanPool:
    """Mean of the vectors of each row's chunks, weighted by their tokens: H numbers for each of n rows."""

    def __init__(self, rows: int, width: int) -> None:
        self._sums, self._counts = np.zeros((rows, width)), np.zeros((2, rows), np.int64)
        self._is_cut = np.zeros(rows, np.bool_)

    def add(self, rows: Numbers, chunks: Embedded) -> None:
        """Add the vectors of chunks [m] of these rows, in ascending order."""
        firsts = np.flatnonzero(np.diff(rows, prepend=-1))
        weighted = chunks.vectors.astype(np.float64) * chunks.num_tokens[:, None]
        self._sums[rows[firsts]] += np.add.reduceat(weighted, firsts)
        for counts, of_chunks in zip(self._counts, (chunks.num_tokens, chunks.num_unknown), strict=True):
            counts[rows[firsts]] += np.add.reduceat(of_chunks.astype(np.int64), firsts)
        if chunks.is_cut is not None:
            self._is_cut[rows[chunks.is_cut]] = True

    def embedded(self) -> Embedded:
        """Return the means and the counts of the rows."""
        vectors = (self._sums / np.maximum(self._counts[0], 1)[:, None]).astype(np.float32)
        num_tokens, num_unknown = self._counts.astype(np.int32)
        return Embedded(vectors, num_tokens, num_unknown, self._is_cut)
