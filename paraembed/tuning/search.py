"""Choice of the next point, and early stopping, as functions of the seed and of earlier trials.

With N trials at a time, a trial depends on those that are N or more before it, and starts only when they have ended.
The suggested points and the stopped trials thus do not depend on which trial ends first: one seed gives one table, even
for a killed and resumed sweep, and no searcher state has to be saved. With one trial at a time, the stopping rule is
that of Ray Tune's ``ASHAScheduler`` (Li et al. 2020, stopping variant). With two at a time, that scheduler gave two
tables in four equal runs of 12 trials, and Ray Tune's ``OptunaSearch`` tried 2 of 12 points twice.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from paraembed.process import optuna_is_quiet
from paraembed.settings import SearchSettings
from paraembed.tuning.ledger import TrialRecord
from tune_spaces.space import Space

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

_ASKS = 20  # of TPE for a point that has had no trial yet


def suggest(
    space: Space,
    settings: SearchSettings,
    number: int,
    earlier: Sequence[Mapping[str, int]],
    known: Sequence[TrialRecord],
) -> dict[str, int]:
    """Return the point of a trial, numbered from 0, given the points of all trials before it, and the records of those
    that it depends on.
    """
    if settings.search == "tpe":
        return _suggest_tpe(space, settings.seed, number, earlier, known)
    return space.choices(planned(space, settings)[number])


def planned(space: Space, settings: SearchSettings) -> list[int]:
    """Return the numbers of the points that will be tried, in order; for TPE, which decides later, all points."""
    if settings.search != "random":
        return [*range(space.size)]
    return _shuffled(space, settings.seed)[: settings.num_trials(space.size)]


def _shuffled(space: Space, seed: int | tuple[int, int]) -> list[int]:
    """Return the numbers of all points in random order."""
    numbers: list[int] = np.random.default_rng(seed).permutation(space.size).tolist()
    return numbers


def cut_offs(settings: SearchSettings, epochs: int, known: Sequence[TrialRecord]) -> dict[int, float]:
    """Return epoch → score that a trial must reach to continue: the best 1/reduction of earlier trials."""
    cuts = {}
    epoch = 1
    while settings.asha and epoch < epochs:
        reached = [score for record in known if math.isfinite(score := record.reached(epoch))]
        if reached:
            cuts[epoch] = float(np.percentile(reached, 100 * (1 - 1 / settings.reduction)))
        epoch *= settings.reduction
    return cuts


@optuna_is_quiet()
def _suggest_tpe(
    space: Space, seed: int, number: int, earlier: Sequence[Mapping[str, int]], known: Sequence[TrialRecord]
) -> dict[str, int]:
    import optuna  # noqa: PLC0415 - a second, which trials and other searches do without

    axes = {name: _distribution(values) for name, values in space.axes.items()}
    records = {record.number: record for record in known}
    trials = [_told(axes, choices, records.get(trial)) for trial, choices in enumerate(earlier)]
    tried = {tuple(choices.values()) for choices in earlier}
    for ask in range(_ASKS):
        draw = int(np.random.default_rng((seed, number, ask)).integers(2**31))
        sampler = optuna.samplers.TPESampler(seed=draw, constant_liar=True)
        study = optuna.create_study(sampler=sampler, direction="maximize")
        study.add_trials(trials)
        params = study.ask(axes).params
        choices = {name: int(params[name]) for name in axes}
        if tuple(choices.values()) not in tried:
            return choices
    untried = map(space.choices, _shuffled(space, (seed, number)))
    return next(choices for choices in untried if tuple(choices.values()) not in tried)


def _distribution(values: Sequence[Any]) -> "BaseDistribution":
    """Return an ordered distribution for sorted numbers, else a categorical one."""
    from optuna.distributions import CategoricalDistribution, IntDistribution  # noqa: PLC0415 - as above

    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values) and values in (tuple(sorted(values)), tuple(sorted(values, reverse=True))):
        return IntDistribution(0, len(values) - 1)
    return CategoricalDistribution(tuple(range(len(values))))


def _told(axes: dict[str, "BaseDistribution"], choices: Mapping[str, int], record: TrialRecord | None) -> "FrozenTrial":
    """Return a trial for Optuna, marked as running if it has no record, so that TPE avoids its neighborhood."""
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415 - as above

    trial = partial(create_trial, params=dict(choices), distributions=axes)
    if record is None:
        return trial(state=TrialState.RUNNING)
    scores = {epoch.epoch: score for epoch in record.curve if math.isfinite(score := record.reached(epoch.epoch))}
    if record.status == "failed" or not scores:
        return trial(state=TrialState.FAIL)
    if record.status == "stopped":
        return trial(state=TrialState.PRUNED, intermediate_values=scores)
    return trial(state=TrialState.COMPLETE, value=record.score, intermediate_values=scores)
