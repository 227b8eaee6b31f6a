"""Communication between data-parallel workers within a step.

Every worker knows the order of an epoch, so it knows the texts, and thus the shapes, of all workers' parts of a step.
Only vectors and gradients are sent, in a few collectives of fixed shapes that a CUDA graph can record. Every worker
gets the same bits, in every run.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_TEXT_BYTES = 2000
# Their names from torch 2.13 on, and before.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def gather(tensor_N: Tensor, num_rows: int, world: int) -> Tensor:
    """Concatenate the tensors of all workers, each padded with zeros to ``num_rows`` rows, in one collective.

    ``num_rows`` is the maximum length over all workers, which all of them must know. The rows of worker r start at r ·
    num_rows. The gradient of a tensor is the sum over all workers' losses; every worker must run the backward pass,
    even with an empty tensor.
    """
    gathered: Tensor = _Gather.apply(tensor_N, num_rows, world)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor_N: Tensor, num_rows: int, world: int) -> Tensor:
        ctx.num_own, ctx.num_rows = len(tensor_N), num_rows
        own = tensor_N.contiguous()
        if len(own) < num_rows:
            own = torch.cat([own, own.new_zeros(num_rows - len(own), *own.shape[1:])])
        everyone = own.new_empty(world * num_rows, *own.shape[1:])
        _all_gather(everyone, own)
        return everyone

    @staticmethod
    def backward(ctx: Any, grad_P: Tensor) -> tuple[Tensor, None, None]:
        return scatter_sum(grad_P, ctx.num_rows)[: ctx.num_own], None, None


def scatter_sum(tensor_P: Tensor, num_rows: int) -> Tensor:
    """Return this worker's ``num_rows`` rows of the sum of a tensor [world · num_rows, …] over all workers."""
    own = tensor_P.new_empty(num_rows, *tensor_P.shape[1:])
    _reduce_scatter(own, tensor_P.contiguous())
    return own


def sum_over_workers(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the sums of tensors over all workers, in one collective for each type of number."""
    sums = list(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        flat = torch.cat([tensors[place].reshape(-1) for place in places])  # a copy, which is summed in place
        dist.all_reduce(flat)
        parts = flat.split_with_sizes([tensors[place].numel() for place in places])
        for place, part in zip(places, parts, strict=True):
            sums[place] = part.view(tensors[place].shape)
    return sums


def gather_texts(text: str, world: int, device: torch.device) -> list[str]:
    """Return the texts of all workers, each truncated to 2,000 bytes; of one worker alone, its text."""
    if world == 1:
        return [text]
    mine = torch.zeros(_TEXT_BYTES, dtype=torch.uint8)
    octets = text.encode()[:_TEXT_BYTES]
    mine[: len(octets)] = torch.tensor(list(octets), dtype=torch.uint8)
    everyone = all_gather(mine.to(device), [_TEXT_BYTES] * world)
    return [bytes(text.tolist()).rstrip(b"\0").decode(errors="ignore") for text in everyone]


def first_problem(problem: str, world: int, device: torch.device) -> str:
    """Return the problem of the first worker that has one, the same on all workers; empty if none has."""
    return next(filter(None, gather_texts(problem, world, device)), "")


def all_gather(tensor_N: Tensor, counts: list[int]) -> list[Tensor]:
    """Return every worker's tensor, given the lengths of all of them, of which one is above 0."""
    everyone = gather(tensor_N, max(counts), len(counts))
    parts = everyone.split_with_sizes([max(counts)] * len(counts))
    return [part[:count] for part, count in zip(parts, counts, strict=True)]
