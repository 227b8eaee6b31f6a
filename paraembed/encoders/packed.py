"""Packed, time-major batches without padding, which recurrent encoders read.

The texts are sorted by length, the longest first. Time step t holds token t of every text that is long enough, in that
order, so the active texts of a step are always the first ones. P (= T) is the number of positions in this layout, the
slots.

For training on a GPU with repeating shapes, steps may have more slots than active texts: a text that has ended reads
its last token again, and the result is ignored.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

_ROUNDED = torch.bfloat16, torch.float16


@dataclass(frozen=True)
class PackedTokens:
    """Position of each token of a batch, time-major."""

    sizes: tuple[int, ...]  # number of slots of each step, not increasing; their sum is P
    tokens: Tensor  # position in the flat batch of the token in each slot, int64 [P]
    slots: Tensor  # slot of each token of the flat batch, the inverse of ``tokens``, int64 [T]
    last: Tensor  # slot of the token that is read last, by text, int64 [N]

    def steps(self, *vectors: Tensor) -> list[tuple[Tensor, ...]]:
        """Split vectors by step: [P, …] into the slots of each step, [N, …] into its active texts (sorted by
        length).
        """
        total = sum(self.sizes)
        parts = [
            tensor.split_with_sizes(self.sizes) if len(tensor) == total else [tensor[:size] for size in self.sizes]
            for tensor in vectors
        ]
        return list(zip(*parts, strict=True))

    def before(self, vectors_PH: Tensor) -> Tensor:
        """Return for each slot, except those of the first step, the vector of the preceding token in its text."""
        parts = zip(vectors_PH.split_with_sizes(self.sizes), self.sizes[1:], strict=False)
        return torch.cat([vectors_PH[:0], *(step[:size] for step, size in parts)])


@dataclass(frozen=True)
class Steps:
    """Shape of a layout that is computed on a device, decided on the host from the lengths of the texts."""

    # Slots of each step: as many as there are active texts, or as many as there are texts, in every step. In the second
    # form a text may be longer; only its tokens up to the last step are read.
    sizes: tuple[int, ...]
    ends: Tensor  # slot after the last slot of each step, int64 on the device
    num_tokens: int  # T


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to a device without waiting for a GPU; on the CPU, return the array itself."""
    tensor = torch.from_numpy(array)
    if device.type == "cuda":
        tensor = tensor.pin_memory()  # from other memory the host would wait for the copy
    return tensor.to(device, non_blocking=True)


class Transfer:
    """Copy of a tensor to the host, on a stream of its own: it starts when the tensor is computed, before later work of
    the GPU.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._done = tensor, None
        if tensor.device.type == "cuda":
            stream = _copy_stream(tensor.device)
            stream.wait_stream(torch.cuda.current_stream(tensor.device))
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            with torch.cuda.stream(stream):
                self._tensor.copy_(tensor, non_blocking=True)
            tensor.record_stream(stream)
            self._done = stream.record_event()

    def array(self) -> npt.NDArray[Any]:
        """Return the array, when it is copied."""
        if self._done is not None:
            self._done.synchronize()
        array: npt.NDArray[Any] = self._tensor.numpy()
        return array


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def pack(
    offsets_N1: Tensor, device: torch.device, *, steps: Steps | None = None, backward: bool = False
) -> PackedTokens:
    """Return the layout of a batch of non-empty texts on the device of the words. With ``steps``, it is computed on the
    device, in this shape, and ``offsets_N1`` are there, too. ``backward`` reads each text from its last token to its
    first; ``sizes`` and the order of the texts stay the same.
    """
    if steps is not None:
        return _pack_there(offsets_N1, steps, backward)
    offsets = offsets_N1.numpy()
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    shorter = np.cumsum(np.bincount(lengths))  # by length: texts of at most that length
    sizes = len(lengths) - shorter[:-1]
    starts = np.cumsum(sizes) - sizes
    total = int(offsets[-1])
    step = np.arange(total) - np.repeat(offsets[:-1], lengths)
    if backward:
        step = np.repeat(lengths - 1, lengths) - step
    places = np.empty(2 * total + len(lengths), np.int64)
    tokens, slots, last = np.split(places, [total, 2 * total])
    slots[:] = starts[step] + np.repeat(rank, lengths)
    tokens[slots] = np.arange(total)
    last[:] = starts[lengths - 1] + rank
    on_device = to_device(places, device)
    at_work = tuple(sizes.tolist())
    return PackedTokens(at_work, on_device[:total], on_device[total : 2 * total], on_device[2 * total :])


def _pack_there(offsets_N1: Tensor, steps: Steps, backward: bool) -> PackedTokens:
    device, num_texts = offsets_N1.device, len(offsets_N1) - 1
    lengths_N, order_N = offsets_N1.diff(), torch.arange(num_texts, device=device)
    rank_N = order_N
    if steps.sizes[-1] < num_texts:
        order_N = lengths_N.argsort(descending=True, stable=True)
        rank_N = torch.empty_like(order_N).scatter_(0, order_N, rank_N)
    starts_L = F.pad(steps.ends[:-1], (1, 0))
    slots_P = torch.arange(sum(steps.sizes), device=device)
    step_P = torch.searchsorted(steps.ends, slots_P, right=True)
    text_P = order_N[slots_P - starts_L[step_P]]
    step_P = torch.minimum(step_P, lengths_N[text_P] - 1)
    tokens_P = offsets_N1[text_P + 1] - 1 - step_P if backward else offsets_N1[text_P] + step_P
    places_T = torch.arange(steps.num_tokens, device=device)
    text_T = torch.searchsorted(offsets_N1[1:], places_T, right=True)
    step_T = offsets_N1[text_T + 1] - 1 - places_T if backward else places_T - offsets_N1[text_T]
    last_step = len(steps.sizes) - 1
    slots_T = starts_L[step_T.clamp(max=last_step)] + rank_N[text_T]
    return PackedTokens(steps.sizes, tokens_P, slots_T, starts_L[(lengths_N - 1).clamp(max=last_step)] + rank_N)


def in_float32(function: type[torch.autograd.Function], *inputs: Any) -> Tensor:
    """Apply a recurrence in float32, even under autocast, because states that are rounded in every step would drift.

    Its last argument, after ``inputs``, says whether a gradient is needed; without one it may overwrite its inputs.
    """
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    device = tensors[0].device.type
    keep = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if not torch.is_autocast_enabled(device):
        return function.apply(*inputs, keep)  # type: ignore[no-any-return, no-untyped-call]
    with torch.autocast(device, enabled=False):
        exact = (value.float() if isinstance(value, Tensor) and value.dtype in _ROUNDED else value for value in inputs)
        return function.apply(*exact, keep)  # type: ignore[no-any-return, no-untyped-call]


def project_words(rows_RD: Tensor, ids_P: Tensor, weight_GD: Tensor, bias_G: Tensor | None = None) -> Tensor:
    """Apply a linear map to words, [P, G]: to the rows of the word matrix if they are fewer than the tokens ``ids_P``,
    else to the tokens.
    """
    if len(rows_RD) < len(ids_P):
        if rows_RD.data_ptr() % 64:  # a product's rounding depends on it, and a matrix from a file begins anywhere
            rows_RD = rows_RD.clone()
        return F.embedding(ids_P, F.linear(rows_RD, weight_GD, bias_G))
    return F.linear(F.embedding(ids_P, rows_RD), weight_GD, bias_G)
