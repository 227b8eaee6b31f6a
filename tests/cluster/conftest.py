"""What several files of tests of the jobs share: generated pairs in shards, and an MLflow store for each file."""

import random
import shutil
import subprocess

import pytest

from paraembed.cluster.shard import shard_pairs
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings

ENTAILMENTS = "Equivalence", "ForwardEntailment", "ReverseEntailment", "OtherRelated", "Exclusion", "Independent"


@pytest.fixture(scope="session")
def sample(tmp_path_factory, ray_cluster, empty_store):
    """6,000 generated lines in the PPDB 2.0 format, sharded to ``pairs``; word vectors, scored pairs."""
    folder = tmp_path_factory.mktemp("sample")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, folder)}")
        write_sample(folder / "sample", lines=6000, dimension=30, test_pairs=300, sentences=10, ppdb_version="2.0")
        settings = ShardSettings(rows_per_shard=2500, keep_labels=ENTAILMENTS)
        shard_pairs([folder / "sample" / "ppdb-2.0-format.gz"], folder / "pairs", settings)
    return folder


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """20,500 lines: 21 parts of 1,000 rows."""
    draw = random.Random(0)
    words = ["the", "cat", "dog", "sat", "zebra", ",", "home", "."]
    path = tmp_path_factory.mktemp("corpus") / "t.txt"
    path.write_text("".join(" ".join(draw.choices(words, k=draw.randrange(12))) + "\n" for _ in range(20_500)))
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


@pytest.fixture
def disk(tmp_path):
    """``disk("size=2m")`` mounts a file system in memory, or changes its options; gives its folder."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount(options):
        remount = ["-o", f"remount,{options}"] if mounted else ["-t", "tmpfs", "-o", options, "tmpfs"]
        done = subprocess.run(["mount", *remount, folder], capture_output=True, text=True, check=False)
        if done.returncode and not mounted:
            pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        mounted.append(options)
        return folder

    yield mount
    if mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)  # pairs of a failed training may be mapped
