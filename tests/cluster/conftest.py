"""What several files of tests of the jobs share: generated pairs in shards, and an MLflow store for each file."""

import shutil

import pytest
from mlflow.tracking import MlflowClient

from paraembed.cluster.shard import shard_pairs
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings


@pytest.fixture(scope="session")
def sample(tmp_path_factory, ray_cluster, empty_store):
    """6,000 generated lines in the PPDB 2.0 format, sharded to ``pairs``; word vectors, scored pairs."""
    folder = tmp_path_factory.mktemp("sample")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, folder)}")
        write_sample(folder / "sample", lines=6000, dimension=30, test_pairs=300, sentences=10, ppdb_version="2.0")
        shard_pairs([folder / "sample" / "ppdb-2.0-format.gz"], folder / "pairs", ShardSettings(rows_per_shard=2500))
    return folder


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """Database of MLflow without runs; to copy it takes no time, to make one seconds."""
    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)  # where MLflow makes a folder for artifacts
        MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="module")
def store(request, empty_store, tmp_path_factory):
    """Address of the MLflow store of a file's tests; the fixture ``in_store`` makes it theirs."""
    path = tmp_path_factory.getbasetemp() / f"{request.module.__name__}.db"
    shutil.copy(empty_store, path)
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def in_store(store, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", store)
        patch.chdir(tmp_path_factory.getbasetemp())
        yield
