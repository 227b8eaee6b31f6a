import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.data.schemas import PAIRS
from paraembed.ragged import Ragged
from paraembed.training import pairs as pairs_module
from paraembed.training.pairs import epoch_batches, num_steps, num_without_tree, pair_columns, pairs_to_ids
from paraembed.words import UNKNOWN


def numbered(num_pairs: int) -> Ragged:
    """Pair i holds the texts [2i] and [2i + 1, 2i + 1], so that ids tell the pair."""
    lengths = np.tile([1, 2], num_pairs)
    ids = np.repeat(np.arange(2 * num_pairs, dtype=np.int32), lengths)
    return Ragged(ids, np.concatenate(([0], np.cumsum(lengths))))


def texts(ragged: Ragged) -> list[list[int]]:
    return [ragged.slice(at, at + 1).ids.tolist() for at in range(len(ragged))]


@given(
    num_pairs=st.integers(1, 60),
    batch_size=st.integers(2, 9),
    world=st.integers(1, 4),
    epoch=st.integers(0, 2),
    first=st.integers(0, 3),
    chunk=st.integers(1, 20),
)
def test_every_pair_comes_once_an_epoch_in_an_order_that_ignores_the_workers(
    num_pairs: int, batch_size: int, world: int, epoch: int, first: int, chunk: int
) -> None:
    pairs = numbered(num_pairs)
    pairs_module._CHUNK_PAIRS, before = chunk, pairs_module._CHUNK_PAIRS
    try:
        ranks = [
            list(epoch_batches(pairs, epoch=epoch, seed=7, batch_size=batch_size, rank=rank, world=world))
            for rank in range(world)
        ]
        later = list(epoch_batches(pairs, epoch=epoch, seed=7, batch_size=batch_size, first_step=first))
    finally:
        pairs_module._CHUNK_PAIRS = before
    steps = num_steps(num_pairs, batch_size, world)
    assert [len(batches) for batches in ranks] == [steps] * world
    seen: list[int] = []
    for step in zip(*ranks, strict=True):
        assert len({batch.total for batch in step}) == 1
        assert sum(len(batch.texts) // 2 for batch in step) == step[0].total
        assert all(len(batch.texts) // 2 <= max(batch_size, 3) for batch in step)
        # A pair alone has no negative: it is alone only where the whole step is one pair.
        assert step[0].total == 1 or all(len(batch.texts) // 2 != 1 for batch in step)
        for batch in step:
            for one, other in zip(*[iter(texts(batch.texts))] * 2, strict=True):
                assert other == [one[0] + 1] * 2
                seen.append(one[0] // 2)
    order = np.random.default_rng((7, epoch)).permutation(num_pairs).tolist()
    assert seen == order
    resumed = [text[0] // 2 for batch in later for text in texts(batch.texts)[::2]]
    assert resumed == order[first * batch_size :]


def test_epochs_differ() -> None:
    pairs = numbered(50)
    first, second = (next(epoch_batches(pairs, epoch=epoch, seed=1, batch_size=50)).texts.ids for epoch in (0, 1))
    assert first.tolist() != second.tolist()
    assert sorted(first.tolist()) == sorted(second.tolist())


def test_blocks_become_ids_side_by_side() -> None:
    vocabulary = pa.array([UNKNOWN, "a", "b", "c"])
    blocks = [
        pa.table({"first": ["a b", "c"], "second": ["b", "a zebra"]}),
        pa.table({"first": ["c c c"], "second": ["a"]}),
    ]
    assert texts(pairs_to_ids(blocks, vocabulary)) == [[1, 2], [2], [3], [1, 0], [3, 3, 3], [1]]
    assert len(pairs_to_ids([], vocabulary)) == 0


def test_trees_come_from_their_columns_and_are_right_branching_elsewhere() -> None:
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
    with pytest.raises(ValueError, match="the leaves of its tree are 'a b b', its tokens 'a b c'"):
        pairs_to_ids([wrong], vocabulary, with_trees=True)


def test_columns_that_are_there() -> None:
    assert pair_columns(PAIRS, with_trees=True) == ["first", "second", "first_tree", "second_tree"]
    assert pair_columns(PAIRS, with_trees=False) == ["first", "second"]
    assert pair_columns(pa.schema(list(PAIRS)[:6]), with_trees=True) == ["first", "second"]
