"""Scores on the way: when they are taken, that they change nothing, and that a killed run keeps the same encoder."""

import json
import math
from dataclasses import replace
from functools import partial
from itertools import count

import pytest
import torch
import torch.distributed as dist

from paraembed.encoders.configs import ProjConfig
from paraembed.recipe import Recipe
from paraembed.training.best import Evaluation
from paraembed.training.exchange import gather_texts
from paraembed.training.loop import train
from paraembed.training.state import Checkpoints
from tests.training.conftest import Killed, encoder_of, killed_before, make_pairs
from tests.training.test_exchange import in_two_processes

RECIPE = Recipe(encoder=ProjConfig(), batch_size=10, epochs=3, learning_rate=0.01, dropout=0.2, negatives="mix")
SHORT = replace(RECIPE, epochs=1)
AVG = Recipe(batch_size=10, epochs=3, learning_rate=0.01, word_l2=1e-3)


def weights(encoder):
    return {name: tensor.clone() for name, tensor in encoder.state_dict().items()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def wild(encoder):
    """A score that rises and falls, and that the weights alone decide; another kind of CPU changes it little."""
    return math.sin(100 * encoder.matrix.detach().double().sum().item())


def scripted(encoder, script, seen, **more):
    """The scores of a list, one after the other; keeps the weights at every score."""
    left = iter(script)

    def keep(_, step):
        seen[step] = weights(encoder)

    return Evaluation(lambda _: (next(left), {}), log_metrics=keep, **more)


@pytest.mark.parametrize(
    ("every", "steps"),
    [
        (0.25, [26, 52, 78, 103, 129, 155, 181, 206, 232, 258, 284, 309]),
        (0.1, [11, 21, 31, 42, 52, 62, 73, 83, 93, 103]),
        (0.7, [73, 103 + 42, 206 + 11, 206 + 83, 309]),
        (1.0, [103, 206, 309]),
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
    plain, watched, reports = encoder_of(RECIPE), encoder_of(RECIPE), [[], []]
    without = train(plain, make_pairs(), RECIPE, on_report=reports[0].append)
    numbers = count(1)
    rising = Evaluation(lambda _: (next(numbers), {}), every=0.25)
    counters = train(watched, make_pairs(), RECIPE, on_report=reports[1].append, evaluation=rising)
    assert same(weights(plain), weights(watched))
    assert [(one.step, one.loss) for one in reports[0]] == [(one.step, one.loss) for one in reports[1]]
    assert (without.scores, without.best, counters.best) == ([], None, (309, 3090, 12.0))


def test_the_encoder_of_the_first_best_score_is_the_result():
    encoder, seen = encoder_of(SHORT), {}
    counters = train(encoder, make_pairs(), SHORT, evaluation=scripted(encoder, [0.1, 0.5, 0.5, 0.4], seen, every=0.25))
    assert counters.best == (52, 520, 0.5)
    assert same(weights(encoder), seen[52])
    assert not same(weights(encoder), seen[103])


@pytest.mark.parametrize(
    ("script", "patience", "stop", "best"),
    [
        ([0.1, 0.3, 0.2, 0.3, 0.9], 2, 103, 52),
        ([0.1, math.nan, math.inf, 0.2], 2, 78, 26),  # a score that is not defined is no better one
        ([math.nan, math.nan, 0.2], 2, 52, None),
        ([math.nan, 0.2, 0.1, 0.1], 2, 103, 52),
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
    assert same(weights(encoder), seen[best or stop])
    again = encoder_of(RECIPE)
    assert train(again, make_pairs(), RECIPE, checkpoints=checkpoints, evaluation=evaluation).scores == counters.scores
    assert same(weights(again), weights(encoder))


WATCH = Evaluation(lambda encoder: (wild(encoder), {}), every=0.1, patience=14)


@pytest.mark.parametrize("killed_at", [12, 104, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 53, 150))])
def test_a_killed_run_keeps_the_same_best_encoder(tmp_path, killed_at):
    unbroken = encoder_of(RECIPE)
    whole = train(unbroken, make_pairs(), RECIPE, evaluation=WATCH)
    assert whole.best is not None
    assert killed_at < whole.step < 309
    broken, resumed = encoder_of(RECIPE), encoder_of(RECIPE)
    with killed_before(killed_at):
        train(broken, make_pairs(), RECIPE, checkpoints=Checkpoints(tmp_path, steps=13), evaluation=WATCH)
    counters = train(resumed, make_pairs(), RECIPE, checkpoints=Checkpoints(tmp_path), evaluation=WATCH)
    assert (counters.scores, counters.best, counters.curve) == (whole.scores, whole.best, whole.curve)
    assert same(weights(resumed), weights(unbroken))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"every": 0.5}, r"evaluation\.every \(was 0\.1, is 0\.5\)"),
        ({"patience": 4}, r"evaluation\.patience \(was None, is 4\)"),
        ({"decides": {"sets": "other"}}, r"evaluation\.sets \(was ones, is other\)"),
        (None, r"evaluation\.every \(was 0\.1, is None\)"),
    ],
)
def test_a_run_goes_on_with_the_evaluation_it_was_begun_with(tmp_path, change, message):
    begun = Evaluation(lambda _: (0.5, {}), every=0.1, decides={"sets": "ones"})
    train(encoder_of(SHORT), make_pairs(), SHORT, checkpoints=Checkpoints(tmp_path), evaluation=begun)
    other = None if change is None else replace(begun, **change)
    with pytest.raises(ValueError, match=message):
        train(encoder_of(SHORT), make_pairs(), SHORT, checkpoints=Checkpoints(tmp_path), evaluation=other)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": 0.0}, "every is 0.0; expected a number of epochs"),
        ({"patience": 0}, "patience is 0; it must be at least 1"),
    ],
)
def test_bad_numbers_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        Evaluation(lambda _: (0.0, {}), **given)


def train_as_two(rank, folder, recipe):
    """An unbroken run, and one that is broken off at step 52, of which rank 0 alone has scores; then its end."""
    pairs, script = make_pairs(), [0.1, 0.2, 0.5, 0.4, math.nan, 0.3, 0.9]

    def run(encoder, checkpoints=None, on_report=lambda _: None, num_scored=0):
        left = iter(script[num_scored:])

        def score(_):
            assert rank == 0
            return next(left), {}

        evaluation = Evaluation(score, every=200 / 1030, patience=3)
        where = {"rank": rank, "world": 2, "checkpoints": checkpoints}
        return train(encoder, pairs, recipe, evaluation=evaluation, on_report=on_report, **where)

    def break_off(_):
        raise Killed

    checkpoints = Checkpoints(folder / "checkpoints", steps=13)
    unbroken, resumed = encoder_of(recipe), encoder_of(recipe)
    whole = run(unbroken)
    with pytest.raises(Killed):
        run(encoder_of(recipe), checkpoints, break_off)
    dist.barrier()
    found = run(resumed, checkpoints, num_scored=3)  # of step 39
    if rank == 0 or recipe == AVG:  # whose words the workers share
        assert same(weights(unbroken), weights(resumed))
    if recipe == AVG:
        digests = gather_texts(str(weights(unbroken)), 2, unbroken.matrix.device)
        assert digests[0] == digests[1]
    (folder / f"rank{rank}").write_text(json.dumps([[one.step, one.scores, one.best] for one in (whole, found)]))


@pytest.mark.parametrize("recipe", [RECIPE, AVG], ids=["proj", "avg"])
def test_two_workers_stop_together(tmp_path, recipe):
    in_two_processes(partial(train_as_two, recipe=recipe), tmp_path)
    first, second = (json.loads((tmp_path / f"rank{rank}").read_text()) for rank in range(2))
    assert first == second
    assert first[0] == first[1]
    step, scores, best = first[0]
    assert (step, best) == (61, [30, 600, 0.5])
    assert [tuple(one) for one in scores] == [
        *[(10 * at, 200 * at, score) for at, score in enumerate([0.1, 0.2, 0.5, 0.4, None], 1)],
        (61, 1210, 0.3),  # the epoch's last step, of ten pairs, lies between
    ]
