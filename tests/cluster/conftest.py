"""What several files of tests of the jobs share: generated pairs in shards, and an MLflow store for each file."""

import pytest

from paraembed.cluster.shard import shard_pairs
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings


@pytest.fixture(scope="session")
def sample(tmp_path_factory, ray_cluster):
    """6,000 generated lines in the PPDB 2.0 format, sharded to ``pairs``; word vectors, scored pairs."""
    folder = tmp_path_factory.mktemp("sample")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_sample(folder / "sample", lines=6000, dimension=30, test_pairs=300, sentences=10, ppdb_version="2.0")
        shard_pairs([folder / "sample" / "ppdb-2.0-format.gz"], folder / "pairs", ShardSettings(rows_per_shard=2500))
    return folder


@pytest.fixture(scope="module")
def store(request, tmp_path_factory):
    """Address of the MLflow store of a file's tests; the fixture ``in_store`` makes it theirs."""
    return f"sqlite:///{tmp_path_factory.getbasetemp() / request.module.__name__}.db"


@pytest.fixture
def in_store(store, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.chdir(tmp_path_factory.getbasetemp())
