"""Encoders that MLflow keeps are found by run, alias and version."""

import shutil

import pytest

import paraembed
from paraembed.tracking.runs import tracked_run


@pytest.fixture
def run_id(tiny_encoder_folder, empty_store, tmp_path, monkeypatch):
    """A run that logged an encoder and registered it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlruns").mkdir()
    shutil.copy(empty_store, tmp_path / "mlruns")
    with tracked_run("train", tmp_path / "encoder") as run:
        fingerprint = paraembed.load(tiny_encoder_folder).fingerprint
        run.model(tiny_encoder_folder, "encoder", {"fingerprint": fingerprint}, "small")
    return run.run_id


def test_by_run_alias_and_version(run_id, tiny_encoder_folder):
    expected = paraembed.load(tiny_encoder_folder)
    for name in (run_id, "models:/small@champion", "models:/small/1"):
        assert paraembed.load(name).fingerprint == expected.fingerprint
    for name in ("models:/small@other", "models:/other/1", "models:/small/2", "0" * 32):
        with pytest.raises(ValueError, match=name):
            paraembed.load(name)
    with pytest.raises(ValueError, match="models:/NAME@ALIAS"):
        paraembed.load("models:/small")


def test_without_a_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ValueError, match="MLFLOW_TRACKING_URI"):
        paraembed.load("models:/small@champion")
    assert not list(tmp_path.iterdir())
