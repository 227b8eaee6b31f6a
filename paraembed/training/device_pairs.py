"""Pairs on a GPU: the ids live there, batches are formed there, and the host never waits for it.

Shapes in names: S steps, B pairs, N = 2B texts, T tokens with padding.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paraembed.ragged import Ragged
from paraembed.training.pairs import epoch_order, shares

_CHUNK_PAIRS = 65_536  # pairs whose batches are formed together: a dozen launches for all of them, and some 20 MB


@dataclass(frozen=True)
class DeviceBatch:
    """One worker's share of a step, in a shape that repeats: there are few different T.

    Attributes:
        ids_T: rows of the tokens, int64, text after text; 0 for padding, which is all at the end.
        text_T: which text each token is of, int64, ascending; N for padding.
        lengths_N: tokens of each text, float32; the two texts of a pair side by side.
        num_pairs: N / 2; 0 where a last step leaves none for this worker.
        total: pairs of the step over all workers.
        may_pause: whether a run may be broken off behind it.
    """

    ids_T: Tensor  # noqa: N815 - the shape
    text_T: Tensor  # noqa: N815 - the shape
    lengths_N: Tensor  # noqa: N815 - the shape
    num_pairs: int
    total: int
    may_pause: bool = True


class DevicePairs:
    """All pairs of the data in the memory of a device; trees stay behind."""

    def __init__(self, pairs: Ragged, device: torch.device | str) -> None:
        """Copy 2n texts; where an encoder has boundary tokens, they are in the texts already."""
        self.device = torch.device(device)
        self.ids = torch.tensor(pairs.ids, device=self.device)  # a copy also where the array is mapped
        self.offsets = torch.tensor(pairs.offsets, device=self.device)
        # Known on the host too, so that it knows the number of tokens of every step.
        self._tokens_of_pair = np.diff(pairs.offsets[::2]).astype(np.int32)
        self._thread = ThreadPoolExecutor(1)
        self._orders: dict[tuple[int, int], Future[npt.NDArray[np.int64]]] = {}

    def epoch(
        self, *, epoch: int, seed: int, batch_size: int, rank: int = 0, world: int = 1, first_pair: int = 0
    ) -> Iterator[DeviceBatch]:
        """The batches of ``epoch_batches`` over the same pairs in memory, with the same arguments, in the same order.

        Their tensors are views that the next batches do not overwrite; they are to be used on the stream that is
        current here.
        """
        order = self._order(epoch, seed)
        for places_SB, total in shares(len(order), batch_size, rank, world, first_pair, _CHUNK_PAIRS):
            mine_SB = order[places_SB]
            num_tokens = _padded(int(self._tokens_of_pair[mine_SB].sum(axis=1).max()))
            steps = (tensor_SX.unbind() for tensor_SX in self._batches(self._on_device(mine_SB), num_tokens))
            for ids_T, text_T, lengths_N in zip(*steps, strict=True):
                yield DeviceBatch(ids_T, text_T, lengths_N, mine_SB.shape[1], total)

    def _batches(self, mine_SB: Tensor, num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
        """Ids [S, T], texts [S, T] and lengths [S, N] of these pairs, at a dozen operators for all steps."""
        texts_SN = torch.stack([2 * mine_SB, 2 * mine_SB + 1], dim=2).flatten(1)
        starts_SN = self.offsets[texts_SN]
        lengths_SN = self.offsets[texts_SN + 1] - starts_SN
        ends_SN = lengths_SN.cumsum(1)
        places_ST = torch.arange(num_tokens, device=self.device).repeat(len(mine_SB), 1)
        text_ST = torch.searchsorted(ends_SN, places_ST, right=True)
        is_token_ST = text_ST < texts_SN.shape[1]
        shifts_SN = starts_SN - ends_SN + lengths_SN
        positions_ST = places_ST + shifts_SN.gather(1, text_ST.clamp(max=texts_SN.shape[1] - 1))
        ids_ST = self.ids[positions_ST * is_token_ST].long() * is_token_ST
        return ids_ST, text_ST, lengths_SN.float()

    def _order(self, epoch: int, seed: int) -> npt.NDArray[np.int64]:
        """The order of an epoch; that of the next is made meanwhile (9.1M pairs: 0.35 s, a GPU's epoch is a few)."""
        known, self._orders = self._orders, {}
        num_pairs = len(self._tokens_of_pair)
        order = known[epoch, seed].result() if (epoch, seed) in known else epoch_order(num_pairs, epoch, seed)
        self._orders[epoch + 1, seed] = self._thread.submit(epoch_order, num_pairs, epoch + 1, seed)
        return order

    def _on_device(self, array: npt.NDArray[np.int64]) -> Tensor:
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()  # from other memory the host would wait for the copy
        return tensor.to(self.device, non_blocking=True)


def _padded(num_tokens: int) -> int:
    """So many tokens or up to 1/8 more (from 128 on): eight sizes between a number and its double, no more."""
    size = max(16, 1 << max(0, num_tokens.bit_length() - 4))
    return -(-num_tokens // size) * size
