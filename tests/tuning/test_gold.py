"""Trials on gold labels end where jobs/finetune.py ends; no Ray."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import GranConfig, ProjConfig
from paraembed.recipe import SupervisedRecipe
from paraembed.supervised.model import Kind, Supervised, options_of
from paraembed.supervised.scores import DevScorer, score
from paraembed.supervised.step import SupervisedStep, example_ids
from paraembed.supervised.tasks import Examples, Task
from paraembed.text.vocabulary import Words
from paraembed.training.best import Evaluation
from paraembed.training.loop import run_steps
from paraembed.tuning.ledger import TrialRecord
from paraembed.tuning.trial import TrialInputs, run_trial

RECIPE = SupervisedRecipe(tokenizer="space", epochs=6, batch_size=10, learning_rate=0.05, head_width=5, word_l2=0.01)


def examples(num, seed):
    """Pairs of texts of two words; the score is how many they share."""
    generator, words = np.random.default_rng(seed), np.array(["cat", "dog", "sat", "ran", "mat", "home", "the", "a"])
    drawn = np.array([generator.permutation(words)[:4] for _ in range(num)])
    shared = generator.integers(0, 3, num)
    second = [" ".join([*row[:both], *row[2 : 4 - both]]) for row, both in zip(drawn, shared, strict=True)]
    return Examples((pa.array([" ".join(row[:2]) for row in drawn]), pa.array(second)), 1.0 + shared)


@pytest.fixture(scope="module")
def task():
    parts = (examples(num, seed) for seed, num in enumerate((60, 30, 30)))
    return Task("similarity", "sick", *parts, classes=("1", "2", "3"))


def untrained(task, words, recipe, seed):
    encoder = Encoder(recipe.encoder, Words(words.vocabulary, words.matrix.copy()), "space", seed)
    return Supervised(encoder, Kind.of(task), options_of(recipe), recipe.seed)


def finetuned(model, task, recipe):
    """The looks of jobs/finetune.py at the development part."""
    data = example_ids(model, task.train)
    evaluation = Evaluation(lambda model: (score(model, task, "dev").values[task.measure], {}))
    return run_steps(model, SupervisedStep(model, recipe), data, len(data), evaluation=evaluation)


def record(ended):
    return TrialRecord.from_dict(
        {"number": 0, "choices": {}, "recipe": {}, "share": 1.0, **asdict(ended), "ended": 1e9}
    )


@dataclass(frozen=True)
class Told:
    """Scores of one epoch after the other; None: not defined."""

    scores: Iterator[float | None]
    keeps_best: bool = True

    def __call__(self, model):  # noqa: ARG002 - as scorers have it
        score = next(self.scores)
        if score is None:
            raise ValueError("the correlation of a constant is not defined")
        return score, {"dev/pearson": score}


def inputs_of(model, task, is_pretrained=False):
    return TrialInputs.of(model, example_ids(model, task.train), is_pretrained=is_pretrained)


def read_only(inputs):
    """As from the object store."""
    assert inputs.targets is not None
    for one in (inputs.matrix, inputs.targets, *(inputs.composition or {}).values()):
        one.setflags(write=False)
    return inputs


@pytest.mark.parametrize(
    "recipe",
    [
        replace(RECIPE, dropout=0.4, scramble=0.5),
        replace(RECIPE, encoder=GranConfig(), mode="universal", encoder_l2=0.1),
        replace(RECIPE, encoder=ProjConfig(), mode="features"),
    ],
    ids=["scratch", "universal", "features"],
)
def test_a_trial_scores_what_finetune_would_keep(task, tiny_words, recipe):
    seed = recipe.seed if recipe.mode == "scratch" else 7  # a trained encoder is not what the recipe's seed gives
    model = untrained(task, tiny_words, recipe, seed)
    inputs = read_only(inputs_of(untrained(task, tiny_words, recipe, seed), task, recipe.mode != "scratch"))
    ended = run_trial(inputs, recipe, 1.0, DevScorer(task), {})
    assert (ended.status, ended.reason, len(ended.curve)) == ("finished", "", 6)
    looks = finetuned(model, task, recipe)
    assert [epoch.score for epoch in ended.curve] == [score for _, _, score in looks.scores]
    assert [epoch.score for epoch in ended.curve] == [epoch.metrics["dev/pearson"] for epoch in ended.curve]
    assert looks.best is not None
    assert record(ended).score == looks.best[2] > 0.1


def test_an_epoch_keeps_its_own_score_and_the_trial_the_best(task, tiny_words):
    inputs = inputs_of(untrained(task, tiny_words, RECIPE, 1), task)
    scores = [None, 0.2, 0.5, None, 0.3, math.nan]
    shown = []

    def run(scores, cut_offs, keeps_best=True):
        scorer = Told(iter(scores), keeps_best)
        return run_trial(inputs, RECIPE, 1.0, scorer, cut_offs, on_epoch=lambda one: shown.append(one.score))

    ended = run(scores, {1: 0.4, 3: 0.5, 5: 0.4})  # it has no score yet, it reached 0.5, it had reached 0.5
    assert (ended.status, ended.reason) == ("finished", "")
    assert [one.score for one in ended.curve] == shown == [None, 0.2, 0.5, None, 0.3, None]
    found = record(ended)
    assert found.counted == ended.curve[2]
    assert found.score == 0.5
    assert [found.reached(epoch) for epoch in range(2, 7)] == [0.2, 0.5, 0.5, 0.5, 0.5]
    assert math.isnan(found.reached(1))
    stopped = run(scores, {4: 0.6})
    assert (stopped.status, len(stopped.curve)) == ("stopped", 4)
    assert stopped.reason == "after epoch 4 its score 50.00 is below 60.00"
    assert math.isnan(record(stopped).reached(5))
    never = run([None] * 6, {})
    assert (never.status, len(never.curve)) == ("failed", 6)
    assert never.reason == "the correlation of a constant is not defined"
    assert math.isnan(record(never).score)
    assert record(never).counted is None
    last = run([0.2, 0.5, 0.1, 0.4, 0.3, 0.2], {5: 0.25}, keeps_best=False)
    assert (last.status, record(last).score, record(last).reached(4)) == ("finished", 0.2, 0.4)
    undefined = run([0.2, None], {}, keeps_best=False)
    assert (undefined.status, len(undefined.curve)) == ("failed", 1)


def test_trials_do_not_see_the_test_part(task):
    shared = DevScorer(task).task
    assert (len(shared.train), len(shared.dev), len(shared.test)) == (0, 30, 0)
