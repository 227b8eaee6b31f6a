"""A logged model runs where this project is not installed, and behind MLflow's server."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request

import mlflow
import numpy as np
import pandas as pd
import pytest

import paraembed
from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.tracking.registered_encoder import load_model
from paraembed.tracking.registry import write_mlflow_files
from paraembed.tracking.runs import tracked_run

TEXTS = ["the cat sat", "a dog", "unheard-of", ""]

# No .pth file is read, so the editable install is not seen; nothing comes from the environment or an index.
ELSEWHERE = """
import importlib.util, sys
sys.path.append(sys.argv[1])
assert importlib.util.find_spec("paraembed") is None
import mlflow.pyfunc, numpy
model = mlflow.pyfunc.load_model(sys.argv[2])
numpy.save(sys.argv[3], model.predict(["the cat sat", "a dog", "unheard-of", ""]))
import paraembed
assert paraembed.__file__.startswith(sys.argv[2]), paraembed.__file__
"""


def save_model(folder, out):
    """The model as it is in MLflow's artifacts: the folder, with MLflow's files beside its own."""
    write_mlflow_files(folder, out)
    shutil.copytree(folder, out, dirs_exist_ok=True)


@pytest.fixture
def wordpiece_folder(tiny_words, tmp_path):
    encoder = Encoder(AvgConfig(), tiny_words, "wordpiece")
    checkpoint.save(encoder, tmp_path / "pieces", recipe={}, provenance={}, model_card="tiny\n")
    return tmp_path / "pieces"


@pytest.mark.parametrize("folder", ["tiny_encoder_folder", "wordpiece_folder"])
def test_a_model_brings_its_own_code_and_asks_for_packages_of_others_alone(folder, tmp_path, request):
    encoder, model, vectors = request.getfixturevalue(folder), tmp_path / "model", tmp_path / "vectors.npy"
    save_model(encoder, model)
    packages, elsewhere = sysconfig.get_paths()["purelib"], {"PATH": "/usr/bin", "PIP_NO_INDEX": "1"}
    command = [sys.executable, "-I", "-S", "-c", ELSEWHERE, packages, str(model), str(vectors)]
    done = subprocess.run(command, cwd=tmp_path, env=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = paraembed.load(encoder).encode(["the cat sat", "a dog", "unheard-of", ""])
    np.testing.assert_array_equal(np.load(vectors), expected)


def test_a_missing_text_is_empty_and_a_table_of_two_columns_is_refused(tiny_encoder_folder):
    model = load_model(tiny_encoder_folder)
    texts = pd.DataFrame({"text": ["the cat", None, float("nan"), ""]})
    assert model.predict(texts).any(axis=1).tolist() == [True, False, False, False]
    with pytest.raises(ValueError, match="2 columns"):
        model.predict(pd.DataFrame({"a": ["x"], "b": ["y"]}))


def test_a_model_is_small_and_names_no_package_of_ours(tiny_encoder_folder, tmp_path):
    save_model(tiny_encoder_folder, tmp_path / "model")
    required = (tmp_path / "model" / "requirements.txt").read_text().splitlines()
    names = {line.partition("==")[0] for line in required}
    assert names >= {"mlflow", "numpy", "pyarrow", "safetensors", "torch"}
    assert not names & {"SQLAlchemy", "alembic", "ray"}
    assert all("==" in line and "+" not in line for line in required)
    for name in ("requirements.txt", "conda.yaml", "python_env.yaml"):
        assert "paraembed" not in (tmp_path / "model" / name).read_text()
    code = [path for path in (tmp_path / "model" / "code").rglob("*") if path.is_file()]
    assert {path.name for path in code if path.suffix != ".py"} == {"uncased.npz"}
    assert sum(path.stat().st_size for path in code) < 500_000
    assert not (tmp_path / "model" / "code" / "paraembed" / "cluster").exists()


@pytest.fixture
def run_id(tiny_encoder_folder, tmp_path, monkeypatch):
    """A run that logged and registered an encoder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    fingerprint = paraembed.load(tiny_encoder_folder).fingerprint
    for _ in range(2):
        with tracked_run("train", tmp_path / "encoder") as run:
            run.model(tiny_encoder_folder, "encoder", fingerprint, "small")
    return run.address.run_id


def test_a_logged_model_has_a_signature_an_example_and_one_version(run_id, tiny_encoder_folder, tmp_path, monkeypatch):
    store = f"sqlite:///{tmp_path}/mlruns/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    model = mlflow.pyfunc.load_model(f"runs:/{run_id}/encoder")
    assert model.metadata.get_input_schema().to_dict() == [{"type": "string", "required": True}]
    (output,) = model.metadata.get_output_schema().to_dict()
    assert output["tensor-spec"] == {"dtype": "float32", "shape": (-1, 4)}
    assert model.input_example == ["the cat sat on the mat"]
    expected = paraembed.load(tiny_encoder_folder)
    np.testing.assert_array_equal(model.predict(TEXTS), expected.encode(TEXTS))
    versions = mlflow.MlflowClient(store).search_model_versions("name = 'small'")
    assert [(int(version.version), version.tags["fingerprint"]) for version in versions] == [(1, expected.fingerprint)]
    for name in (run_id, "models:/small@champion"):
        assert paraembed.load(name).fingerprint == expected.fingerprint


def test_mlflow_serves_a_registered_encoder(run_id, tiny_encoder_folder, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = ["models", "serve", "-m", "models:/small@champion", "--env-manager", "local", "-h", "127.0.0.1"]
    environment = {"PATH": f"{sysconfig.get_path('scripts')}:/usr/bin:/bin", "HOME": str(tmp_path)}
    environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{tmp_path}/mlruns/mlflow.db"
    command = [sys.executable, "-m", "mlflow", *serve, "-p", str(port), "--workers", "1"]
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        answer = ask(server, f"http://127.0.0.1:{port}/invocations", {"inputs": TEXTS})
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(20)
        finally:
            os.killpg(server.pid, signal.SIGKILL)
    expected = paraembed.load(tiny_encoder_folder).encode(TEXTS)
    np.testing.assert_array_equal(np.array(answer["predictions"], dtype=np.float32), expected)


def ask(server, url, payload):
    """Post JSON until the server answers, for at most 120 seconds."""
    request = urllib.request.Request(url, json.dumps(payload).encode(), {"Content-Type": "application/json"})
    end = time.monotonic() + 120
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:  # it has not started
            time.sleep(0.3)
    raise AssertionError("the server does not answer")
