"""The metric that selects an encoder, and the digest of what it is taken from."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from paraembed.commands.train import Train, sets_of
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.selection import chosen_metric, metrics_of, suites_digest
from paraembed.evaluation.sets import Choices, Group, ScoredPairs, Suite, ThresholdPairs
from paraembed.evaluation.suites import read_pairs_files, read_suites
from paraembed.recipe import Recipe
from paraembed.settings import Selection
from paraembed.training.data import Pairs

FIRST, SECOND = pa.array(["the cat", "a dog", "cat", "home"]), pa.array(["a cat", "on", "dog", "the home"])
GRADED = ScoredPairs("one", np.array([5.0, 1.0, 3.0, 4.0]), FIRST, SECOND)
LABELLED = ScoredPairs("labels", np.array([1.0, 0.0, 0.0, 1.0]), FIRST, SECOND)
CHOICES = Choices("ten", FIRST, np.zeros((2, 3), np.int32), np.array([[1, 2, 3], [3, 1, 2]], np.int32))
YEARS = Suite("sts", (Group("2012", (GRADED,)), Group("2013", (replace(GRADED, name="two"),))), "year")
FILES = Suite("pairs", (Group("", (GRADED, replace(GRADED, name="two"))),))
OTHERS = Suite("mixed", (Group("", (ThresholdPairs("same", LABELLED, LABELLED), CHOICES)),), measure="accuracy")


@pytest.mark.parametrize(
    ("suites", "name", "chosen"),
    [
        ([YEARS, FILES], None, "sts/mean"),
        ([FILES, YEARS], None, "pairs/one/pearson"),
        ([OTHERS], None, "mixed/same/accuracy"),
        ([YEARS, FILES], "pairs/two/spearman", "pairs/two/spearman"),
        ([YEARS], "sts/2013/mean", "sts/2013/mean"),
    ],
)
def test_the_metric_is_the_one_named_or_the_first_suites(suites, name, chosen):
    assert chosen_metric(name, suites) == chosen


def test_every_metric_may_select(tiny_words):
    """The names are found without the encoder, and are those that it has."""
    suites = [YEARS, FILES, OTHERS]
    names = metrics_of(Encoder(AvgConfig(), tiny_words, "space"), suites)
    assert all(chosen_metric(name, suites) == name for name in names)


def test_bad_flags_are_said(tmp_path):
    (tmp_path / "pairs.tsv").write_text("1\ta\tb\n2\tc\td\n2\ta\td\n")
    no_effect = "--eval-every, --select and --patience have no effect without an evaluation"
    for flags, message in [
        ({"evaluate": ("sts",)}, "--evaluate and --data must be given together"),
        ({"data": "sets"}, "--evaluate and --data must be given together"),
        ({"selection": Selection(patience=3)}, no_effect),
    ]:
        with pytest.raises(ValueError, match=message):
            sets_of(Train("pairs", "words", "out", **flags))
    assert sets_of(Train("pairs", "words", "out", evaluate_pairs=(tmp_path,), selection=Selection(patience=3))) == ()
    names = sets_of(Train("pairs", "words", "out", evaluate=("sts,stsb",), data="sets"))
    with pytest.raises(ValueError, match="unknown suite 'stsb'; allowed: all, sts"):
        read_suites(names, tmp_path)
    suite = read_pairs_files([tmp_path / "pairs.tsv"])
    with pytest.raises(
        ValueError, match=r"`select` is sts/mean, .* allowed: pairs/pairs/pearson, pairs/pairs/spearman"
    ):
        Pairs(Recipe(), tmp_path, tmp_path, [suite], Selection(select="sts/mean")).evaluation(9)
    assert Pairs(Recipe(), tmp_path, tmp_path).evaluation(9) is None
    for wrong, message in [
        ({"eval_every": 0.0}, "`eval_every` is 0.0; allowed"),
        ({"patience": 0}, "`patience` is 0; allowed: 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            Selection(**wrong)


def test_the_digest_is_of_texts_and_labels():
    changed = [
        replace(GRADED, scores=GRADED.scores + 1),
        replace(GRADED, first=SECOND),
        replace(GRADED, name="other"),
        replace(CHOICES, second=CHOICES.second[::-1]),
        ThresholdPairs("one", LABELLED, GRADED),
    ]
    digests = [suites_digest([Suite("pairs", (Group("", (one,)),))]) for one in (GRADED, CHOICES, *changed)]
    assert len({*digests}) == len(digests)
    same = replace(
        GRADED, scores=GRADED.scores.copy(), ratings=np.ones((4, 2))
    )  # what single raters said decides no score
    again = Suite("pairs", (Group("", (same,)),), notes=("a note",))
    assert suites_digest([again]) == digests[0]
    assert digests[0].startswith("4e8af17a682f")  # of version 0.2: outputs of it are resumed
