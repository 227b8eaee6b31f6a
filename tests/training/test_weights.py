"""Weights of pairs from their scores: the weighted objective, its gradient, and the scores that cannot be weights."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders.configs import GruConfig
from paraembed.pairs.shards import PAIRS
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN
from paraembed.training.fast.gpu import DeviceStep
from paraembed.training.loop import train
from paraembed.training.pairs import MappedPairs, MemoryLimit, epoch_batches, pairs_to_ids
from paraembed.training.state import Checkpoints
from paraembed.training.step import Step, step_for
from paraembed.training.weights import PairWeights, check_scores, scores_of
from tests.training.conftest import encoder_of, make_pairs
from tests.training.test_loop import interrupt

WEIGHTED = Recipe(batch_size=50, learning_rate=0.01, pair_weights="score")
SGD = replace(WEIGHTED, optimizer="sgd", learning_rate=2.0)


STEPS = {"compiled": step_for, "plain": Step, "device": DeviceStep}


def trained(make, recipe, pairs, epochs=1):
    """Losses, and the encoder."""
    encoder = encoder_of(recipe)
    step = make(encoder, recipe, pairs)
    batches = (batch for epoch in range(epochs) for batch in step.batches(pairs, epoch))
    return torch.stack([step(batch, number) for number, batch in enumerate(batches, 1)]), encoder


def scored(pairs, scores):
    return replace(pairs, scores=np.repeat(np.asarray(scores, np.float32), 2))


@given(st.lists(st.floats(0, 2.0**127, width=32), min_size=1, max_size=30).filter(any))
def test_the_mean_weight_is_one_and_weights_are_proportional_to_scores(scores):
    texts = Ragged(
        np.zeros(2 * len(scores), np.int32),
        np.arange(2 * len(scores) + 1),
        scores=np.repeat(np.array(scores, np.float32), 2),
    )
    weights = PairWeights.of(WEIGHTED, texts)(texts)
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights, np.array(scores) / np.mean(scores), rtol=1e-6, atol=1e-30)
    assert weights.mean(dtype=np.float64) == pytest.approx(1, rel=1e-6)


def bags_of(texts, num_words):
    """Share of each word in each text."""
    bags = np.zeros((len(texts), num_words))
    for text in range(len(texts)):
        own = texts.ids[texts.offsets[text] : texts.offsets[text + 1]]
        np.add.at(bags[text], own, 1 / len(own))
    return bags


def of_numpy(recipe, matrix, texts, weights, others):
    """Weighted loss of a batch and its gradient by the word vectors of avg, in float64; ``others`` are the vectors of
    the other texts of its mega-batch [M, D].
    """
    num, bags = len(texts), bags_of(texts, len(matrix))
    raw = bags @ matrix
    norms = np.linalg.norm(raw, axis=1, keepdims=True)
    partner, unit = np.arange(num) ^ 1, raw / norms
    similar = unit @ unit.T
    candidates = np.where(np.arange(num)[:, None] // 2 == np.arange(num) // 2, -np.inf, similar)
    by_similar, loss, each = np.zeros((num, num)), 0.0, np.repeat(weights, 2) / (num // 2)
    by_others = np.zeros_like(raw)
    if recipe.objective == "squared_l2":
        apart = raw[0::2] - raw[1::2]
        grad = np.empty_like(raw)
        grad[0::2] = 2 * each[::2, None] * apart
        grad[1::2] = -grad[0::2]
        return (each[::2] * (apart**2).sum(axis=1)).sum(), bags.T @ grad
    for text in range(num):
        if recipe.objective == "margin":
            negative = candidates[text].argmax()
            term = recipe.margin - similar[text, partner[text]] + similar[text, negative]
            by_similar[text, negative] += each[text] * (term > 0)
            by_similar[text, partner[text]] -= each[text] * (term > 0)
            loss += each[text] * max(0, term)
        share = each[text] * {"info_nce": 1.0, "margin": recipe.info_nce_weight}[recipe.objective]
        logits = np.concatenate([[similar[text, partner[text]]], candidates[text], others @ unit[text]])
        softmax = np.exp(logits / recipe.temperature) / np.exp(logits / recipe.temperature).sum()
        loss -= share * np.log(softmax[0])
        by_similar[text] += share * softmax[1 : num + 1] / recipe.temperature
        by_similar[text, partner[text]] += share * (softmax[0] - 1) / recipe.temperature
        by_others[text] = share * softmax[num + 1 :] @ others / recipe.temperature
    grad = (by_similar + by_similar.T) @ unit + by_others
    return loss, bags.T @ ((grad - (grad * unit).sum(axis=1, keepdims=True) * unit) / norms)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"objective": "info_nce"},
        {"objective": "squared_l2"},
        {"info_nce_weight": 0.7},
        {"objective": "info_nce", "mega_batch_size": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["float64", *STEPS])
def test_steps_are_those_of_numpy(pairs, changes, name):
    """In float64 to 1e-10: loss and word vectors after five updates; in float32 to rounding."""
    pairs = pairs.slice(0, 500)
    recipe = replace(SGD, temperature=0.3, learning_rate=0.5, **changes)
    encoder = encoder_of(recipe).double() if name == "float64" else encoder_of(recipe)
    matrix, mean = encoder.matrix.detach().double().numpy().copy(), pairs.scores.astype(np.float64).mean()
    step = STEPS.get(name, Step)(encoder, recipe, pairs)
    tolerance = {"rtol": 0, "atol": 1e-7 if name == "float64" else 1e-4}  # the weights are float32
    batches = list(epoch_batches(pairs, epoch=0, seed=recipe.seed, batch_size=recipe.batch_size))
    for number, (own, batch) in enumerate(zip(step.batches(pairs, 0), batches, strict=True), 1):
        first = number - 1 - (number - 1) % recipe.mega_batch_size
        if first == number - 1:
            before = matrix.copy()
        rest = [one for one in batches[first : first + recipe.mega_batch_size] if one is not batch]
        others = np.concatenate([np.zeros((0, 8)), *(bags_of(one.texts, len(matrix)) @ before for one in rest)])
        others /= np.linalg.norm(others, axis=1, keepdims=True)
        loss, grad = of_numpy(recipe, matrix, batch.texts, batch.texts.scores[::2] / mean, others)
        np.testing.assert_allclose(float(step(own, number)[0]), loss, **tolerance)
        matrix -= recipe.learning_rate * grad
        np.testing.assert_allclose(encoder.matrix.detach().numpy(), matrix, **tolerance)
    assert number == 5


@pytest.mark.parametrize(
    "changes",
    [{"objective": name} for name in ("margin", "info_nce", "contrastive", "squared_l2")] + [{"info_nce_weight": 0.7}],
    ids=str,
)
def test_the_gradient_of_a_step_is_that_of_differences(pairs, changes):
    """Of the loss that the step returns, with teacher, in float64; negatives stay the same over a small change."""
    pairs = scored(pairs.slice(0, 24), np.arange(12))
    recipe = replace(SGD, encoder=GruConfig(), learning_rate=1.0, batch_size=12, **changes)
    recipe = replace(recipe, contrast_phrases=3, teacher_objective="similarity", temperature=0.5)
    generator = torch.Generator().manual_seed(1)
    along = [torch.randn(one.shape, generator=generator) for one in encoder_of(recipe).parameters()]

    def moved(number=0, change=0.0):
        encoder = encoder_of(recipe).double()
        [*encoder.parameters()][number].data += change * along[number]
        step = Step(encoder, recipe, pairs)
        before = [parameter.detach().clone() for parameter in encoder.parameters()]
        loss = float(step(next(step.batches(pairs, 0)), 1)[0])
        return loss, [old - new.detach() for old, new in zip(before, encoder.parameters(), strict=True)]

    gradients = moved()[1]
    assert len(gradients) == 3
    for number, gradient in enumerate(gradients):
        difference = (moved(number, 1e-6)[0] - moved(number, -1e-6)[0]) / 2e-6
        assert abs(difference) > 1e-4
        assert difference == pytest.approx(float((gradient * along[number]).sum()), abs=1e-7)


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("objective", ["margin", "info_nce"])
def test_equal_scores_are_no_weights(pairs, objective, make):
    pairs, recipe = scored(pairs, np.full(1030, 0.3)), replace(WEIGHTED, objective=objective)
    losses, encoder = trained(make, recipe, pairs)
    without, other = trained(make, replace(recipe, pair_weights="none"), pairs)
    assert torch.equal(losses, without)
    assert torch.equal(encoder.matrix, other.matrix)


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_pairs_on_disk_are_trained_and_resumed_with_their_weights(tmp_path, make):
    texts = make_pairs()
    pairs = MappedPairs(texts.ids, texts.offsets, scores=texts.scores, window=2048, block_pairs=64)
    losses, encoder = trained(make, WEIGHTED, pairs)
    others, _ = trained(make, replace(WEIGHTED, pair_weights="none"), pairs)
    assert not torch.equal(losses, others)
    expected, plainly = trained(Step, WEIGHTED, pairs)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(encoder.matrix, plainly.matrix, rtol=0, atol=1e-5)
    unbroken, resumed = encoder_of(WEIGHTED), encoder_of(WEIGHTED)
    recipe = replace(WEIGHTED, epochs=2, batch_size=9)
    train(unbroken, pairs, recipe)
    with pytest.raises(KeyboardInterrupt):
        train(encoder_of(WEIGHTED), pairs, recipe, checkpoints=Checkpoints(tmp_path), on_report=interrupt)
    train(resumed, pairs, recipe, checkpoints=Checkpoints(tmp_path))
    assert torch.equal(unbroken.matrix, resumed.matrix)
    other = replace(recipe, pair_weights="none")
    with pytest.raises(ValueError, match="pair_weights"):
        train(encoder_of(other), pairs, other, checkpoints=Checkpoints(tmp_path))


def test_pairs_without_scores_are_rejected(pairs):
    for scores, message in ((None, "have no scores"), (np.zeros(1030), "mean score of the pairs is 0")):
        texts = replace(pairs, scores=None) if scores is None else scored(pairs, scores)
        with pytest.raises(ValueError, match=f"{message}; `pair_weights` 'score' needs"):
            step_for(encoder_of(WEIGHTED), WEIGHTED, texts)


def block(*scores):
    names = ["first", "second"]
    return pa.table({**{name: ["a b"] * len(scores) for name in names}, "score": pa.array(scores, pa.float32())})


@pytest.mark.parametrize("limit", [None, 10])
def test_scores_are_read_with_the_pairs(tmp_path, limit):
    blocks, vocabulary = [block(1.5, 0, 3), block(2.25)], pa.array([UNKNOWN, "a", "b"])
    most = None if limit is None else MemoryLimit(limit, tmp_path)
    pairs = pairs_to_ids(blocks, vocabulary, with_scores=True, limit=most)
    assert isinstance(pairs, MappedPairs) == (limit is not None)
    assert pairs.scores.tolist() == [1.5, 1.5, 0, 0, 3, 3, 2.25, 2.25]
    assert pairs.nbytes == pairs_to_ids(blocks, vocabulary).nbytes + 8 * 4
    assert pairs_to_ids(blocks, vocabulary, limit=most).scores is None


@pytest.mark.parametrize(
    ("score", "shown"), [(None, "null"), (float("nan"), "nan"), (float("inf"), "inf"), (-0.5, "-0.5")]
)
def test_a_score_that_cannot_be_a_weight_is_named_with_its_shard_and_row(tmp_path, score, shown):
    vocabulary = pa.array([UNKNOWN, "a", "b"])
    with pytest.raises(ValueError, match=rf"the pairs: row 3 .*score {shown}; .*none"):
        pairs_to_ids([block(1.0, 2.0), block(1.0, score)], vocabulary, with_scores=True)
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    pq.write_table(block(1.0, 2.0), paths[0])
    pq.write_table(block(*[1.0] * 70_000, score), paths[1])
    check_scores(paths[:1])
    with pytest.raises(ValueError, match=rf"1\.parquet: row 70000 .*score {shown}; "):
        check_scores(paths)


def test_shards_without_any_score_are_rejected(tmp_path):
    nulls = pa.table({"first": ["a"], "second": ["b"], "score": pa.nulls(1)})
    with pytest.raises(ValueError, match=r"row 0 \(from 0\) .*score null"):
        scores_of(nulls, "the pairs", 0)
    with pytest.raises(ValueError, match="there is no column 'score'"):
        scores_of(nulls.drop_columns("score"), "the pairs", 0)
    pq.write_table(block(0.0, 0.0), tmp_path / "zero.parquet")
    with pytest.raises(ValueError, match="the scores of all pairs are 0"):
        check_scores([tmp_path / "zero.parquet"])
    pq.write_table(nulls.drop_columns("score"), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match=r"none.parquet: there is no column 'score'"):
        check_scores([tmp_path / "none.parquet"])
    assert PAIRS.field("score").type == pa.float32()
