from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from paraembed.evaluation.analyses import analyse
from paraembed.evaluation.analyses.content import CannotMakeError, pools, text_pools
from paraembed.evaluation.baselines import overlap_candidates
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.settings import AnalysisOptions


def _with_other_suites(inputs):
    """STS with a benchmark that stands alone, a set of words, a user's sentences."""
    sts, year = inputs.suites[0], inputs.suites[0].groups[0]
    benchmark = replace(year.sets[0], name="dev")
    words = ScoredPairs(
        "ws353", np.arange(4.0), pa.array(["cat", "dog", "mat", "home"]), pa.array(["cat", "a", "the", "."])
    )
    own = replace(year.sets[1], name="own")
    suites = (
        replace(sts, groups=(*sts.groups, Group("benchmark", (benchmark,), has_mean=False))),
        Suite("words", (Group("", (words,)),)),
        Suite("pairs", (Group("", (own,)),)),
    )
    candidates = (*inputs.candidates, *overlap_candidates())
    return replace(inputs, report=compare(candidates, suites, resamples=0), candidates=candidates, suites=suites)


def test_years_are_one_pool_and_other_sets_one_each(inputs):
    mixed = _with_other_suites(inputs)
    found = {pool.name: pool for pool in pools(mixed)}
    assert {name: len(pool.gold) for name, pool in found.items()} == {"sts": 120, "words/ws353": 4, "pairs/own": 40}
    assert found["sts"].sets[39:41] == ("sts/2012/MSRpar", "sts/2012/MSRvid")
    assert found["sts"].lengths.shape == (2, 120)
    assert found["sts"].lengths[0, 0] == len(found["sts"].first[0].as_py().split())
    assert [pool.name for pool in text_pools(mixed)] == ["sts", "pairs/own"]
    for pool in found.values():
        assert [len(predicted) for predicted in pool.predicted] == [len(pool.gold)] * 4


def test_a_candidate_without_vectors_takes_part_where_it_can(inputs, tmp_path):
    mixed = _with_other_suites(inputs)
    without = {key: value for key, value in mixed.report.predictions.items() if key != ("overlap", "pairs/own")}
    report = replace(mixed.report, predictions=without)  # as where its scores are not defined
    made = analyse(report, mixed.candidates, mixed.suites, AnalysisOptions(), tmp_path)
    tables = {table.name: table for one in made if one.content for table in one.content.tables}
    at = tables["error-by-gold-score-pairs-own"].head.index("overlap")
    assert {row[at] for row in tables["error-by-gold-score-pairs-own"].rows} == {None}
    assert None not in {row[at] for row in tables["error-by-gold-score-sts"].rows}
    assert tables["nearest-neighbours"].head == ("word", "avg", "gran")


def test_no_sentences_no_pools(inputs):
    with pytest.raises(CannotMakeError, match="no set of scored pairs"):
        pools(replace(inputs, suites=()))
    mixed = _with_other_suites(inputs)
    with pytest.raises(CannotMakeError, match="words or bigrams"):
        text_pools(replace(mixed, suites=mixed.suites[1:2]))
