import gzip
import json
import os
import signal
import time
from dataclasses import replace

import pytest
import torch

from paraembed.compiled import arithmetic
from paraembed.console import shown_status
from paraembed.encoders.configs import ProjConfig
from paraembed.io.fingerprint import digest_of
from paraembed.recipe import Recipe
from paraembed.training.loop import SKIPPED_STEPS, TRACED_STEPS, SaveRequest, train
from paraembed.training.state import Checkpoints
from tests.training.conftest import encoder_of, killed_before, same_bits

RECIPE = Recipe(encoder=ProjConfig(), batch_size=10, epochs=3, learning_rate=0.01, word_l2=1e-3)


def curve_of(reports):
    return [(report.step, report.loss, report.active) for report in reports]


def test_training_lowers_the_loss_and_reports(pairs):
    reports = []
    counters = train(encoder_of(RECIPE), pairs, RECIPE, on_report=reports.append)
    assert [report.step for report in reports] == [100, 103, 200, 206, 300, 309]
    assert [report.epoch for report in reports if report.end_of_epoch] == [1, 2, 3]
    assert {(report.steps, report.epochs) for report in reports} == {(309, 3)}
    assert reports[-1].loss < 0.8 * reports[0].loss
    assert (counters.pairs, counters.step, counters.epoch) == (3090, 309, 3)


def test_the_first_steps_are_shown(pairs, monkeypatch, capsys):
    monkeypatch.setattr("paraembed.console.QUIET_SECONDS", 0)

    def poll():  # at the first step
        deadline = time.monotonic() + 20
        while "training: step 1 of 309" not in capsys.readouterr().err:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return SaveRequest.STOP

    with shown_status(), pytest.raises(KeyboardInterrupt):
        train(encoder_of(RECIPE), pairs, RECIPE, poll=poll)


def test_a_run_that_is_resumed_on_another_machine_records_it(pairs, tmp_path, caplog):
    here = arithmetic(torch.device("cpu"))
    with pytest.raises(KeyboardInterrupt):
        train(encoder_of(RECIPE), pairs, RECIPE, checkpoints=Checkpoints(tmp_path), on_report=interrupt)
    (saved,) = tmp_path.glob("step-*/state.json")
    body = json.loads(saved.read_text())
    assert body["counters"]["arithmetic"] == [[1, here]]
    body["counters"]["arithmetic"] = [[1, "torch 2.11.0, processor other"]]
    del body["sha256"]
    saved.write_text(json.dumps({**body, "sha256": digest_of(body)}))
    counters = train(encoder_of(RECIPE), pairs, RECIPE, checkpoints=Checkpoints(tmp_path))
    step = body["counters"]["step"]
    assert counters.arithmetic == [(1, "torch 2.11.0, processor other"), (step + 1, here)]
    assert f"after step {step} with {here}, before with torch 2.11.0, processor other" in caplog.text


def interrupt(report):
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("killed_at", [206, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 100, 101, 308))])
def test_resumed_run_is_the_unbroken_run_to_the_bit(pairs, tmp_path, killed_at):
    unbroken, whole = encoder_of(RECIPE), []
    train(unbroken, pairs, RECIPE, on_report=whole.append)
    broken, seen = encoder_of(RECIPE), []
    with killed_before(killed_at):
        train(broken, pairs, RECIPE, checkpoints=Checkpoints(tmp_path, seconds=0), on_report=seen.append)
    resumed = encoder_of(RECIPE)
    later = []
    train(resumed, pairs, RECIPE, checkpoints=Checkpoints(tmp_path), on_report=later.append)
    assert same_bits(unbroken, resumed)
    assert {row[0]: row for row in curve_of(seen + later)} == {row[0]: row for row in curve_of(whole)}
    assert len(list(tmp_path.iterdir())) <= 2


@pytest.mark.parametrize(
    ("changes", "stop_at", "number"),
    [
        (
            {"dropout": 0.3, "word_dropout": 0.1, "scramble": 0.5, "negatives": "mix", "bos_eos_tokens": "both"},
            *(100, signal.SIGINT),
        ),
        (
            {"objective": "contrastive", "contrast_phrases": 4, "optimizer": "sgd", "clip": 5.0, "clip_form": "global"},
            *(100, signal.SIGTERM),
        ),
        (
            {"optimizer": "adagrad", "encoder_learning_rate": 0.003, "update": "dense", "negative_pool_workers": "all"},
            *(100, signal.SIGTERM),
        ),
        ({"mega_batch_size": 2}, 100, signal.SIGTERM),
    ],
)
def test_a_signal_stops_between_steps_and_the_run_goes_on_to_the_same_bits(pairs, tmp_path, changes, stop_at, number):
    """What a recipe draws is drawn again, and a finished run is not trained again."""
    recipe = replace(RECIPE, **{"epochs": 1, **changes})
    unbroken, stopped, resumed, again = (encoder_of(recipe) for _ in range(4))
    whole, later = [], []
    train(unbroken, pairs, recipe, on_report=whole.append)
    handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

    def stop(report):
        if report.step == stop_at:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        train(stopped, pairs, recipe, checkpoints=Checkpoints(tmp_path), on_report=stop)
    assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert not torch.equal(stopped.matrix, unbroken.matrix)
    train(resumed, pairs, recipe, checkpoints=Checkpoints(tmp_path), on_report=later.append)
    assert curve_of(later) == [row for row in curve_of(whole) if row[0] > stop_at]
    train(again, pairs, recipe, checkpoints=Checkpoints(tmp_path), on_report=interrupt)
    assert same_bits(unbroken, resumed, again)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"by step \d+ \(learning rate 1e\+36\)"),
        # The loss of the only step is that of the untouched encoder.
        ({"epochs": 1, "batch_size": 1030}, r"finite by step 1 \(learning rate 1e\+36\)"),
    ],
)
def test_a_loss_or_weights_that_diverge_end_the_run_and_nothing_is_saved(pairs, tmp_path, changes, message):
    diverging = replace(RECIPE, learning_rate=1e36, **changes)
    with pytest.raises(ValueError, match=message):
        train(encoder_of(diverging), pairs, diverging, checkpoints=Checkpoints(tmp_path, steps=2))
    assert not list(tmp_path.iterdir())


def test_texts_are_cut_at_max_tokens(pairs):
    recipe, pairs = replace(RECIPE, epochs=1), pairs.slice(0, 200)
    cut, whole, by_hand = (encoder_of(recipe) for _ in range(3))
    train(cut, pairs, replace(recipe, max_tokens=2))
    train(whole, pairs, recipe)
    train(by_hand, pairs.cut(2), recipe)
    assert torch.equal(cut.matrix, by_hand.matrix)
    assert not torch.equal(cut.matrix, whole.matrix)


@pytest.mark.parametrize(
    ("num_pairs", "batch_size", "world", "message"),
    [
        (1, 10, 1, "1 pairs to train on; negatives come from other pairs, so at least 2"),
        (9, 10, 1, "is 10, but there are only 9 pairs to train on; give `batch_size` 9 or less, or more pairs"),
        (19, 10, 2, "10 for each of 2 workers, but there are only 19 pairs .* `batch_size` 9 or less"),
        (5, 2, 3, "2 for each of 3 workers, but there are only 5 pairs to train on; .* `workers` 2 or less"),
    ],
)
def test_too_few_pairs_are_refused(pairs, num_pairs, batch_size, world, message):
    with pytest.raises(ValueError, match=message):
        train(encoder_of(RECIPE), pairs.slice(0, 2 * num_pairs), replace(RECIPE, batch_size=batch_size), world=world)


def test_some_steps_are_traced(pairs, tmp_path, caplog):
    recipe = Recipe(batch_size=10, epochs=1)
    train(encoder_of(recipe), pairs, recipe, trace=tmp_path / "trace.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    names = {event.get("name") for event in events}
    assert {name for name in names if str(name).startswith("ProfilerStep")} == {
        f"ProfilerStep#{SKIPPED_STEPS + number}" for number in range(TRACED_STEPS)
    }
    assert any("paraembed/training/fast/cpu.py" in str(name) for name in names)
    whole = replace(recipe, batch_size=500)
    train(encoder_of(whole), pairs, whole, trace=tmp_path / "none.json.gz")
    assert "no trace was written: it starts after 20 steps" in caplog.text
    assert not (tmp_path / "none.json.gz").exists()
