import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.ragged import Ragged
from paraembed.training import device_pairs as device_pairs_module
from paraembed.training.device_pairs import DeviceBatch, DevicePairs
from paraembed.training.pairs import Batch, epoch_batches, num_steps


def ragged(lengths: list[int]) -> Ragged:
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    ids = np.arange(1, offsets[-1] + 1, dtype=np.int32)
    for array in (ids, offsets):  # as mapped arrays are
        array.setflags(write=False)
    return Ragged(ids, offsets)


def assert_same(found: DeviceBatch, expected: Batch) -> None:
    texts = expected.texts
    num_texts, num_tokens = len(texts), len(texts.ids)
    assert (2 * found.num_pairs, found.total) == (num_texts, expected.total)
    assert (found.ids_T.dtype, found.text_T.dtype, found.lengths_N.dtype) == (torch.int64, torch.int64, torch.float32)
    assert found.lengths_N.tolist() == texts.lengths.tolist()
    padding = len(found.ids_T) - num_tokens
    assert padding >= 0
    assert found.ids_T.tolist() == [*texts.ids.tolist(), *[0] * padding]
    assert found.text_T.tolist() == [*np.repeat(np.arange(num_texts), texts.lengths), *[num_texts] * padding]


@given(
    lengths=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), min_size=1, max_size=40),
    batch_size=st.integers(2, 9),
    world=st.integers(1, 3),
    first_pair=st.integers(0, 12),
    chunk=st.integers(1, 20),
)
def test_batches_are_those_of_the_cpu(
    lengths: list[tuple[int, int]], batch_size: int, world: int, first_pair: int, chunk: int
) -> None:
    pairs = ragged([length for pair in lengths for length in pair])
    on_device = DevicePairs(pairs, "cpu")
    with patch.object(device_pairs_module, "_CHUNK_PAIRS", chunk):
        for epoch in (0, 1, 3):  # one that is begun, one made ahead, one that was not expected
            for rank in range(world):
                first = min(first_pair, len(lengths))
                given = {"batch_size": batch_size, "rank": rank, "world": world, "first_pair": first, "seed": 5}
                found = list(on_device.epoch(epoch=epoch, **given))
                expected = list(epoch_batches(pairs, epoch=epoch, **given))
                assert len(found) == len(expected) == num_steps(len(lengths), batch_size, world, first)
                for one, other in zip(found, expected, strict=True):
                    assert_same(one, other)


def test_shapes_repeat_and_hold_little_padding() -> None:
    lengths = np.random.default_rng(0).poisson(3, 40_000) + 1
    batches = list(DevicePairs(ragged(lengths.tolist()), "cpu").epoch(epoch=0, seed=1, batch_size=100))
    sizes = [len(batch.ids_T) for batch in batches]
    assert len(set(sizes)) <= 3
    assert sum(sizes) < 1.25 * lengths.sum()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_forms_them_without_the_host_waiting() -> None:
    lengths = np.random.default_rng(0).poisson(3, 60_000) + 1
    pairs = ragged(lengths.tolist())
    on_device = DevicePairs(pairs, "cuda")
    with host_may_not_wait():
        found = [list(on_device.epoch(epoch=epoch, seed=2, batch_size=128)) for epoch in (0, 1)]
    for epoch, batches in enumerate(found):
        expected = list(epoch_batches(pairs, epoch=epoch, seed=2, batch_size=128))
        for one, other in zip(batches, expected, strict=True):
            assert one.ids_T.is_cuda
            assert_same(one, other)


@contextmanager
def host_may_not_wait() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
