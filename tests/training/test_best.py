"""Scores on the way: when they are taken, that they change nothing, and that a killed run keeps the same encoder."""

import json
import math
import re
import shutil
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
import torch.distributed as dist

from paraembed.encoders.configs import ProjConfig
from paraembed.recipe import Recipe
from paraembed.training.best import Evaluation
from paraembed.training.exchange import gather_texts
from paraembed.training.loop import bits_digest, train
from paraembed.training.state import Checkpoints
from tests.training.conftest import Killed, encoder_of, make_pairs, same_bits
from tests.training.test_exchange import in_two_processes

RECIPE = Recipe(encoder=ProjConfig(), batch_size=10, epochs=3, learning_rate=0.01, dropout=0.2, negatives="mix")
AVG = Recipe(batch_size=10, epochs=3, learning_rate=0.01, word_l2=1e-3)


def scripted(encoder, script, seen, **more):
    """The scores of a list, one after the other; keeps the weights at every score."""
    left = iter(script)

    def keep(_, step):
        seen[step] = deepcopy(encoder)

    return Evaluation(lambda _: (next(left), {}), log_metrics=keep, **more)


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        (0.1, [11, 21, 31, 42, 52, 62, 73, 83, 93, 103]),
        (0.7, [73, 103 + 42, 206 + 11, 206 + 83, 309]),
        (9.0, [309]),
        (1e-6, list(range(1, 310))),
    ],
)
def test_scores_are_taken_at_fixed_steps(every, steps):
    """1,030 pairs in steps of ten; the first step at which so much of an epoch is done, and the last of all."""
    encoder, taken = encoder_of(AVG), []
    evaluation = Evaluation(lambda _: (0.0, {}), every=every, log_metrics=lambda _, step: taken.append(step))
    counters = train(encoder, make_pairs(), AVG, evaluation=evaluation)
    assert taken[: len(steps)] == steps
    assert [step for step, *_ in counters.scores] == taken
    assert taken[-1] == 309


def test_evaluations_change_nothing_and_without_them_the_last_step_counts():
    recipe, numbers, reports = replace(RECIPE, epochs=1), count(1), [[], []]
    plain, watched = encoder_of(recipe), encoder_of(recipe)
    without = train(plain, make_pairs(), recipe, on_report=reports[0].append)
    rising = Evaluation(lambda _: (next(numbers), {}), every=0.25)
    counters = train(watched, make_pairs(), recipe, on_report=reports[1].append, evaluation=rising)
    assert same_bits(plain, watched)
    assert [(one.step, one.loss) for one in reports[0]] == [(one.step, one.loss) for one in reports[1]]
    assert (without.scores, without.best, counters.best) == ([], None, (103, 1030, 4.0))


@pytest.mark.parametrize(
    ("script", "patience", "stop", "best"),
    [
        ([0.1, 0.3, 0.2, 0.3, 0.9], 2, 103, 52),
        ([0.1, math.nan, math.inf, 0.2], 2, 78, 26),  # a score that is not defined is no better one
        ([math.nan, math.nan, 0.2], 2, 52, None),
    ],
)
def test_patience_ends_the_run_and_it_is_not_taken_up_again(tmp_path, script, patience, stop, best):
    encoder, seen, found, reports = encoder_of(RECIPE), {}, [], []
    evaluation = replace(scripted(encoder, script, seen, every=0.25, patience=patience), show=found.append)
    checkpoints = Checkpoints(tmp_path)
    counters = train(
        encoder, make_pairs(), RECIPE, checkpoints=checkpoints, evaluation=evaluation, on_report=reports.append
    )
    assert counters.step == stop == reports[-1].step
    assert len(found) == len(counters.scores) + 1
    assert [line.startswith("stopping early") for line in found] == [False] * len(counters.scores) + [True]
    assert counters.best == (None if best is None else (best, 10 * best, script[len([s for s in seen if s < best])]))
    assert same_bits(encoder, seen[best or stop])
    again = encoder_of(RECIPE)
    assert train(again, make_pairs(), RECIPE, checkpoints=checkpoints, evaluation=evaluation).scores == counters.scores
    assert same_bits(again, encoder)


def test_bad_numbers_are_refused():
    with pytest.raises(ValueError, match=r"every is 0\.0; expected"):
        Evaluation(lambda _: (0.0, {}), every=0.0)
    with pytest.raises(ValueError, match=r"patience is 0; .* at least 1"):
        Evaluation(lambda _: (0.0, {}), patience=0)


SCRIPT = [0.1, 0.2, 0.5, 0.4, math.nan, 0.3, 0.9]


def train_by_script(encoder, recipe, script, checkpoints=None, rank=0, **more):
    """Train with the scores of a list, which rank 0 alone has."""
    left = iter(script)

    def score(_):
        assert rank == 0
        return next(left), {}

    evaluation = Evaluation(score, every=200 / 1030, patience=3)
    return train(encoder, make_pairs(), recipe, checkpoints=checkpoints, evaluation=evaluation, rank=rank, **more)


def train_as_two(rank, folder, recipe):
    """An unbroken run; one that is broken off at step 52, last saved at step 39, between two reports; and its end."""

    def break_off(_):
        raise Killed

    of_two, checkpoints = {"rank": rank, "world": 2}, Checkpoints(folder / "checkpoints", steps=13)
    unbroken, resumed = encoder_of(recipe), encoder_of(recipe)
    whole = train_by_script(unbroken, recipe, SCRIPT, **of_two)
    with pytest.raises(Killed):
        train_by_script(encoder_of(recipe), recipe, SCRIPT, checkpoints, on_report=break_off, **of_two)
    dist.barrier()
    if rank == 0:
        shutil.copytree(checkpoints.folder, folder / "as-one")
    dist.barrier()
    found = train_by_script(resumed, recipe, SCRIPT[3:], checkpoints, **of_two)
    if rank == 0 or recipe == AVG:  # whose words the workers share
        assert same_bits(unbroken, resumed)
    if recipe == AVG:
        assert len({*gather_texts(str(bits_digest(unbroken.matrix)), 2, unbroken.matrix.device)}) == 1
    ends = [[one.step, one.scores, one.best, one.workers, one.curve] for one in (whole, found)]
    (folder / f"rank{rank}").write_text(json.dumps(ends))


@pytest.mark.parametrize("recipe", [pytest.param(RECIPE, marks=pytest.mark.slow), AVG], ids=["proj", "avg"])
def test_two_workers_stop_together_and_go_on_as_two_or_as_one(tmp_path, caplog, recipe):
    in_two_processes(partial(train_as_two, recipe=recipe), tmp_path)
    first, second = (json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(2))
    assert first == second
    assert first[0] == first[1]
    step, scores, best, workers, _ = first[0]
    assert (step, best, workers) == (61, [30, 600, 0.5], [[1, 2]])
    assert [tuple(one) for one in scores] == [
        *[(10 * at, 200 * at, score) for at, score in enumerate([0.1, 0.2, 0.5, 0.4, None], 1)],
        (61, 1210, 0.3),  # the epoch's last step, of ten pairs, lies between
    ]
    alone = train_by_script(encoder_of(recipe), recipe, SCRIPT[3:], Checkpoints(tmp_path / "as-one"))
    assert re.search(r"after step 39 .*\(2 before, now 1\)", caplog.text)
    assert alone.workers == [(1, 2), (40, 1)]
    # 780 pairs were done; with ten in each step, 25 steps end the epoch and 17 more the run.
    assert (alone.step, alone.pairs, alone.best) == (81, 1200, (30, 600, 0.5))
    assert [step for step, *_ in alone.curve] == [64, 81]
