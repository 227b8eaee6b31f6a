"""What is suggested next, and who is stopped early."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState
from ray.tune.schedulers.async_hyperband import _Bracket

from paraembed.settings import SearchSettings
from paraembed.tuning.ledger import Epoch, TrialRecord
from paraembed.tuning.points import Points
from paraembed.tuning.search import _distribution, _told, cut_offs, suggest
from tune_spaces import SPACES

SPACE = SPACES["acl2017/avg"]
POINTS = Points("acl2017/avg", SPACE)


def record(number, choices, scores, stopped=False):
    point = POINTS.at(choices)
    curve = tuple(Epoch(at, score, 0.1, {}, 1.0 * at) for at, score in enumerate(scores, 1))
    status = "stopped" if stopped else "finished" if scores else "failed"
    return TrialRecord(number, choices, point.recipe.to_dict(), 1.0, status, "", curve, 1.0, 0.0)


def utility(choices):
    """Best at margin 0.6, λ_w 1e-6."""
    return -((choices["margin"] - 1) ** 2) - (choices["word_l2"] - 2) ** 2


def run_in_turn(how, trials, concurrent=1):
    records = []
    for number in range(trials):
        known = records[: max(0, number - concurrent + 1)]
        choices = suggest(SPACE, how, number, [one.choices for one in records], known)
        records.append(record(number, choices, [utility(choices)]))
    return records


def test_a_random_sample_is_decided_by_its_seed_and_repeats_no_point():
    def drawn(seed):
        return [one.choices for one in run_in_turn(SearchSettings("random", 10, seed), 10)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len({str(one) for one in drawn(1)}) == 10


def test_tpe_is_decided_by_its_seed_repeats_no_point_and_finds_the_best():
    how, concurrent = SearchSettings("tpe", 18, 5), 3
    records = run_in_turn(how, 18, concurrent)
    assert records == run_in_turn(how, 18, concurrent)
    assert records != run_in_turn(SearchSettings("tpe", 18, 6), 18, concurrent)
    assert len({str(one.choices) for one in records}) == 18  # all points: also where TPE would go back to one


def test_tpe_learns_from_scores():
    space = SPACES["iclr2016/avg"]

    def mean_of_last(sign):
        choices = []
        records = []
        for number in range(40):
            choices.append(suggest(space, SearchSettings("tpe", 40, 1), number, choices, records))
            curve = (Epoch(1, sign * float(choices[-1]["batch_size"] + choices[-1]["margin"]), 0.0, {}, 1.0),)
            records.append(TrialRecord(number, choices[-1], {}, 1.0, "finished", "", curve, 1.0, 0.0))
        return sum(sign * one.score for one in records[-15:]) / 15

    assert mean_of_last(1) > 2.5  # of 0 to 4; drawn blindly: 2
    assert mean_of_last(-1) < 1.5


scores_st = st.lists(st.lists(st.integers(0, 40), min_size=9, max_size=9), min_size=1, max_size=15)


@given(scores_st, st.sampled_from([2, 3, 4]), st.booleans())
def test_one_at_a_time_is_stopped_as_by_rays_asha(curves, reduction, keeps_best):
    epochs = 9
    bracket = _Bracket(min_t=1, max_t=epochs, reduction_factor=reduction, s=0)
    how = SearchSettings(asha=True, reduction=reduction)
    records = []
    for number, own in enumerate(curves):
        curve = list(itertools.accumulate(own, max)) if keeps_best else own
        theirs = epochs
        for epoch in range(1, epochs):
            if bracket.on_result(SimpleNamespace(trial_id=str(number)), epoch, float(curve[epoch - 1])) == "STOP":
                theirs = epoch
                break
        cuts = cut_offs(how, epochs, records)
        ours = next((epoch for epoch in range(1, epochs) if curve[epoch - 1] < cuts.get(epoch, -math.inf)), epochs)
        assert ours == theirs
        ended = record(number, {"margin": 0, "word_l2": 0}, list(map(float, own[:ours])), ours < epochs)
        records.append(replace(ended, keeps_best=keeps_best))


def test_an_epoch_without_a_score_sets_no_cut_off_and_tpe_is_told_the_best_until_then():
    def kept(number, scores, stopped=False):
        plain = record(number, SPACE.choices(number), [0.0] * len(scores), stopped)
        curve = [replace(one, score=score) for one, score in zip(plain.curve, scores, strict=True)]
        return replace(plain, curve=tuple(curve), keeps_best=True)

    known = [kept(0, [None, 0.5, None, 0.2]), kept(1, [0.4, 0.1], True), kept(2, [None, None], True)]
    assert cut_offs(SearchSettings(asha=True, reduction=2), 5, known) == {1: 0.4, 2: 0.45, 4: 0.5}
    axes = {name: _distribution(values) for name, values in SPACE.axes.items()}
    told = [_told(axes, one.choices, one) for one in known]
    assert [one.state for one in told] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    assert (told[0].value, told[0].intermediate_values) == (0.5, {2: 0.5, 3: 0.5, 4: 0.5})
    assert told[1].intermediate_values == {1: 0.4, 2: 0.4}


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match=r"`trials` is only .*random and tpe"):
        SearchSettings(trials=3)
    with pytest.raises(ValueError, match=r"`trials` is 19, .*18 points"):
        SearchSettings("random", 19).num_trials(SPACE.size)
    assert SearchSettings("tpe").num_trials(18) == 18
    assert SearchSettings("tpe").num_trials(1080) == 32
