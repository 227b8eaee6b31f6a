"""STS suites: which files, which scores, which means."""

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.candidates import Candidate, trained
from paraembed.evaluation.report import compare
from paraembed.evaluation.scoring import score_suite
from paraembed.evaluation.sets import Choices, Group, ScoredPairs, Suite, ThresholdPairs
from paraembed.evaluation.suites import (
    KNOWN_FILES,
    SUITES,
    TRAINING_PARTS,
    changed_files,
    read_pairs_files,
    read_scored_pairs,
    read_sts,
    read_suites,
)
from paraembed.papers.results import PAPERS_STS
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.evaluation.collection import OTHERS, PUBLISHED, SEMEVAL_TRAIN, STS

SETS = {
    "2012/MSRpar.tsv": "score\tsentence1\tsentence2\n5\tthe cat\tthe cat\n1\ta dog\ton mat\n3\ta cat\tthe zebra\n",
    "2012/OnWN.tsv": "1\tthe mat\ta dog\n5\tcat ran\tcat ran\n0\thome\t.\n",
    "2013/headlines.tsv": "2\tthe cat sat\ta dog ran\n4\tcat\tcat sat\n1\tmat\thome\n0\ton\ta\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in SETS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "train.tsv").write_text("not read")
    (tmp_path / "2012" / "notes.txt").write_text("not read")
    return tmp_path


def correlations(encoder, path):
    """Pearson and Spearman of a set, one pair at a time."""
    pairs = read_scored_pairs(path)
    cosines = []
    for one, other in zip(pairs.first.to_pylist(), pairs.second.to_pylist(), strict=True):
        u, v = (encoder.encode(text).astype(np.float64) for text in (one, other))
        cosines.append(u @ v / np.sqrt((u @ u) * (v @ v)))
    return stats.pearsonr(cosines, pairs.scores).statistic, stats.spearmanr(cosines, pairs.scores).statistic


def test_sets_are_found_below_the_folder_or_its_sts(folder):
    for root in (folder, folder.parent):
        if root == folder.parent:
            folder.rename(folder.with_name("sts"))
        suite = read_sts(root)
        found = [f"{year.name}/{pairs.name}.tsv" for year in suite.groups for pairs in year.sets]
        assert found == list(SETS)


def test_scores_and_means(folder, encoder):
    scores = score_suite(encoder, read_sts(folder))
    assert [(score.name, score.label, score.is_mean, score.num_pairs) for score in scores] == [
        ("sts/2012/MSRpar", "2012 MSRpar", False, 3),
        ("sts/2012/OnWN", "2012 OnWN", False, 3),
        ("sts/2012/mean", "2012 mean of 2 sets", True, 6),
        ("sts/2012/pooled", "2012 pooled", False, 6),
        ("sts/2013/headlines", "2013 headlines", False, 4),
        ("sts/2013/mean", "2013 mean of 1 set", True, 4),
        ("sts/2013/pooled", "2013 pooled", False, 4),
        ("sts/mean", "mean of 2 years", True, 10),
        ("sts/mean-of-sets", "mean of 3 sets", True, 10),
    ]
    by_hand = [correlations(encoder, folder / name) for name in SETS]
    (folder / "pooled.tsv").write_text(SETS["2012/MSRpar.tsv"] + SETS["2012/OnWN.tsv"])
    pooled = correlations(encoder, folder / "pooled.tsv")
    for at, measure in enumerate(("pearson", "spearman")):
        msrpar, onwn, headlines = (values[at] for values in by_hand)
        year = (msrpar + onwn) / 2
        expected = [msrpar, onwn, year, pooled[at], headlines, headlines, headlines]
        expected += [(year + headlines) / 2, (msrpar + onwn + headlines) / 3]
        np.testing.assert_allclose([score.values[measure] for score in scores], expected, atol=1e-6)
    assert (scores[0].num_tokens, scores[0].num_unknown) == (12, 1)
    assert (scores[-1].num_tokens, scores[-1].num_unknown) == (12 + 10 + 13, 1)
    assert scores[-1].unknown_share == pytest.approx(1 / 35)


def test_the_set_without_a_correlation_is_named(folder, encoder):
    (folder / "2013" / "FNWN.tsv").write_text("5\tyak\tgnu\n4\tgnu\temu\n")
    with pytest.raises(ValueError, match=r"tiny, sts/2013/FNWN: .*2 predictions are all 1"):
        compare([Candidate("tiny", "", encoder)], [read_sts(folder)])


def test_what_is_no_suite_is_refused(folder):
    with pytest.raises(FileNotFoundError, match=r"none does not exist; .*STS sets"):
        read_sts(folder / "none")
    with pytest.raises(NotADirectoryError, match=r"notes\.txt is a file; .*STS sets"):
        read_sts(folder / "2012" / "notes.txt")
    with pytest.raises(ValueError, match=r"benchmark has no STS sets; .*<year>/<set>\.tsv"):
        read_sts(folder / "benchmark")
    for name, message in [
        ("OnWN.tsv.gz", "2 sets are named 'OnWN'"),
        ("mean.tsv", "'mean' is also the name"),
        ("pooled.tsv", "'pooled' is also the name"),
    ]:
        path, text = folder / "2012" / name, SETS["2012/OnWN.tsv"].encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        for read in (lambda: read_sts(folder), lambda: read_pairs_files([*path.parent.glob("*.tsv*")])):  # noqa: B023
            with pytest.raises(ValueError, match=message):
                read()
        path.unlink()


def test_a_kept_encoder_says_how_it_was_chosen_and_on_which_pairs(tiny_encoder_folder, tmp_path):
    shutil.copytree(tiny_encoder_folder, tmp_path / "encoder")
    config = json.loads((tmp_path / "encoder" / "config.json").read_text())
    gold = [{"task": "similarity", "data_set": name, "seed": 1} for name in ("sts", "sick", "sick")]
    config["provenance"] = {
        "training": {"pairs": "5a0f", "gold": [*gold, {"task": "turney"}, "sst"]},  # the last two not in this form
        "selected": {"metric": "sts/2016/mean", "scores": [[10, 0.5], [20, 0.6]]},
    }
    (tmp_path / "encoder" / "config.json").write_text(json.dumps(config))
    found = trained(tmp_path / "encoder")
    assert found.description.endswith(", the best of 2 evaluations by sts/2016/mean")
    assert (found.chosen_by, found.trained_on) == ("sts/2016/mean", "5a0f")
    assert found.gold == ("sts", "sick")


def test_missing_sets_are_noted(folder):
    notes = read_sts(folder).notes
    assert [note.split(":")[0] for note in notes] == [
        "STS 2012 is without MSRvid, SMTeuroparl, SMTnews",
        "STS 2013 is without FNWN, OnWN, SMT",
        "not the known files, by their sha256",
    ]
    assert read_pairs_files([folder / "2012" / "MSRpar.tsv"]).notes == ()
    for name in PAPERS_STS["2013"]:
        (folder / "2013" / f"{name}.tsv").write_text(SETS["2012/OnWN.tsv"])
    assert len(read_sts(folder).notes) == 2


def test_the_benchmark_stands_alone(folder, encoder):
    (folder / "benchmark" / "dev.tsv").write_text(SETS["2012/MSRpar.tsv"])
    *others, dev = score_suite(encoder, read_sts(folder))
    assert (dev.name, dev.label, dev.num_pairs) == ("sts/benchmark/dev", "benchmark dev", 3)
    assert others[-1].name == "sts/mean-of-sets"
    assert any(note.startswith("STS benchmark dev: 1,129 of its 1,500 pairs") for note in read_sts(folder).notes)
    assert others[-1].num_pairs == 10


def test_pairs_without_an_unknown_word_have_a_score_of_their_own(encoder):
    """Two unknown words are one word to the encoder: their cosine is 1, whatever the gold score says."""
    first, second = ["cat", "zebra", "dog", "zebra", "cat", "a yak"], ["dog", "yak", "mat", "cat", "on", "a"]
    rated = ScoredPairs("rated", np.array([5.0, 0, 3, 1, 2, 4]), pa.array(first), pa.array(second))
    covered = ScoredPairs("rated", *(side.take([0, 2, 4]) for side in (rated.scores, rated.first, rated.second)))
    for name, is_short in [("words", True), ("bigrams", True), ("phrases", True), ("pairs", False)]:
        (score,) = score_suite(encoder, Suite(name, (Group("", (rated,)),), measure="spearman"), resamples=0)
        (alone,) = score_suite(encoder, Suite(name, (Group("", (covered,)),), measure="spearman"), resamples=0)
        assert score.num_covered == (3 if is_short else None)
        assert score.values.get("spearman_covered") == (alone.value if is_short else None)
        assert score.value != alone.value
        if is_short:
            assert alone.values["spearman_covered"] == alone.value
    few = ScoredPairs("rated", *(side[:2] for side in (rated.scores, rated.first, rated.second)))
    (score,) = score_suite(encoder, Suite("words", (Group("", (few,)),), measure="spearman"), resamples=0)
    assert (score.num_covered, "spearman_covered" in score.values) == (1, False)


TEXTS = ["", " ", "中文", "é\u2028x", "a\x85b\x12c", "\ufeff", "score", "It's 5", '"No" quoting, "here', "😀" * 1000]
ROWS = "".join(f"{number}e-1\t{text}\t{text}!\n" for number, text in enumerate(TEXTS)).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("set.tsv", ROWS),
        ("set.tsv", b"score\tsentence1\tsentence2\n" + ROWS),
        ("set.tsv", b"\xef\xbb\xbfScore\tSentence1\tSentence2\r\n" + ROWS.replace(b"\n", b"\r\n")),
        ("set.tsv", ROWS.removesuffix(b"\n")),
        ("set.tsv.gz", gzip.compress(ROWS)),
        ("set", ROWS),
    ],
    ids=["no header", "header", "BOM and CRLF", "no last line feed", "gzip", "no suffix"],
)
def test_pairs_are_read(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    pairs = read_scored_pairs(tmp_path / name)
    assert (pairs.name, pairs.scores.dtype) == ("set", np.float64)
    assert pairs.scores.tolist() == [float(f"{number}e-1") for number in range(len(TEXTS))]
    assert pairs.first.to_pylist() == TEXTS
    assert pairs.second.to_pylist() == [f"{text}!" for text in TEXTS]


WIDE = 'a\tb\tc\t0001\t3.5\tthe "cat\ta dog\na\tb\tc\tnone\t1\ta hen\tthe cow\tlicense\n'
HEADER = "index\tgenre\tfile\tyear\tscore\tsentence1\tsentence2\n"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (WIDE, "7 6 5"),
        *((HEADER + WIDE, names) for names in ("sentence2 sentence1 score", "7 6 5", "sentence2 6 score")),
    ],
)
def test_rows_may_have_more_columns_than_the_chosen_ones(tmp_path, text, columns):
    (tmp_path / "x.tsv").write_text(text)
    pairs = read_scored_pairs(tmp_path / "x.tsv", columns.split())
    assert pairs.scores.tolist() == [3.5, 1]
    assert [side.to_pylist() for side in pairs.texts] == [["a dog", "the cow"], ['the "cat', "a hen"]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("6 7 score", r"no column 'score' .*: 1 'a', 2 'b'"),
        ("6 7 8", "no column '8' "),
        ("0 7 5", "no column '0' "),
        ("6 7 4", "line 2: .* 'none'"),
        ("6 7 5", "line 3: 1 columns; expected 7"),
        ("", "line 1: 7 columns; .* `pair_columns`"),
    ],
)
def test_wrong_columns_are_refused_with_the_known_ones(columns, message, tmp_path):
    (tmp_path / "x.tsv").write_text(f"{WIDE}{'short' if columns == '6 7 5' else ''}")
    with pytest.raises(ValueError, match=message):
        read_pairs_files([tmp_path / "x.tsv"], columns.split())


CASES = json.loads(Path(__file__).with_name("suites.json").read_text())
"""Small files of all suites; and faulty ones: name, suite (none: scored pairs), file, bytes as Latin-1, message."""
FAULTY = {name: case for name, *case in CASES["faulty"]}
PAVLICK = "4.0\t[NP]\tthis video\tthe movie\t3.0,4.0,5.0\n"


@pytest.fixture
def data(tmp_path):
    for name, text in CASES["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "phrase/pavlick2015_ppdb_human.tsv.gz").write_bytes(gzip.compress(PAVLICK.encode()))
    return tmp_path


def pairs_of(suite, number=0):
    one = suite.groups[0].sets[number]
    assert isinstance(one, ScoredPairs)
    return list(zip(one.scores.tolist(), one.first.to_pylist(), one.second.to_pylist(), strict=True))


def test_graded_pairs(data):
    sick, pit, words, bigrams, phrases, *_ = read_suites(list(SUITES)[1:], data)
    assert pairs_of(sick) == [(3.3, 'a "cat', "the dog")]
    assert pairs_of(pit) == [(0.6, "a cat", "b"), (0.2, "the 'dog", "c")]  # the graded score; debatable ones too
    assert [one.name for one in words.groups[0].sets] == ["simlex999", "ws353", "ws353-sim", "ws353-rel"]
    assert pairs_of(words, 0) == [(1.58, "old", "new")]
    assert pairs_of(words, 1) == [(6.77, "love", "sex")]
    assert [one.name for one in bigrams.groups[0].sets] == ["JN", "NN", "VN"]
    assert pairs_of(bigrams, 2) == [(3.5, "use knowledge", "exercise influence")]  # the mean; the verb first
    (data / "phrase/ml_paraphrase_nn.txt").write_text("tax rate|||tax level|||4.2\n")
    (more,) = read_suites(["bigrams"], data)
    assert [one.name for one in more.groups[0].sets] == ["JN", "NN", "VN", "ml-paraphrase-NN"]
    assert pairs_of(more, 3) == [(4.2, "tax rate", "tax level")]
    assert pairs_of(phrases, 0) == [(4.0, "this video", "the movie")]
    assert pairs_of(phrases, 1) == [(5.0, "main reason", "principal reason")]
    assert [suite.measure for suite in (sick, pit, words, bigrams, phrases)] == ["pearson"] * 2 + ["spearman"] * 3


def test_training_parts_are_suites_to_select_a_checkpoint_by(data):
    rows = range(682)
    questions = "".join(f"a b{row} | c{row} | a | b{row} | d | e | f | g\n" for row in rows)
    (data / "phrase/turney2012_jair.data").write_text(questions)
    semeval, turney = read_suites(["turney-train", "semeval2013-train"], data)
    assert (semeval.name, turney.name) == ("semeval2013-train", "turney-train")
    (pairs,) = semeval.groups[0].sets
    assert pairs.test.first.to_pylist() == pairs.train.first.to_pylist() == ["sudden rush", "old car"]
    five, _ = turney.groups[0].sets
    answers = five.distinct.take(pa.array(five.second[:, 0])).to_pylist()
    assert answers == [f"c{row}" for row in rows][:680]
    assert not TRAINING_PARTS.keys() & SUITES.keys()  # "all" leaves them out


def test_thresholds_and_choices(data):
    semeval, turney = read_suites(["turney", "semeval2013"], data)
    (pairs,) = semeval.groups[0].sets
    assert isinstance(pairs, ThresholdPairs)
    assert (pairs.train.first.to_pylist(), pairs.train.scores.tolist()) == (["sudden rush", "old car"], [1, 0])
    assert (pairs.test.first.to_pylist(), pairs.test.second.to_pylist()) == (["bomb blast"], ["boom"])
    five, ten = turney.groups[0].sets
    assert isinstance(five, Choices)
    assert isinstance(ten, Choices)
    texts = five.distinct.to_pylist()
    others = ["binary", "dual", "lumen", "neutralism", "keratoplasty"]  # without modifier and head
    assert [(texts[a], texts[b]) for a, b in zip(five.first[0], five.second[0], strict=True)] == [
        ("double star", word) for word in others
    ]
    assert [(texts[a], texts[b]) for a, b in zip(ten.first[0], ten.second[0], strict=True)] == [
        (bigram, word) for bigram in ("double star", "star double") for word in others
    ]


@pytest.mark.parametrize(("suite", "name", "text", "message"), FAULTY.values(), ids=FAULTY)
def test_a_faulty_file_is_refused_with_its_line(data, suite, name, text, message):
    path = data / (name or "set.tsv")
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as error:
        read_suites([suite], data) if suite else read_scored_pairs(path)
    assert str(path.parent) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_not_there(data):
    (data / "word/ws353.txt").unlink()
    (words,) = read_suites(["words"], data)
    assert "words is without word/ws353.txt" in words.notes
    (data / "phrase/turney2012_jair.data").unlink()
    with pytest.raises(FileNotFoundError, match=r"turney2012_jair\.data does not exist, .*'turney'"):
        read_suites(["turney"], data)


def test_files_that_are_not_the_known_ones_are_noted(data, monkeypatch):
    """A gzipped copy of a known file is known by what is in it."""
    (sick,) = read_suites(["sick"], data)
    assert sick.notes == (
        "not the known files, by their sha256: sick/SICK_test_annotated.txt; other scores may be over other pairs",
    )
    assert changed_files([("sick/mine.txt", data / "sick/SICK_test_annotated.txt")]) == ()
    copy, name, original = data / "MSRpar.tsv.gz", "sts/2012/MSRpar.tsv", SETS["2012/MSRpar.tsv"].encode()
    monkeypatch.setitem(KNOWN_FILES, name, hashlib.sha256(original).hexdigest())
    for text, is_changed in ((original, False), (original + b"5\ta\tb\n", True)):
        copy.write_bytes(gzip.compress(text))
        assert [f"sha256: {name}.gz;" in note for note in changed_files([(f"{name}.gz", copy)])] == [True] * is_changed


def test_the_counts_are_those_of_the_collection(collection):
    suites = {suite.name: suite for suite in read_suites(["all"], collection)}
    changed = any("known files" in note for suite in suites.values() for note in suite.notes)
    assert changed == (collection != PUBLISHED)
    assert {year.name: {one.name: len(one) for one in year.sets} for year in suites["sts"].groups} == STS
    counts = {
        (name, one.name): len(one) for name, suite in suites.items() if name != "sts" for one in suite.groups[0].sets
    }
    assert counts == OTHERS
    (semeval,) = suites["semeval2013"].groups[0].sets
    assert isinstance(semeval, ThresholdPairs)
    assert len(semeval.train) == SEMEVAL_TRAIN


def test_the_scores_of_thresholds_and_choices(data):
    vectors = {
        "double": [1, 0, 0], "star": [0, 1, 0], "binary": [1, 1, 0.1], "dual": [1, 0, 0.3], "lumen": [0, 1, 0.3],
        "spate": [1, 1, 0.1], "boat": [0, 0, -1], "bomb": [0, 1, 1], "blast": [0, 1, 0], "boom": [0, -1, 1],
        UNKNOWN: [0.5, 0.5, 1],
    }  # fmt: skip
    words = Words(pa.array(list(vectors)), np.array(list(vectors.values()), np.float32))
    encoder = Encoder(AvgConfig(), words, "space")
    (five, ten), (semeval,) = (
        score_suite(encoder, suite) for suite in read_suites(["turney", "semeval2013"], data)[::-1]
    )
    assert (five.name, five.num_pairs) == ("turney/5", 1)
    assert five.values == {"accuracy": 1.0, "accuracy_strict": 1.0}
    # Blind to order: the bigram and its reverse share the first place.
    assert (ten.name, ten.values) == ("turney/10", {"accuracy": 0.5, "accuracy_strict": 0.0})
    # Train: cos(spate) = 0.77, cos(boat) < 0; the threshold between, 0.03; test: cos(bomb blast, boom) < 0, label 1.
    assert (semeval.name, semeval.label, semeval.values) == ("semeval2013", "semeval2013", {"accuracy": 0.0})
    assert semeval.num_tokens == 3
