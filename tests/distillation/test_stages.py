"""What decides a student, compared with the record of an earlier one."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.distillation.settings import TeachSettings
from paraembed.distillation.stages import Stages, StudentRequest, differing, opened
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.recipe import Recipe
from paraembed.settings import Gpus
from paraembed.text.vocabulary import UNKNOWN, Words


@pytest.fixture
def wanted(tmp_path):
    """A request with a teacher of two words."""
    words = Words(pa.array([UNKNOWN, "cat", "dog"]), np.eye(3, dtype=np.float32))
    checkpoint.save(Encoder(AvgConfig(), words, "space"), tmp_path / "t", recipe={}, provenance={}, model_card="")
    (tmp_path / "texts.txt").write_text("cat\ndog\n")
    return StudentRequest(str(tmp_path / "t"), [str(tmp_path / "texts.txt")])


def recorded(request, work):
    """Return what a student of the request would record."""
    teacher, pieces, files = opened(request, Gpus(), None)
    return Stages(work, request, files, teacher, pieces).recorded


def test_the_settings_that_differ_are_named_or_the_inputs_that_are_not_recorded(wanted, tmp_path):
    before = recorded(wanted, tmp_path)
    now = recorded(replace(wanted, settings=TeachSettings(l2=0.5, bigrams=3)), tmp_path)
    assert differing(before, now) == "settings.bigrams (was not set, is 3); settings.l2 (was 1.0, is 0.5)"
    (tmp_path / "texts.txt").write_text("dog\n")
    now = recorded(wanted, tmp_path)
    assert before["identity"] != now["identity"]
    assert differing(before, now) == "`texts`, `leave_out` or `pairs`"
    (tmp_path / "texts.txt").rename(tmp_path / "others.txt")
    now = recorded(replace(wanted, texts=[str(tmp_path / "others.txt")]), tmp_path)
    assert differing(before, now) == "text_files[0] (was texts.txt, is others.txt)"


def test_bigrams_have_a_learning_rate_of_their_own_unless_a_recipe_is_given(wanted):
    recipe = Recipe(learning_rate=0.5)
    ordered = replace(wanted, settings=TeachSettings(bigrams=2))
    assert (wanted.training.learning_rate, ordered.training.learning_rate) == (2e-4, 3e-4)
    assert replace(ordered, recipe=recipe).training == recipe


def test_a_stage_without_its_manifest_is_made_again(wanted, tmp_path):
    teacher, pieces, files = opened(wanted, Gpus(), None)
    stages = Stages(tmp_path / "work", wanted, files, teacher, pieces)

    def make(folder):
        (folder / "made").write_text("new")
        return {}

    folder = stages.folder("texts")
    folder.mkdir(parents=True)
    (folder / "made").write_text("old")
    (folder / "other").write_text("old")
    stages._stage("texts", make)
    assert {path.name for path in folder.iterdir()} == {"made", "_manifest.json"}
    assert (folder / "made").read_text() == "new"
