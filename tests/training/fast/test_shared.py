"""Memory of all workers on one machine."""

import os
from pathlib import Path
from unittest.mock import patch

import pytest
import torch.distributed as dist

from paraembed.training.fast import cpu
from paraembed.training.fast.cpu import shared_zeros
from tests.training.test_exchange import in_two_processes

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memory without a name on this system")
SHAPES = [(3, 4), (5,)]


def _write(rank, folder):
    tensors = shared_zeros(SHAPES, rank, 2)
    assert tensors is not None
    assert [tuple(one.shape) for one in tensors] == SHAPES
    assert not any(one.any() for one in tensors)
    dist.barrier()
    tensors[rank][rank] = rank + 1.0
    dist.barrier()
    (folder / f"out{rank}").write_text(f"{tensors[0].sum()} {tensors[1].tolist()}")
    mapped = [
        line for line in Path("/proc/self/maps").read_text().splitlines() if "paraembed" in line and "memfd" in line
    ]
    assert mapped
    assert all(line.endswith("(deleted)") for line in mapped)  # it has no name, and is gone with its workers


def test_workers_see_what_the_others_write(tmp_path):
    in_two_processes(_write, tmp_path)
    assert [(tmp_path / f"out{rank}").read_text() for rank in (0, 1)] == ["4.0 [0.0, 2.0, 0.0, 0.0, 0.0]"] * 2


def _elsewhere(rank, folder):
    with patch.object(cpu, "gather_texts", return_value=["/proc/0/fd/3 none"]):  # as another machine sees the path
        (folder / f"out{rank}").write_text(str(shared_zeros(SHAPES, rank, 2)))


def test_workers_on_several_machines_share_none(tmp_path):
    in_two_processes(_elsewhere, tmp_path)
    assert [(tmp_path / f"out{rank}").read_text() for rank in (0, 1)] == ["None"] * 2


def test_other_memory_at_the_same_path_is_told_by_its_token():
    made = cpu._made(200, "a" * 64)
    assert made is not None
    path = f"/proc/{os.getpid()}/fd/{made[0]}"
    assert cpu._mapped(f"{path} {'a' * 64}", 200) is not None
    assert cpu._mapped(f"{path} {'b' * 64}", 200) is None
    assert cpu._mapped(f"{path} {'a' * 64}", 400) is None
    os.close(made[0])
