"""jobs/weight.py as a user runs it."""

import logging
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import paraembed
from paraembed.evaluation.baselines import Sources, baseline
from paraembed.stops import STOP_SIGNALS

JOB = Path(__file__).parents[2] / "jobs" / "weight.py"
Job = Callable[[str], object]


@pytest.fixture
def weight(tmp_path, monkeypatch):
    """Runs the job on a command line and gives its exit status; MLflow does not answer."""
    (tmp_path / "vectors").write_text("UUUNKKK 1 0 0\nthe 0 1 0\ncat 0 0 1\ndog -1 2 1\n")
    (tmp_path / "counts").write_text("the 90\ncat 7\ndog 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    root, stops = logging.getLogger(), {number: signal.getsignal(number) for number in STOP_SIGNALS}
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def call(line):
        monkeypatch.setattr(sys, "argv", ["jobs/weight.py", *line.split()])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(JOB), run_name="__main__")
        return ended.value.code

    yield call
    root.handlers, root.level = handlers, level
    for number, handler in stops.items():
        signal.signal(number, handler)


def test_an_encoder_that_embeds_as_the_baseline_does(weight, tmp_path, capsys):
    assert weight("--words vectors --counts counts --weighting sif --out sif") == 0
    expected = baseline("sif", Sources(tmp_path / "vectors", tmp_path / "counts"))
    texts = ["the cat", "the dog", ""]
    np.testing.assert_array_equal(paraembed.load("sif").encode(texts), expected.encoder.encode(texts))
    assert "weighted by a / (a + p(w)), a = 0.001, with p(w) from counts" in (tmp_path / "sif/README.md").read_text()
    assert weight("--words vectors --weighting avg --out sif") == 2
    assert "sif holds an encoder; choose another --out, or replace it with --overwrite" in capsys.readouterr().err
    assert weight("--words vectors --weighting avg --out sif --overwrite") == 0
    np.testing.assert_array_equal(paraembed.load("sif").encode("the cat"), [0, 0.5, 0.5])
    assert weight("--words vectors --out none") == 2
    assert "the baseline sif needs more than word vectors: give --counts" in capsys.readouterr().err
    assert weight("--words vectors --weighting avg --out counts") == 2
    assert "counts is a file; expected an encoder folder" in capsys.readouterr().err
