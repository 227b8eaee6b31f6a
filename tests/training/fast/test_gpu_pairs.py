import warnings
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.text.ragged import Ragged, joined
from paraembed.training.fast import gpu_pairs as device_pairs_module
from paraembed.training.fast.gpu_pairs import DevicePairs
from paraembed.training.pairs import epoch_batches, num_steps


def ragged(lengths):
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    ids = np.arange(1, offsets[-1] + 1, dtype=np.int32)
    for array in (ids, offsets):  # as mapped arrays are
        array.setflags(write=False)
    return Ragged(ids, offsets)


def assert_same(found, expected):
    texts = expected.texts
    num_texts, num_tokens = len(texts), len(texts.ids)
    assert (len(found.texts), found.total) == (num_texts, expected.total)
    assert found.ids.shape == found.text.shape
    assert found.ids.shape[1] == max(len(found.ids_T), *(len(part.ids) + 1 for part in expected.parts))
    for worker, part in enumerate(expected.parts):
        rest = found.ids.shape[1] - len(part.ids)
        assert found.ids[worker].tolist() == [*part.ids.tolist(), *[0] * rest]
        text = np.repeat(np.arange(len(part)), part.lengths)
        assert found.text[worker].tolist() == [*text, *[found.num_texts] * rest]
    assert found.num_texts == max(map(len, expected.parts))
    order, segments, starts, again, rows = found.by_row.tolist()
    flat, places = found.ids.flatten(), (found.text < found.num_texts).flatten().nonzero().flatten()
    distinct = sorted({*flat[places].tolist()})
    assert rows == [distinct[place] for place in again]
    assert again == [place % len(distinct) for place in range(len(flat))]
    assert segments[starts[len(distinct)]] == len(places)
    for row, start, end in zip(distinct, starts, starts[1:], strict=False):
        assert order[segments[start] : segments[end]] == [place for place in places.tolist() if flat[place] == row]
        sizes = np.diff(segments[start : end + 1])
        assert sizes.min() > 0
        assert sizes.max() ** 2 <= len(flat)
    for first, bounds in ((len(distinct), starts), (starts[len(distinct)], segments)):
        assert {*np.diff([*bounds[first:], len(flat)])} <= {0, 1}
    assert (found.ids_T.dtype, found.text_T.dtype, found.offsets.dtype) == (torch.int64,) * 3
    padding = len(found.ids_T) - num_tokens
    assert padding >= 1
    assert found.offsets.tolist() == [*texts.offsets.tolist(), num_tokens + padding]
    if not found.repeats:
        assert padding == 1
    if found.steps is not None:
        read = joined(*expected.parts) if found.repeats else texts
        lengths = np.append(read.lengths, 1)
        at_work = tuple(int((lengths > step).sum()) for step in range(len(found.steps.sizes)))
        assert found.steps.sizes == ((num_texts + 1,) * len(at_work) if found.repeats else at_work)
        assert len(at_work) >= lengths.max()
        assert found.steps.ends.tolist() == np.cumsum(found.steps.sizes).tolist()
        assert found.steps.num_tokens == len(found.ids_T)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 20)), min_size=1, max_size=20),
    batch_size=st.integers(2, 9),
    first_pair=st.integers(0, 12),
    chunk=st.integers(1, 20),
    slots=st.sampled_from([0, 80, 10_000]),
    most_padding=st.sampled_from([1, 1.2, 4]),
    recurrent=st.booleans(),
    worker=st.sampled_from([(0, 1), (0, 2), (1, 2), (2, 3)]),
)
def test_batches_are_those_of_the_cpu(lengths, batch_size, first_pair, chunk, slots, most_padding, recurrent, worker):
    pairs = ragged([length for pair in lengths for length in pair])
    rank, world = worker
    on_device = DevicePairs(pairs, "cpu", recurrent=recurrent, rank=rank, world=world)
    constants = {"_MOST_SLOTS": slots, "_MOST_COUNTS": 10 * chunk, "_MOST_PADDING": most_padding, "_MOST_STEPS": chunk}
    with patch.multiple(device_pairs_module, **constants):
        for epoch in (0, 1, 3):  # one that is begun, one formed ahead, one that was not expected
            first = min(first_pair, len(lengths))
            given = {"batch_size": batch_size, "first_pair": first, "seed": 5}
            found = list(on_device.epoch(epoch=epoch, chunk_pairs=chunk, **given))
            expected = list(epoch_batches(pairs, epoch=epoch, rank=rank, world=world, **given))
            assert len(found) == len(expected) == num_steps(len(lengths), batch_size, world, first)
            for one, other in zip(found, expected, strict=True):
                assert_same(one, other)


def test_shapes_repeat_and_hold_little_padding():
    lengths = np.random.default_rng(0).poisson(3, 40_000) + 1
    batches = list(DevicePairs(ragged(lengths.tolist()), "cpu", recurrent=True).epoch(epoch=0, seed=1, batch_size=100))
    sizes = [len(batch.ids_T) for batch in batches]
    assert len(set(sizes)) <= 3
    assert len({batch.steps.sizes for batch in batches if batch.steps}) <= 5
    assert sum(sizes) < 1.25 * lengths.sum()


def test_a_long_text_lengthens_no_other_step():
    lengths = np.random.default_rng(0).poisson(3, 4000) + 1
    lengths[77] = 20_000
    batches = list(DevicePairs(ragged(lengths.tolist()), "cpu").epoch(epoch=0, seed=1, batch_size=100))
    sizes = sorted(len(batch.ids_T) for batch in batches)
    assert sizes[-1] > 20_000
    assert sizes[-2] < 1200
    assert [batch.repeats for batch in batches].count(False) == 1


@contextmanager
def host_may_not_wait():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
