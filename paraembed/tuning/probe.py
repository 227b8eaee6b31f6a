"""What a sweep will take, from a few steps of some of its trials."""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import torch

from paraembed.tuning.points import Point
from paraembed.tuning.trial import AnyScorer, Inputs, inputs_key

_PROBED = 4  # trials that are begun; they stand for the others
_OVERHEAD_SECONDS = 0.5  # of a trial beside training and scoring: Ray Tune, the record, MLflow
_STEPS = 40
_SECONDS = 3.0  # of a trial's steps


def spread(trials: Sequence[int]) -> list[int]:
    """At most four of them, evenly spread, the first and the last among them."""
    few = min(_PROBED, len(trials))
    return [trials[at * (len(trials) - 1) // max(1, few - 1)] for at in range(few)]


def trial_seconds(
    points: Sequence[Point], inputs: Mapping[str, Inputs], scorer: AnyScorer, device: str
) -> float | None:
    """Seconds of a trial on one CPU or GPU, the mean over the points.

    None where none of them gets far enough; what fails here fails as a trial, too, and is recorded there.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured = []
        for point in points:
            with suppress(ValueError):
                measured.append(_seconds(point, inputs[inputs_key(point.recipe)], scorer, device))
        return sum(measured) / len(measured) if measured else None
    finally:
        torch.set_num_threads(threads)


def _seconds(point: Point, inputs: Inputs, scorer: AnyScorer, device: str) -> float:
    recipe = point.recipe
    clock = time.perf_counter()
    model = inputs.model(recipe, device)
    copying = time.perf_counter() - clock
    some = inputs.part(point.share, recipe.seed)
    few = some.first(min(len(some), _STEPS * recipe.batch_size))
    one_epoch = replace(recipe, epochs=1)
    few.first(min(len(few), 2 * recipe.batch_size)).fit(model, one_epoch)  # compiles, warms up
    steps, pairs_done, clock = 0.0, 0, time.perf_counter()
    while steps < _SECONDS and pairs_done < len(some):
        pairs_done += few.fit(model, one_epoch).pairs
        steps = time.perf_counter() - clock
    clock = time.perf_counter()
    scorer(model)
    scoring = time.perf_counter() - clock
    return _OVERHEAD_SECONDS + copying + recipe.epochs * (steps / pairs_done * len(some) + scoring)
