"""The files of the published sets: counts and digests as the collection states them, the caveats, bad files."""

import gzip
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.scoring import score_suite
from paraembed.evaluation.sets import Choices, ScoredPairs, ThresholdPairs
from paraembed.evaluation.suites import KNOWN_FILES, SUITES, changed_files, read_suites
from paraembed.io.fingerprint import sha256_of
from paraembed.text.vocabulary import UNKNOWN, Words

DATA = Path(__file__).parents[3] / "shared" / "data" / "eval"
real = pytest.mark.skipif(not DATA.is_dir(), reason=f"the published sets are not there: {DATA}")

SICK = 'pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\r\n6\ta "cat\tthe dog\t3.3\tNEUTRAL\r\n'
BIGRAMS = """participant type ver s1lemma1 s1lemma2 s2lemma1 s2lemma2 rating
participant1 verbobjects 2 knowledge use influence exercise 5
participant2 verbobjects 2 knowledge use influence exercise 2
participant1 compoundnouns 0 tax rate bank account 1
participant1 adjectivenouns 0 old man young girl 3
"""
FILES = {
    "sick/SICK_test_annotated.txt": SICK,
    "pit2015/test.data": "1\tt\ta cat\tb\t3\tx\ty\n1\tt\tthe 'dog\tc\t0\tx\ty\n",
    "pit2015/test.label": "----\t0.6000\nfalse\t0.2000\n",
    "word/SimLex-999.txt": "word1\tword2\tPOS\tSimLex999\ta\tb\tc\td\te\tf\r\nold\tnew\tA\t1.58\t1\t2\t3\t4\t5\t6\r\n",
    "word/ws353.txt": "love\tsex\t6.77\t\r\n".replace("\t\r", "\r"),
    "word/ws353-sim.txt": "tiger\tcat\t7.35\n",
    "word/ws353-rel.txt": "tiger\tzoo\t5.87\n",
    "phrase/mitchell_lapata_2010.txt": BIGRAMS,
    "phrase/annotated_ppdb_3k.txt": "main reason|||principal reason|||5.0\n",
    "phrase/semeval2013_5a/en.trainSet": "sudden\tJJ\nrush\tNN\nspate\n1\nold\tJJ\ncar\tNN\nboat\n0\n",
    "phrase/semeval2013_5a/en.testSet": "bomb\tNN\nblast\tNN\nboom\n1\n",
    "phrase/turney2012_jair.data": "double star | binary | double | star | dual | lumen | neutralism | keratoplasty\n",
}
PAVLICK = "4.0\t[NP]\tthis video\tthe movie\t3.0,4.0,5.0\n"


@pytest.fixture
def data(tmp_path):
    for name, text in FILES.items():
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
    assert pairs_of(phrases, 0) == [(4.0, "this video", "the movie")]
    assert pairs_of(phrases, 1) == [(5.0, "main reason", "principal reason")]
    assert [suite.measure for suite in (sick, pit, words, bigrams, phrases)] == ["pearson"] * 2 + ["spearman"] * 3


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


BAD = {
    "columns": ("sick", "sick/SICK_test_annotated.txt", SICK + "7\ta\n", "line 3: 2 columns; expected 5"),
    "a number": ("words", "word/ws353.txt", "a\tb\tmany\n", "line 1: the score is 'many', not a finite number"),
    "infinity": ("sick", "sick/SICK_test_annotated.txt", SICK.replace("3.3", "inf"), "line 2: the score is 'inf'"),
    "a label a line": ("pit2015", "pit2015/test.label", "true\t0.8\n", "has 2 lines and .* has 1; expected a label"),
    "a type": ("bigrams", "phrase/mitchell_lapata_2010.txt", BIGRAMS + "p x 1 a b c d 2\n", "line 6: type 'x'"),
    "four lines": ("semeval2013", "phrase/semeval2013_5a/en.testSet", "a\tb\nc\n", "2 lines; expected four"),
    "a label": ("semeval2013", "phrase/semeval2013_5a/en.testSet", "a\tb\nc\td\ne\nyes\n", "line 4: the label is 'y"),
    "another bigram": ("turney", "phrase/turney2012_jair.data", " | ".join("abcdefgh") + "\n", "line 1: the bigram is"),
    "a header alone": ("words", "word/SimLex-999.txt", FILES["word/SimLex-999.txt"].split("\n")[0] + "\n", "no rows"),
    "nothing": ("phrases", "phrase/annotated_ppdb_3k.txt", "", "is empty"),
    "Latin-1": ("phrases", "phrase/annotated_ppdb_3k.txt", b"caf\xe9|||bar|||1\n", "line 1: not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize(("suite", "name", "text", "message"), BAD.values(), ids=BAD)
def test_bad_files(data, suite, name, text, message):
    (data / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as error:
        read_suites([suite], data)
    assert str(data / Path(name).parent) in str(error.value)


def test_what_is_not_there(data):
    (data / "word/ws353.txt").unlink()
    (words,) = read_suites(["words"], data)
    assert "words is without word/ws353.txt" in words.notes
    (data / "phrase/turney2012_jair.data").unlink()
    with pytest.raises(FileNotFoundError, match=r"turney2012_jair\.data does not exist; the suite 'turney' needs it"):
        read_suites(["turney"], data)
    with pytest.raises(ValueError, match=r"unknown suite 'glue'; allowed: all, sts, sick, pit2015, words, bigrams"):
        read_suites(["sick", "glue"], data)


def test_files_that_are_not_the_known_ones_are_noted(data):
    (sick,) = read_suites(["sick"], data)
    assert sick.notes == (
        "not the known files, by their sha256: sick/SICK_test_annotated.txt; other scores may be over other pairs",
    )
    assert changed_files([("sick/mine.txt", data / "sick/SICK_test_annotated.txt")]) == ()


@real
def test_a_gzipped_copy_of_a_known_file_is_known_by_what_is_in_it(tmp_path):
    copy = tmp_path / "MSRpar.tsv.gz"
    original = (DATA / "sts/2012/MSRpar.tsv").read_bytes()
    copy.write_bytes(gzip.compress(original))
    assert changed_files([("sts/2012/MSRpar.tsv.gz", copy)]) == ()
    copy.write_bytes(gzip.compress(original + b"5\ta\tb\n"))
    (note,) = changed_files([("sts/2012/MSRpar.tsv.gz", copy)])
    assert "by their sha256: sts/2012/MSRpar.tsv.gz;" in note


@real
def test_the_known_files_are_those_of_the_collection():
    stated = {}
    for line in (DATA / "MANIFEST.md").read_text().splitlines():
        digest = re.search(r"\b[0-9a-f]{64}\b", line)
        if digest:
            stated[line.split("|")[1].strip()] = digest[0]
    assert len(KNOWN_FILES) == 40
    for name, digest in KNOWN_FILES.items():
        assert stated[name] == digest == sha256_of(DATA / name), name


@real
def test_the_counts_are_those_of_the_collection():
    suites = {suite.name: suite for suite in read_suites(["all"], DATA)}
    assert all("known files" not in note for suite in suites.values() for note in suite.notes)
    years = {year.name: {one.name: len(one) for one in year.sets} for year in suites["sts"].groups}
    assert years == {
        "2012": {"MSRpar": 750, "MSRvid": 750, "OnWN": 750, "SMTeuroparl": 459, "SMTnews": 399},
        "2013": {"OnWN": 561, "headlines": 750},
        "2014": {"OnWN": 750, "deft-forum": 450, "deft-news": 300, "headlines": 750, "images": 750},
        "2015": {"answers-forums": 375, "answers-students": 750, "headlines": 750, "images": 750},
        "2016": {
            "answer-answer": 254, "headlines": 249, "plagiarism": 230, "postediting": 244, "question-question": 209
        },
        "benchmark": {"dev": 1500},
    }  # fmt: skip
    counts = {
        (name, one.name): len(one) for name, suite in suites.items() if name != "sts" for one in suite.groups[0].sets
    }
    assert counts == {
        ("sick", "test"): 4927, ("pit2015", "test"): 972,
        ("words", "simlex999"): 999, ("words", "ws353"): 353, ("words", "ws353-sim"): 203, ("words", "ws353-rel"): 252,
        ("bigrams", "JN"): 108, ("bigrams", "NN"): 108, ("bigrams", "VN"): 108,
        ("phrases", "pavlick"): 26456, ("phrases", "annotated-ppdb"): 3000,
        ("semeval2013", ""): 7490, ("turney", "5"): 2180, ("turney", "10"): 2180,
    }  # fmt: skip
    (semeval,) = suites["semeval2013"].groups[0].sets
    assert isinstance(semeval, ThresholdPairs)
    assert len(semeval.train) == 11175


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
