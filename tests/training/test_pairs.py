import errno
import os
import signal
import tracemalloc
from collections import Counter
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN
from paraembed.training.pairs import (
    MappedPairs,
    are_written,
    epoch_batches,
    ids_of_blocks,
    num_cut,
    num_steps,
    num_without_tree,
    pairs_to_ids,
    read_pairs,
    write_pairs,
)


def numbered(num_pairs, window=None, **sizes):
    """Pair i holds the texts [2i] and [2i + 1, 2i + 1], so that ids tell the pair."""
    lengths = np.tile([1, 2], num_pairs)
    ids = np.repeat(np.arange(2 * num_pairs, dtype=np.int32), lengths)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return Ragged(ids, offsets) if window is None else MappedPairs(ids, offsets, window=window, **sizes)


def texts(ragged):
    return [ragged.slice(at, at + 1).ids.tolist() for at in range(len(ragged))]


@given(
    num_pairs=st.integers(1, 60),
    batch_size=st.integers(2, 9),
    worlds=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    epoch=st.integers(0, 2),
    steps_before=st.integers(0, 6),
    chunk=st.integers(1, 20),
    window=st.none() | st.integers(1, 40),
    block=st.integers(1, 9),
)
def test_every_pair_comes_once_an_epoch_in_one_order_also_when_another_number_of_workers_goes_on(
    num_pairs, batch_size, worlds, epoch, steps_before, chunk, window, block
):
    pairs = numbered(num_pairs, window, block_pairs=block)
    run = {"epoch": epoch, "seed": 7, "batch_size": batch_size, "chunk_pairs": chunk}

    def seen(world, first_pair):
        """Pairs of each step over all workers."""
        ranks = [
            list(epoch_batches(pairs, rank=rank, world=world, first_pair=first_pair, **run)) for rank in range(world)
        ]
        assert [len(batches) for batches in ranks] == [num_steps(num_pairs, batch_size, world, first_pair)] * world
        return [pairs_of(step, batch_size) for step in zip(*ranks, strict=True)]

    broken_off = seen(worlds[0], 0)[:steps_before]
    first_pair = sum(len(step) for step in broken_off)
    resumed = [pair for step in [*broken_off, *seen(worlds[1], first_pair)] for pair in step]
    unbroken = [pair for step in seen(1, 0) for pair in step]
    assert resumed == unbroken
    assert sorted(resumed) == list(range(num_pairs))
    if window is None:
        assert resumed == np.random.default_rng((7, epoch)).permutation(num_pairs).tolist()
    else:
        assert most_blocks_at_once(resumed, block) <= -(-window // block)


def most_blocks_at_once(order, block):
    """Blocks that must be in memory together for this order."""
    left = Counter(pair // block for pair in order)
    begun = set()
    most = 0
    for pair in order:
        begun.add(pair // block)
        left[pair // block] -= 1
        most = max(most, len(begun))
        if not any(left[one] for one in begun):
            begun.clear()
    return most


def pairs_of(step, batch_size):
    """The pairs of the workers' shares of one step, in order."""
    assert [batch.total for batch in step] == [sum(len(batch.texts) // 2 for batch in step)] * len(step)
    assert all(len(batch.texts) // 2 <= max(batch_size, 3) for batch in step)
    # A pair alone has no negative: it is alone only where the whole step is one pair.
    assert step[0].total == 1 or all(len(batch.texts) // 2 != 1 for batch in step)
    seen = []
    for batch in step:
        for one, other in zip(*[iter(texts(batch.texts))] * 2, strict=True):
            assert other == [one[0] + 1] * 2
            seen.append(one[0] // 2)
    return seen


@pytest.mark.parametrize("window", [None, 9000])
def test_epochs_differ(window):
    pairs = numbered(20_000, window)
    first, second = (next(epoch_batches(pairs, epoch=epoch, seed=1, batch_size=20_000)).texts.ids for epoch in (0, 1))
    assert first.tolist() != second.tolist()
    assert sorted(first.tolist()) == sorted(second.tolist())


def test_blocks_become_ids_side_by_side():
    vocabulary = pa.array([UNKNOWN, "a", "b", "c"])
    blocks = [
        pa.table({"first": ["a b", "c"], "second": ["b", "a zebra"]}),
        pa.table({"first": ["c c c"], "second": ["a"]}),
    ]
    assert texts(pairs_to_ids(blocks, vocabulary)) == [[1, 2], [2], [3], [1, 0], [3, 3, 3], [1]]
    assert texts(pairs_to_ids(blocks, vocabulary, max_tokens=1)) == [[1], [2], [3], [1], [3], [1]]
    assert [num_cut(block, most) for block in blocks for most in (1, 2, 3)] == [2, 0, 0, 1, 1, 0]
    assert num_cut(blocks[0].slice(0, 0), 1) == len(pairs_to_ids([], vocabulary)) == 0


@pytest.mark.parametrize("with_trees", [False, True])
def test_files_have_the_same_arrays_as_memory(with_trees, tmp_path):
    vocabulary, folder = pa.array([UNKNOWN, "a", "b", "c"]), tmp_path / "pairs"
    blocks = [pa.table({"first": ["a b", "c"], "second": ["b", "a zebra c"]})] * 10
    in_memory = pairs_to_ids(blocks, vocabulary, with_trees)
    write_pairs(folder, ids_of_blocks(blocks, vocabulary, with_trees), "source", {"are long": 3})
    mapped, remarks = read_pairs(folder, 20)
    assert remarks == {"are long": 3}
    for file, array in zip(arrays(mapped), arrays(in_memory), strict=True):
        assert not file.flags.writeable  # mapped, and nobody may change the file
        assert (file.dtype, file.tolist()) == (array.dtype, array.tolist())
    assert "20 pairs on disk (0.00 GiB), read and shuffled in windows of 4,096" in str(MappedPairs.of(mapped, 300))


def arrays(pairs):
    return [array for array in (pairs.ids, pairs.offsets, pairs.merges) if array is not None]


def test_files_are_those_of_a_source_complete_and_undamaged(tmp_path):
    vocabulary, folder = pa.array([UNKNOWN, "a"]), tmp_path / "pairs"
    table = pa.table({"first": ["a", ""], "second": ["a a", "a"]})

    def write():
        write_pairs(folder, ids_of_blocks([table], vocabulary), "source", {})

    def fails():
        yield pairs_to_ids([table], vocabulary)
        raise OSError(errno.ENOSPC, "no space", "disk")

    def killed():
        yield pairs_to_ids([table], vocabulary)
        os.kill(os.getpid(), signal.SIGKILL)

    process = get_context("fork").Process(target=write_pairs, args=(folder, killed(), "source", {}))
    process.start()
    process.join()
    assert (process.exitcode, len(list(tmp_path.iterdir()))) == (-signal.SIGKILL, 1)
    assert not are_written(folder, "source")
    with pytest.raises(OSError, match="no space"):
        write_pairs(folder, fails(), "source", {})
    assert list(tmp_path.iterdir()) == []
    write()
    assert [are_written(folder, source) for source in ("source", "another")] == [True, False]
    for name in ("ids", "offsets", "manifest.json"):
        whole = (folder / name).read_bytes()
        for damaged in (whole[:-8], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
            (folder / name).write_bytes(damaged)
            assert not are_written(folder, "source")
        (folder / name).unlink()
        assert not are_written(folder, "source")
        write()
        assert are_written(folder, "source")
    with pytest.raises(ValueError, match="3 pairs"):
        read_pairs(folder, 3)
    empty = pa.table({"first": [""], "second": [""]})
    write_pairs(folder, ids_of_blocks([empty], vocabulary), "empty", {})
    assert texts(read_pairs(folder, 1)[0]) == [[], []]
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        write_pairs(tmp_path / "file" / "pairs", ids_of_blocks([empty], vocabulary), "source", {})


def test_memory_holds_the_pairs_once_while_they_are_read_and_one_window_when_they_are_mapped(tmp_path):
    vocabulary = pa.array([UNKNOWN, "a", "b", "c"])
    blocks = [pa.table({"first": ["a b c"] * 4096, "second": ["b c a zebra"] * 4096})] * 50
    pairs, peak = traced(lambda: pairs_to_ids(blocks, vocabulary))
    assert peak < 1.15 * pairs.nbytes
    _, peak = traced(lambda: write_pairs(tmp_path / "pairs", ids_of_blocks(blocks, vocabulary), "source", {}))
    assert peak < 0.2 * pairs.nbytes
    most = pairs.nbytes // 2
    mapped = MappedPairs.of(read_pairs(tmp_path / "pairs", len(pairs) // 2)[0], most)
    batches = epoch_batches(mapped, epoch=0, seed=1, batch_size=100)
    total, peak = traced(lambda: sum(len(batch.texts) for batch in batches))
    assert total == len(pairs)
    assert peak < 2 * most


def traced(call):
    """What a call returns, and the most bytes it held."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_trees_come_from_their_columns_and_are_right_branching_elsewhere():
    vocabulary = pa.array([UNKNOWN, "a", "b", "c"])
    new = pa.table(
        {
            "first": ["a b c", "c", "a b c"],
            "second": ["b a", "a zebra b", "c c c"],
            "first_tree": pa.array(["((a b) c)", None, None], pa.string()),
            "second_tree": pa.array([None, "(S (X (D a) (D zebra)) (Y b))", None], pa.string()),
        }
    )
    old = pa.table({"first": ["c c c"], "second": ["a"]})
    nulls = old.append_column("first_tree", pa.nulls(1)).append_column("second_tree", pa.nulls(1))
    pairs = pairs_to_ids([new, old, nulls], vocabulary, with_trees=True)
    merges = [pairs.slice(at, at + 1).merges for at in range(len(pairs))]
    assert [some.tolist() for some in merges if some is not None] == [
        *([0, 1, 1], [0, 1], [0], [0, 1, 1], [0, 0, 2], [0, 0, 2]),
        *([0, 0, 2], [0]) * 2,
    ]
    bare = pairs_to_ids([new, old, nulls], vocabulary)
    assert (texts(bare), bare.merges) == (texts(pairs), None)
    assert [num_without_tree(block) for block in (new, old, nulls, new.slice(0, 0))] == [2, 1, 1, 0]
    none = pairs_to_ids([], vocabulary, with_trees=True)
    assert none.merges is not None
    assert (len(none), none.merges.dtype) == (0, np.int32)
    wrong = new.set_column(2, "first_tree", pa.array(["((a b) b)", None, None]))
    with pytest.raises(ValueError, match=r"leaves .*'a b b', .*'a b c'"):
        pairs_to_ids([wrong], vocabulary, with_trees=True)
