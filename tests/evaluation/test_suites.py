"""STS suites: which files, which scores, which means."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.candidates import Candidate, trained, untrained
from paraembed.evaluation.report import compare
from paraembed.evaluation.scoring import score_suite
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.evaluation.suites import read_pairs_files, read_scored_pairs, read_sts
from paraembed.papers.results import PAPERS_STS
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import UNKNOWN

SHARED = Path(__file__).parents[3] / "shared" / "data"
TRAIN = SHARED / "train"
STS = SHARED / "eval" / "sts"

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


@pytest.fixture
def encoder(tiny_words):
    return Encoder(AvgConfig(), tiny_words, "ptb-v1")


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


def test_gzipped_sets_are_found(tmp_path):
    (tmp_path / "2014").mkdir()
    (tmp_path / "2014" / "images.tsv.gz").write_bytes(gzip.compress(b"1\ta\tb\n"))
    assert [pairs.name for pairs in read_sts(tmp_path).groups[0].sets] == ["images"]


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
        np.testing.assert_allclose([getattr(score, measure) for score in scores], expected, atol=1e-6)


def test_unknown_tokens_are_counted_by_occurrence(folder, encoder):
    msrpar, *_, mean = score_suite(encoder, read_sts(folder))
    assert (msrpar.num_tokens, msrpar.num_unknown) == (12, 1)
    assert (mean.num_tokens, mean.num_unknown) == (12 + 10 + 13, 1)
    assert mean.unknown_share == pytest.approx(1 / 35)


def test_files_have_scores_but_no_mean(folder, encoder):
    paths = [folder / "2012" / "MSRpar.tsv", folder / "2013" / "headlines.tsv"]
    scores = score_suite(encoder, read_pairs_files(paths))
    assert [(score.name, score.label) for score in scores] == [
        ("pairs/MSRpar", "MSRpar"), ("pairs/headlines", "headlines"),
    ]  # fmt: skip
    assert scores[0].pearson == pytest.approx(correlations(encoder, paths[0])[0], abs=1e-6)


def test_each_distinct_sentence_is_encoded_once(folder, tiny_words):
    class Counting(Encoder):
        seen: list[str]

        def embed(self, texts, batch_size=4096):
            self.seen = texts.to_pylist()
            return super().embed(texts, batch_size)

    encoder = Counting(AvgConfig(), tiny_words, "ptb-v1")
    score_suite(encoder, read_sts(folder))
    sentences = {cell for text in SETS.values() for row in text.splitlines() for cell in row.split("\t")[1:]}
    assert sorted(encoder.seen) == sorted(sentences - {"sentence1", "sentence2"})


def test_what_is_cut_is_said(folder, tiny_words, caplog):
    score_suite(Encoder(AvgConfig(), tiny_words, "ptb-v1", max_tokens=2), read_sts(folder))
    assert "2 of 16 texts have more than max_tokens = 2 tokens; what follows was not read" in caplog.text


def test_the_set_without_a_correlation_is_named(folder, encoder):
    (folder / "2013" / "FNWN.tsv").write_text("5\tyak\tgnu\n4\tgnu\temu\n")
    with pytest.raises(ValueError, match=r"tiny, sts/2013/FNWN: the 2 predictions are all 1; .* in the vocabulary\?"):
        compare([Candidate("tiny", "", encoder)], [read_sts(folder)])


def test_what_is_no_suite_is_refused(folder):
    with pytest.raises(FileNotFoundError, match="none does not exist; expected a folder with STS sets"):
        read_sts(folder / "none")
    with pytest.raises(NotADirectoryError, match=r"notes\.txt is a file; expected a folder with STS sets"):
        read_sts(folder / "2012" / "notes.txt")
    with pytest.raises(ValueError, match=r"benchmark holds no STS sets; expected <year>/<set>\.tsv in it or in"):
        read_sts(folder / "benchmark")
    (folder / "2012" / "OnWN.tsv.gz").write_bytes(gzip.compress(SETS["2012/OnWN.tsv"].encode()))
    with pytest.raises(ValueError, match=r"2 sets are named 'OnWN' .*; rename or leave out all but one"):
        read_sts(folder)


@pytest.mark.parametrize("name", ["mean", "pooled"])
def test_names_of_scores_over_several_sets_are_refused(folder, name):
    (folder / "2012" / f"{name}.tsv").write_text(SETS["2012/OnWN.tsv"])
    for read in (lambda: read_sts(folder), lambda: read_pairs_files([folder / "2012" / f"{name}.tsv"])):
        with pytest.raises(ValueError, match=rf"'{name}' is the name of a score over several sets; rename the file"):
            read()


def test_a_kept_encoder_says_how_it_was_chosen_and_on_which_pairs(tiny_encoder_folder, tmp_path):
    shutil.copytree(tiny_encoder_folder, tmp_path / "encoder")
    config = json.loads((tmp_path / "encoder" / "config.json").read_text())
    config["provenance"] = {
        "training": {
            "pairs": "5a0f",
            "gold": [
                {"task": "similarity", "data_set": "sts", "seed": 1},
                {"task": "entailment", "data_set": "sick", "seed": 1},
                {"task": "similarity", "data_set": "sick", "seed": 1},
                {"task": "turney"},  # not in this form
                "sst",
            ],
        },
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


def test_candidates(tiny_encoder_folder, tmp_path):
    encoder = trained(tiny_encoder_folder)
    assert encoder.label == "avg"
    assert encoder.encoder.fingerprint[:12] in encoder.description
    (tmp_path / "vectors.txt").write_text("cat 1 2\ndog 3 4\n")
    words = untrained(tmp_path / "vectors.txt", 1, "space")
    assert (words.label, words.encoder.tokenizer) == ("untrained", "space")
    assert words.encoder.vocabulary.to_pylist() == ["cat", UNKNOWN]


VECTORS = {
    "word2vec": TRAIN / "vectors" / "word2vec-googlenews-300d.subset-8000.txt.gz",
    "glove": TRAIN / "vectors" / "glove.6B.50d.subset-8390.txt.gz",
}


@pytest.fixture(scope="module", params=[pytest.param("word2vec", marks=pytest.mark.slow), "glove"])
def real(request):
    """Word vectors through the package, and the same file read by other means."""
    path = VECTORS[request.param]
    if not (path.is_file() and STS.is_dir()):
        pytest.skip(f"the real sets are not there: {SHARED}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.split() for line in file]
    table = {}
    for word, *values in rows:
        table.setdefault(word.lower(), np.array(values, np.float64))
    table[""] = np.mean([np.array(values, np.float64) for _, *values in rows], axis=0)  # the unknown word
    encoder = untrained(path, None, "ptb-v1").encoder
    assert isinstance(encoder, Encoder)
    return encoder, table


def test_word_vectors_on_real_sets_as_in_plain_numpy(real):
    encoder, table = real
    year = []
    all_cosines, all_gold = [], []
    for path in sorted((STS / "2015").glob("*.tsv")):
        cosines, gold = [], []
        for line in path.read_text(encoding="utf-8").split("\n")[1:-1]:
            score, *sentences = line.split("\t")
            tokens = [tokenize(pa.array([sentence]), "ptb-v1").flat.to_pylist() for sentence in sentences]
            u, v = (np.mean([table.get(token, table[""]) for token in side], axis=0) for side in tokens)
            cosines.append(u @ v / (np.linalg.norm(u) * np.linalg.norm(v)))
            gold.append(float(score))
        year.append(np.corrcoef(cosines, gold)[0, 1])
        all_cosines += cosines
        all_gold += gold
    scores = {score.name: score for score in score_suite(encoder, read_sts(STS), resamples=0)}
    assert scores["sts/2015/mean"].pearson == pytest.approx(np.mean(year), abs=1e-6)
    assert scores["sts/2015/images"].pearson == pytest.approx(year[-1], abs=1e-6)
    pooled = scores["sts/2015/pooled"]
    assert pooled.num_pairs == len(all_gold) == 2625
    assert pooled.pearson == pytest.approx(np.corrcoef(all_cosines, all_gold)[0, 1], abs=1e-6)
    assert pooled.spearman == pytest.approx(stats.spearmanr(all_cosines, all_gold).statistic, abs=1e-5)
    assert scores["sts/mean-of-sets"].num_pairs == 11_230
    assert pooled.intervals == {}


def test_pairs_without_an_unknown_word_have_a_score_of_their_own(encoder):
    """Two unknown words are one word to the encoder: their cosine is 1, whatever the gold score says."""
    first, second = ["cat", "zebra", "dog", "zebra", "cat", "a yak"], ["dog", "yak", "mat", "cat", "on", "a"]
    rated = ScoredPairs("rated", np.array([5.0, 0, 3, 1, 2, 4]), pa.array(first), pa.array(second))
    covered = ScoredPairs("rated", *(side.take([0, 2, 4]) for side in (rated.scores, rated.first, rated.second)))
    for name, is_short in [("words", True), ("bigrams", True), ("phrases", True), ("pairs", False)]:
        (score,) = score_suite(encoder, Suite(name, (Group("", (rated,)),), measure="spearman"), resamples=0)
        (alone,) = score_suite(encoder, Suite(name, (Group("", (covered,)),), measure="spearman"), resamples=0)
        assert score.num_covered == (3 if is_short else None)
        assert score.values.get("spearman_covered") == (alone.spearman if is_short else None)
        assert score.spearman != alone.spearman
        if is_short:
            assert alone.values["spearman_covered"] == alone.spearman
    few = ScoredPairs("rated", *(side[:2] for side in (rated.scores, rated.first, rated.second)))
    (score,) = score_suite(encoder, Suite("words", (Group("", (few,)),), measure="spearman"), resamples=0)
    assert (score.num_covered, "spearman_covered" in score.values) == (1, False)
