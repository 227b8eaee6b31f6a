"""Communication between data-parallel workers within a step.

Sums are computed in the order of the workers, so every worker gets the same bits in every run.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_TEXT_BYTES = 2000


def gather(tensor_N: Tensor, world: int) -> tuple[Tensor, int]:
    """Concatenate the tensors of all workers, whose lengths may differ; return it and the first row of this worker's
    part.

    Args:
        tensor_N: tensor of this worker, [N, …]; its gradient is the sum over all workers' losses. Every worker must run
            the backward pass, even with an empty tensor.
        world: number of workers.
    """
    counts = _counts(len(tensor_N), world, tensor_N.device)
    gathered: Tensor = _Gather.apply(tensor_N, counts)  # type: ignore[no-untyped-call]
    return gathered, sum(counts[: dist.get_rank()])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor_N: Tensor, counts: list[int]) -> Tensor:
        rank = dist.get_rank()
        ctx.mine = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        return torch.cat(all_gather(tensor_N, counts))

    @staticmethod
    def backward(ctx: Any, grad_P: Tensor) -> tuple[Tensor, None]:
        total_P = grad_P.contiguous()
        dist.all_reduce(total_P)
        return total_P[ctx.mine], None


def exchange_rows(rows_R: Tensor, grad_RD: Tensor, num_rows: int, world: int) -> tuple[Tensor, Tensor]:
    """Sum row gradients over all workers by sending (row, gradient) pairs, or the whole matrix if it is smaller.

    Args:
        rows_R: distinct rows of this worker.
        grad_RD: their gradients.
        num_rows: V, rows of the matrix.
        world: number of workers.

    Returns:
        The distinct rows of all workers, ascending, and the sums of their gradients; equal on every worker.
    """
    counts = _counts(len(rows_R), world, rows_R.device)
    if world * max(counts) > 2 * num_rows:  # a sum over all sends the matrix there and back
        touched_V, sums_VD = grad_RD.new_zeros(num_rows), grad_RD.new_zeros(num_rows, grad_RD.shape[1])
        dist.all_reduce(touched_V.index_fill_(0, rows_R, 1.0))
        dist.all_reduce(sums_VD.index_add_(0, rows_R, grad_RD))
        unique_U = touched_V.nonzero().flatten()
        return unique_U, sums_VD.index_select(0, unique_U)
    all_grads = all_gather(grad_RD, counts)
    unique_U, place = torch.unique(torch.cat(all_gather(rows_R, counts)), return_inverse=True)
    sums_UD = grad_RD.new_zeros(len(unique_U), grad_RD.shape[1])
    for grads, places in zip(all_grads, place.split(counts), strict=True):
        sums_UD.index_add_(0, places, grads)
    return unique_U, sums_UD


def gather_texts(text: str, world: int, device: torch.device) -> list[str]:
    """Return the texts of all workers, each truncated to 2,000 bytes."""
    mine = torch.zeros(_TEXT_BYTES, dtype=torch.uint8)
    octets = text.encode()[:_TEXT_BYTES]
    mine[: len(octets)] = torch.tensor(list(octets), dtype=torch.uint8)
    everyone = all_gather(mine.to(device), [_TEXT_BYTES] * world)
    return [bytes(text.tolist()).rstrip(b"\0").decode(errors="ignore") for text in everyone]


def _counts(count: int, world: int, device: torch.device) -> list[int]:
    mine = torch.tensor([count], device=device)
    counts = [torch.zeros_like(mine) for _ in range(world)]
    dist.all_gather(counts, mine)
    return [int(count) for count in counts]


def all_gather(tensor_N: Tensor, counts: list[int]) -> list[Tensor]:
    """Return every worker's tensor; tensors are padded to equal lengths for the transfer."""
    padded = tensor_N.new_zeros(max(counts), *tensor_N.shape[1:])
    padded[: len(tensor_N)] = tensor_N
    everyone = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(everyone, padded)
    return [tensor[:count] for tensor, count in zip(everyone, counts, strict=True)]
