from dataclasses import replace

import numpy as np
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.analyses.content import CannotMakeError
from paraembed.evaluation.analyses.runs import (
    TrainingRun,
    amounts_shown,
    choice_by_data,
    choice_curves,
    find_runs,
    score_by_data,
    score_curves,
)
from paraembed.settings import AnalysisOptions
from paraembed.text.vocabulary import Words


def test_all_pairs_end_both_curves_and_each_number_of_contrast_phrases_has_one():
    runs = [
        TrainingRun(400, "avg", "none", 60),
        TrainingRun(200, "avg", "random", 55),
        TrainingRun(200, "avg", "ordered", 54),
        TrainingRun(40, "gru", k=29, accuracy=90),
        TrainingRun(4, "gru", k=29, accuracy=80),
        TrainingRun(4, "gru", k=9, accuracy=70),
    ]
    assert score_curves(runs) == {"avg, ordered": [(200, 54), (400, 60)], "avg, random": [(200, 55), (400, 60)]}
    assert score_curves([TrainingRun(9, "dan", "none", 1.0)]) == {"dan": [(9, 1.0)]}
    assert [*choice_curves(runs).items()] == [("gru, k = 9", [(4, 70)]), ("gru, k = 29", [(4, 80), (40, 90)])]
    nested_subsets = [TrainingRun(3_033_753 >> at, score=1.0) for at in range(20)]
    assert amounts_shown(score_curves(nested_subsets)) == [3_033_753 >> at for at in range(0, 20, 3)]
    assert amounts_shown(score_curves(nested_subsets[:3])) == [run.pairs for run in nested_subsets[:3]]


def _save(folder, words, pairs, nested_subsets, scale):
    encoder = Encoder(
        AvgConfig(), Words(words.vocabulary, words.matrix * np.float32(scale) + np.float32(scale - 1)), "ptb-v1"
    )
    data = {} if pairs is None else {"data": {"pairs": pairs, "halvings": nested_subsets}}
    checkpoint.save(encoder, folder, recipe={"objective": "margin"}, provenance=data, model_card="")


def test_encoder_folders_are_scored(tmp_path, tiny_words, inputs):
    _save(tmp_path / "runs" / "half", tiny_words, 50, "ordered", 1)
    _save(tmp_path / "runs" / "whole", tiny_words, 100, "none", 2)
    options = AnalysisOptions(runs=(tmp_path / "runs",))
    runs = find_runs(replace(inputs, options=options))
    assert [(run.pairs, run.encoder, run.order, run.k, run.accuracy) for run in runs] == [
        (50, "avg", "ordered", None, None),
        (100, "avg", "none", None, None),
    ]
    scores = {score.name: score.value for score in inputs.report.columns[0].scores}
    assert np.isclose(runs[0].score or 0, 100 * scores["sts/mean-of-sets"])  # the same vectors as those of inputs
    assert not np.isclose(runs[1].score or 0, runs[0].score or 0)
    (table,) = score_by_data(replace(inputs, options=options)).tables
    assert [row[:3] for row in table.rows] == [("avg, ordered", 50, 50.0), ("avg, ordered", 100, 100.0)]
    assert "sts/mean-of-sets × 100 by the number" in score_by_data(replace(inputs, options=options)).text
    baselines = tuple(replace(one, is_baseline=True) for one in inputs.candidates)
    drawn = [
        score_by_data(replace(inputs, options=options, candidates=some)) for some in (inputs.candidates, baselines)
    ]
    assert ["Dashed: the trained" in one.text for one in drawn] == [True, False]


def test_what_it_needs_is_said(tmp_path, tiny_words, inputs):
    with pytest.raises(CannotMakeError, match="`runs`"):
        score_by_data(inputs)
    _save(tmp_path / "run", tiny_words, 50, "none", 1)
    with pytest.raises(CannotMakeError, match="no accuracy"):
        choice_by_data(replace(inputs, options=AnalysisOptions(runs=(tmp_path / "run",))))
    (tmp_path / "runs.csv").write_text("pairs,score\n5,1\n")
    with pytest.raises(NotADirectoryError, match="is a file"):
        score_by_data(replace(inputs, options=AnalysisOptions(runs=(tmp_path / "runs.csv",))))
    _save(tmp_path / "old", tiny_words, None, "none", 1)
    with pytest.raises(ValueError, match=r"does not record .*training pairs"):
        score_by_data(replace(inputs, options=AnalysisOptions(runs=(tmp_path / "old",))))
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        score_by_data(replace(inputs, options=AnalysisOptions(runs=(tmp_path / "nowhere",))))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="not an encoder folder and contains none"):
        score_by_data(replace(inputs, options=AnalysisOptions(runs=(tmp_path / "empty",))))
