"""Shared memory for all training workers on one machine.
``tests/training/test_workers.py`` holds steps in it equal to those of ``training.step.Step``.

It has no name: it is gone with the last worker that maps it, however that ends.
"""

import contextlib
import mmap
import os
import secrets
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from paraembed.training.exchange import gather_texts

_NAME = "paraembed"  # as /proc shows it
_TOKEN_BYTES = 64  # the floats behind it begin at a cache line


def shared_zeros(shapes: list[tuple[int, ...]], rank: int, world: int) -> list[Tensor] | None:
    """Zeros of these shapes, float32, the same memory on all workers; None where they are on several machines.

    Every worker must ask for the same.
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
    """Return the memory of worker 0 if it is on this machine; on another machine the path does not lead to it."""
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
    """A file's memory; on huge pages where ``/sys/kernel/mm/transparent_hugepage/shmem_enabled`` is ``advise``."""
    memory = mmap.mmap(number, num_bytes)
    with contextlib.suppress(OSError, AttributeError):  # where the system has none
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
