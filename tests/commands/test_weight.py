"""jobs/weight.py as a user runs it."""

from functools import partial

import numpy as np
import pytest

import paraembed
from paraembed.evaluation.baselines import Sources, baseline
from paraembed.evaluation.report import known_metadata


@pytest.fixture
def weight(run_job, tmp_path):
    (tmp_path / "vectors").write_text("UUUNKKK 1 0 0\nthe 0 1 0\ncat 0 0 1\ndog -1 2 1\n")
    (tmp_path / "counts").write_text("the 90\ncat 7\ndog 3\n")
    return partial(run_job, "weight")


def test_an_encoder_that_embeds_as_the_baseline_does(weight, tmp_path):
    assert weight("--words vectors --counts counts --weighting sif --out sif") == 0
    expected = baseline("sif", Sources(tmp_path / "vectors", tmp_path / "counts"))
    texts = ["the cat", "the dog", ""]
    np.testing.assert_array_equal(paraembed.load("sif").encode(texts), expected.encoder.encode(texts))
    card = (tmp_path / "sif/README.md").read_text()
    assert "weighted by a / (a + p(w)), a = 0.001, with p(w) from counts" in card
    about = known_metadata(card)
    assert (about["library_name"], about["language"], about["tags"][-1]) == ("paraembed", "en", "sif")
    assert weight("--words vectors --weighting avg --out sif --overwrite") == 0
    np.testing.assert_array_equal(paraembed.load("sif").encode("the cat"), [0, 0.5, 0.5])
