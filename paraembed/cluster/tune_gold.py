"""Gold labels as what a sweep's trials train on."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from paraembed import checkpoint
from paraembed.cluster.finetune import Finetuning, check_inputs, inputs_identity, of_prior, untrained_model
from paraembed.cluster.job import say
from paraembed.cluster.tune_inputs import check_batches, check_memory_of_trials, differing_recipes
from paraembed.encoders import Encoder, encoder_name
from paraembed.supervised.recipe import SupervisedRecipe
from paraembed.supervised.tasks import Task, read_task
from paraembed.tuning.gold import GoldScorer, gold_inputs
from paraembed.tuning.points import Points
from paraembed.tuning.trial import Inputs, Metric, inputs_key

_TOKEN_BYTES = 5  # of text a token, about
_OF_ALL = ("mode", "seed")  # which inputs, and how they are split: trials share them
_OF_PRIOR = ("encoder", "tokeniser", "boundary_tokens", "max_tokens")


@dataclass(frozen=True)
class Gold:
    """What trials train on.

    Attributes:
        training: as ``jobs/finetune.py`` would train one of the space's points.
        task: all parts; trials are given the training part, and scored on the development part.
        prior: the trained encoder, in the modes universal and features.
    """

    training: Finetuning
    task: Task
    prior: Encoder | None

    def check(self) -> None:
        """Nothing: what is missing is said when it is read."""

    def identity(self) -> dict[str, Any]:
        """What decides a trial's result besides its recipe; digests, JSON."""
        return inputs_identity(self.training, self.task, self.prior)

    def told(self) -> dict[str, Any]:
        """What MLflow learns of it."""
        return {"task": self.task.name, "data_set": self.task.data_set}

    def scorer(self, metric: Metric) -> GoldScorer:  # noqa: ARG002 - the task's own, as of jobs/finetune.py
        """What trials are scored by."""
        return GoldScorer.of(self.task)

    def drawn(self, out: Path, seed: int, workers: int) -> "Gold":  # noqa: ARG002 - as pairs have it
        """All of it: gold labels are few."""
        return self

    def inputs(self, points: Points, workers: int, concurrent: int) -> dict[str, Inputs]:
        """What the trials share, by ``inputs_key``; arguments as of pairs.

        Raises:
            OSError, ValueError: too few examples, too little memory, or a task that the recipes cannot train.
        """
        recipes, train = differing_recipes(points), self.task.train
        check_batches(recipes, len(train), workers, "examples", "take a larger task")
        if self.training.words is not None:
            tokens = sum(pc.sum(pc.binary_length(one)).as_py() for one in train.texts) // _TOKEN_BYTES
            check_memory_of_trials(recipes, self.training.words, tokens, len(train), workers, concurrent)
        found = dict[str, Inputs]()
        for recipe in recipes:
            assert isinstance(recipe, SupervisedRecipe)
            if inputs_key(recipe) not in found:
                model = untrained_model(recipe, self.task, self.training.words, self.prior)
                some = gold_inputs(model, self.task, self.prior is not None)
                found[inputs_key(recipe)] = some
                if some.num_dropped:
                    say(
                        f"{some.num_dropped:,} of {len(train):,} examples have a text without a token, and are left out"
                    )
        return found


def read_gold(points: Points, training: Finetuning) -> tuple[Gold, Points]:
    """Read what trials on gold labels need; what a trained encoder decides is fixed in the points.

    Args:
        points: what is searched.
        training: task, data, words or prior; its recipe is not looked at.

    Raises:
        OSError, ValueError: a file is missing, the space's mode begins with something else, or the space searches, or
            ``--set`` fixes, what the trained encoder decides.
    """
    first = points.at(dict.fromkeys(points.space.axes, 0)).recipe
    assert isinstance(first, SupervisedRecipe)
    for name in _OF_ALL:
        if len({getattr(point.recipe, name) for point in points.differing_in({name})}) > 1:
            raise ValueError(f"the space {points.name} searches {name}, and its trials share what that decides: fix it")
    training = replace(training, recipe=first)
    check_inputs(training)
    task = read_task(training.task, training.data_set, training.data, first.seed)
    if training.prior is None:
        return Gold(training, task, None), points
    prior = checkpoint.load(training.prior)
    wanted, there = encoder_name(first.encoder), encoder_name(prior.config)
    if wanted != there:
        raise ValueError(
            f"the space {points.name} searches how to train on from the encoder {wanted}, and --prior is {there}; give "
            "another one, or take another space"
        )
    for name in (*points.columns(), *points.space.fixed, *points.fixed):
        if name.split(".")[0] in _OF_PRIOR:
            raise ValueError(f"{name} is what the encoder at --prior has; no space and no --set can change it")
    decided = of_prior(first, prior).to_dict()
    fixed = {**points.fixed, **{name: decided[name] for name in _OF_PRIOR}}
    return Gold(training, task, prior), replace(points, fixed=fixed)
