import csv
import logging
import os
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

from paraembed.process import (
    csv_cell_limit,
    environment,
    mlflow_is_quiet,
    on_cluster,
    one_thread,
    optuna_is_quiet,
    ray_is_quiet,
    transformers_is_quiet,
)

SETS = (
    r"environ\.(setdefault|update)|environ\[[^]]*\] = |set_num_threads|mallopt|allow_tf32|logging\.disable|\.setLevel"
    r"|field_size_limit|set_verbosity|able_progress_bars?(\(| = )|preserve_order = |set_cpu_count|omp_set_num_threads"
)


def test_a_block_leaves_the_process_as_it_was(monkeypatch):
    monkeypatch.setenv("PARAEMBED_KNOWN", "mine")
    mlflow, handler = logging.getLogger("mlflow"), logging.NullHandler()
    mlflow.addHandler(handler)
    names = ("ray", "ray.data", "ray.tune", "mlflow.store.db.utils", "alembic", "urllib3.connectionpool")

    def state():
        levels = [logging.getLogger(name).level for name in names]
        log = logging.root.manager.disable, mlflow.handlers[:], mlflow.propagate
        return dict(os.environ), levels, log, torch.get_num_threads()

    before = state()
    with environment({"PARAEMBED_KNOWN": "ours", "PARAEMBED_NEW": "ours"}), ray_is_quiet(), mlflow_is_quiet():
        assert (os.environ["PARAEMBED_KNOWN"], os.environ["PARAEMBED_NEW"]) == ("mine", "ours")
        assert not logging.getLogger("ray.data").isEnabledFor(logging.WARNING)
        assert not logging.getLogger("paraembed").isEnabledFor(logging.INFO)
        assert handler not in mlflow.handlers
        with one_thread():
            assert torch.get_num_threads() == 1
    assert state() == before
    mlflow.removeHandler(handler)


def test_optuna_is_left_as_it_was():
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    with optuna_is_quiet():
        assert optuna.logging.get_verbosity() == optuna.logging.WARNING
    assert optuna.logging.get_verbosity() == before != optuna.logging.WARNING


@pytest.mark.parametrize("are_shown", [False, True])
def test_the_bars_of_transformers_are_left_as_they_were(are_shown):
    bars = pytest.importorskip("transformers.utils.logging")
    hub = import_module("huggingface_hub.utils")
    (bars.enable_progress_bar if are_shown else bars.disable_progress_bar)()
    with transformers_is_quiet():
        assert not bars.is_progress_bar_enabled()
    assert (bars.is_progress_bar_enabled(), hub.are_progress_bars_disabled()) == (are_shown, not are_shown)


@pytest.mark.parametrize(("address", "joins"), [(None, False), ("", False), ("local", False), ("10.0.0.1:6379", True)])
def test_an_address_that_ray_ignores_is_no_cluster(monkeypatch, address, joins):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    assert on_cluster() is joins


def test_long_cells_of_csv_are_read_within_the_block_alone():
    line = "a," + "b" * (csv.field_size_limit() + 1)
    with csv_cell_limit(len(line)):
        assert next(csv.reader([line])) == line.split(",")
    with pytest.raises(csv.Error):
        next(csv.reader([line]))


def test_the_process_is_set_up_in_one_module():
    package = Path(__file__).parents[1] / "paraembed"
    files = [path for path in package.rglob("*.py") if path.name != "process.py"]
    assert not [path for path in files if re.search(SETS, path.read_text())]
