"""Pairs in GPU memory: batches of all workers are formed on every GPU, and the host never waits for it.

``tests/training/fast/test_gpu_pairs.py`` checks that its batches equal those of ``training.pairs.epoch_batches``.

The host knows the length of every text, so it knows every shape before the GPU has formed the batch.

Shapes in names: S steps, W workers, B pairs, N = 2B texts, T tokens with padding, L steps of a recurrent encoder.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, groupby, islice, pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders.packed import Steps, to_device
from paraembed.text.ragged import Ragged, joined
from paraembed.training.pairs import Longs, epoch_order, step_bounds, whole_steps

_CHUNK_PAIRS = 65_536  # pairs whose batches are padded to the same size
_MOST_STEPS = 120  # formed together: some 50 launches for all of them, and 50 MB for 100 pairs of sentences a step
_MOST_COUNTS = 1 << 20  # of texts by their length, on the host: 8 MB
_MOST_PADDING = (
    4  # times the median number of tokens in a step; a longer step is not padded, nor are others to its size
)
_MOST_SLOTS = 16_384  # of a recurrent encoder with padding: with more, kernels take longer than their launch


@dataclass(frozen=True)
class DeviceBatch:
    """Texts of a step; a padding text follows each worker's part, so operators need no special case for padding."""

    ids: Tensor  # rows of the tokens of each worker's part, int64 [W, T], text after text; 0 for padding
    text: Tensor  # number of the text of each token in its part, int64 [W, T], ascending; ``num_texts`` for padding
    by_row: Tensor  # how to sum gradients over the tokens of each row, int64 [5, W·T]; see ``tokens_by_row``
    rank: int  # number of this worker
    num_tokens: int  # number of tokens in this worker's part, with its padding, at most T
    num_texts: int  # number of texts in the largest part
    offsets: Tensor  # start of each text of this worker, start of the padding, and end of the padding, int64 [N + 2]
    source: Ragged  # texts on the host, with those of the step among them
    numbers: tuple[Longs, ...]  # numbers of each worker's texts among ``source``, N for each worker
    steps: Steps | None  # shape of the layout of a recurrent encoder, with the padding as a text
    repeats: bool  # whether only a few different shapes of this kind occur; the same for all workers
    total: int  # number of pairs in the step
    # In mega-batches, within which a run must not be interrupted, steps form batches themselves.
    may_pause: ClassVar[bool] = True

    @property
    def ids_T(self) -> Tensor:  # noqa: N802 - the shape
        """Rows of this worker's tokens, int64 [num_tokens]."""
        return self.ids[self.rank, : self.num_tokens]

    @property
    def text_T(self) -> Tensor:  # noqa: N802 - the shape
        """Text of each of this worker's tokens, int64 [num_tokens]."""
        return self.text[self.rank, : self.num_tokens]

    @property
    def texts(self) -> Ragged:
        """Texts of this worker, on the host."""
        return self.source.take(self.numbers[self.rank])


@dataclass(frozen=True)
class _Source:
    """Texts on a device."""

    texts: Ragged
    ids: Tensor
    offsets: Tensor
    lengths: npt.NDArray[np.int32]

    @classmethod
    def of(cls, texts: Ragged, device: torch.device) -> "_Source":
        ids, offsets = (np.require(array, requirements="W") for array in (texts.ids, texts.offsets))  # copies of mapped
        return cls(texts, to_device(ids, device), to_device(offsets, device), np.diff(texts.offsets).astype(np.int32))


class DevicePairs:
    """Batches of pairs that are formed on a device, without trees."""

    def __init__(
        self,
        pairs: Ragged | None,
        device: torch.device | str,
        *,
        recurrent: bool = False,
        repeats: bool = True,
        texts_alike: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        """Copy 2n texts with their BOS/EOS tokens to a device; None: every batch is copied, see ``batch_of``.

        ``recurrent``: batches get ``steps``. ``repeats``: batches are padded to repeating shapes, unless they become
        too long. ``texts_alike``: all tokens of a text have the same gradient; see ``tokens_by_row``.
        """
        self.device, self.recurrent, self.repeats = torch.device(device), recurrent, repeats
        self.texts_alike = texts_alike
        self.rank, self.world = rank, world
        self._source = None if pairs is None else _Source.of(pairs, self.device)
        self._thread = ThreadPoolExecutor(1)
        self._orders: dict[tuple[int, int], Future[Longs]] = {}
        self._grids: dict[tuple[int, int], tuple[tuple[int, ...], Tensor]] = {}

    def epoch(
        self, *, epoch: int, seed: int, batch_size: int, first_pair: int = 0, chunk_pairs: int = _CHUNK_PAIRS
    ) -> Iterator[DeviceBatch]:
        """Yield the same batches as ``epoch_batches``, in the same order.

        Their tensors are views that later batches do not overwrite; use them on the CUDA stream that is current here.
        """
        assert self._source is not None
        order = self._order(len(self._source.lengths) // 2, epoch, seed)
        step_size = batch_size * self.world
        # A chunk decides the padding, and the padding decides what dropout draws, so a resumed run forms its first
        # chunk again as a whole. After steps of another size (another number of workers) it starts a new chunk.
        begin = first_pair
        if first_pair % step_size == 0:
            begin -= first_pair % (max(1, chunk_pairs // step_size) * step_size)
        chunks = whole_steps(len(order), step_size, begin, chunk_pairs)
        whole = (self._of_chunk(self._source, order[places_SB]) for places_SB in chunks)
        yield from islice(chain.from_iterable(whole), (first_pair - begin) // step_size, None)

    def _of_chunk(self, source: _Source, pairs_SB: Longs) -> Iterator[DeviceBatch]:
        total = pairs_SB.shape[1]
        parts = [_texts_of(pairs_SB[:, first:last]) for first, last in pairwise(step_bounds(total, self.world))]
        return self._batches(source, parts, total)

    def batch_of(self, parts: Sequence[Ragged], total: int) -> DeviceBatch:
        """Return the batch of a step that is given by the texts of each worker, with their BOS/EOS tokens."""
        bounds = np.cumsum([0, *map(len, parts)])
        numbers = [np.arange(first, last)[None] for first, last in pairwise(bounds)]
        return next(self._batches(_Source.of(joined(*parts), self.device), numbers, total))

    def _batches(self, source: _Source, parts: list[Longs], total: int) -> Iterator[DeviceBatch]:
        """Yield the batches of S steps, given the numbers of each worker's texts [S, N], N for each worker."""
        lengths = [source.lengths[texts_SN] for texts_SN in parts]
        num_tokens_SW = 1 + np.stack([lengths_SN.sum(axis=1) for lengths_SN in lengths], axis=1)  # with the padding
        longest_S = np.max([lengths_SN.max(axis=1, initial=1) for lengths_SN in lengths], axis=0)
        most_S, num_texts = num_tokens_SW.max(axis=1), max(texts_SN.shape[1] for texts_SN in parts)
        num_steps_S = [_padded(int(longest), 4) for longest in longest_S]
        is_long_S = most_S > _MOST_PADDING * np.median(most_S)
        repeats_S = ~is_long_S & (self.repeats and len({texts_SN.shape[1] for texts_SN in parts}) == 1)
        if self.recurrent:
            repeats_S &= (num_texts + 1) * np.array(num_steps_S) <= _MOST_SLOTS
        most_S[repeats_S] = num_tokens_SW[repeats_S] = _padded(int(most_S[repeats_S].max(initial=1)), 8)
        own_SN = lengths[self.rank]
        exact = self._exact_steps(own_SN[~repeats_S]) if self.recurrent else iter(())
        formed = self._formed_steps(source, parts, num_tokens_SW, most_S, is_long_S)
        for step, (ids_WT, text_WT, by_row, offsets) in enumerate(formed):
            steps, num_tokens = None, int(num_tokens_SW[step, self.rank])
            if self.recurrent:
                layout = self._grid(num_texts + 1, num_steps_S[step]) if repeats_S[step] else next(exact)
                steps = Steps(*layout, num_tokens=num_tokens)
            yield DeviceBatch(
                ids_WT,
                text_WT,
                by_row,
                self.rank,
                num_tokens=num_tokens,
                num_texts=num_texts,
                offsets=offsets,
                source=source.texts,
                numbers=tuple(texts_SN[step] for texts_SN in parts),
                steps=steps,
                repeats=bool(repeats_S[step]),
                total=total,
            )

    def _formed_steps(
        self, source: _Source, parts: list[Longs], num_tokens_SW: Longs, most_S: Longs, is_long_S: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Yield ids [W, T], texts [W, T], ``by_row`` and this worker's offsets [N + 2] of each step; T is in
        ``most_S``.

        Some steps at a time, so that the memory depends little on their number. The steps ``is_long_S`` are formed
        apart, since all steps that are formed together take the memory of the longest.
        """
        num_texts = max(texts_SN.shape[1] for texts_SN in parts)
        apart = 1 + np.flatnonzero(is_long_S[1:] | is_long_S[:-1])
        cuts = sorted({*apart.tolist(), *range(0, len(most_S), _MOST_STEPS), len(most_S)})
        for first, last in pairwise(cuts):
            steps, most = slice(first, last), int(most_S[first:last].max())
            formed = [
                self._formed(source, texts_SN[steps], num_tokens_SW[steps, worker], most, num_texts)
                for worker, texts_SN in enumerate(parts)
            ]
            ids_SWT, text_SWT = (torch.stack(tensors, dim=1) for tensors in list(zip(*formed, strict=True))[:2])
            place = 0
            for size, equal in groupby(most_S[steps].tolist()):
                same = slice(place, place := place + len(list(equal)))
                ids, text = ids_SWT[same, :, :size], text_SWT[same, :, :size]
                by_row = tokens_by_row(ids, text, num_texts, texts_alike=self.texts_alike)
                tensors = ids, text, by_row, formed[self.rank][2][same]
                yield from zip(*(tensor.unbind() for tensor in tensors), strict=True)

    def _formed(
        self, source: _Source, texts_SN: Longs, ends_S: Longs, num_tokens: int, num_texts: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids [S, T], texts [S, T] and offsets [S, N + 2] of texts; padding is the text ``num_texts``."""
        own_texts = texts_SN.shape[1]
        there_SM = to_device(np.concatenate([texts_SN, ends_S[:, None]], axis=1), self.device)
        texts = there_SM[:, :-1]
        starts_SN = source.offsets[texts]
        lengths_SN = source.offsets[texts + 1] - starts_SN
        ends_SN = lengths_SN.cumsum(1)
        places_ST = torch.arange(num_tokens, device=self.device).repeat(len(texts), 1)
        text_ST = torch.searchsorted(ends_SN, places_ST, right=True)
        is_token_ST = text_ST < own_texts
        if own_texts:
            shifts_SN = starts_SN - ends_SN + lengths_SN
            places_ST = places_ST + shifts_SN.gather(1, text_ST.clamp(max=own_texts - 1))
        ids_ST = source.ids[places_ST * is_token_ST].long() * is_token_ST
        offsets = torch.cat([torch.zeros_like(there_SM[:, :1]), ends_SN, there_SM[:, -1:]], dim=1)
        return ids_ST, torch.where(is_token_ST, text_ST, num_texts), offsets

    def _grid(self, num_texts: int, num_steps: int) -> tuple[tuple[int, ...], Tensor]:
        """Return a layout with a slot for every text in every step."""
        shape = num_texts, num_steps
        if shape not in self._grids:
            ends = to_device(num_texts * np.arange(1, num_steps + 1), self.device)
            self._grids[shape] = (num_texts,) * num_steps, ends
        return self._grids[shape]

    def _exact_steps(self, lengths_SN: npt.NDArray[np.int32]) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        """Yield layouts with slots for active texts only; the padding is a text of one token."""
        at_once = max(1, _MOST_COUNTS // (1 + int(lengths_SN.max(initial=0))))
        for first in range(0, len(lengths_SN), at_once):
            yield from self._some_exact_steps(lengths_SN[first : first + at_once])

    def _some_exact_steps(self, lengths_SN: npt.NDArray[np.int32]) -> list[tuple[tuple[int, ...], Tensor]]:
        num_steps, longest = len(lengths_SN), int(lengths_SN.max(initial=1))
        keys = lengths_SN + (longest + 1) * np.arange(num_steps)[:, None]
        counts = np.bincount(keys.reshape(-1), minlength=num_steps * (longest + 1)).reshape(num_steps, -1)
        at_work_SL = counts[:, :0:-1].cumsum(axis=1)[:, ::-1]
        at_work_SL[:, 0] += 1
        ends_SL = to_device(at_work_SL.cumsum(axis=1), self.device)
        sizes_S = [tuple(size for size in sizes if size) for sizes in at_work_SL.tolist()]
        return [(sizes, ends_L[: len(sizes)]) for sizes, ends_L in zip(sizes_S, ends_SL, strict=True)]

    def _order(self, num_pairs: int, epoch: int, seed: int) -> Longs:
        """Return the order of an epoch, while a thread computes that of the next (9.1M pairs: 0.35 s)."""
        known, self._orders = self._orders, {}
        order = known[epoch, seed].result() if (epoch, seed) in known else epoch_order(num_pairs, epoch, seed)
        self._orders[epoch + 1, seed] = self._thread.submit(epoch_order, num_pairs, epoch + 1, seed)
        return order


def tokens_by_row(ids_SWT: Tensor, text_SWT: Tensor, num_texts: int, *, texts_alike: bool) -> Tensor:
    """Return how to sum gradients over the tokens of each row in S steps, int64 [S, 5, P] with P = W·T.

    A kernel adds the gradients of a segment one after the other, and every eighth token may be of the same row. So
    segments of some √P tokens are summed first. Sorted by row, token p of a step has the gradient ``[0, p]``, segment s
    starts at the token ``[1, s]``, and the r-th of R distinct rows at the segment ``[2, r]``; the rest, which is behind
    the last one, is in segments of one. ``[3]`` repeats the numbers 0 to R - 1 up to length P, and ``[4]`` has their
    rows. R < P, because of the padding.

    With ``texts_alike`` there is a gradient for each of ``num_texts`` texts of each worker, otherwise for each token.
    """
    ids_SP, is_token_SP = ids_SWT.flatten(1), (text_SWT < num_texts).flatten(1)
    (num_steps, num_tokens), device = ids_SP.shape, ids_SP.device
    most = 1 << (num_tokens.bit_length() - 1) // 2
    ends_S1, padding = is_token_SP.sum(dim=1, keepdim=True), torch.iinfo(torch.int64).max  # is sorted behind all rows
    sorted_SP, order_SP = torch.where(is_token_SP, ids_SP, padding).sort(dim=1, stable=True)
    places_SP = torch.arange(num_tokens, device=device).repeat(num_steps, 1)
    is_first_SP = F.pad(sorted_SP.diff(dim=1) != 0, (1, 0), value=True)
    numbers_SP = is_first_SP.cumsum(1) - 1
    starts_SP = torch.searchsorted(numbers_SP, places_SP)
    first_SP = (places_SP - starts_SP.gather(1, numbers_SP)) % most == 0
    segments_SP = (first_SP & (places_SP < ends_S1)).cumsum(1)
    segment_starts_SP = _then_single(
        torch.searchsorted(segments_SP, places_SP, right=True), segments_SP[:, -1:], ends_S1
    )
    num_rows_S1 = (is_first_SP & (places_SP < ends_S1)).sum(dim=1, keepdim=True)
    row_starts_SP = F.pad(segments_SP, (1, 0)).gather(1, starts_SP)
    row_starts_SP = _then_single(row_starts_SP, num_rows_S1, segments_SP[:, -1:])
    again_SP = places_SP % num_rows_S1
    rows_SP = sorted_SP.gather(1, starts_SP.gather(1, again_SP))
    if texts_alike:
        first_W1 = num_texts * torch.arange(ids_SWT.shape[1], device=device)[:, None]
        order_SP = (text_SWT.clamp(max=num_texts - 1) + first_W1).flatten(1).gather(1, order_SP)
    return torch.stack([order_SP, segment_starts_SP, row_starts_SP, again_SP, rows_SP], dim=1)


def _then_single(starts_SP: Tensor, counts_S1: Tensor, ends_S1: Tensor) -> Tensor:
    """Return starts of P segments, of which those from ``counts`` on begin at ``ends`` and have one element each."""
    num_starts = starts_SP.shape[1]
    behind_SP = torch.arange(num_starts, device=starts_SP.device) - counts_S1
    return torch.where(behind_SP < 0, starts_SP, (ends_S1 + behind_SP).clamp(max=num_starts))


def _texts_of(pairs_SB: Longs) -> Longs:
    """Return the numbers of the texts of pairs, [S, 2B], with the two texts of a pair adjacent."""
    return np.stack([2 * pairs_SB, 2 * pairs_SB + 1], axis=2).reshape(len(pairs_SB), -1)


def _padded(number: int, sizes: int) -> int:
    """Round a number up, to one of ``sizes`` values between a number and its double."""
    size = max(2, 1 << max(0, number.bit_length() - sizes.bit_length()))
    return -(-number // size) * size
