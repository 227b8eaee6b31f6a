"""A training and a real MLflow server that is killed in the middle of it, and started again a minute later."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from paraembed.pairs.sample import write_sample
from paraembed.training.loop import REPORT_STEPS

JOBS = Path(__file__).parents[2] / "jobs"
AWAY_SECONDS, EPOCHS = 60, 1000


@contextmanager
def mlflow_server(folder, port):
    """``mlflow server`` with its files in a folder; at the end it is killed, with all that it has started."""
    command = [Path(sys.executable).with_name("mlflow"), "server", "--host", "127.0.0.1", "--port", port]
    command += ["--workers", 1, "--backend-store-uri", f"sqlite:///{folder}/server.db"]
    command += ["--artifacts-destination", folder / "artifacts"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            list(map(str, command)), cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        while not is_healthy(port):
            assert server.poll() is None, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def is_healthy(port):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
    except OSError:
        return False
    return True


def losses(uri):
    """The steps of the metric ``loss`` of the only run of a training, and its status."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("paraembed")
    runs = client.search_runs([experiment.experiment_id], "attributes.run_name LIKE 'train%'") if experiment else []
    if not runs:
        return [], ""
    (run,) = runs
    return sorted(metric.step for metric in client.get_metric_history(run.info.run_id, "loss")), run.info.status


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_server_that_is_away_for_a_minute_has_every_point_of_a_training(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sample = tmp_path / "sample"
    write_sample(sample, lines=6000, dimension=30, sentences=10, test_pairs=10, ppdb_version="2.0")
    files = {"cwd": tmp_path, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    environment = {**os.environ, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}", "OMP_NUM_THREADS": "1"}
    shard = [sys.executable, JOBS / "shard.py", "--input", sample / "ppdb-2.0-format.gz", "--out", "pairs"]
    train = [sys.executable, JOBS / "train.py", "--pairs", "pairs", "--words", sample / "vectors.txt.gz"]
    train += ["--out", "encoder", "--tokenizer", "space", "--epochs", str(EPOCHS), "--batch-size", "100"]
    with mlflow_server(tmp_path, port) as uri:
        done = subprocess.run(shard, env=environment, check=False, timeout=300, **files)
        assert done.returncode == 0, done.stderr
        job = subprocess.Popen(train, env=environment, **files)
        while len(losses(uri)[0]) < 5:
            assert job.poll() is None, job.stderr.read()
            time.sleep(0.5)
    started = time.monotonic()
    while time.monotonic() < started + AWAY_SECONDS:
        assert job.poll() is None, "the training was over before the server was back; give it more epochs"
        time.sleep(0.5)
    with mlflow_server(tmp_path, port) as uri:
        assert job.poll() is None, "the training was over before the server was back; give it more epochs"
        _, said = job.communicate(timeout=600)
        assert job.returncode == 0, said
        steps, status = losses(uri)
    each = -(-json.loads((tmp_path / "pairs" / "manifest.json").read_text())["counts"]["kept"] // 100)  # an epoch
    assert steps == [step for step in range(1, EPOCHS * each + 1) if step % REPORT_STEPS == 0 or step % each == 0]
    assert status == "FINISHED"
    assert said.count("does not answer (") == 1
    assert "is reachable again; buffered records were sent" in said
    assert not list(tmp_path.glob("*.mlflow*"))
