"""A trial's inputs and verdicts, its record, the table and the pictures; no Ray."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from paraembed.evaluation.selection import SuiteScorer
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.papers.results import PAPERS_22
from paraembed.plots import Trial
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.tuning.choosing import needed, read_selection, selection_by
from paraembed.tuning.ledger import Epoch, Ledger, TrialRecord
from paraembed.tuning.points import Points
from paraembed.tuning.table import BEST, CSV, EFFECTS, PARQUET, RECIPE, _plotted, draw_results, write_results
from paraembed.tuning.trial import TrialInputs, run_trial
from tune_spaces import SPACES

POINTS = Points("smoke", SPACES["smoke"])


def texts(num_pairs):
    lengths = np.full(2 * num_pairs, 3)
    ids = np.random.default_rng(0).integers(1, 12, lengths.sum()).astype(np.int32)
    return Ragged(ids, np.concatenate(([0], np.cumsum(lengths))))


@pytest.fixture
def inputs(tiny_words):
    matrix = tiny_words.matrix.copy()
    matrix.setflags(write=False)  # as from the object store
    return TrialInputs(tiny_words.vocabulary, matrix, texts(40))


@pytest.fixture
def scorer():
    first, second = ["the cat", "a dog", "the mat", "home ran"], ["a cat", "the dog", "cat sat", "on the mat"]

    one = ScoredPairs("four", np.array([5.0, 4.0, 1.0, 0.0]), pa.array(first), pa.array(second))
    terms = ((2.0, "pairs/four/pearson"), (-1.0, "pairs/four/spearman"))
    return SuiteScorer((Suite("pairs", (Group("", (one,)),)),), terms)


def test_a_trial_scores_each_epoch_leaves_its_inputs_alone_and_repeats_itself(inputs, scorer):
    before = inputs.matrix.copy()
    recipe = Recipe(epochs=3, batch_size=10, learning_rate=0.05)
    epochs = []
    ended = run_trial(inputs, recipe, 1.0, scorer, {}, on_epoch=lambda epoch: epochs.append(epoch.epoch))
    assert (ended.status, ended.reason, epochs) == ("finished", "", [1, 2, 3])
    last = ended.curve[-1]
    assert last.score == 2 * last.metrics["pairs/four/pearson"] - last.metrics["pairs/four/spearman"]
    assert [one.score for one in ended.curve] == [one.score for one in run_trial(inputs, recipe, 1.0, scorer, {}).curve]
    assert (inputs.matrix == before).all()


def test_a_trial_below_a_cut_off_stops_and_one_that_fails_says_why(inputs, scorer):
    recipe = Recipe(epochs=3, batch_size=10, learning_rate=0.05)
    stopped = run_trial(inputs, recipe, 1.0, scorer, {1: -3.0, 2: 3.0})
    assert (stopped.status, len(stopped.curve)) == ("stopped", 2)
    assert stopped.reason.startswith("after epoch 2 its score ")
    diverging = run_trial(inputs, Recipe(epochs=1, batch_size=10, learning_rate=1e36), 1.0, scorer, {})
    assert diverging.status == "failed"
    assert diverging.reason.startswith("weights or loss are no longer finite by step ")
    few = run_trial(inputs, Recipe(epochs=1, batch_size=100), 1.0, scorer, {})
    assert few.status == "failed"
    assert "there are only 40 pairs" in few.reason
    wrong = SuiteScorer(scorer.suites, ((1.0, "sts/mean"),))
    assert "sts/mean is not among the scores" in run_trial(inputs, recipe, 1.0, wrong, {}).reason


def test_a_share_of_the_pairs_lies_in_a_larger_one(tiny_words):
    inputs = TrialInputs(tiny_words.vocabulary, tiny_words.matrix, texts(100))
    assert inputs.part(1.0, 1) is inputs
    small, large = inputs.part(0.1, 1), inputs.part(0.5, 1)
    assert (len(small), len(large)) == (10, 50)

    def rows(some):
        return {row.tobytes() for row in some.texts.ids.reshape(-1, 6)}

    assert rows(small) <= rows(large) <= rows(inputs)
    assert inputs.part(0.1, 2).texts.ids.tobytes() != small.texts.ids.tobytes()


def test_only_what_a_metric_is_about_is_scored(scorer):
    one = scorer.suites[0].groups[0].sets[0]
    suite = Suite("sts", (Group("2015", (one,)), Group("2016", (one,))), "year")
    assert [group.name for group in needed(suite, ((1, "sts/2016/mean"),)).groups] == ["2016"]
    assert needed(suite, ((1, "sts/mean"),)) == suite
    notes = ("STS 2015 is without belief", "STS 2016 is without plagiarism", "STS benchmark dev: some", "other files")
    noted = needed(replace(suite, notes=notes), ((1, "sts/2016/mean"),))
    assert noted.notes == ("STS 2016 is without plagiarism", "other files")
    assert needed(suite, ((1, "sts/2016/mean"), (1, "sts/mean"))) == suite
    assert needed(scorer.suites[0], ((1, "pairs/four/pearson"),)) == scorer.suites[0]


def record(number, scores, status="finished"):
    choices = SPACES["smoke"].choices(number)
    curve = tuple(
        Epoch(at, score, 0.5, {"pairs/test-pairs/pearson": score}, 1.0 * at) for at, score in enumerate(scores, 1)
    )
    reason = "" if status == "finished" else "the loss is nan"
    recipe = POINTS.at(choices).recipe.to_dict()
    return TrialRecord(number, choices, recipe, 1.0, status, reason, curve, 2.5, 1e9)


def test_a_ledger_remembers_and_a_damaged_record_is_named(tmp_path):
    ledger = Ledger(tmp_path / "trials")
    for one in (record(2, [0.1, 0.7]), record(0, [0.1, 0.7]), record(1, [0.9], "stopped"), record(3, [], "failed")):
        ledger.add(one)
    again = Ledger(tmp_path / "trials")
    assert again.in_order() == ledger.in_order()
    assert again.best() == record(0, [0.1, 0.7])  # the stopped one's score is of fewer epochs; of equal ones the first
    assert math.isnan(again.records[3].score)
    again.drop_failed()
    assert sorted(Ledger(tmp_path / "trials").records) == [0, 1, 2]
    (tmp_path / "trials" / "00001.json").write_text('{"number": 1}')
    with pytest.raises(ValueError, match=r"00001\.json is not the record of"):
        Ledger(tmp_path / "trials")


def test_results_pictures_and_recipe_are_written_the_same_each_time(tmp_path):
    ledger = Ledger(tmp_path / "trials")
    for one in (record(0, [0.1, 0.6]), record(1, [0.2, 0.8]), record(2, [0.1], "stopped"), record(3, [], "failed")):
        ledger.add(one)
    written = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths = write_results(POINTS, ledger, tmp_path / name)
        paths += draw_results(POINTS, ledger, tmp_path / name, "pairs/test-pairs/pearson")
        written[name] = {path.name: path.read_bytes() for path in paths}
    assert written["a"] == written["b"]
    assert {EFFECTS, PARQUET, CSV, RECIPE} <= set(written["a"])
    table = pq.read_table(tmp_path / "a" / PARQUET)
    searched = ["margin", "word_penalty"]
    assert table.column_names == ["trial", "status", "score", "p", "epochs", *searched, "loss", "reason", "seconds"]
    assert table["p"].null_count == 4  # as in sweeps of earlier versions
    assert table["score"].to_pylist() == [0.6, 0.8, 0.1, None]
    assert table["margin"].to_pylist() == [0.4, 0.4, 0.6, 0.6]
    assert pyarrow.csv.read_csv(tmp_path / "a" / CSV)["status"].to_pylist() == table["status"].to_pylist()
    recipe = Recipe.from_dict(json.loads((tmp_path / "a" / RECIPE).read_text()))
    assert recipe == POINTS.at(SPACES["smoke"].choices(1)).recipe


def test_trials_that_the_sets_cannot_tell_apart_are_a_tie(tmp_path, inputs, scorer):
    """A gain of 0.01 is noise if resamples change it by 0.02, and significant if they change both trials alike."""
    draw = np.random.default_rng(0)
    noise, own = draw.normal(0, 0.02, 1000), draw.normal(0, 0.02, 1000)
    ledger = Ledger(tmp_path / "trials")
    for number, (score, around) in enumerate([(0.6, noise), (0.59, own), (0.59, noise), (0.3, own)]):
        replicates = tuple((score + around).round(6).tolist())
        ledger.add(replace(record(number, [score]), replicates=replicates))
    ledger = Ledger(tmp_path / "trials")
    write_results(POINTS, ledger, tmp_path)
    assert [tied.number for tied in ledger.ties()] == [1]
    p_values = pq.read_table(tmp_path / PARQUET)["p"].to_pylist()
    assert p_values[1] > 0.05 > max(p_values[2:])
    assert json.loads((tmp_path / BEST).read_text())["ties"] == [1]
    ended = run_trial(inputs, Recipe(epochs=1, batch_size=10), 1.0, scorer, {})
    assert len(ended.replicates) == 1000


def test_where_the_best_epoch_counts_it_is_what_is_told_and_drawn(tmp_path):
    ledger = Ledger(tmp_path / "trials")
    losses = (0.4, 0.3, 0.2)

    def kept(number, scores, status="finished"):
        plain = record(number, [0.0] * len(scores), status)
        curve = [
            replace(one, score=score, loss=loss, metrics={} if score is None else {"dev/pearson": score})
            for one, score, loss in zip(plain.curve, scores, losses, strict=False)
        ]
        return replace(plain, curve=tuple(curve), keeps_best=True)

    for one in (kept(0, [0.1, 0.7, 0.3]), kept(1, [0.6, None, 0.6]), kept(2, [None, None, None], "failed")):
        ledger.add(one)
    best = ledger.best()
    assert best == Ledger(tmp_path / "trials").best() == kept(0, [0.1, 0.7, 0.3])
    write_results(POINTS, ledger, tmp_path)
    table = pq.read_table(tmp_path / PARQUET)
    assert (table["score"].to_pylist(), table["loss"].to_pylist()) == ([0.7, 0.6, None], [0.3, 0.4, None])
    assert table["epochs"].to_pylist() == [3, 3, 3]
    told = json.loads((tmp_path / BEST).read_text())
    assert (told["score"], told["metrics"]) == (0.7, {"dev/pearson": 0.7})
    assert draw_results(POINTS, ledger, tmp_path, "dev/pearson") == [tmp_path / EFFECTS]
    parameters, trials = _plotted(POINTS, ledger)
    assert parameters == {"word_l2": ["0", "1e-05"]}
    assert trials == [Trial(0, {"word_l2": 1}, 70), Trial(1, {"word_l2": 0}, 60)]


CHOSEN_BY = {space.selection.metric: space.selection for space in SPACES.values() if space.job == "train"}


def test_the_suites_give_every_metric_that_a_space_chooses_by(collection):
    read = [one for one in CHOSEN_BY.values() if not one.files]
    assert len(read) >= 7
    for one in read:
        assert read_selection(one, collection)
    assert [suite.name for suite in read_selection(selection_by(PAPERS_22), collection)] == ["sts", "sick", "pit2015"]


def test_a_metric_that_no_set_gives_is_refused_with_those_that_there_are(collection):
    with pytest.raises(FileNotFoundError, match=r"has no files for sts/2016/mea; .*sts/2016/mean"):
        read_selection(selection_by("sts/2016/mea"), collection)


def test_a_metric_of_pairs_names_their_file():
    assert selection_by("pairs/mine/pearson").files == ("mine.tsv",)
    with pytest.raises(ValueError, match=r"`metric` is pairs/mine;.* pairs/NAME/pearson.* NAME\.tsv"):
        selection_by("pairs/mine")
    with pytest.raises(ValueError, match="unknown suite 'nosuch'; allowed: all, sts"):
        read_selection(selection_by("nosuch/mean"), Path("anywhere"))
