"""All analyses of a small evaluation, written to a folder; words, margins and curves of runs."""

import csv
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, GranNoGateConfig, ScaledAvgConfig
from paraembed.evaluation.analyses import ANALYSES
from paraembed.evaluation.analyses.content import CannotMakeError, pools, text_pools
from paraembed.evaluation.analyses.gates import gates
from paraembed.evaluation.analyses.margin import margin, margins, read_some_pairs
from paraembed.evaluation.analyses.pairs import disagreement
from paraembed.evaluation.analyses.runs import (
    TrainingRun,
    amounts_shown,
    choice_by_data,
    choice_curves,
    find_runs,
    score_by_data,
    score_curves,
)
from paraembed.evaluation.analyses.sets import across_sets, raters
from paraembed.evaluation.analyses.words import common_words, nearest, neighbors, norms
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.io.atomic import SUCCESS, write_json
from paraembed.io.fingerprint import sha256_of
from paraembed.pairs.shards import FORMAT
from paraembed.settings import AnalysisOptions
from paraembed.text.vocabulary import END, START, UNKNOWN, Words
from paraembed.training.negatives import candidate_similarity, choose


def test_what_can_be_made_is_written_and_the_rest_says_why(analysed):
    _, analyses, out = analysed
    assert [(one.name, one.title, one.source) for one in analyses] == [about[:3] for about in ANALYSES]
    reasons = {one.name: one.reason for one in analyses if one.content is None}
    assert {*reasons} == {"margin", "raters"}
    assert "`margin_pairs`" in reasons["margin"]
    assert {path for one in analyses for path in one.files} == {*out.iterdir()}
    for one in analyses:
        if one.content is None:
            continue
        pictures = [path for path in one.files if path.suffix == ".png"]
        assert len(pictures) == (one.name not in {"nearest-neighbours", "across-sets"})
        assert [path.read_bytes() for path in pictures] == [one.content.picture] * len(pictures)
        for path, table in zip(one.files, one.content.tables, strict=False):
            with path.open(newline="") as file:
                head, *rows = csv.reader(file)
            assert tuple(head) == table.head
            assert rows == [["" if cell is None else str(cell) for cell in row] for row in table.rows]


def _suite(name, first, second):
    return (Suite(name, (Group("", (ScoredPairs("own", np.array([0.0, 1.0]), pa.array(first), pa.array(second)),)),)),)


def _alone(config, *words):
    matrix = np.ones((len(words) + 1, 2), np.float32)
    return (Candidate("one", "", Encoder(config, Words(pa.array([UNKNOWN, *words]), matrix), "space")),)


@pytest.mark.parametrize(
    ("make", "changes", "error", "message"),
    [
        (norms, {"candidates": _alone(AvgConfig(), "cat")}, CannotMakeError, "two or more words"),
        (gates, {"candidates": _alone(AvgConfig(), "cat", "dog")}, CannotMakeError, r"are avg, .*GRAN has gates"),
        (gates, {"candidates": _alone(GranNoGateConfig(), "cat", "dog")}, CannotMakeError, "GRAN has gates"),
        (gates, {"suites": _suite("pairs", ["zebra", ""], ["zebra", "x"])}, CannotMakeError, "known word occurs 10"),
        (gates, {"tagged": "wrong.tsv"}, ValueError, "line 1: 1 columns"),
        (pools, {"suites": ()}, CannotMakeError, "no scored pairs"),
        (text_pools, {"suites": _suite("words", ["cat", "a"], ["dog", "the"])}, CannotMakeError, "words or bigrams"),
        (disagreement, {"against": "lstm"}, ValueError, r"'lstm'; it must be .*: gran"),
        (across_sets, {"suites": _suite("pairs", ["cat", "a"], ["dog", "the"])}, CannotMakeError, "sets of the papers"),
        (raters, {}, CannotMakeError, "ratings of each person"),
        (margin, {}, CannotMakeError, "`margin_pairs`"),
        (margin, {"margin_pairs": "pair"}, CannotMakeError, "has 1 pair"),
        (score_by_data, {}, CannotMakeError, "`runs`"),
        (score_by_data, {"runs": "wrong.tsv"}, NotADirectoryError, "is a file"),
        (score_by_data, {"runs": "old"}, ValueError, r"does not record .*training pairs"),
        (score_by_data, {"runs": "nowhere"}, FileNotFoundError, "nowhere does not exist"),
        (score_by_data, {"runs": "empty"}, ValueError, "not an encoder folder and contains none"),
        (choice_by_data, {"runs": "run"}, CannotMakeError, "no accuracy"),
    ],
)
def test_what_is_missing_or_wrong_is_said(make, changes, error, message, inputs, tmp_path, tiny_words):
    (tmp_path / "wrong.tsv").write_text("cat\n")
    (tmp_path / "empty").mkdir()
    _save(tmp_path / "run", tiny_words, 50, "none", 1)
    _save(tmp_path / "old", tiny_words, None, "none", 1)
    _pair_shards(tmp_path / "pair", 1)
    options = {name: value for name, value in changes.items() if name not in {"suites", "candidates"}}
    paths = {name: value if name == "against" else tmp_path / value for name, value in options.items()}
    changed = {name: value for name, value in changes.items() if name not in options}
    if "suites" in changes:
        changed["report"] = compare(inputs.candidates, changes["suites"], resamples=0)
    if "runs" in paths:
        paths["runs"] = (paths["runs"],)
    with pytest.raises(error, match=message):
        make(replace(inputs, **changed, options=AnalysisOptions(**paths)))


def test_neighbors_of_a_hand_example():
    matrix = np.array([[2, 0], [0, 3], [1, 1], [0, 0], [-1, 0]], np.float32)
    rows, cosines = nearest(np.array([[5, 0], [0, 0]], np.float32), matrix, 3)
    assert rows[0].tolist() == [0, 2, 1]
    assert np.allclose(cosines[0], [1, 2**-0.5, 0])
    assert cosines[1].tolist() == [0, 0, 0]


def test_words_are_those_of_texts_with_the_vectors_that_enter_one():
    words = Words(pa.array([START, "cat", UNKNOWN, "dog", END]), np.arange(10, dtype=np.float32).reshape(5, 2))
    encoder = Encoder(ScaledAvgConfig(), words, "space")
    with torch.no_grad():
        encoder.composition.scale.copy_(torch.tensor([1.0, 2.0, 1.0, -3.0, 1.0]))
    found, matrix = common_words(encoder)
    assert found == ["cat", "dog"]
    assert matrix.tolist() == encoder.encode(["cat", "dog"]).tolist() == [[4, 6], [-18, -21]]


def _inputs(inputs, *asked):
    vocabulary = pa.array(["the", "cat", "dog", "idea", UNKNOWN])
    matrix = np.array([[0.1, 0], [3, 4], [4, 4], [-6, 8], [1, 1]], np.float32)
    candidate = Candidate("avg", "", Encoder(AvgConfig(), Words(vocabulary, matrix), "space"))
    return replace(inputs, candidates=(candidate,), options=AnalysisOptions(neighbors_of=asked))


def test_words_that_a_user_asks_for_and_norms_from_both_ends(inputs):
    (table,) = neighbors(_inputs(inputs, "Cat", "unicorn")).tables
    assert table.rows == (("cat", "dog 0.99, the 0.60, idea 0.28"), ("unicorn", "not in the vocabulary"))
    (table,) = norms(_inputs(inputs)).tables
    expected = (("idea", 10.0, "the", float(np.float32(0.1))), ("dog", 32**0.5, "cat", 5.0))
    assert [row[::2] for row in table.rows] == [row[::2] for row in expected]
    assert np.allclose([row[1::2] for row in table.rows], [row[1::2] for row in expected])


def test_negatives_are_those_of_the_training():
    generator = np.random.default_rng(0)
    first, second = generator.standard_normal((2, 30, 8)).astype(np.float32)
    texts = torch.nn.functional.normalize(torch.from_numpy(np.stack([first, second], axis=1).reshape(60, 8)))
    chosen = choose("max", candidate_similarity(texts, texts, "both_sides"), None, 0.4)
    negative = (texts * texts[chosen]).sum(dim=1).reshape(30, 2).sum(dim=1)
    expected = 2 * (texts[::2] * texts[1::2]).sum(dim=1) - negative
    assert np.allclose(margins(first, second), expected.numpy(), atol=1e-5)
    first, second = np.array([[0, 0], [1, 0]], np.float32), np.array([[1, 0], [1, 0]], np.float32)
    assert np.allclose(margins(first, second), [0 - 0 - 1, 2 - 1 - 1])  # a text without tokens has cosine 0


def _pair_shards(folder, *sizes):
    """Finished pair shards; pair i of all is ``first{i}``, ``second{i}``."""
    folder.mkdir()
    shards, done = [], 0
    for number, size in enumerate(sizes):
        path = folder / f"pairs-{number}.parquet"
        rows = range(done, done + size)
        pq.write_table(pa.table({"first": [f"first{i}" for i in rows], "second": [f"second{i}" for i in rows]}), path)
        shards.append({"name": path.name, "rows": size, "sha256": sha256_of(path)})
        done += size
    write_json(folder / "manifest.json", {"format": FORMAT, "shards": shards})
    write_json(folder / SUCCESS, {"manifest_sha256": sha256_of(folder / "manifest.json")})
    return folder


@pytest.mark.parametrize("most", [7, 12, 100])
def test_pairs_are_drawn_from_all_shards_and_stay_pairs(tmp_path, inputs, most):
    folder = _pair_shards(tmp_path / "pairs", 5, 0, 7)
    first, second, total = read_some_pairs(folder, most_pairs=most)
    numbers = [int(text.removeprefix("first")) for text in first.to_pylist()]
    assert second.to_pylist() == [f"second{number}" for number in numbers]
    assert (total, len(numbers), len({*numbers})) == (12, min(most, 12), min(most, 12))
    assert numbers == np.random.default_rng(0).permutation(12)[:most].tolist()
    (table,) = margin(replace(inputs, options=AnalysisOptions(margin_pairs=folder))).tables
    # every word is unknown: all cosines are 1
    assert [row[:2] for row in table.rows] == [("avg", 12), ("gran", 12)]
    assert np.allclose([row[2] for row in table.rows], 0, atol=1e-6)


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
