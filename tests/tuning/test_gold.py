"""Trials on gold labels end where jobs/finetune.py ends; no Ray."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.gran import GranConfig
from paraembed.encoders.proj import ProjConfig
from paraembed.supervised.examples import example_ids
from paraembed.supervised.model import Kind, Supervised, options_of
from paraembed.supervised.recipe import SupervisedRecipe
from paraembed.supervised.scores import score
from paraembed.supervised.step import SupervisedStep
from paraembed.supervised.tasks import Examples, Task
from paraembed.training.best import Evaluation
from paraembed.training.loop import run_steps
from paraembed.tuning.gold import GoldInputs, GoldScorer, gold_inputs
from paraembed.tuning.points import Point
from paraembed.tuning.probe import trial_seconds
from paraembed.tuning.trial import inputs_key, run_trial
from paraembed.words import UNKNOWN, Words

RECIPE = SupervisedRecipe(
    tokeniser="space", epochs=6, batch_size=10, learning_rate=0.05, head_width=5, word_penalty=0.01
)


def examples(num: int, seed: int) -> Examples:
    """Pairs of texts of two words; the score is how many they share."""
    generator, words = np.random.default_rng(seed), np.array(["cat", "dog", "sat", "ran", "mat", "home", "the", "a"])
    drawn = np.array([generator.permutation(words)[:4] for _ in range(num)])
    shared = generator.integers(0, 3, num)
    second = [" ".join([*row[:both], *row[2 : 4 - both]]) for row, both in zip(drawn, shared, strict=True)]
    return Examples((pa.array([" ".join(row[:2]) for row in drawn]), pa.array(second)), 1.0 + shared)


@pytest.fixture(scope="module")
def task() -> Task:
    parts = (examples(num, seed) for seed, num in enumerate((60, 30, 30)))
    return Task("similarity", "sick", *parts, classes=("1", "2", "3"), low=1, measure="pearson")


def untrained(task: Task, words: Words, recipe: SupervisedRecipe, seed: int) -> Supervised:
    encoder = Encoder(recipe.encoder, Words(words.vocabulary, words.matrix.copy()), "space", seed)
    return Supervised(encoder, Kind.of(task), options_of(recipe), recipe.seed)


def best_on_dev(model: Supervised, task: Task, recipe: SupervisedRecipe) -> float:
    """The score of the model that jobs/finetune.py keeps."""

    def scored(_: int) -> float:
        return score(model, task, "dev").values[task.measure]

    data = example_ids(model, task.train)
    counters = run_steps(model, SupervisedStep(model, recipe), data, len(data), evaluation=Evaluation(scored))
    assert counters.best is not None
    return counters.best[2]


def read_only(inputs: GoldInputs) -> GoldInputs:
    """As from the object store."""
    for one in (inputs.matrix, inputs.targets, *(inputs.composition or {}).values()):
        one.setflags(write=False)
    return inputs


@pytest.mark.parametrize(
    "recipe",
    [
        replace(RECIPE, dropout=0.4, scramble=0.5),
        replace(RECIPE, encoder=GranConfig(), mode="universal", composition_penalty=0.1),
        replace(RECIPE, encoder=ProjConfig(), mode="features"),
    ],
    ids=["scratch", "universal", "features"],
)
def test_a_trial_scores_what_finetune_would_keep(task: Task, tiny_words: Words, recipe: SupervisedRecipe) -> None:
    seed = recipe.seed if recipe.mode == "scratch" else 7  # a trained encoder is not what the recipe's seed gives
    model = untrained(task, tiny_words, recipe, seed)
    inputs = read_only(gold_inputs(untrained(task, tiny_words, recipe, seed), task, recipe.mode != "scratch"))
    ended = run_trial(inputs, recipe, 1.0, GoldScorer.of(task), {})
    assert (ended.status, ended.reason, len(ended.curve)) == ("finished", "", 6)
    reached = [epoch.score for epoch in ended.curve]
    assert reached == sorted(reached)
    assert reached[-1] == ended.curve[-1].metrics["dev/pearson"] == best_on_dev(model, task, recipe)
    assert reached[-1] > 0.1


def test_a_trial_stops_fails_and_is_probed_as_others_are(task: Task, tiny_words: Words) -> None:
    inputs, scorer = gold_inputs(untrained(task, tiny_words, RECIPE, 1), task, False), GoldScorer.of(task)
    stopped = run_trial(inputs, RECIPE, 1.0, scorer, {2: 1.1})
    assert (stopped.status, len(stopped.curve)) == ("stopped", 2)
    astray = run_trial(inputs, replace(RECIPE, learning_rate=1e36), 1.0, scorer, {})
    assert astray.reason.startswith("the loss is nan by step 6 (learning rate 1e+36)")
    few = inputs.first(10)
    assert (len(few), len(few.texts)) == (10, 20)
    seconds = trial_seconds([Point({}, RECIPE, 1.0)], {inputs_key(RECIPE): inputs}, scorer, "cpu")
    assert seconds is not None


def test_trials_do_not_see_the_test_part(task: Task) -> None:
    shared = GoldScorer.of(task).task
    assert (len(shared.train), len(shared.dev), len(shared.test)) == (0, 30, 0)
    unread = replace(task, train=replace(task.train, texts=(pa.array([""] * 60),) * 2))
    words = Words(pa.array([UNKNOWN, "cat"]), np.ones((2, 3), np.float32))
    with pytest.raises(ValueError, match="every example of the training part of sick has a text without a token"):
        gold_inputs(untrained(unread, words, RECIPE, 1), unread, False)
