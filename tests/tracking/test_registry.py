"""A logged model runs where this project is not installed, and behind MLflow's server."""

import json
import re
import shutil
import sys
import sysconfig
import threading
import urllib.request

import mlflow
import numpy as np
import pandas as pd
import pytest
import uvicorn

import paraembed
from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.tracking.registered_encoder import load_model
from paraembed.tracking.registry import write_mlflow_files
from paraembed.tracking.runs import tracked_run
from tests.jobs import ran

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
    return out


@pytest.fixture(scope="module")
def wordpiece_folder(tiny_words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders") / "pieces"
    encoder = Encoder(AvgConfig(), tiny_words, "wordpiece")
    checkpoint.save(encoder, folder, recipe={}, provenance={}, model_card="tiny\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["wordpiece_folder", "tiny_encoder_folder"])
def test_a_model_brings_its_own_code_and_asks_for_packages_of_others_alone(folder, tmp_path, request):
    encoder, vectors = request.getfixturevalue(folder), tmp_path / "vectors.npy"
    model = save_model(encoder, tmp_path / "model")
    packages = sysconfig.get_paths()["purelib"]
    elsewhere = {"PATH": "/usr/bin", "PIP_NO_INDEX": "1", "NUMBA_DISABLE_JIT": "1"}
    ran(sys.executable, "-I", "-S", "-c", ELSEWHERE, packages, model, vectors, cwd=tmp_path, env=elsewhere)
    np.testing.assert_array_equal(np.load(vectors), paraembed.load(encoder).encode(TEXTS))


def test_a_missing_text_is_empty_and_a_table_of_two_columns_is_refused(tiny_encoder_folder):
    model = load_model(tiny_encoder_folder)
    texts = pd.DataFrame({"text": ["the cat", None, float("nan"), ""]})
    assert model.predict(texts).any(axis=1).tolist() == [True, False, False, False]
    with pytest.raises(ValueError, match="2 columns"):
        model.predict(pd.DataFrame({"a": ["x"], "b": ["y"]}))


def test_a_model_is_small_and_names_no_package_of_ours(tiny_encoder_folder, tmp_path):
    model = save_model(tiny_encoder_folder, tmp_path / "model")
    required = (model / "requirements.txt").read_text().splitlines()
    names = {line.partition("==")[0] for line in required}
    assert names >= {"mlflow", "numpy", "pyarrow", "safetensors", "torch"}
    assert not names & {"SQLAlchemy", "alembic", "ray"}
    assert all("==" in line and "+" not in line for line in required)
    for name in ("requirements.txt", "conda.yaml", "python_env.yaml"):
        assert "paraembed" not in (model / name).read_text()
    code = [path for path in (model / "code").rglob("*") if path.is_file()]
    assert {path.name for path in code if path.suffix != ".py"} == {"uncased.npz"}
    assert sum(path.stat().st_size for path in code) < 565_000
    modules = {
        ".".join(path.relative_to(model / "code").with_suffix("").parts).removesuffix(".__init__") for path in code
    }
    for path in code:
        imported = re.findall(r"(?m)^from (paraembed[\w.]*) import", path.read_text() if path.suffix == ".py" else "")
        assert modules.issuperset(imported), path
    assert not (model / "code" / "paraembed" / "cluster").exists()


@pytest.fixture(scope="module")
def logged(tiny_encoder_folder, empty_store, tmp_path_factory):
    """Id of a run that logged and registered an encoder, in the store that MLflow uses meanwhile."""
    folder = tmp_path_factory.mktemp("logged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, folder / 'mlflow.db')}")
        patch.chdir(folder)
        fingerprint = paraembed.load(tiny_encoder_folder).fingerprint
        for _ in range(2):
            with tracked_run("train", folder / "encoder") as run:
                run.model(tiny_encoder_folder, "encoder", {"fingerprint": fingerprint}, "small")
        yield run.run_id


def test_a_logged_model_has_a_signature_an_example_and_one_version(logged, tiny_encoder_folder):
    model = mlflow.pyfunc.load_model(f"runs:/{logged}/encoder")
    assert model.metadata.get_input_schema().to_dict() == [{"type": "string", "required": True}]
    (output,) = model.metadata.get_output_schema().to_dict()
    assert output["tensor-spec"] == {"dtype": "float32", "shape": (-1, 4)}
    assert model.input_example == ["the cat sat on the mat"]
    expected = paraembed.load(tiny_encoder_folder)
    np.testing.assert_array_equal(model.predict(TEXTS), expected.encode(TEXTS))
    versions = mlflow.MlflowClient().search_model_versions("name = 'small'")
    assert [(int(version.version), version.tags["fingerprint"]) for version in versions] == [(1, expected.fingerprint)]
    for name in (logged, "models:/small@champion", "models:/small/1"):
        assert paraembed.load(name).fingerprint == expected.fingerprint
    for name in ("models:/small@other", "models:/other/1", "models:/small/2", "0" * 32):
        with pytest.raises(ValueError, match=name):
            paraembed.load(name)
    with pytest.raises(ValueError, match="models:/NAME@ALIAS"):
        paraembed.load("models:/small")


def test_without_a_store_there_is_no_encoder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ValueError, match="MLFLOW_TRACKING_URI"):
        paraembed.load("models:/small@champion")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("logged")
def test_mlflow_serves_a_registered_encoder(tiny_encoder_folder):
    """The server of ``mlflow models serve``, in this process."""
    from mlflow.pyfunc import scoring_server  # noqa: PLC0415 - a warning, but for ``logged``

    app = scoring_server.init(mlflow.pyfunc.load_model("models:/small@champion"))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.05)
            assert thread.is_alive()
        port = server.servers[0].sockets[0].getsockname()[1]
        url, headers = f"http://127.0.0.1:{port}/invocations", {"Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps({"inputs": TEXTS}).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
    finally:
        server.should_exit = True
        thread.join()
    expected = paraembed.load(tiny_encoder_folder).encode(TEXTS)
    np.testing.assert_array_equal(np.array(answer["predictions"], dtype=np.float32), expected)
