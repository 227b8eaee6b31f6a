"""Jobs on a Ray of several machines, one of which is powered off meanwhile: the results are those of one machine."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

import paraembed
from paraembed.io.fingerprint import read_json
from paraembed.pairs.sample import write_sample
from tests.cluster import nodes
from tests.cluster.nodes import finish, power_off_one, wait_until
from tests.jobs import digests

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs"

pytestmark = nodes.MARKS
HOW = ["kill", "vanish"]  # a machine that is lost refuses connections, or does not even that


@pytest.fixture(scope="module")
def cluster():
    """A head without CPUs and three machines of one each, so that two workers are on two."""
    with nodes.running() as one:
        for _ in range(3):
            one.add(cpus=1)
        yield one


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What all machines see: inputs."""
    folder = tmp_path_factory.mktemp("shared")
    write_sample(folder / "sample", lines=6000, dimension=20, sentences=20_000, test_pairs=200, ppdb_version="2.0")
    for number in range(6):
        rows = (f"text {number} of row {row}\tthe row {row} of text {number}\n" for row in range(60_000))
        (folder / f"{number}.tsv").write_text("".join(rows))
    return folder


@pytest.fixture(scope="module")
def alone(folder):
    """A job's output on one machine."""

    def run(job, out, *arguments):
        if not (folder / "alone" / out).exists():
            (folder / "alone").mkdir(exist_ok=True)
            command = [sys.executable, JOBS / job, *arguments, "--out", folder / "alone" / out]
            done = subprocess.run(
                list(map(str, command)), cwd=folder / "alone", capture_output=True, text=True, check=False, timeout=400
            )
            assert done.returncode == 0, done.stderr
        return folder / "alone" / out

    return run


@pytest.fixture(scope="module")
def inputs(folder, alone):
    """Arguments of jobs that train: pair shards and word vectors."""
    pairs = alone("shard.py", "sample-pairs", "--input", folder / "sample" / "ppdb-2.0-format.gz")
    return ["--pairs", pairs, "--words", folder / "sample" / "vectors.txt.gz"]


@pytest.mark.parametrize("how", HOW)
def test_shards_of_a_cluster_that_loses_a_machine(cluster, folder, alone, how):
    arguments = ["--input", *sorted(folder.glob("*.tsv")), "--workers", 3]
    out = folder / f"pairs-{how}"
    job = cluster.submit(JOBS / "shard.py", *arguments, "--out", out)
    power_off_one(cluster, job, "ray::parse", lambda: list(folder.glob(f".{out.name}.partial/parsed-*.json")), how)
    finish(job)
    assert digests(out, "**/*") == digests(alone("shard.py", "pairs", *arguments), "**/*")


@pytest.mark.parametrize("how", HOW)
def test_a_training_on_two_machines_of_which_one_dies(cluster, folder, alone, inputs, how):
    arguments = [*inputs, "--tokenizer", "space", "--epochs", 8, "--workers", 2, "--checkpoint-minutes", 0]
    out = folder / f"encoder-{how}"
    job = cluster.submit(JOBS / "train.py", *arguments, "--out", out)
    on = set()

    def has_saved():
        on.update(cluster.at_work("ray::RayTrainWorker"))
        return len(on) > 1 and any(folder.glob(f"{out.name}.training/checkpoints/step-*"))

    power_off_one(cluster, job, "ray::RayTrainWorker", has_saved, how)
    finish(job)
    assert len(on) > 1, "both workers were on one machine"
    one, other = (paraembed.load(place) for place in (out, alone("train.py", "encoder", *arguments)))
    assert one.fingerprint == other.fingerprint


def test_a_machine_that_is_taken_away_has_a_checkpoint_first(cluster, folder, alone, inputs):
    """Other checkpoints are at the ends of epochs, or ten minutes apart."""
    arguments = [*inputs, "--tokenizer", "space", "--epochs", 20, "--workers", 2, "--batch-size", 2]
    out, checkpoints = folder / "preempted", folder / "preempted.training" / "checkpoints"

    def within_epochs():
        states = [read_json(path, dict) for path in checkpoints.glob("step-*/state.json") if path.exists()]
        return [state for state in states if state["counters"]["pairs_in_epoch"]]

    job = cluster.submit(JOBS / "train.py", *arguments, "--out", out)
    busy = wait_until(job, lambda: any(checkpoints.glob("step-*")) and cluster.at_work("ray::RayTrainWorker"))
    assert len(busy) == 2, busy
    assert not within_epochs()
    leaving = busy[0]
    cluster.drain(leaving)
    wait_until(job, within_epochs)
    cluster.kill(leaving)
    cluster.add(cpus=1)
    finish(job)
    one, other = (paraembed.load(place) for place in (out, alone("train.py", "undisturbed", *arguments)))
    assert one.fingerprint == other.fingerprint


def test_the_number_of_workers_follows_that_of_the_machines(cluster, folder, inputs):
    """They take all CPUs of the cluster. A machine is powered off, another one joins; then the job is stopped."""
    out, arguments = folder / "elastic", [*inputs, "--tokenizer", "space", "--epochs", 10_000]
    arguments += ["--workers", "2:9", "--batch-size", 20, "--checkpoint-minutes", 0.05]
    job = cluster.submit(JOBS / "train.py", *arguments, "--out", out)

    def newest():
        states = sorted(out.with_name("elastic.training").glob("checkpoints/step-*/state.json"))
        with suppress(FileNotFoundError):  # it was just replaced by a newer one
            return read_json(states[-1], dict)["counters"] if states else {"workers": []}

    def workers():
        """Numbers of workers so far."""
        counters = newest()
        return counters and [number for _, number in counters["workers"]]

    wait_until(job, lambda: workers() == [3])
    cluster.kill(cluster.at_work("ray::RayTrainWorker")[0])
    wait_until(job, lambda: workers() == [3, 2])
    cluster.add(cpus=1)
    wait_until(job, lambda: workers() == [3, 2, 3])
    driver = [str(JOBS / "train.py"), str(out)]
    for process in nodes.family(cluster.machines[nodes.HEAD]):
        with suppress(psutil.Error):
            if process.cmdline()[1:2] == driver[:1] and driver[1] in process.cmdline():
                process.terminate()
    assert "stopped" in job.communicate(timeout=120)[0]
    counters, kept = newest(), read_json(inputs[1] / "manifest.json", dict)["counts"]["kept"]
    assert [counters["pairs"], counters["pairs_in_epoch"]] == pairs_after(counters["step"], counters["workers"], kept)


def pairs_after(steps, workers, kept):
    """Pairs of these steps, in all and in their last epoch; a step has 20 for each worker, or the rest of ``kept``."""
    pairs = in_epoch = 0
    for step in range(1, steps + 1):
        number = [number for first, number in workers if first <= step][-1]
        batch = min(20 * number, kept - in_epoch)
        pairs, in_epoch = pairs + batch, (in_epoch + batch) % kept
    return [pairs, in_epoch]


def test_a_sweep_on_a_cluster_that_loses_a_machine(cluster, folder, alone, inputs):
    arguments, out = ["smoke", *inputs, "--data", folder / "sample", "--epochs", 12], folder / "sweep"
    job = cluster.submit(JOBS / "tune.py", *arguments, "--out", out)
    power_off_one(cluster, job, "ray::ImplicitFunc", lambda: list(out.glob("trials/*.json")))
    finish(job)
    one, other = (pq.read_table(place / "results.parquet") for place in (out, alone("tune.py", "sweep", *arguments)))
    told = [name for name in one.column_names if "second" not in name]
    assert one.select(told).equals(other.select(told))


@pytest.mark.parametrize("how", HOW)
def test_embeddings_of_a_cluster_that_loses_a_machine(cluster, folder, alone, tiny_encoder_folder, how):
    arguments = ["--encoder", tiny_encoder_folder, "--input", folder / "sample" / "sentences.txt", "--keep", "text"]
    arguments += ["--part-rows", 100, "--workers", 3]
    out = folder / f"embeddings-{how}"
    job = cluster.submit(JOBS / "embed.py", *arguments, "--out", out)
    power_off_one(cluster, job, "ray::PartWorker", lambda: list(out.glob("data/part-*.parquet")), how)
    finish(job)
    assert digests(out) == digests(alone("embed.py", "embeddings", *arguments))
