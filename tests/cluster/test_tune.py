import gzip
import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace

import mlflow
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from mlflow.tracking import MlflowClient

import paraembed
from paraembed.cluster.train import Training, train_model
from paraembed.cluster.tune import Sweep, begun, run_sweep
from paraembed.commands.tune import Tune
from paraembed.commands.tune import main as tune
from paraembed.evaluation.selection import metrics_of
from paraembed.evaluation.suites import read_pairs_files
from paraembed.io.fingerprint import sha256_of
from paraembed.recipe import Recipe, read_recipe
from paraembed.tracking.runs import tracked_run
from paraembed.training.data import Pairs
from paraembed.tuning.choosing import read_selection
from paraembed.tuning.points import Points
from tests.jobs import answers, interrupted, job_command
from tests.mlflow_server import run_of
from tune_spaces import SPACES

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("in_store")]

SMOKE = SPACES["smoke"]
METRIC = "pairs/test-pairs/pearson"


def flags(sample, out):
    words, data = sample / "sample" / "vectors.txt.gz", sample / "sample"
    return Tune("smoke", sample / "pairs", words, data, out, concurrent=2)


@pytest.fixture(scope="module")
def swept(sample, in_store, tmp_path_factory):
    """The folder of a smoke sweep over the grid, with the protocol."""
    out = tmp_path_factory.mktemp("grid") / "sweep"
    tune(replace(flags(sample, out), protocol=True, register="test-smoke"))
    return out


def table(out):
    return pq.read_table(out / "results.parquet").drop_columns(["seconds"]).to_pylist()


def records(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "trials").iterdir()}


def test_all_trials_end_and_the_best_is_the_highest(swept):
    rows = table(swept)
    assert [(row["trial"], row["status"], row["epochs"]) for row in rows] == [(at, "finished", 2) for at in range(4)]
    assert [(row["margin"], row["word_penalty"]) for row in rows] == [(0.4, 1e-5), (0.4, 0), (0.6, 1e-5), (0.6, 0)]
    best = json.loads((swept / "best.json").read_text())
    scores = [row["score"] for row in rows]
    assert len({*scores}) == 4
    assert best["trial"] == int(np.argmax(scores))
    assert best["score"] == best["metrics"][METRIC] == max(scores)


def test_the_best_recipe_trains_to_the_same_score(sample, swept, tmp_path):
    recipe = read_recipe(swept / "best-recipe.json", Recipe)
    words, pairs = sample / "sample" / "vectors.txt.gz", swept / "tuning-pairs"
    train_model(Training("best", Pairs(recipe, pairs, words), tmp_path / "encoder"))
    suite = read_pairs_files([sample / "sample" / "test-pairs.tsv"])
    score = metrics_of(paraembed.load(tmp_path / "encoder"), [suite])[METRIC]
    assert score == pytest.approx(json.loads((swept / "best.json").read_text())["score"], abs=1e-6)


def test_mlflow_has_the_sweep_its_trials_and_the_champion(swept, store):
    client = MlflowClient(store)
    parent = run_of(client, swept / "run.json")
    assert (parent.info.run_name, parent.info.status) == ("tune sweep", "FINISHED")
    children = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    trials = {run.data.tags["trial"]: run for run in children if "trial" in run.data.tags}
    assert sorted(trials) == ["0", "1", "2", "3"]
    rows = table(swept)
    for number, run in trials.items():
        assert run.data.params["margin"] == str(rows[int(number)]["margin"])
        history = client.get_metric_history(run.info.run_id, "score")
        assert [metric.step for metric in history] == [1, 2]
        assert history[-1].value == rows[int(number)]["score"]
        assert run.info.status == "FINISHED"
        assert parent.info.start_time < run.info.start_time < run.info.end_time < parent.info.end_time
    assert {file.path for file in client.list_artifacts(parent.info.run_id)} >= {
        *("results.parquet", "results.csv", "best-recipe.json", "effects.png", "scores")
    }
    (training,) = (run for run in children if run.info.run_name.startswith("train "))
    fingerprint = paraembed.load(swept / "encoder").fingerprint
    assert training.data.tags["fingerprint"] == fingerprint
    (version,) = client.search_model_versions("name = 'test-smoke'")
    assert client.get_model_version_by_alias("test-smoke", "champion").version == version.version
    assert version.tags["fingerprint"] == fingerprint
    champion = mlflow.pyfunc.load_model("models:/test-smoke@champion")
    assert (champion.predict(["a text"]) == paraembed.load(swept / "encoder").encode(["a text"])).all()


def test_the_same_command_again_runs_nothing_and_another_is_refused(sample, swept, store, capsys):
    before, model = records(swept), sha256_of(swept / "encoder" / "model.safetensors")
    same = replace(flags(sample, swept), protocol=True, register="test-smoke")
    counts = tune(same)
    said = capsys.readouterr().err
    best = json.loads((swept / "best.json").read_text())
    assert (counts["best_trial"], counts["best_score"]) == (best["trial"], best["score"])
    assert [counts[name] for name in ("trials", "finished", "stopped", "failed")] == [4, 4, 0, 0]
    assert (f"a tie with {counts['ties']} of 3" in said) == (counts["ties"] > 0)
    assert f"{swept} is already finished; nothing to do" in said
    assert f"next: python jobs/embed.py --encoder {swept / 'encoder'}" in said
    places = f"--pairs {same.pairs} --words {same.words} --data {same.data} --out {swept}"
    [(_, status, packages)], _ = answers(f"tune smoke {places} --concurrent 2 --protocol --register test-smoke")
    assert (status, packages & {"ray", "torch", "mlflow", "scipy", "numba"}) == (0, set())
    assert records(swept) == before
    assert len(MlflowClient(store).search_model_versions("name = 'test-smoke'")) == 1
    (swept / "scores" / "scores.json").unlink()  # what is missing is written again
    tune(same)
    assert (swept / "scores" / "scores.json").is_file()
    with pytest.raises(ValueError, match=r"another space \(was smoke, is acl2017/avg\)"):
        tune(replace(same, space="acl2017/avg", metric=METRIC, sample=2000))
    with pytest.raises(ValueError, match=r"another epochs \(was 2, is 3\)"):
        tune(replace(same, epochs=3))
    other = sample / "other"
    other.mkdir(exist_ok=True)
    lines = (sample / "sample" / "test-pairs.tsv").read_text().splitlines(keepends=True)
    (other / "test-pairs.tsv").write_text("".join(lines[:200]))
    with pytest.raises(ValueError, match=r"another data \(was [0-9a-f]{12}…, is [0-9a-f]{12}…\)"):
        tune(replace(same, data=other))
    assert records(swept) == before
    assert sha256_of(swept / "encoder" / "model.safetensors") == model


def test_bad_input_is_said_before_anything_runs(sample, tmp_path):
    good = flags(sample, tmp_path / "out")
    (tmp_path / "sts" / "2012").mkdir(parents=True)
    shutil.copy(sample / "sample" / "test-pairs.tsv", tmp_path / "sts" / "2012" / "OnWN.tsv")
    for changes, message in (
        ({"data": tmp_path}, r"test-pairs.tsv does not exist"),
        ({"data": None}, r"selected by pairs/test-pairs/pearson .*with `data`"),
        ({"space": "acl2017/avg", "data": tmp_path}, r"expected .*/sts/2016/<set>.tsv with the sets answer-answer, "),
        ({"fixed": ("margn=1",)}, r"a recipe has no field 'margn'"),
        ({"fixed": ("max_words",)}, r"--set 'max_words' is not .*FIELD=VALUE"),
        ({"space": "acl2017/avg", "metric": METRIC, "pairs": None}, r"--pairs is missing;.* --dry-run"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            tune(replace(good, **changes))
    (tmp_path / "bad.txt").write_bytes(gzip.decompress(good.words.read_bytes()) + b"bad\n" * 6)
    for more in ({"max_bad_words": 0.5}, {}):
        bad = replace(good, words=tmp_path / "bad.txt", dry_run=True, sample=500, **more)
        with nullcontext() if more else pytest.raises(ValueError, match="larger `max_bad_words`"):
            tune(bad)
    assert not (tmp_path / "out").exists()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("dear")
    with pytest.raises(ValueError, match=r"thesis .*jobs/tune\.py did not write"):
        tune(replace(good, out=tmp_path / "thesis", overwrite=True))
    assert (tmp_path / "thesis" / "chapter").read_text() == "dear"


def run(sweep, name):
    sweep.out.mkdir(exist_ok=True)
    sweep = begun(sweep, overwrite=False)
    with tracked_run(name, sweep.out) as tracked:
        return run_sweep(sweep, tracked).ledger


@pytest.mark.slow
def test_trials_that_fail_are_recorded_and_too_many_end_the_sweep(sample, tmp_path, capsys):
    space = replace(SMOKE, axes={"learning_rate": (1e36, 0.02, 1e35)}, fixed={"tokenizer": "space"}, tuning_pairs=None)
    points = Points("failing", space)
    suites = read_selection(space.selection, sample / "sample")
    pairs = Pairs(Recipe(), sample / "pairs", sample / "sample" / "vectors.txt.gz", suites)
    sweep = Sweep(points, space.selection, pairs, tmp_path / "out", concurrent=1, max_failures=2)
    ledger = run(sweep, "failing")
    assert [one.status for one in ledger.in_order()] == ["failed", "finished", "failed"]
    assert ledger.records[0].reason
    assert f"failed: {ledger.records[0].reason.splitlines()[0]}" in capsys.readouterr().err
    assert table(tmp_path / "out")[2]["reason"] == ledger.records[2].reason
    with pytest.raises(ValueError, match=r"2 of 3 trials .*`max_failures` is 1"):
        run(replace(sweep, max_failures=1), "failing")


def whole_job(sample, out):
    words = sample / "sample" / "vectors.txt.gz"
    given = "--pairs", sample / "pairs", "--words", words, "--data", sample / "sample", "--out", out
    return "tune", "smoke", *given, "--concurrent", 2, "--epochs", 40


def kill_after_a_trial(command, sweep):
    """Run a sweep until its first trial has ended, then end its driver by SIGKILL, and wait for all that it started."""
    family = []

    def driver(job):  # the agents see late that their raylet is gone
        family.extend(child for child in job.children(recursive=True) if not child.name().endswith("Agent"))
        return [job]

    interrupted(command, lambda: list((sweep / "trials").glob("*.json")), victims=driver)
    assert not psutil.wait_procs(family, timeout=30)[1]


def is_at_a_trial(process):
    try:
        return "ray::ImplicitFunc.train" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # it has ended since
        return False


@pytest.mark.slow
def test_a_trial_whose_worker_dies_is_tried_again(sample, tmp_path):
    workers = []

    def is_at_work():
        workers[:] = filter(is_at_a_trial, psutil.Process().children(recursive=True))
        return workers

    status, said = interrupted(
        job_command(*whole_job(sample, tmp_path / "sweep")), is_at_work, victims=lambda _: workers[:1]
    )
    assert status == 0, said
    assert re.search(r"trial [01]: its worker failed, or could not start; the trial is restarted", said)
    assert "Traceback" not in said, said
    assert [row["status"] for row in table(tmp_path / "sweep")] == ["finished"] * 4
