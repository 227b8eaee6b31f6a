import logging
import os
import re
from pathlib import Path

import torch

from paraembed.process import environment, mlflow_is_quiet, one_thread, ray_is_quiet

SETS = (
    r"environ\.(setdefault|update)|environ\[[^]]*\] = |set_num_threads|mallopt|allow_tf32|logging\.disable|\.setLevel"
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


def test_the_process_is_set_up_in_one_module():
    package = Path(__file__).parents[1] / "paraembed"
    files = [path for path in package.rglob("*.py") if path.name != "process.py"]
    assert not [path for path in files if re.search(SETS, path.read_text())]
