"""What a sweep decides and tells without Ray: who is next, how many at a time, what is said before it begins."""

import json
import os
import random
import re
import shutil
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.tracking import MlflowClient

from paraembed.cluster import tune_trials
from paraembed.cluster.tune import (
    UNTRAINED,
    Sweep,
    Tuned,
    _check_memory,
    begun,
    finished_before,
    fitting,
    log_trial,
    trial_inputs,
)
from paraembed.cluster.tune_protocol import protocol_of
from paraembed.cluster.tune_trials import LedgerSearch
from paraembed.commands.tune import _next, _report
from paraembed.evaluation.sets import Choices, Group, Suite
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import sha256_of
from paraembed.pairs.shards import FORMAT
from paraembed.recipe import Recipe
from paraembed.settings import Placement, SearchSettings
from paraembed.tracking.runs import tracked_run
from paraembed.training.data import Pairs
from paraembed.tuning.ledger import Epoch, Ledger, TrialRecord
from paraembed.tuning.points import Points
from paraembed.tuning.table import write_results
from paraembed.tuning.trial import Ended
from tune_spaces import SPACES

SMOKE = SPACES["smoke"]
POINTS = Points("smoke", SMOKE)


def searcher(folder, how, concurrent=2, most_failures=10):
    return LedgerSearch(POINTS, how, Ledger(folder), concurrent, most_failures, lambda _: None, lambda *_: None)


def ended(scores, status="finished"):
    curve = tuple(Epoch(at, score, 0.5, {}, 1.0 * at) for at, score in enumerate(scores, 1))
    return json.dumps(asdict(Ended(status, "", curve, 2.0)))


def number_of(config):
    return json.loads(config["task"])["trial"] if isinstance(config, dict) else config


def test_a_trial_whose_worker_fails_is_next_again_and_later_waits(tmp_path, monkeypatch, caplog):
    search = searcher(tmp_path, SearchSettings())
    assert [number_of(search.suggest(name)) for name in "ab"] == [0, 1]
    search.on_trial_complete("a", error=True)
    assert number_of(search.suggest("c")) == 0  # at once
    search.on_trial_complete("b", {"ended": ended([0.1, 0.2])})
    search.on_trial_complete("c", error=True)
    assert search.suggest("d") is None  # also no other trial: it would be sent to the lost machine
    monkeypatch.setattr(tune_trials, "_PAUSE_SECONDS", 0.0)
    search._not_before = 0.0
    for name in "ef":
        assert number_of(search.suggest(name)) == 0
        search.on_trial_complete(name, error=True)
    assert caplog.text.count("trial 0: its worker failed, or could not start; the trial is restarted") == 3
    record = search.ledger.records[0]
    assert (record.status, record.curve) == ("failed", ())
    assert re.search(r"failed, or could not start, 4 times; .* 2 trials", record.reason)
    assert [number_of(search.suggest(name)) for name in "gh"] == [2, 3]
    search.on_trial_complete("g", {"epoch": 1})  # the sweep is stopped
    assert search.suggest("i") is None  # not the end: the worker of trial 3 may fail
    search.on_trial_complete("h", {"ended": ended([0.1], "stopped")})
    assert search.suggest("j") == search.FINISHED
    assert [one.status for one in search.ledger.in_order()] == ["failed", "finished", "stopped"]


@given(st.integers(0, 2**32), st.integers(0, 3), st.integers(0, 3))
def test_neither_order_nor_failures_nor_a_break_change_what_is_tried_and_who_is_stopped(
    tmp_path_factory, order, failures, breaks
):
    how = SearchSettings("tpe", 4, seed=2, asha=True, reduction=2)

    def tasks(order, failures, breaks):
        draw, folder, suggested = random.Random(order), tmp_path_factory.mktemp("ledger"), {}
        search, running = searcher(folder, how), {}
        while len(search.ledger.records) < 4:
            name = str(draw.random())
            config = search.suggest(name) if len(running) < 2 else None
            if isinstance(config, dict):
                running[name] = number = number_of(config)
                assert suggested.setdefault(number, config) == config
                continue
            name = draw.choice(sorted(running))
            if failures and draw.random() < 0.5:
                search.on_trial_complete(name, error=True)
                search._not_before, failures = 0.0, failures - 1
                del running[name]
                continue
            search.on_trial_complete(name, {"ended": ended([0.1 * running.pop(name), 0.3])})
            if breaks:
                search, running, breaks = searcher(folder, how), {}, breaks - 1
        return suggested

    assert tasks(order, failures, breaks) == tasks(0, 0, 0)


def pairs_of(folder):
    (folder / "pairs").mkdir(exist_ok=True)
    (folder / "pairs" / "manifest.json").write_text("{}")
    (folder / "words.txt").write_text("the 1 2\ncat 3 4\n")
    return Pairs(Recipe(), folder / "pairs", folder / "words.txt")


def write_manifest(folder, num_pairs):
    manifest = folder / "manifest.json"
    write_json(manifest, {"format": FORMAT, "counts": {"kept": num_pairs}, "shards": []})
    write_json(folder / "_SUCCESS", {"manifest_sha256": sha256_of(manifest)})


def sweep(folder, **more):
    (folder / "out").mkdir(exist_ok=True)
    values = {"points": POINTS, "selection": SMOKE.selection, "data": pairs_of(folder), "out": folder / "out"}
    return Sweep(**{**values, **more})


def test_a_sweep_goes_on_with_the_trials_at_a_time_that_it_was_begun_with(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    some = sweep(tmp_path, settings=SearchSettings("tpe", asha=True))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert begun(some, overwrite=False).concurrent == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert begun(some, overwrite=False).concurrent == 3
    with pytest.raises(ValueError, match=r"another concurrent \(was 3, is 2\)"):
        begun(replace(some, concurrent=2), overwrite=False)
    with pytest.raises(ValueError, match=r"another gpus \(was False, is True\)"):
        begun(replace(some, placement=Placement(gpus=True)), overwrite=False)
    assert begun(some, overwrite=True).concurrent == 2


def test_a_sweep_with_a_damaged_identity_can_be_started_over(tmp_path):
    some = begun(sweep(tmp_path, concurrent=1), overwrite=False)
    (some.out / "encoder.mlflow-refused.jsonl").write_text("[]\n")  # as earlier versions left it there
    (some.out / "encoder.mlflow.jsonl.20260101-000000").write_text("[]\n")
    (some.out / "sweep.json").write_text("{")
    with pytest.raises(ValueError, match=r"sweep\.json is not JSON.*`overwrite`"):
        begun(some, overwrite=False)
    begun(some, overwrite=True)
    assert [path.name for path in some.out.iterdir()] == ["sweep.json"]


def test_too_few_pairs_or_too_little_memory_are_said_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    some = pairs_of(tmp_path)
    write_manifest(some.folder, 50)
    with pytest.raises(ValueError, match=r"100 pairs.*only 50"):
        trial_inputs(some, POINTS, concurrent=1)
    some = pairs_of(tmp_path)
    write_manifest(some.folder, 150)
    row = "word" + " 0.5" * 300 + "\n"
    with some.words.open("w") as file:
        file.writelines(row for _ in range(1000))
    with pytest.raises(ValueError, match=r"^1,000,000,000 trials .*`fixed` max_words=N"):
        trial_inputs(some, POINTS, concurrent=10**9)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    _check_memory(POINTS, some, 10**9)  # a cluster's workers may be elsewhere


def test_what_a_trial_takes(tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    one = sweep(tmp_path, placement=Placement(gpus=True), gpus_per_trial=0.25)
    write_manifest(one.data.folder, 150)
    assert one.resources() == {"GPU": 0.25}
    assert fitting(one, 2) == min(8, one.num_trials)
    assert fitting(replace(one, gpus_per_trial=1.0), 2) == 2
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.2:6379")
    assert replace(one, memory_per_trial_gb=1.5).resources() == {"GPU": 0.25, "memory": 1.5e9}
    needed = one.resources()["memory"]
    assert needed == int(needed) > 600 << 20


def test_the_winner_is_scored_on_what_it_was_chosen_by_where_the_folder_holds_no_suite(tmp_path):
    rows = np.zeros((1, 2), np.int32)
    chosen = Suite("choose", (Group("", (Choices("2", pa.array(["a", "b"]), rows, rows),)),), measure="accuracy")
    points, pairs = Points("pgru2017/gru", SPACES["pgru2017/gru"]), replace(pairs_of(tmp_path), suites=(chosen,))
    protocol = protocol_of(sweep(tmp_path, points=points, data=pairs), tmp_path, None, None, None)
    assert protocol.suites == [chosen]


def record(number, scores, status="finished"):
    point = POINTS.at(SMOKE.choices(number))
    values = json.loads(ended(scores, status))
    at = {"number": number, "choices": point.choices, "recipe": point.recipe.to_dict(), "share": 1.0}
    return TrialRecord.from_dict({**at, **values, "ended": 1e9 + number + 0.25 * len(scores)})


@pytest.mark.parametrize(
    ("gain", "noise", "shown"), [(-4e-5, 0, "-0.004"), (1e-3, 1e-2, "+0.1"), (1e-3, 1e-5, "+0.1"), (0.2, 1e-2, "+20")]
)
def test_only_a_better_encoder_than_the_untrained_one_is_worth_a_training(gain, noise, shown, tmp_path, capsys):
    draw, some = np.random.default_rng(0), sweep(tmp_path)
    before = draw.normal(0.7, 0.01, 1000)
    after = before + gain + noise * draw.standard_normal(1000)
    best = replace(record(0, [0.7 + gain]), replicates=tuple(after))
    write_json(some.out / UNTRAINED, {"score": 0.7, "replicates": before.tolist()})
    tuned = Tuned(Ledger(some.trials), best)
    tuned.ledger.add(best)
    lines = _next(some, tuned, _report(some, tuned))
    printed = capsys.readouterr().err
    assert f"has 70.00; difference {shown}," in printed
    is_better = gain > 2 * noise
    assert ("no trial is significantly better" in printed) == (not is_better)
    assert any("next: " in line for line in lines) == is_better


def test_only_a_sweep_whose_results_are_those_of_all_its_trials_is_finished(tmp_path):
    some = begun(sweep(tmp_path, concurrent=1), overwrite=False)
    ledger = Ledger(some.trials)
    for number in range(3):
        ledger.add(record(number, [0.1 * number]))
    write_results(POINTS, ledger, some.out)
    assert finished_before(some) is None  # a trial is missing
    ledger.add(record(3, [], "failed"))
    assert finished_before(some) is None  # the results are older than the last trial
    write_results(POINTS, ledger, some.out)
    assert finished_before(some).best == ledger.records[2]
    for other in ({"retry_failed": True}, {"max_failures": 0}, {"sample": 100}):
        assert finished_before(replace(some, **other)) is None
    ledger.drop_failed()
    ledger.add(record(3, [0.4]))
    assert finished_before(some) is None
    write_results(POINTS, ledger, some.out)
    assert finished_before(replace(some, retry_failed=True)).best == ledger.records[3]
    (some.out / "results.parquet").write_bytes(b"")
    assert finished_before(some) is None


@pytest.fixture
def client(tmp_path, monkeypatch, empty_store):
    """Client of an MLflow store without runs."""
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path)}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    return MlflowClient(uri)


def test_a_trial_that_runs_again_has_one_run(tmp_path, client):
    ledger = Ledger(tmp_path / "trials")

    def logged(*records):
        with tracked_run("sweep", tmp_path, tmp_path / "run.json") as run:
            for one in records:
                ledger.add(one)
            for one in ledger.in_order():
                log_trial(run, one, POINTS.shown(one.recipe, one.share))
        found = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{run.run_id}'")
        assert len({one.data.tags["trial"] for one in found}) == len(found)
        assert {one.data.params["encoder"] for one in found} == {"avg"}
        assert not any("encoder.name" in one.data.params for one in found)
        return {one.data.tags["trial"]: one.info.status for one in found}

    assert logged(record(0, [0.1, 0.2]), record(1, [], "failed")) == {"0": "FINISHED", "1": "FAILED"}
    ledger.drop_failed()
    assert logged(record(1, [0.1, 0.3])) == {"0": "FINISHED", "1": "FINISHED"}
    assert logged() == {"0": "FINISHED", "1": "FINISHED"}


def test_mlflow_has_each_epochs_own_score_and_where_the_best_counts_that(tmp_path, client):
    curve = tuple(
        Epoch(at, score, 0.5, {} if score is None else {"dev/pearson": score}, 1.0 * at)
        for at, score in enumerate([0.1, 0.4, None, 0.2], 1)
    )
    kept = replace(record(0, []), curve=curve, keeps_best=True)
    with tracked_run("sweep", tmp_path, tmp_path / "run.json") as run:
        for one in (kept, record(1, [0.3, 0.2])):
            log_trial(run, one, {})
    found = {one.data.tags["trial"]: one for one in client.search_runs(["1"]) if "trial" in one.data.tags}

    def history(trial, name):
        return [(one.step, one.value) for one in client.get_metric_history(found[trial].info.run_id, name)]

    assert history("0", "score") == history("0", "dev/pearson") == [(1, 0.1), (2, 0.4), (4, 0.2)]
    assert history("0", "best_score") == [(2, 0.4)]
    assert history("1", "score") == [(1, 0.3), (2, 0.2)]
    assert "best_score" not in found["1"].data.metrics  # of pairs the last epoch counts
