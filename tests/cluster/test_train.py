import json
import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import mlflow
import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
from mlflow.tracking import MlflowClient

import paraembed
from paraembed.cluster.train import Training, train_model
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, LstmAvgConfig
from paraembed.evaluation.measures import cosine
from paraembed.evaluation.selection import metrics_of
from paraembed.evaluation.suites import read_pairs_files
from paraembed.io.atomic import work_folder
from paraembed.io.fingerprint import sha256_of
from paraembed.process import records_graphs, versions
from paraembed.recipe import Recipe
from paraembed.settings import Placement, Selection
from paraembed.signals import STOPPED_LINE, RunFailedError
from paraembed.text.vocabulary import read_words
from paraembed.training.data import Pairs
from paraembed.training.loop import train as train_pairs
from paraembed.training.pairs import pairs_to_ids
from tests.jobs import digests, interrupted, job_command, run_job

pytestmark = pytest.mark.usefixtures("in_store")

RECIPE = Recipe(tokenizer="space", epochs=3, learning_rate=0.01, batch_size=50)
HERE = Placement(workers=1)
NAMES, THINGS = (
    ("Ann", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Hal"),
    ("hat", "dog", "boat", "lamp", "song", "map", "key"),
)
FIRST = Selection(eval_every=0.4)


@pytest.mark.slow
def test_an_encoder_that_another_job_wrote_meanwhile_is_not_replaced(sample, tiny_encoder_folder, tmp_path):
    """As ``export`` with the same ``--out``; the training is kept."""
    out = tmp_path / "out"
    training = Training("test", Pairs(RECIPE, sample / "pairs", sample / "sample" / "vectors.txt.gz"), out, HERE)

    def write():
        while not (tmp_path / "out.training" / "untrained").exists():
            time.sleep(0.002)
        shutil.copytree(tiny_encoder_folder, out)

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(ValueError, match="out contains an encoder"):
        train_model(training)
    writer.join()
    assert digests(out) == digests(tiny_encoder_folder)
    shutil.rmtree(out)
    train_model(training)
    assert paraembed.load(out).provenance["training"]
    assert not training.work.exists()


@pytest.mark.slow
def test_own_pairs_train_the_shipped_encoder_further(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [f"It isn't {name}'s {thing}.\tThe {thing} isn't of {name}." for name in NAMES for thing in THINGS]
    (tmp_path / "own.tsv").write_text("\n".join(lines) + "\n")
    given = "--input", "own.tsv", "--no-header"
    assert run_job("shard", *given, "--for", "small", "--out", "pairs") == 0
    assert "next: python jobs/train.py --recipe small --pairs pairs --out ENCODER" in capsys.readouterr().err
    started = "--recipe", "small", "--batch-size", 20, "--epochs", 2, "--out", "encoder"
    assert run_job("train", *started, "--pairs", "pairs") == 0
    before, after = paraembed.load("small"), paraembed.load("encoder")
    assert after.tokenizer == "wordpiece"
    first, second = zip(*(line.split("\t") for line in lines), strict=True)
    old, new = (cosine(encoder.encode(first), encoder.encode(second)).mean() for encoder in (before, after))
    assert new > old
    assert run_job("shard", *given, "--out", "tokens") == 0
    assert "--words VECTORS.txt.gz" in capsys.readouterr().err
    assert run_job("train", *started[:-1], "other", "--pairs", "tokens") == 2
    assert "has tokens of ptb-v1, but the words of small are wordpiece" in capsys.readouterr().err
    assert run_job("shard", *given, "--for", "small", "--tokenizer", "space", "--out", "both") == 2
    assert "--for sets the tokenizer" in capsys.readouterr().err


def fit(sample, out, recipe=RECIPE, placement=HERE, overwrite=False, tests=None, selection=FIRST):
    vectors = sample / "sample" / "vectors.txt.gz"
    suites = [] if tests is None else [read_pairs_files([tests])]
    pairs = Pairs(recipe, sample / "pairs", vectors, suites, selection, max_bytes=placement.pairs_bytes)
    train_model(Training("test", pairs, out, placement), overwrite=overwrite)
    return out


def train(pairs, words, out):
    return train_model(Training("test", Pairs(Recipe(), pairs, words), out))


@pytest.fixture(scope="module")
def unbroken(sample, tmp_path_factory):
    return fit(sample, tmp_path_factory.mktemp("unbroken") / "avg")


def model(folder):
    return sha256_of(folder / "model.safetensors")


def flags(sample, out, *more):
    paths = ["--pairs", sample / "pairs", "--words", sample / "sample" / "vectors.txt.gz", "--out", out]
    settings = ["--tokenizer", "space", "--epochs", "3", "--learning-rate", "0.01", "--batch-size", "50"]
    return ["train", *paths, *settings, "--word-l2", "0", "--clip", "None", "--l2-form", "paper", *more]


def command(sample, out, *more):
    return job_command(*flags(sample, out, *more))


@pytest.mark.slow
def test_texts_are_normalized_unless_a_recipe_is_named_or_an_earlier_version_began(sample, tmp_path, capsys):
    given = "--pairs", sample / "pairs", "--words", sample / "sample" / "vectors.txt.gz", "--epochs", 1
    named, (new, old, begun) = (
        (*given, "--recipe", "iclr2016/avg"),
        (tmp_path / name for name in ("new", "old", "begun")),
    )
    assert run_job("train", *given, "--out", new) == 0
    assert run_job("train", *named, "--out", old) == 0
    before = digests(old)
    assert [paraembed.load(folder).tokenizer for folder in (new, old)] == ["ptb-v1+nfkc", "ptb-v1"]
    interrupted(job_command("train", *named, "--out", begun), (tmp_path / "begun.training" / "identity.json").exists)
    for folder, line in ((old, "nothing to do"), (begun, "resuming the work")):
        capsys.readouterr()
        assert run_job("train", *given, "--out", folder) == 0
        printed = capsys.readouterr().err
        assert f"{folder.name} keeps the tokenizer ptb-v1" in printed
        assert line in printed
        assert digests(folder) == before
    for more in (("--learning-rate", 0.1), ("--tokenizer", "ptb-v1+nfkc"), (*named[-2:], "--tokenizer", "ptb-v1+nfkc")):
        assert run_job("train", *given, *more, "--out", old) == 2
        assert digests(old) == before
    paths = (given[1], given[3])
    assert paraembed.train(*paths, old, epochs=1).tokenizer == "ptb-v1"
    assert paraembed.train(*paths, new, epochs=1).fingerprint == paraembed.load(new).fingerprint
    with pytest.raises(ValueError, match=r"recipe.tokenizer \(was ptb-v1, is ptb-v1\+nfkc\)"):
        paraembed.train(*paths, old, epochs=1, tokenizer="ptb-v1+nfkc")
    assert run_job("train", *given, "--out", old, "--overwrite") == 0
    assert digests(old) == digests(new)
    assert run_job("train", given[0], given[1], "--words", old, "--epochs", 1, "--out", tmp_path / "further") == 0
    further = json.loads((tmp_path / "further" / "config.json").read_text())
    assert (further["tokeniser"], further["recipe"]["tokeniser"]) == ("ptb-v1+nfkc", "ptb-v1")


def test_tokens_of_pairs_are_normalized_as_those_of_the_encoder(sample, tmp_path):
    """A word in another Unicode form is trained where the encoder finds it."""
    (tmp_path / "words.txt").write_text("fish 1 2\nran 2 1\nswam 1 1\n")
    (tmp_path / "pairs.tsv").write_text("ﬁsh ran\tﬁsh swam\n" * 30 + "ran\tswam\n")
    assert run_job("shard", "--input", tmp_path / "pairs.tsv", "--out", tmp_path / "pairs", "--no-header") == 0
    files = "--pairs", tmp_path / "pairs", "--words", tmp_path / "words.txt", "--batch-size", 2, "--epochs", 5
    assert run_job("train", *files, "--min-coverage", 0.9, "--out", tmp_path / "nfkc") == 0
    assert run_job("train", *files, "--min-coverage", 0.9, "--recipe", "iclr2016/avg", "--out", tmp_path / "none") == 2
    encoder = paraembed.load(tmp_path / "nfkc")
    moved = encoder.encode(["ﬁsh", "fish"])
    assert np.array_equal(*moved)
    assert not np.array_equal(moved[0], [1, 2])


@dataclass(frozen=True)
class Noting(Pairs):
    """Pairs whose training notes what the environment of each worker is."""

    notes: str = ""

    def train(self, model, examples, **how):
        Path(self.notes, f"records-graphs-{how['rank']}").write_text(str(records_graphs()))
        return super().train(model, examples, **how)


def matrix_without_ray(sample, recipe):
    """Word vectors after a training of the sample's pairs in this process."""
    encoder, _ = Pairs(recipe, sample / "pairs", sample / "sample" / "vectors.txt.gz").untrained()
    table = pq.read_table(sorted((sample / "pairs").glob("pairs-*")))
    train_pairs(encoder, pairs_to_ids([table], encoder.vocabulary), recipe)
    return encoder.matrix.detach().numpy()


def test_two_workers_that_share_the_pool_train_as_one_does(sample, tmp_path, monkeypatch):
    """They have the environment of the driver, which Ray, started before, does not pass on."""
    recipe, vectors = replace(RECIPE, epochs=1), sample / "sample" / "vectors.txt.gz"
    monkeypatch.setenv("PARAEMBED_CUDA_GRAPHS", "0")
    shared = replace(recipe, batch_size=25, negative_pool_workers="all")
    two, noting = tmp_path / "two", Noting(shared, sample / "pairs", vectors, notes=str(tmp_path))
    train_model(Training("test", noting, two, Placement(workers=2)))
    assert [(tmp_path / f"records-graphs-{rank}").read_text() for rank in (0, 1)] == ["False", "False"]
    matrix = paraembed.load(two).matrix
    np.testing.assert_allclose(matrix, matrix_without_ray(sample, recipe), rtol=0, atol=1e-3)


def test_an_encoder_learns_what_its_words_do_not_say(sample, tmp_path, store):
    suite = read_pairs_files([sample / "sample" / "test-pairs.tsv"])
    vectors = sample / "sample" / "vectors.txt.gz"
    out = tmp_path / "avg"
    pairs = Pairs(RECIPE, sample / "pairs", vectors, [suite], FIRST)
    table = train_model(Training("test", pairs, out, Placement(profile=True))).table
    assert table is not None
    head, (row, *_) = table
    encoder = paraembed.load(out)
    untrained, trained = float(row[5]) / 100, metrics_of(encoder, [suite])["pairs/test-pairs/pearson"]
    assert head[2:6:3] == ["trained: Pearson", "untrained: Pearson"]
    assert row[2] == f"{100 * trained:.1f}"
    assert untrained < 0.4
    assert trained > 0.7
    assert [path.name for path in tmp_path.glob("avg.*")] == ["avg.trace.json.gz"]
    assert encoder.encode("a text").shape == (30,)
    card = (out / "README.md").read_text()
    best = f"the best by pairs/test-pairs/pearson is kept: {100 * trained:.2f}"
    assert [text for text in ("trained by paraembed", "(training.png)", best) if text not in card] == []

    words = {"name": vectors.name, "bytes": vectors.stat().st_size, "sha256": sha256_of(vectors)}
    provenance = json.loads((out / "config.json").read_text())["provenance"]
    assert (provenance["start"], provenance["versions"]) == ({"words": words}, versions())
    client = MlflowClient(store)
    run = client.search_runs(["1"], order_by=["start_time DESC"])[0]
    assert (run.info.status, run.info.run_name) == ("FINISHED", "train avg")
    params = {"learning_rate": "0.01", "encoder.name": "avg", "evaluation.select": "pairs/test-pairs/pearson"}
    assert {name: run.data.params[name] for name in params} == params
    tags = {"fingerprint": encoder.fingerprint, **{f"words.{name}": str(value) for name, value in words.items()}}
    assert {name: run.data.tags[name] for name in tags} == tags
    metrics = {"pairs/test-pairs/pearson": trained, "best/score": trained, "epoch": 3, "seconds_left": 0}
    assert {name: run.data.metrics[name] for name in metrics} == pytest.approx(metrics)

    def steps_of(name):
        return [metric.step for metric in client.get_metric_history(run.info.run_id, name)]

    scored, selected = [48, 96, 144, 192, 240, 288, 336, 360], provenance["selected"]
    assert sorted({*steps_of("pairs/test-pairs/pearson")}) == [step for step, _ in selected["scores"]] == scored
    assert selected["best"]["score"] == pytest.approx(trained) == max(score for _, score in selected["scores"])
    per_epoch = -(-json.loads((sample / "pairs" / "manifest.json").read_text())["counts"]["kept"] // 50)
    epochs = per_epoch, 2 * per_epoch, 3 * per_epoch
    assert steps_of("loss") == sorted({*range(100, epochs[-1] + 1, 100), *epochs})
    logged = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/encoder")
    np.testing.assert_array_equal(logged.predict(["a text", ""]), encoder.encode(["a text", ""]))


@pytest.mark.slow
def test_an_evaluation_that_fails_and_a_dead_tracking_server_cost_a_warning(
    sample, unbroken, tmp_path, monkeypatch, caplog
):
    """Sentences of unknown words: all alike, so no correlation is defined."""
    (tmp_path / "unknown.tsv").write_text("1\tqq\trr\n2\tss\ttt\n3\tuu\tvv\n")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:hunter2@127.0.0.1:9")
    fit(sample, tmp_path / "avg", tests=tmp_path / "unknown.tsv")
    assert caplog.text.count("has no score: encoder, pairs/unknown: the 3 predictions are all 1") == 8
    assert "no evaluation has a score" in caplog.text
    assert "http://127.0.0.1:9" in caplog.text
    assert "hunter2" not in caplog.text
    assert model(tmp_path / "avg") == model(unbroken)


def test_training_stops_early_and_keeps_the_best_encoder(sample, tmp_path, capsys):
    """Every pair's gold score is that of the untrained encoder, so that training makes it worse from the start."""
    tests = sample / "sample" / "test-pairs.tsv"
    rows = [line.split("\t") for line in tests.read_text().splitlines()[1:]]
    untrained = Encoder(AvgConfig(), read_words(sample / "sample" / "vectors.txt.gz"), "space")
    first, second = (untrained.encode([row[side] for row in rows]) for side in (1, 2))
    alike = cosine(first, second).tolist()
    (tmp_path / "tests.tsv").write_text(
        "".join(f"{a}\t{row[1]}\t{row[2]}\n" for a, row in zip(alike, rows, strict=True))
    )
    stopped = fit(
        sample, tmp_path / "avg", tests=tmp_path / "tests.tsv", selection=Selection(eval_every=0.2, patience=3)
    )
    assert "stopping early: no improvement in the last 3 evaluations" in capsys.readouterr().err
    provenance = json.loads((stopped / "config.json").read_text())["provenance"]
    assert provenance["selected"]["best"]["step"] == 24
    assert provenance["selected"]["last"]["step"] == provenance["steps"] == 96
    with pytest.raises(ValueError, match=r"`select` is sts/mean.*allowed: pairs/tests/pearson"):
        fit(sample, tmp_path / "new", tests=tmp_path / "tests.tsv", selection=Selection(select="sts/mean"))
    assert not list(tmp_path.glob("new*"))


def test_the_same_call_again_changes_nothing_and_another_is_refused(sample, unbroken, tmp_path, capsys):
    before = model(unbroken)
    fit(sample, unbroken)
    assert "is already finished; nothing to do" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"recipe\.margin \(was 0\.4, is 0\.5\); .*`overwrite`"):
        fit(sample, unbroken, replace(RECIPE, margin=0.5))
    assert model(unbroken) == before
    identity = json.loads((unbroken / "config.json").read_text())["provenance"]["training"]
    older = tmp_path / "older"  # by a version whose recipes had no such field
    shutil.copytree(unbroken, older)
    assert identity["recipe"]["precision"] == "float32"
    config = json.loads((older / "config.json").read_text())
    del config["provenance"]["training"]["recipe"]["precision"]
    (older / "config.json").write_text(json.dumps(config))
    fit(sample, older)
    assert "nothing to do" in capsys.readouterr().err


def test_bad_places_are_refused_and_left_alone(sample, unbroken, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("dear")
    with pytest.raises(ValueError, match=r"thesis has no config\.json"):
        fit(sample, tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter").read_text() == "dear"
    with pytest.raises(ValueError, match="does not contain finished pair shards"):
        train(tmp_path / "thesis", tmp_path, tmp_path / "out")
    shutil.copytree(unbroken, tmp_path / "avg")
    (tmp_path / "avg" / "notes.md").write_text("dear")
    with pytest.raises(ValueError, match=r"avg .* jobs/train\.py did not write: notes\.md"):
        fit(sample, tmp_path / "avg", replace(RECIPE, margin=0.5), overwrite=True)
    assert (tmp_path / "avg" / "notes.md").read_text() == "dear"
    (tmp_path / "foreign.training").mkdir()
    (tmp_path / "foreign.training" / "chapter").write_text("dear")
    with pytest.raises(ValueError, match=r"foreign\.training .* jobs/train\.py did not write"):
        fit(sample, tmp_path / "foreign", overwrite=True)
    assert (tmp_path / "foreign.training" / "chapter").read_text() == "dear"
    with work_folder(tmp_path / "out.training"), pytest.raises(ValueError, match="another run is writing to"):
        fit(sample, tmp_path / "out")
    too_many = Placement(workers=int(ray.cluster_resources()["CPU"]) + 1)
    with pytest.raises(ValueError, match=r"`workers` is \d+,.* has \d+ in all"):
        fit(sample, tmp_path / "out", placement=too_many)
    shutil.rmtree(tmp_path / "out.training")
    with pytest.raises(FileNotFoundError, match=r"does not exist; .*pair shards"):
        train(tmp_path / "none", tmp_path, tmp_path / "out")


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_stopped_driver_goes_on_to_the_same_bytes(sample, unbroken, tmp_path, store, number, capsys):
    out = tmp_path / "avg"
    # Checkpoints after every report, so that the end comes in the middle of an epoch.
    whole, work = command(sample, out, "--checkpoint-minutes", "0"), tmp_path / "avg.training"
    status, said = interrupted(whole, lambda: saved_steps(work), number, start_new_session=True)
    assert status == (-signal.SIGKILL if number == signal.SIGKILL else 130)
    assert "Traceback" not in said
    assert not out.exists()
    capsys.readouterr()
    fit(sample, out, placement=Placement(checkpoint_minutes=0))
    assert "resuming the work in" in capsys.readouterr().err
    assert model(out) == model(unbroken)
    fingerprint = paraembed.load(out).fingerprint
    (run,) = MlflowClient(store).search_runs(["1"], f"tags.fingerprint = '{fingerprint}'", max_results=1)
    steps = [metric.step for metric in MlflowClient(store).get_metric_history(run.info.run_id, "loss")]
    assert run.info.status == "FINISHED"
    assert set(steps) == {100, 120, 200, 240, 300, 360}


def test_changed_shards_are_refused(sample, tmp_path):
    copy = tmp_path / "pairs"
    shutil.copytree(sample / "pairs", copy)
    shard = min(copy.glob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    vectors = sample / "sample" / "vectors.txt.gz"
    with pytest.raises(ValueError, match=r"pairs-00000.* differs from its digest"):
        train(copy, vectors, tmp_path / "out")
    (copy / "manifest.json").write_text(
        (copy / "manifest.json").read_text().replace("pairs-00000", "../pairs-00000", 1)
    )
    with pytest.raises(ValueError, match=r"manifest.json was changed after it was written"):
        train(copy, vectors, tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def with_children(job):
    return [job, *job.children(recursive=True)]  # Ray ends a job whose raylet is gone with status 1, within 0.1 s


class Failing(Pairs):
    def train(self, model, examples, **how):  # noqa: ARG002
        raise ValueError(f"worker {how['rank']} of {how['world']} fails")


@pytest.mark.slow
def test_an_error_in_two_workers_is_that_of_the_first(sample, tmp_path):
    failing = Failing(RECIPE, sample / "pairs", sample / "sample" / "vectors.txt.gz")
    with pytest.raises(RunFailedError, match="worker 0 of 2 fails"):
        train_model(Training("test", failing, tmp_path / "avg", Placement(workers=2)))


def saved_steps(work):
    return max((int(path.name.removeprefix("step-")) for path in work.glob("checkpoints/step-*")), default=0)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_workers(sample, tmp_path):
    out, work = tmp_path / "avg", tmp_path / "avg.training"
    interrupted(
        command(sample, out, "--checkpoint-steps", "10"), lambda: saved_steps(work) > 150, victims=with_children
    )
    done = saved_steps(work)
    fit(sample, out, placement=Placement(workers=2))
    provenance = json.loads((out / "config.json").read_text())["provenance"]
    assert provenance["workers_from_step"] == [[1, 1], [done + 1, 2]]
    # 120 steps of 50 pairs an epoch, or 60 of two workers; what is left of an epoch is of either.
    left_in_epoch = -(-(120 - done % 120) // 2) if done % 120 else 0
    assert provenance["steps"] == done + left_in_epoch + 60 * (3 - -(-done // 120))
    assert paraembed.load(out).encode("a text").shape == (30,)


def test_a_full_disk_loses_nothing(sample, unbroken, disk, caplog):
    folder = disk("size=150k")  # for the untrained encoder, and no pairs
    with pytest.raises(OSError, match=r"pairs could .*No space left"):
        fit(sample, folder / "avg")
    disk("size=500k")  # for no second encoder
    with pytest.raises((ValueError, OSError), match=r"could not be written .*No space left"):
        fit(sample, folder / "avg")
    assert caplog.text.count("training continues, and earlier checkpoints are kept; free some space") == 1
    assert (folder / "avg.training" / "untrained" / "config.json").is_file()
    disk("size=9m")
    assert model(fit(sample, folder / "avg")) == model(unbroken)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_workers_whose_driver_is_stopped_save_at_the_next_step(sample, tmp_path):
    """300 steps an epoch; without the stop, they would be saved at the end of an epoch only."""
    recipe = replace(RECIPE, encoder=LstmAvgConfig(), batch_size=10)
    out, work = tmp_path / "stopped", tmp_path / "stopped.training"
    whole = [*command(sample, out, "--workers", "2"), "--encoder", "lstm_avg", "--batch-size", "10"]
    status, said = interrupted(whole, lambda: saved_steps(work), signal.SIGTERM)
    assert status == 130, said
    assert "Traceback" not in said
    assert saved_steps(work) % 300
    fit(sample, out, recipe, placement=Placement(workers=2))
    assert json.loads((out / "config.json").read_text())["provenance"]["steps"] == 900


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stop_of_a_job_with_its_ray_ends_it_as_stopped(sample, tmp_path):
    """As of a service manager or ``timeout``, which signal all processes of a group; the workers cannot save then."""
    whole = command(sample, tmp_path / "out", "--workers", "2", "--epochs", "1000")
    work = tmp_path / "out.training"
    status, said = interrupted(whole, lambda: saved_steps(work), signal.SIGTERM, victims=with_children)
    assert status == 130, said
    assert said.splitlines()[-1] == STOPPED_LINE


def workers_of(process):
    """The process ids of the workers that train for a job."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    parents = {int(line.split()[0]): int(line.split()[1]) for line in listing.splitlines()[1:]}

    def is_ours(pid):
        return pid == process.pid or (pid in parents and is_ours(parents[pid]))

    workers = [int(line.split()[0]) for line in listing.splitlines() if "ray::RayTrainWorker" in line]
    return sorted(filter(is_ours, workers))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_workers_killed_again_and_again_end_with_the_same_bytes(sample, tmp_path):
    """Ray Train starts them anew each time: three kills at seeded steps, of the one or the other, in one job."""
    tests, generator = sample / "sample" / "test-pairs.tsv", np.random.default_rng(1)
    on_interrupt = signal.getsignal(signal.SIGINT)
    whole = fit(sample, tmp_path / "whole", placement=Placement(workers=2), tests=tests)
    assert signal.getsignal(signal.SIGINT) is on_interrupt
    flags = "--workers", "2", "--checkpoint-steps", "3", "--evaluate-pairs", tests, "--eval-every", "0.4"
    process = subprocess.Popen(command(sample, tmp_path / "killed", *flags), start_new_session=True)
    try:
        dead = set()
        for least in np.sort(generator.integers(1, 150, 3)):
            deadline = time.monotonic() + 300
            while saved_steps(tmp_path / "killed.training") < least or dead & set(workers_of(process)):
                assert process.poll() is None, "the job ended before its workers were killed"
                assert time.monotonic() < deadline
                time.sleep(0.01)
            workers = workers_of(process)
            while len(workers) < 2:
                time.sleep(0.1)
                workers = workers_of(process)
            dead |= set(workers)
            os.kill(workers[generator.integers(2)], signal.SIGKILL)
        assert process.wait(600) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert len(dead) == 6
    assert model(tmp_path / "killed") == model(whole)
