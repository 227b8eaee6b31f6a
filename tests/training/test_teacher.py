"""Vectors of a teacher, joined with pairs by row."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.embedding.settings import Settings
from paraembed.io.fingerprint import sha256_of
from paraembed.recipe import Recipe
from paraembed.training.pairs import MappedPairs, MemoryLimit, epoch_batches
from paraembed.training.step import step_for
from paraembed.training.teacher import open_teacher, read_teacher
from tests.embedding.output_of import InMemory, encoder_of
from tests.embedding.without_ray import build
from tests.training.conftest import encoder_of as trained_encoder_of
from tests.training.conftest import make_pairs

TAUGHT = Recipe(objective="none", teacher_objective="similarity")


@pytest.mark.parametrize("most", [10**9, 100])
def test_vectors_of_both_sides_are_adjacent_and_of_length_one(tmp_path, most):
    sides = np.random.default_rng(3).standard_normal((2, 11, 5), np.float32)
    sides[1, 4] = 0
    read = read_teacher([InMemory(side) for side in sides], MemoryLimit(most, tmp_path / "work"))
    expected = sides.transpose(1, 0, 2).reshape(22, 5)
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(read, expected / np.where(norms, norms, 1), rtol=1e-6)
    assert isinstance(read, np.memmap) == (most == 100)
    assert not [*tmp_path.glob("work/*")]  # the file has no name


def test_outputs_that_do_not_fit_are_refused(tmp_path):
    encoder = encoder_of(np.eye(4), tmp_path / "encoder")
    other = encoder_of(np.eye(4) * 2, tmp_path / "other")
    shards = []
    for number in range(2):
        pq.write_table(
            pa.table({"first": ["w1", "w2"], "second": ["w0", "w3"]}), path := tmp_path / f"{number}.parquet"
        )
        shards.append({"path": path, "rows": 2, "sha256": sha256_of(path)})
    wanted = [(encoder, "first", "one"), (encoder, "second", "two"), (other, "second", "three")]
    for name, column, out in wanted:
        build(name, [shard["path"] for shard in shards], Settings(text_column=column), tmp_path / out)
    first, second, third = (tmp_path / out for _, _, out in wanted)
    assert [output.rows for output in open_teacher([first, second], shards)] == [4, 4]
    more = [{**shards[0], "rows": 3}, shards[1]]
    for places, of_pairs, message in (
        ([second, first], shards, r"not of the column 'first'; .* first as `text_column` of jobs"),
        ([first, second], shards[:1], "other files than the 1 pair shards"),
        ([first, second], more, "4 rows, but there are 5 pairs"),
        ([first], shards, "give two"),
        ([first, third], shards, "different encoders"),
    ):
        with pytest.raises(ValueError, match=message):
            open_teacher(places, of_pairs)


@pytest.mark.parametrize("window", [None, 256])
def test_each_text_of_a_batch_has_its_own_vector_and_the_score_of_its_pair(window):
    pairs, known = make_pairs(), {}
    for number in range(0, len(pairs), 2):  # a few pairs may repeat
        pair = pairs.slice(number, number + 2)
        known.setdefault(pair.ids.tobytes(), []).append((pair.teacher.tolist(), pair.scores.tolist()))
    if window:  # of four blocks
        arrays = pairs.ids, pairs.offsets, pairs.merges, pairs.teacher, pairs.scores
        pairs = MappedPairs(*arrays, window=window, block_pairs=64)
    for batch in epoch_batches(pairs, epoch=0, seed=1, batch_size=50, rank=1, world=2):
        for number in range(0, len(batch.texts), 2):
            pair = batch.texts.slice(number, number + 2)
            assert (pair.teacher.tolist(), pair.scores.tolist()) in known[pair.ids.tobytes()]


def test_a_teacher_that_is_missing_or_has_another_width_is_told():
    pairs, encoder = make_pairs(), trained_encoder_of(TAUGHT)
    with pytest.raises(ValueError, match="no vectors of a teacher"):
        step_for(encoder, TAUGHT, replace(pairs, teacher=None))
    with pytest.raises(ValueError, match=r"8 dimensions .*the teacher 3"):
        step_for(encoder, replace(TAUGHT, teacher_objective="vector"), replace(pairs, teacher=pairs.teacher[:, :3]))


@pytest.mark.parametrize("form", ["vector", "similarity", "softened"])
def test_a_student_comes_closer_to_its_teacher(form):
    pairs, teacher = make_pairs(), trained_encoder_of(Recipe())
    pairs = replace(pairs, teacher=teacher.requires_grad_(False)(pairs).numpy())
    pairs = replace(pairs, teacher=pairs.teacher / np.linalg.norm(pairs.teacher, axis=1, keepdims=True))
    recipe = replace(TAUGHT, teacher_objective=form, learning_rate=0.02)
    student = trained_encoder_of(recipe)
    student.matrix.data[:] = student.matrix.data.flip(0)
    step = step_for(student, recipe, pairs)
    losses, epochs = [], range(12)
    for number, batch in enumerate((batch for epoch in epochs for batch in step.batches(pairs, epoch)), 1):
        losses.append(float(step(batch, number)[0]))
    assert np.mean(losses[-3:]) < 0.3 * losses[0]
