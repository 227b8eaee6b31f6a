import inspect
import json
import logging
import os
import random
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from mlflow.tracking import MlflowClient

from paraembed.commands import job
from paraembed.tracking import place as tracking_place
from paraembed.tracking import sender as tracking_sender
from paraembed.tracking.place import network_file_system
from paraembed.tracking.records import RecordFile, record_path, system_metrics
from paraembed.tracking.runs import send_left, tracked_run
from tests import fuzz
from tests.jobs import ran
from tests.mlflow_server import mlflow_server

ROOT = Path(__file__).parents[2]
MEMORY = "system/system_memory_usage_megabytes"


@pytest.fixture
def store(empty_store, tmp_path, monkeypatch):
    database = Path(shutil.copy(empty_store, tmp_path / "mlflow.db"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.05")
    monkeypatch.setattr(tracking_sender, "_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(tracking_sender, "_IDLE_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    return database


@pytest.fixture
def server(empty_store, store, tmp_path, monkeypatch):
    shutil.copy(empty_store, tmp_path / "server.db")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with mlflow_server(tmp_path, monkeypatch) as answering:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", answering.uri)
        yield answering


def log_all(run, folder, numbers):
    """Log one of each kind for each number."""
    for number in numbers:
        artifact = folder / f"artifact-{number}.json"
        artifact.write_text("{}")
        run.params({f"param-{number}": number})
        run.tags({f"tag-{number}": "x"})
        run.dataset(f"data-{number}", f"{number:064}", ["a.txt"])
        run.metrics({"loss": float(number)}, number)
        run.artifacts(artifact)


def check_all(client, run_id, numbers, status="FINISHED"):
    """Each of ``log_all`` is there exactly once."""
    run, each = client.get_run(run_id), [str(number) for number in numbers]
    assert run.info.status == status
    assert run.data.params == {f"param-{number}": number for number in each}
    assert {name for name in run.data.tags if name.startswith("tag-")} == {f"tag-{number}" for number in each}
    assert [(metric.step, metric.value) for metric in client.get_metric_history(run_id, "loss")] == [
        (number, float(number)) for number in numbers
    ]
    assert sorted(data.dataset.name for data in run.inputs.dataset_inputs) == sorted(
        f"data-{number}" for number in each
    )
    assert sorted(file.path for file in client.list_artifacts(run_id)) == sorted(
        f"artifact-{number}.json" for number in each
    )


def wait_until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_system_metrics_resume_behind_those_of_a_killed_run(store, tmp_path):
    client, ids = MlflowClient(f"sqlite:///{store}"), set()
    for begun in range(2):
        with tracked_run("watched", tmp_path / "out", tmp_path / "memo.json") as run, system_metrics(run):
            wait_until(lambda: run.run_id)
            wait_until(lambda: len(client.get_metric_history(run.run_id, MEMORY)) >= 2 * (begun + 1))  # noqa: B023
            time.sleep(1)
        ids.add(run.run_id)
    assert len(ids) == 1
    history = client.get_metric_history(ids.pop(), MEMORY)
    steps = [metric.step for metric in history]
    assert steps == sorted(steps)
    assert 2 <= steps[-1] < 60
    assert all(metric.value > 0 for metric in history)


@pytest.mark.parametrize("fault", ["lose", *(pytest.param(one, marks=pytest.mark.slow) for one in (503, 429, "close"))])
def test_a_server_that_fails_for_a_while_has_everything_once(server, tmp_path, caplog, fault):
    with tracked_run("flaky", tmp_path / "out", tmp_path / "memo.json") as run:
        log_all(run, tmp_path, range(3))
        wait_until(lambda: (tmp_path / "artifacts").exists() and len([*(tmp_path / "artifacts").rglob("*.json")]) == 3)
        server.fault = fault
        before = server.requests
        log_all(run, tmp_path, range(3, 6))
        wait_until(lambda: server.requests > before)
        for step in range(1000):
            run.metrics({"other": 1.0}, step)
        log_all(run, tmp_path, range(6, 8))
        assert server.requests - before < 20, "a job that logs much asks a store that is away no more often"
        server.fault = None
        wait_until(lambda: "is reachable again" in caplog.text)
        log_all(run, tmp_path, range(8, 10))
    client = MlflowClient(server.uri)
    check_all(client, run.run_id, range(10))
    assert len(client.get_metric_history(run.run_id, "other")) == 1000
    assert caplog.text.count("does not answer (") == 1
    assert not record_path(tmp_path / "out").exists()
    assert len(client.search_runs(["0", "1"])) == 1


def test_a_locked_database_does_not_make_the_job_wait(store, tmp_path):
    with tracked_run("locked", tmp_path / "out") as run, closing(sqlite3.connect(store)) as other:
        other.execute("BEGIN EXCLUSIVE")
        log_all(run, tmp_path, range(20))
        assert [kind for _, kind, _ in run.records.read()].count("params") == 20
        other.rollback()
    check_all(MlflowClient(f"sqlite:///{store}"), run.run_id, range(20))


@pytest.mark.timeout(60)
def test_files_that_the_store_cannot_write_keep_no_job_and_no_other_record(store, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tracking_sender, "_LAST_SECONDS", 1.0)
    (tmp_path / "mlruns").touch()  # in the place of the folder of the artifacts; the database answers
    with tracked_run("no files", tmp_path / "out") as run:
        log_all(run, tmp_path, range(30))
        wait_until(lambda: "does not answer (" in caplog.text)
        began = time.monotonic()
    assert time.monotonic() - began < 10, "each of them is tried for half a second"
    assert caplog.text.count("does not answer (") == 1
    client = MlflowClient(f"sqlite:///{store}")
    found = client.get_run(run.run_id)
    assert (found.info.status, len(found.data.params), found.data.metrics) == ("FINISHED", 30, {"loss": 29.0})
    (tmp_path / "mlruns").unlink()
    send_left(tmp_path / "out")
    check_all(client, run.run_id, range(30))
    assert not record_path(tmp_path / "out").exists()


@pytest.mark.parametrize("raised", [ValueError("no"), pytest.param(KeyboardInterrupt(), marks=pytest.mark.slow)])
def test_what_never_reached_the_store_is_sent_by_the_next_job(server, tmp_path, caplog, raised):
    server.fault, status = "close", "FAILED" if isinstance(raised, ValueError) else "KILLED"
    with pytest.raises(type(raised)), tracked_run("dead", tmp_path / "out") as run:  # noqa: PT012
        log_all(run, tmp_path, range(3))
        raise raised
    assert str(record_path(tmp_path / "out")) in caplog.text
    assert f"paraembed log {tmp_path / 'out'}" in caplog.text
    server.fault = None
    with tracked_run("next", tmp_path / "out") as after:
        pass
    client = MlflowClient(server.uri)
    by_name = {run.info.run_name: run.info for run in client.search_runs(["1"])}
    assert set(by_name) == {"dead", "next"}
    check_all(client, by_name["dead"].run_id, range(3), status)
    check_all(client, after.run_id, range(0))


@pytest.mark.parametrize(
    ("named", "flags"), [(None, []), ("of the team", []), ("of the team", ["--experiment", "mine"])]
)
def test_a_run_has_its_lineage_and_what_the_user_sets(store, tmp_path, monkeypatch, named, flags):
    @dataclass
    class Flags:
        input: str = ""

    def main(_):
        with tracked_run("embed out", tmp_path / "out"), tracked_run("inner", tmp_path / "inner"):
            pass

    if named is not None:
        monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", named)
    chosen = [*flags, "--run-name", "Friday", "--tag", "team=search", "note=a=b"]
    monkeypatch.setattr(sys, "argv", ["jobs/embed.py", "--input", "s3://key:secret@bucket/my file", *chosen])
    with monkeypatch.context() as patch:
        patch.setattr(logging.root, "handlers", [])
        assert job.run(main, Flags) == 0
    client = MlflowClient(f"sqlite:///{store}")
    experiment = client.get_experiment_by_name("mine" if flags else named or "paraembed")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert runs.keys() == {"Friday", "inner"}
    for run in runs.values():
        tags = run.data.tags
        assert (tags["team"], tags["note"]) == ("search", "a=b")
        assert shlex.split(tags["command"]) == ["jobs/embed.py", "--input", "s3://bucket/my file", *chosen]
        assert f"torch {torch.__version__}" in tags["versions"]
        if (ROOT / ".git").exists():
            assert tags["mlflow.source.git.commit"] == ran("git", "rev-parse", "HEAD", cwd=ROOT).stdout.strip()
        assert tags["mlflow.user"]
        assert run.info.start_time <= run.info.end_time


def test_a_resumed_run_has_the_tags_of_the_newest_command(store, tmp_path):
    for team in "ab":
        token = tracking_place.labels.set(tracking_place.RunLabels(tags={"team": team}))
        with tracked_run("resumed", tmp_path / "out", tmp_path / "memo.json"):
            tracking_place.labels.reset(token)
    (run,) = MlflowClient(f"sqlite:///{store}").search_runs(["1"])
    assert run.data.tags["team"] == "b"


@pytest.mark.slow
def test_the_experiment_of_a_run_is_that_of_its_job(store, tmp_path, monkeypatch):
    """Not that of the process which sends its records later; 0.1 had one experiment."""
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/no folder/mlflow.db")
        patch.setenv("MLFLOW_EXPERIMENT_NAME", "first")
        patch.setattr(tracking_sender, "_LAST_SECONDS", 0.1)
        for name in ("new", "old"):
            with tracked_run(name, tmp_path / name):
                pass
    records = record_path(tmp_path / "old")
    records.write_text(records.read_text().replace('"experiment": "first"', '"0.2": 0'))
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "later")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
    assert send_left(tmp_path / "new")
    assert send_left(tmp_path / "old")
    client = MlflowClient(f"sqlite:///{store}")
    names = {experiment.experiment_id: experiment.name for experiment in client.search_experiments()}
    runs = client.search_runs([*names])
    assert {run.info.run_name: names[run.info.experiment_id] for run in runs} == {"new": "first", "old": "paraembed"}


KILLED = """
import os, signal, sys
from pathlib import Path
from paraembed.tracking.runs import tracked_run
from tests.tracking.test_runs import log_all
folder = Path(sys.argv[1])
with tracked_run("killed", folder / "out", folder / "memo.json") as run:
    log_all(run, folder, range(3))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_is_resumed_by_the_next_job_or_ends_as_killed(store, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    file, memo, client = record_path(tmp_path / "out"), tmp_path / "memo.json", MlflowClient(f"sqlite:///{store}")
    left, database = file.read_bytes(), store.read_bytes()
    file.write_bytes(left + b'["params", [["cut')  # as if it had been killed within a line
    with tracked_run("killed", tmp_path / "out", memo) as run:
        log_all(run, tmp_path, range(3, 5))
    check_all(client, run.run_id, range(5))
    assert len(client.search_runs(["1"])) == 1

    file.write_bytes(left)  # the same again, but nothing remembers the run
    store.write_bytes(database)
    for artifact in tmp_path.rglob("artifact-[34].json"):
        artifact.unlink()
    with tracked_run("next", tmp_path / "out") as run:
        pass
    (killed,) = [other for other in client.search_runs(["1"]) if other.info.run_id != run.run_id]
    check_all(client, killed.info.run_id, range(3), "KILLED")
    file.write_bytes(left)
    send_left(tmp_path / "out")  # the output is complete: only the end was missing
    check_all(client, killed.info.run_id, range(3), "FINISHED")
    assert not file.exists()


def test_a_resumed_job_sends_its_records_to_another_store(store, empty_store, tmp_path, monkeypatch):
    memo = tmp_path / "memo.json"
    with tracked_run("moved", tmp_path / "out", memo) as run:
        log_all(run, tmp_path, range(2))
        wait_until(lambda: run.run_id)
        left = run.records.path.read_bytes()
    run.records.path.write_bytes(left + b'["sent", [9, "sqlite"]]\n')  # as a killed job of an earlier version leaves it
    uri = f"sqlite:///{shutil.copy(empty_store, tmp_path / 'other.db')}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with tracked_run("moved", tmp_path / "out", memo) as run:
        log_all(run, tmp_path, range(2, 4))
    check_all(MlflowClient(uri), run.run_id, range(4))


def test_a_rejected_record_blocks_no_other(store, tmp_path, caplog):
    vanished = tmp_path / "vanished.json"
    vanished.write_text("{}")
    with tracked_run("rejected", tmp_path / "out") as run:
        run.params({"param-0": 0, "n" * 300: "too long a name", "many": "x" * 99_999})
        run.params({"param-0": "changed", **{f"more-{number}": number for number in range(250)}})
        run.tags({"fine": "x", "bad\nname": "y"})
        run.dataset("n" * 501, "0", ["a"])
        run.metrics({"loss": 1.0, "no:such*name": 2.0, "nan": float("nan"), "inf": float("inf")}, 1)
        run.artifacts(vanished)
        vanished.unlink()
        run.metrics({"loss": 2.0}, 2)
    client = MlflowClient(f"sqlite:///{store}")
    found = client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert len(found.data.params) == 252
    assert (found.data.params["param-0"], len(found.data.params["many"]), found.data.tags["fine"]) == ("0", 6000, "x")
    assert [metric.value for metric in client.get_metric_history(run.run_id, "loss")] == [1.0, 2.0]
    assert {"nan", "inf"} <= set(found.data.metrics)
    for rejected in ("n" * 50, "'param-0', 'changed'", "bad", "no:such*name"):
        assert rejected in caplog.text
    assert not record_path(tmp_path / "out").exists()


def test_inputs_are_data_sets_of_mlflow(store, tmp_path):
    (tmp_path / "words.txt").touch()
    many = [f"/data/{'deep/' * 20}part-{number:05}.txt.gz" for number in range(5000)]
    with tracked_run("inputs", tmp_path / "out") as run:
        run.dataset("words", "a" * 64, [str(tmp_path / "words.txt")], "training")
        run.dataset("pairs", "b" * 64, ["s3://key:secr3t@bucket/pairs?scheme=http"], "training", rows=7)
        run.dataset("files", "c" * 64, ["a.gz", "b.gz"])
        run.dataset("many", "f" * 64, many)
    inputs = MlflowClient(f"sqlite:///{store}").get_run(run.run_id).inputs.dataset_inputs
    logged = {one.dataset.name: one.dataset for one in inputs}
    assert json.loads(logged["words"].source) == [str(tmp_path / "words.txt")]
    assert json.loads(logged["pairs"].source) == ["s3://bucket/pairs?scheme=http"]
    assert json.loads(logged["pairs"].profile) == {"num_rows": 7}
    assert json.loads(logged["files"].source) == ["a.gz", "b.gz"]
    source = json.loads(logged["many"].source)
    assert (source["files"], source["first"][0], len(source["names_sha256"])) == (5000, many[0], 64)
    contexts = [tag.value for one in inputs for tag in one.tags if tag.key == "mlflow.data.context"]
    assert contexts.count("training") == 2


MOUNTS = """overlay / overlay rw 0 0
nas:/export /data nfs4 rw,vers=4.1 0 0
tmpfs /data/scratch tmpfs rw 0 0
bucket /mnt/my\\040bucket fuse.gcsfuse rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/mlruns/mlflow.db", "nfs4"),
        ("/data", "nfs4"),
        ("/data/scratch/mlflow.db", None),
        ("/database/mlflow.db", None),
        ("/mnt/my bucket/x", "fuse.gcsfuse"),
    ],
)
def test_network_file_systems_are_known(path, kind):
    assert network_file_system(Path(path), MOUNTS) == kind


def test_on_a_cluster_a_store_that_would_be_lost_is_an_error(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    job = tmp_path / "runtime_resources" / "working_dir_files"
    job.mkdir(parents=True)
    monkeypatch.chdir(job)

    def lost(out, message):
        with pytest.raises(ValueError, match=message), tracked_run("lost", out):
            pass

    lost(job / "out", r"mlflow server --backend-store-uri .* MLFLOW_TRACKING_URI=http")
    assert not (job / "mlruns").exists()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")  # relative to the job's folder
    lost(tmp_path / "out", "in the temporary folder of the job")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with tracked_run("kept", tmp_path / "out"):
        pass
    assert (tmp_path / "mlruns" / "mlflow.db").exists()
    monkeypatch.setattr(tracking_place, "network_file_system", lambda _: "nfs4")
    lost(tmp_path / "out", r"network file system \(nfs4\)")


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU")
def test_the_load_of_a_gpu_is_logged(store, tmp_path):
    with tracked_run("watched", tmp_path / "out") as run, system_metrics(run):
        pass
    metrics = MlflowClient(f"sqlite:///{store}").get_run(run.run_id).data.metrics
    assert metrics["system/gpu_0_memory_usage_megabytes"] > 0
    assert 0 <= metrics["system/gpu_0_utilization_percentage"] <= 100


def test_a_run_within_another_is_its_child(server, tmp_path):
    client = MlflowClient(server.uri)
    for fault in (None, "close"):
        server.fault = fault
        with tracked_run("outer", tmp_path / "out") as outer, tracked_run("inner", tmp_path / "in") as inner:
            server.fault = None
        assert client.get_run(inner.run_id).data.tags["mlflow.parentRunId"] == outer.run_id


def test_passwords_of_the_store_are_in_no_message_and_no_file(tmp_path, monkeypatch, caplog):
    uri = "http://user:secr3t@127.0.0.1:9/path?password=secr3t&sslPassword=secr3t"  # the port "discard"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with tracked_run("dead", tmp_path / "out", tmp_path / "memo.json") as run:
        run.params({"input": "s3://key:secr3t@bucket/a", "url": "https://host/a?X-Amz-Signature=secr3t"})
    assert "127.0.0.1:9" in caplog.text
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "bucket/a" in written
    assert "secr3t" not in caplog.text + written


KINDS = ("open", "sent", "params", "tags", "dataset", "metrics", "artifacts", "model", "link", "trial", "end")


def a_line(draw):
    """A record of a file, right or nearly so."""
    text = draw.choice(["loss", "", "é\u0000", "\ud800", "x" * 9999, "nan"])
    number = draw.choice([0, -1, 1.5, 2**70, float("nan"), True, None, "1", 10**400])
    metric = [text, number, draw.choice([1, 2.5, 2**64]), draw.choice([1, "1"])]
    opening = {"key": draw.choice([text, "f" * 32]), "name": text, "start": 1, "tags": [[text, text]]}
    opening |= {"parent": draw.choice([None, text, {**opening, "parent": None}])}
    values = [[], {}, text, number, [text, text], [[text, text]], [metric], [["loss", 1.0, 2, 3]], [number, text]]
    kind = draw.choice([*KINDS, "unknown", text])
    return json.dumps([kind, opening if kind == "open" else draw.choice(values)]).encode() + b"\n"


@pytest.mark.fuzz
def test_fuzz_records_are_read_as_far_as_they_are_whole(tmp_path):
    good = b'["metrics", [["loss", 1.0, 2, 3]]]\n'

    def case(draw):
        data = b"".join(a_line(draw) for _ in range(draw.randrange(6)))
        if draw.random() < 0.9:  # else it is as a job writes it
            data = fuzz.mutated(data, draw, (b"\n", b"[", b"]", b"[" * 100_000, b'"', b"NaN", b"1e999", b"\\u"))
        file = RecordFile(tmp_path / "out", tmp_path / "records.jsonl")
        data += b"" if data.endswith(b"\n") else b"\n"  # as the next record does after a killed process
        file.path.write_bytes(data + good)
        records = list(file.read())
        assert records[-1] == (len(data) + len(good), "metrics", [["loss", 1.0, 2, 3]]), "damage costs what follows"
        assert [end for end, _, _ in records] == sorted(end for end, _, _ in records)
        return "damaged" if file.is_damaged else "read"

    ends = fuzz.run(case)
    assert ends["damaged"] > 0
    assert ends["read"] > 0


@pytest.mark.parametrize("seed", range(2))
def test_fuzz_damaged_records_and_a_damaged_memo_cost_no_job(store, tmp_path, seed):
    draw = random.Random(seed)
    lines = b"".join(a_line(draw) for _ in range(50))
    record_path(tmp_path / "out").write_bytes(fuzz.mutated(lines, draw))
    memo = tmp_path / "memo.json"
    remembered = {"uri": f"sqlite:///{store}", "start": 1, "key": "1" * 32}
    memo.write_bytes(fuzz.mutated(json.dumps(remembered).encode(), draw))
    with tracked_run("after", tmp_path / "out", memo) as run:
        log_all(run, tmp_path, range(2))
    check = MlflowClient(f"sqlite:///{store}").get_run(run.run_id)
    assert check.info.status == "FINISHED"
    assert {"param-0", "param-1"} <= set(check.data.params)


SHORT_JOB = f"""
import sys
from pathlib import Path
from paraembed.tracking.runs import tracked_run
{inspect.getsource(log_all)}
number = int(sys.argv[1])
with tracked_run("short", Path("out"), Path("memo.json")) as run:
    log_all(run, Path(), range(number, number + 2))
    assert "mlflow" not in sys.modules
"""


def test_another_process_sends_the_records_of_short_jobs(store, tmp_path, monkeypatch):
    for name in tracking_sender._WAITED_FOR:
        monkeypatch.delenv(name, raising=False)
    for number in (0, 2):  # the second waits for the process that sends the records of the first
        subprocess.run([sys.executable, "-c", SHORT_JOB, str(number)], env=with_package(), check=True, timeout=60)
    wait_until(lambda: not record_path(tmp_path / "out").exists())
    client = MlflowClient(f"sqlite:///{store}")
    (run,) = client.search_runs(["1"])
    check_all(client, run.info.run_id, range(4))


TEMPORARY_JOB = """
import tempfile
from pathlib import Path
from paraembed.tracking.runs import tracked_run
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "manifest.json").write_text("{}")
    with tracked_run("copies", Path("out")) as run:
        run.artifacts(Path(folder) / "manifest.json")
"""


def test_files_that_do_not_stay_are_sent_before_the_job_ends(store, tmp_path, monkeypatch):
    for name in tracking_sender._WAITED_FOR:
        monkeypatch.delenv(name, raising=False)
    subprocess.run([sys.executable, "-c", TEMPORARY_JOB], env=with_package(), check=True, timeout=60)
    client = MlflowClient(f"sqlite:///{store}")
    (run,) = client.search_runs(["1"])
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["manifest.json"]
    assert not record_path(tmp_path / "out").exists()


@pytest.mark.slow
def test_records_that_the_other_process_cannot_send_stay(tmp_path, monkeypatch, caplog):
    for name in tracking_sender._WAITED_FOR:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-c", SHORT_JOB, "0"], env=with_package(), check=True, timeout=60)
    assert [kind for _, kind, _ in RecordFile(tmp_path, record_path(tmp_path / "out")).read()][-1] == "end"
    log = tracking_sender.log_path(record_path(tmp_path / "out"))
    wait_until(lambda: log.stat().st_size)
    assert "does not answer" in log.read_text()
    wait_until(lambda: send_left(tmp_path / "out", waits=False) or "does not answer" in caplog.text)


def with_package():
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
