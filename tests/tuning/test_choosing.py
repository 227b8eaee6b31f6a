"""What the spaces choose by is there."""

from pathlib import Path

import pytest

from paraembed.papers.results import PAPERS_22
from paraembed.tuning.choosing import read_selection, selection_by
from tune_spaces import SPACES

DATA = Path(__file__).parents[3] / "shared" / "data" / "eval"
real = pytest.mark.skipif(not DATA.is_dir(), reason=f"the published sets are not there: {DATA}")
CHOSEN_BY = {space.selection.metric: space.selection for space in SPACES.values() if space.job == "train"}


@real
def test_the_suites_give_every_metric_that_a_space_chooses_by():
    read = [one for one in CHOSEN_BY.values() if not one.files]
    assert len(read) >= 7
    for one in read:
        assert read_selection(one, DATA)
    assert [suite.name for suite in read_selection(selection_by(PAPERS_22), DATA)] == ["sts", "sick", "pit2015"]


@real
def test_a_metric_that_no_set_gives_is_refused_with_those_that_there_are():
    with pytest.raises(FileNotFoundError, match=r"nothing that gives sts/2016/mea; .*sts/2016/mean"):
        read_selection(selection_by("sts/2016/mea"), DATA)


def test_a_metric_of_pairs_names_their_file():
    assert selection_by("pairs/mine/pearson").files == ("mine.tsv",)
    with pytest.raises(ValueError, match="`metric` pairs/mine: expected pairs/NAME/pearson"):
        selection_by("pairs/mine")
    with pytest.raises(ValueError, match="unknown suite 'nosuch'; allowed: all, sts"):
        read_selection(selection_by("nosuch/mean"), Path("anywhere"))
