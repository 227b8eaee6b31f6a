"""Step of bag-of-words encoders on the CPU, with its gradient in compiled loops.

``tests/training/fast/test_cpu.py`` checks that it equals ``training.step.Step`` to 1e-6.

A text's vector is the mean or the sum of its words' vectors, so the step needs only one vector and one gradient per
text, and no rows are gathered. The gradient of the margin loss by these vectors has a closed form.

Data-parallel: every worker holds all pairs. On one machine, all workers share the memory of the word matrix and of the
optimizer's moments. Each worker embeds its part of the texts, writes their gradients to shared memory, and updates the
rows it owns; nothing is sent. Workers on several machines each hold a copy of the matrix, and compute vectors and
gradients of the whole step. That costs 3.8 ms for another worker's 2,048 texts of 15 tokens; sending their gradients,
2.4 MB, costs 2.2 ms of CPU time on loopback and 20 ms at 1 Gb/s. They only divide the
choice of negatives, whose cost is quadratic in the batch, and exchange the chosen negatives, 8 bytes per text. Both
ways give the same bits.

The shared memory has no name in the file system, so it is freed when the last worker that maps it ends, even after a
crash. ``tests/training/fast/test_cpu.py`` checks that steps in shared memory equal those of ``training.step.Step``.
"""

import contextlib
import mmap
import os
import secrets
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from paraembed.encoders import Encoder
from paraembed.encoders.averages import Avg
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.training.base_step import BaseStep
from paraembed.training.exchange import all_gather, gather_texts
from paraembed.training.fast.kernels import composed, gradient_by_token, margin_gradient, row_gradients, texts_by_row
from paraembed.training.negatives import Negatives
from paraembed.training.objectives import SMALLEST_NORM
from paraembed.training.pairs import Batch, step_bounds
from paraembed.training.update import bias_of

_ROWS_AT_ONCE = 1024  # 1.2 MB at width 300
_SMALLEST = np.float32(SMALLEST_NORM)


class AdditiveStep(BaseStep):
    """Step of the kinds additive and shared; its batches have the pairs of all workers."""

    def __init__(
        self, encoder: Encoder, recipe: Recipe, pairs: Ragged, rank: int = 0, world: int = 1, *, is_shared: bool = False
    ) -> None:
        """Prepare the step; with ``is_shared``, move the word vectors to memory that the workers share, if they can."""
        super().__init__(encoder, recipe, pairs, rank, world, compiled=True)
        self._batch_size, self._worker = recipe.batch_size * world, {"rank": 0, "world": 1}
        self._how = isinstance(encoder.composition, Avg), recipe.similarity == "cosine", _SMALLEST
        self._places_V = np.full(len(encoder.matrix), -1, np.int32)
        self._grad_NH = self._shared_gradients() if is_shared else None

    def _shared_gradients(self) -> Tensor | None:
        """Return shared memory for the gradients of a step's texts; None if the workers cannot share memory."""
        words = self.update.words
        shapes = [tuple(words[0].shape)] * (len(words) + len(self.update.state()))
        gradients = 2 * self._batch_size, words[0].shape[1]
        shared = shared_zeros([*shapes, gradients], self.rank, self.world)
        if shared is None:
            return None
        if self.rank == 0:
            for target_VD, matrix_VD in zip(shared, words, strict=False):
                target_VD.copy_(matrix_VD)
        dist.barrier()
        self.update.move_to(shared[: len(words)], shared[len(words) : -1])
        return shared[-1]

    def _train(self, batch: Batch, step: int, generator: np.random.Generator) -> Tensor:
        texts, chosen_N, total = batch.texts, None, batch.total
        if self._mega is not None:  # the texts of the negatives follow those of the pairs
            (texts,), chosen_N = self._mega(batch, generator)
        bounds = step_bounds(total, self.world)
        if self._grad_NH is None:
            grad_NH = np.empty((len(texts), self.update.matrix.shape[1]), np.float32)
            loss, active = self._text_gradients(texts, chosen_N, bounds, total, generator, grad_NH)
            self._move(texts, grad_NH, step, (0, 1))
        else:
            first, last = 2 * bounds[self.rank], 2 * bounds[self.rank + 1]
            grad_NH = self._grad_NH[: len(texts)].numpy()
            own = texts.slice(first, last)
            loss, active = self._text_gradients(own, None, [0, len(own) // 2], total, generator, grad_NH[first:last])
            dist.barrier()
            self._move(texts, grad_NH, step, (self.rank, self.world))
            dist.barrier()  # before another worker embeds with rows that are still to move
        return torch.tensor([loss / total, active / (2 * total)])

    def _text_gradients(
        self,
        texts: Ragged,
        chosen_N: npt.NDArray[np.int64] | None,
        bounds: list[int],
        total: int,
        generator: np.random.Generator,
        grad_NH: npt.NDArray[np.float32],
    ) -> tuple[float, int]:
        """Write the gradient of each text by any of its tokens, given the workers' parts of the texts.

        ``chosen_N`` is the row of each text's negative, if it is already chosen. Return the sum of the objective's
        terms in this worker's part, and the number of them above zero.
        """
        whole = self.encoder.with_boundaries(texts)
        vectors_NH = np.empty_like(grad_NH)
        norms_N = composed(self.update.matrix.numpy(), whole.ids, whole.offsets, *self._how, vectors_NH)
        rank = min(self.rank, len(bounds) - 2)
        if chosen_N is None:
            assert self._negatives is not None
            chosen_N = self._choose(self._negatives, torch.from_numpy(vectors_NH), texts, bounds, generator).numpy()
        counted, margin = np.array(bounds[rank : rank + 2]), np.float32(self.recipe.margin)
        result: tuple[float, int] = margin_gradient(
            vectors_NH, chosen_N, margin, np.float32(1 / total), counted, grad_NH
        )
        gradient_by_token(vectors_NH, norms_N, whole.offsets, *self._how, grad_NH)
        return result

    def _move(self, texts: Ragged, grad_NH: npt.NDArray[np.float32], step: int, owner: tuple[int, int]) -> None:
        """Update the rows of an owner (see ``texts_by_row``) with the gradients of the texts."""
        whole = self.encoder.with_boundaries(texts)
        rows_T, texts_T = np.empty((2, len(whole.ids)), np.int32)
        starts_T1 = np.empty(len(whole.ids) + 1, np.int64)
        num_rows = texts_by_row(whole.ids, whole.offsets, owner, self._places_V, rows_T, texts_T, starts_T1)
        bias = bias_of(step)
        # Block by block, so that gradients of rows stay in the processor's cache; clipping wants all of them at once.
        at_once = _ROWS_AT_ONCE if self.recipe.clip is None else num_rows
        for first in range(0, num_rows, at_once):
            last = min(first + at_once, num_rows)
            grad_RD = np.empty((last - first, grad_NH.shape[1]), np.float32)
            row_gradients(starts_T1[first : last + 1], texts_T, grad_NH, grad_RD)
            self.update.move(torch.from_numpy(rows_T[first:last]), torch.from_numpy(grad_RD), bias)

    def _choose(
        self, negatives: Negatives, vectors_NH: Tensor, texts: Ragged, bounds: list[int], generator: np.random.Generator
    ) -> Tensor:
        """Return the negative of each text as its row in the step, int64 [N]; each worker computes its part."""
        if len(bounds) == 2:
            return negatives.choose(vectors_NH, vectors_NH, 0, negatives.excluded_among(texts, texts), generator)
        starts = [2 * bound for bound in bounds]
        first, last = starts[self.rank : self.rank + 2]
        own_NH, own = vectors_NH[first:last], texts.slice(first, last)
        if self.recipe.negative_pool_workers == "all":
            excluded_NP = negatives.excluded_among(own, texts)
            chosen_N = negatives.choose(own_NH, vectors_NH, first, excluded_NP, generator)
        else:
            chosen_N = negatives.choose(own_NH, own_NH, 0, negatives.excluded_among(own, own), generator)
            chosen_N = torch.where(chosen_N < 0, chosen_N, chosen_N + first)
        counts = np.diff(starts).tolist()
        return torch.cat(all_gather(chosen_N, counts))


_NAME = "paraembed"  # as /proc shows it
_TOKEN_BYTES = 64  # the floats behind it begin at a cache line


def shared_zeros(shapes: list[tuple[int, ...]], rank: int, world: int) -> list[Tensor] | None:
    """Return float32 zeros of the given shapes, in memory that all workers share; None if the workers are on several
    machines.

    Every worker must request the same shapes.
    """
    sizes = [int(np.prod(shape)) for shape in shapes]
    num_bytes = _TOKEN_BYTES + 4 * sum(sizes)
    token = secrets.token_hex(_TOKEN_BYTES // 2)
    memory = _made(num_bytes, token) if rank == 0 else None
    where = "" if memory is None else f"/proc/{os.getpid()}/fd/{memory[0]} {token}"
    where_of_first = gather_texts(where, world, torch.device("cpu"))[0]
    mapped = memory[1] if memory is not None else _mapped(where_of_first, num_bytes)
    agreed = torch.tensor([mapped is not None], dtype=torch.int32)
    dist.all_reduce(agreed, dist.ReduceOp.MIN)  # and now nobody needs the number of the file
    if memory is not None:
        os.close(memory[0])
    if mapped is None or not int(agreed):
        return None
    floats = torch.frombuffer(mapped, dtype=torch.float32, offset=_TOKEN_BYTES)
    return [part.view(shape) for part, shape in zip(floats.split_with_sizes(sizes), shapes, strict=True)]


def _made(num_bytes: int, token: str) -> tuple[int, mmap.mmap] | None:
    if not hasattr(os, "memfd_create"):  # not Linux
        return None
    try:
        number = os.memfd_create(_NAME)
    except OSError:
        return None
    try:
        os.ftruncate(number, num_bytes)
        memory = _on_huge_pages(number, num_bytes)
    except OSError:
        os.close(number)
        return None
    memory[:_TOKEN_BYTES] = token.encode()
    return number, memory


def _mapped(address: str, num_bytes: int) -> mmap.mmap | None:
    """Map the memory of worker 0 if it is on this machine; on another machine the path does not exist."""
    path, _, token = address.partition(" ")
    try:
        if not _is_ours(path):  # nothing else is to be opened
            return None
        number = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not _is_ours(f"/proc/self/fd/{number}") or os.fstat(number).st_size != num_bytes:
            return None
        memory = _on_huge_pages(number, num_bytes)
    except OSError:
        return None
    finally:
        os.close(number)
    return memory if memory[:_TOKEN_BYTES] == token.encode() else None


def _is_ours(path: str) -> bool:
    return str(Path(path).readlink()).startswith(f"/memfd:{_NAME} ")


def _on_huge_pages(number: int, num_bytes: int) -> mmap.mmap:
    """Map a file's memory, on huge pages if ``transparent_hugepage/shmem_enabled`` of Linux is ``advise``."""
    memory = mmap.mmap(number, num_bytes)
    with contextlib.suppress(OSError, AttributeError):  # where the system has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
