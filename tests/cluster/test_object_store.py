"""Jobs on machines that share no folder: inputs, outputs and unfinished work are on an object store."""

import json
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import paraembed
from paraembed.cluster.train import Training, train_model
from paraembed.commands.tune import Tune
from paraembed.commands.tune import main as tune
from paraembed.io.staging import Mirror, download
from paraembed.pairs.sample import write_sample
from paraembed.pairs.shards import read_pair_manifest
from paraembed.papers import find_recipe
from paraembed.settings import Placement
from paraembed.training.data import Pairs
from tests.cluster import nodes
from tests.object_store import serving

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs"
RECIPE = replace(find_recipe("iclr2016/avg"), tokenizer="space", epochs=6)

pytestmark = [
    *nodes.MARKS,
    pytest.mark.skipif(
        subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0,
        reason="machines without a common folder need the right to mount one for each",
    ),
]


@pytest.fixture(scope="module")
def server():
    with serving() as store:
        yield store


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head without CPUs and three machines of one each; /tmp is theirs alone."""
    private, store = tmp_path_factory.mktemp("private"), tmp_path_factory.mktemp("mlflow")
    with nodes.running(private, MLFLOW_TRACKING_URI=f"sqlite:///{store}/mlflow.db") as one:
        for _ in range(3):
            one.add(cpus=1)
        yield one


@pytest.fixture(scope="module")
def folder(tmp_path_factory, server):
    """The inputs, in a folder and on the object store, and the results on one machine."""
    folder = tmp_path_factory.mktemp("inputs")
    write_sample(folder / "sample", lines=6000, dimension=20, sentences=10, test_pairs=200, ppdb_version="2.0")
    for path in (folder / "sample").iterdir():
        server.objects[f"sample/{path.name}"] = path.read_bytes()
    return folder


def finish(job):
    own = [line for line in nodes.finish(job).splitlines() if "Running entrypoint for job" not in line]  # not Ray's
    said = "\n".join(own)
    assert "secret" not in said
    return said


@pytest.fixture(scope="module")
def pairs(cluster, folder, server):
    """The pair shards, by a job on the head."""
    arguments = ["--input", server.uri("sample/ppdb-2.0-format.gz"), "--out", server.uri("pairs")]
    said = finish(cluster.submit(JOBS / "shard.py", *arguments))
    assert "to s3://bucket/pairs" in said
    before = dict(server.objects)
    assert "already finished" in finish(cluster.submit(JOBS / "shard.py", *arguments))
    assert server.objects == before
    download(server.uri("pairs"), folder / "pairs")
    assert read_pair_manifest(folder / "pairs")["counts"]["kept"] == 4323
    return folder / "pairs"


def test_a_training_without_a_shared_folder_of_which_one_machine_dies(cluster, folder, pairs, server, tmp_path):
    arguments = ["--pairs", server.uri("pairs"), "--words", server.uri("sample/vectors.txt.gz"), "--out"]
    arguments += [server.uri("encoder"), "--tokenizer", "space", "--epochs", RECIPE.epochs, "--workers", 2]
    job = cluster.submit(JOBS / "train.py", *arguments, "--checkpoint-minutes", 0)

    def has_saved():
        return any(key.endswith("state.json") for key in [*server.objects])

    nodes.power_off_one(cluster, job, "ray::RayTrainWorker", has_saved)
    finish(job)
    download(server.uri("encoder"), tmp_path / "encoder")
    alone = Pairs(RECIPE, pairs, folder / "sample" / "vectors.txt.gz")
    train_model(Training("alone", alone, tmp_path / "alone", Placement(workers=2)))
    assert paraembed.load(tmp_path / "encoder").fingerprint == paraembed.load(tmp_path / "alone").fingerprint
    assert not [key for key, data in server.objects.items() if key.startswith("encoder.training/") and data]
    before = dict(server.objects)
    assert re.search(
        r"s3://bucket/encoder\?\S+ is already finished", finish(cluster.submit(JOBS / "train.py", *arguments))
    )
    assert server.objects == before
    done = cluster.submit(JOBS / "train.py", *arguments, "--margin", 0.9)
    said = done.communicate(timeout=300)[0]
    assert done.returncode != 0
    assert re.search(r"s3://bucket/encoder\?\S+ was started with another recipe.margin \(was 0.4, is 0.9\)", said)


def test_one_worker_of_a_cluster_is_not_on_its_head(cluster, pairs, server):
    arguments = ["--pairs", server.uri("pairs"), "--words", server.uri("sample/vectors.txt.gz"), "--epochs", 1]
    job = cluster.submit(JOBS / "train.py", *arguments, "--out", server.uri("one"), "--tokenizer", "space")
    at_work = set()
    while job.poll() is None:
        at_work.update(cluster.at_work("ray::RayTrainWorker"))
        time.sleep(0.1)
    finish(job)
    assert len(at_work) == 1
    assert "one/config.json" in server.objects


def test_a_sweep_without_a_shared_folder(cluster, folder, pairs, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    uris = ["--pairs", server.uri("pairs"), "--words", server.uri("sample/vectors.txt.gz"), "--data"]
    arguments = ["smoke", *uris, server.uri("sample"), "--out", server.uri("sweep"), "--epochs", 2]
    finish(cluster.submit(JOBS / "tune.py", *arguments))
    Mirror(tmp_path / "sweep", server.uri("sweep")).pull(["results.parquet", "trials"])
    sample = folder / "sample"
    given = {"pairs": str(pairs), "words": str(sample / "vectors.txt.gz"), "data": str(sample)}
    tune(Tune("smoke", **given, out=str(tmp_path / "alone"), epochs=2))
    one, other = (pq.read_table(tmp_path / place / "results.parquet") for place in ("sweep", "alone"))
    told = [name for name in one.column_names if "second" not in name]
    assert one.select(told).equals(other.select(told))
    trials = sorted((tmp_path / "sweep" / "trials").glob("*.json"))
    assert [json.loads(path.read_text())["status"] for path in trials] == ["finished"] * one.num_rows
