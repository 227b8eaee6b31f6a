"""A registered encoder runs where this project is not installed."""

import subprocess
import sys
import sysconfig

import numpy as np

import paraembed
from paraembed.tracking.registry import save_model

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


def test_a_model_brings_its_own_code_and_asks_for_packages_of_others_alone(tiny_encoder_folder, tmp_path):
    model, vectors = tmp_path / "model", tmp_path / "vectors.npy"
    save_model(tiny_encoder_folder, model)
    packages, elsewhere = sysconfig.get_paths()["purelib"], {"PATH": "/usr/bin", "PIP_NO_INDEX": "1"}
    command = [sys.executable, "-I", "-S", "-c", ELSEWHERE, packages, str(model), str(vectors)]
    done = subprocess.run(command, cwd=tmp_path, env=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = paraembed.load(tiny_encoder_folder).encode(["the cat sat", "a dog", "unheard-of", ""])
    np.testing.assert_array_equal(np.load(vectors), expected)


def test_a_model_is_small_and_names_no_package_of_ours(tiny_encoder_folder, tmp_path):
    save_model(tiny_encoder_folder, tmp_path / "model")
    required = (tmp_path / "model" / "requirements.txt").read_text().splitlines()
    assert {line.partition("==")[0] for line in required} >= {"mlflow", "numpy", "pyarrow", "safetensors", "torch"}
    assert all("==" in line and "+" not in line for line in required)
    for name in ("requirements.txt", "conda.yaml", "python_env.yaml"):
        assert "paraembed" not in (tmp_path / "model" / name).read_text()
    code = [path for path in (tmp_path / "model" / "code").rglob("*") if path.is_file()]
    assert {path.suffix for path in code} == {".py"}
    assert sum(path.stat().st_size for path in code) < 500_000
    assert not (tmp_path / "model" / "code" / "paraembed" / "cluster").exists()
