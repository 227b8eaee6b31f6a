"""Pairs in GPU memory: batches are formed on the GPU, and the host never waits for it.

``tests/training/fast/test_gpu_pairs.py`` checks that its batches equal those of ``training.pairs.epoch_batches``.

The host knows the length of every text, so it knows every shape before the GPU has formed the batch.

Shapes in names: S steps, B pairs, N = 2B texts, T tokens with padding, L steps of a recurrent encoder.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.encoders.packed import Steps, to_device
from paraembed.text.ragged import Ragged
from paraembed.training.pairs import epoch_order, shares

_CHUNK_PAIRS = 65_536  # pairs whose batches are formed together: a dozen launches for all of them, and some 20 MB
_MOST_COUNTS = 1 << 20  # of texts by their length, on the host: 8 MB
_MOST_SLOTS = 16_384  # of a recurrent encoder with padding: with more, kernels take longer than their launch

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DeviceBatch:
    """Texts of a step, followed by a padding text, so that operators need no special case for padding.

    Attributes:
        ids_T: rows of the tokens, int64, text after text; 0 for padding.
        text_T: number of the text of each token, int64, ascending; N for padding.
        offsets: start of each text, start of the padding, and end of the padding, int64 [N + 2].
        texts: numbers of the N texts in the data; on the host.
        steps: shape of the layout of a recurrent encoder, with the padding as a text.
        repeats: whether only a few different shapes of this kind occur.
        total: number of pairs in the step.
        may_pause: whether a run may be interrupted after this batch.
    """

    ids_T: Tensor  # noqa: N815 - the shape
    text_T: Tensor  # noqa: N815 - the shape
    offsets: Tensor
    texts: Longs
    steps: Steps | None
    repeats: bool
    total: int
    may_pause: bool = True


class DevicePairs:
    """All pairs of the data in the memory of a device, without trees."""

    def __init__(
        self, pairs: Ragged, device: torch.device | str, *, recurrent: bool = False, repeats: bool = True
    ) -> None:
        """Copy texts to a device.

        Args:
            pairs: 2n texts, which already have the BOS/EOS tokens of the encoder.
            device: target device.
            recurrent: whether batches get ``steps``.
            repeats: whether batches are padded to repeating shapes; batches of a recurrent encoder are not padded if
                that would make them too long.
        """
        self.device, self.recurrent, self.repeats = torch.device(device), recurrent, repeats
        self.ids = torch.tensor(pairs.ids, device=self.device)  # a copy also where the array is mapped
        self.offsets = torch.tensor(pairs.offsets, device=self.device)
        self._lengths = np.diff(pairs.offsets).astype(np.int32)
        self._thread = ThreadPoolExecutor(1)
        self._orders: dict[tuple[int, int], Future[Longs]] = {}
        self._grids: dict[tuple[int, int], tuple[tuple[int, ...], Tensor]] = {}

    def epoch(self, *, epoch: int, seed: int, batch_size: int, first_pair: int = 0) -> Iterator[DeviceBatch]:
        """Yield the same batches as ``epoch_batches`` for one worker, in the same order.

        Their tensors are views that later batches do not overwrite; use them on the CUDA stream that is current here.
        """
        order = self._order(epoch, seed)
        # A chunk decides on padding, and that on what dropout draws: one that is begun is formed again as a whole.
        # Where steps were of another size, those of other numbers of workers, there is none.
        begin = first_pair
        if first_pair % batch_size == 0:
            begin -= first_pair % (max(1, _CHUNK_PAIRS // batch_size) * batch_size)
        chunks = shares(len(order), batch_size, 0, 1, begin, _CHUNK_PAIRS)
        whole = (self.batches(_texts_of(order[places_SB]), total) for places_SB, total in chunks)
        yield from islice(chain.from_iterable(whole), (first_pair - begin) // batch_size, None)

    def batches(self, texts_SN: Longs, total: int) -> Iterator[DeviceBatch]:
        """Yield the batches of S steps, given the numbers of their texts; ``total``: number of pairs of each step."""
        lengths_SN = self._lengths[texts_SN]
        num_tokens_S, longest_S = lengths_SN.sum(axis=1), lengths_SN.max(axis=1)
        num_texts = texts_SN.shape[1] + 1
        most_tokens = _padded(int(num_tokens_S.max()) + 1, 8)
        num_steps_S = [_padded(int(longest), 4) for longest in longest_S]
        repeats_S = [
            self.repeats and not (self.recurrent and num_texts * num_steps > _MOST_SLOTS) for num_steps in num_steps_S
        ]
        ends_S = np.where(repeats_S, most_tokens, num_tokens_S + 1)
        ids_ST, text_ST, offsets_SN2 = self._formed(texts_SN, ends_S, most_tokens)
        exact = self._exact_steps(lengths_SN[~np.array(repeats_S)]) if self.recurrent else iter(())
        for step, (repeats, end) in enumerate(zip(repeats_S, ends_S.tolist(), strict=True)):
            steps = None
            if self.recurrent:
                layout = self._grid(num_texts, num_steps_S[step]) if repeats else next(exact)
                steps = Steps(*layout, num_tokens=end)
            yield DeviceBatch(
                ids_ST[step, :end], text_ST[step, :end], offsets_SN2[step], texts_SN[step], steps, repeats, total
            )

    def _formed(self, texts_SN: Longs, ends_S: Longs, num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids [S, T], texts [S, T] and offsets [S, N + 2] of the given texts, with a dozen operators for all
        steps.
        """
        num_texts = texts_SN.shape[1]
        there_SM = to_device(np.concatenate([texts_SN, ends_S[:, None]], axis=1), self.device)
        texts = there_SM[:, :-1]
        starts_SN = self.offsets[texts]
        lengths_SN = self.offsets[texts + 1] - starts_SN
        ends_SN = lengths_SN.cumsum(1)
        places_ST = torch.arange(num_tokens, device=self.device).repeat(len(texts), 1)
        text_ST = torch.searchsorted(ends_SN, places_ST, right=True)
        is_token_ST = text_ST < num_texts
        shifts_SN = starts_SN - ends_SN + lengths_SN
        positions_ST = places_ST + shifts_SN.gather(1, text_ST.clamp(max=num_texts - 1))
        ids_ST = self.ids[positions_ST * is_token_ST].long() * is_token_ST
        return ids_ST, text_ST, torch.cat([torch.zeros_like(ends_SN[:, :1]), ends_SN, there_SM[:, -1:]], dim=1)

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
        num_steps, longest = len(lengths_SN), int(lengths_SN.max())
        keys = lengths_SN + (longest + 1) * np.arange(num_steps)[:, None]
        counts = np.bincount(keys.reshape(-1), minlength=num_steps * (longest + 1)).reshape(num_steps, -1)
        at_work_SL = counts[:, :0:-1].cumsum(axis=1)[:, ::-1]
        at_work_SL[:, 0] += 1
        ends_SL = to_device(at_work_SL.cumsum(axis=1), self.device)
        sizes_S = [tuple(size for size in sizes if size) for sizes in at_work_SL.tolist()]
        return [(sizes, ends_L[: len(sizes)]) for sizes, ends_L in zip(sizes_S, ends_SL, strict=True)]

    def _order(self, epoch: int, seed: int) -> Longs:
        """Return the order of an epoch, while a thread computes that of the next (9.1M pairs: 0.35 s; an epoch on a GPU
        takes a few seconds).
        """
        known, self._orders = self._orders, {}
        num_pairs = len(self._lengths) // 2
        order = known[epoch, seed].result() if (epoch, seed) in known else epoch_order(num_pairs, epoch, seed)
        self._orders[epoch + 1, seed] = self._thread.submit(epoch_order, num_pairs, epoch + 1, seed)
        return order


def _texts_of(pairs_SB: Longs) -> Longs:
    """Return the numbers of the texts of pairs, [S, 2B], with the two texts of a pair adjacent."""
    return np.stack([2 * pairs_SB, 2 * pairs_SB + 1], axis=2).reshape(len(pairs_SB), -1)


def _padded(number: int, sizes: int) -> int:
    """Round a number up, to one of ``sizes`` values between a number and its double."""
    size = max(2, 1 << max(0, number.bit_length() - sizes.bit_length()))
    return -(-number // size) * size
