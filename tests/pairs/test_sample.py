"""The generated sample: the line formats, the held-out combinations, and that learning is worth something on it."""

import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

import paraembed
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import compare
from paraembed.evaluation.suites import SUITES, read_suites
from paraembed.pairs.sample import BLOCK_LINES, write_sample
from paraembed.pairs.sample_lexicon import CONCEPTS
from paraembed.supervised.readers import DATA_SETS, read_task
from tests.jobs import run_named

# Of 2.0 copied from ppdb-2.0-s.original-format.100-lines.txt.gz. Each line there has one of the two entailment
# features, and may lack the two that OPTIONAL names. Of 1.0 as lines of ppdb-1.0-s-all, which is not here, have them.
FEATURES_1, FEATURES_2 = json.loads(Path(__file__).with_name("ppdb_original.json").read_text())["features"].values()
OPTIONAL = {"TargetComplexity", "TargetFormality"}
RELATIONS = {"Equivalence", "ForwardEntailment", "ReverseEntailment", "Independent", "OtherRelated", "Exclusion"}

LINES = BLOCK_LINES + 616  # more than one block

# Words that templates and phrases share and that belong to no concept.
FUNCTION_WORDS = re.findall(
    "[a-z]+",
    "the was were is had been never not by who that it near close to at in on of for with up over out off away every "
    "each and",
)
OWNERS = defaultdict(set)
for number, concept in enumerate(CONCEPTS):
    for token in " ".join(concept.words).split():
        if token not in FUNCTION_WORDS:
            OWNERS[token].add(number)


def concepts_of(text):
    """Reads a text back into its concepts, without the generator; "in" or "each" alone say nothing."""
    return frozenset(number for token in text.lower().rstrip(".").split() for number in OWNERS.get(token, ()))


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.removesuffix("\n").split(" ||| ") for line in file]


def digests(files):
    paths = sorted(path for path in files.vectors.parent.rglob("*") if path.is_file() and path.name != "GENERATED.md")
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("sample"), lines=LINES, sentences=500, test_pairs=1_000, pairs=500)


@pytest.fixture(scope="module")
def lines_2(files):
    return read(files.ppdb_2)


@pytest.fixture(scope="module")
def test_rows(files):
    header, *rows = files.test_pairs.read_text(encoding="utf-8").splitlines()
    assert header == "score\tsentence1\tsentence2"
    return [(float(score), one, other) for score, one, other in (row.split("\t") for row in rows)]


def test_equal_seeds_give_equal_bytes(tmp_path):
    options = {"lines": 30, "sentences": 5, "test_pairs": 20, "pairs": 5, "ppdb_version": "2.0", "suites": True}
    first, same, other = (
        digests(write_sample(tmp_path / name, seed=seed, **options)) for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first == same
    zipped = list(tmp_path.rglob("*.gz"))
    assert {path.read_bytes()[4:8] for path in zipped} == {bytes(4)}  # no time stamp in the gzip header
    assert not set(first) & set(other)
    assert not list(tmp_path.rglob("*.tmp"))


def test_lines_have_the_fields_and_features_of_the_original(files, lines_2):
    assert len(lines_2) == LINES
    assert {len(fields) for fields in lines_2} == {6}
    orders = Counter(
        tuple(feature.partition("=")[0] for feature in features.split(" ")) for _, _, _, features, _, _ in lines_2
    )
    for order in orders:
        assert list(order) == [name for name in FEATURES_2 if name in order]
        missing = set(FEATURES_2) - set(order) - OPTIONAL
        assert missing in ({"ForwardEntailment"}, {"ReverseEntailment"})
    assert {relation for *_, relation in lines_2} <= RELATIONS
    assert min(len(" ||| ".join(fields)) for fields in lines_2) >= 500
    scores = [float(fields[3].split(" ")[0].partition("=")[2]) for fields in lines_2]
    assert scores == sorted(scores, reverse=True)
    assert any("MVLSASim=NA" in fields[3] for fields in lines_2[:100])
    lines_1 = read(files.ppdb_1)
    assert {len(fields) for fields in lines_1} == {5}
    assert {tuple(re.sub(r"=\S+", "", fields[3]).split(" ")) for fields in lines_1[:2000]} == {tuple(FEATURES_1)}
    assert [fields[:3] for fields in lines_1] == [fields[:3] for fields in lines_2]


def test_pairs_are_paraphrases_none_comes_twice_and_alignments_fit(lines_2):
    pairs = {tuple(sorted(fields[1:3])) for fields in lines_2}
    assert len(pairs) == LINES
    assert all(one != other and concepts_of(one) == concepts_of(other) for one, other in pairs)
    assert sum(fields[1].count(" ") == 0 for fields in lines_2) > LINES // 50
    for _, first, second, _, alignment, _ in lines_2:
        one, other = first.split(" "), second.split(" ")
        links = [tuple(map(int, link.split("-"))) for link in alignment.split(" ")]
        assert 1 <= len(one) <= 12
        linked = [(one[source], other[target]) for source, target in links]
        assert all(concepts_of(a) == concepts_of(b) for a, b in linked if a in OWNERS and b in OWNERS)
        assert {token for pair in linked for token in pair} >= {*one, *other} & OWNERS.keys()


def test_no_test_combination_occurs_in_training(files, lines_2, test_rows):
    core = {"person", "animal", "object", "verb_thing", "verb_being", "verb_alone"}

    def combination(text):
        found = concepts_of(text)
        kinds = {CONCEPTS[number].kind for number in found}
        wanted = core | {"place"} if "verb_alone" in kinds else core
        return frozenset(number for number in found if CONCEPTS[number].kind in wanted)

    held_out = {combination(text) for _, *texts in test_rows for text in texts}
    assert {len(numbers) for numbers in held_out} == {3}
    training = [text for fields in lines_2 for text in fields[1:3]]
    training += files.pairs.read_text(encoding="utf-8").replace("\t", "\n").splitlines()
    training += re.split(", and |\n", files.sentences.read_text(encoding="utf-8").strip())
    seen = {combination(text) for text in training}
    assert sum(len(numbers) == 3 for numbers in seen) > 5_000
    assert not seen & held_out


FEW = ("--lines", "20", "--sentences", "0", "--test-pairs", "0")


@pytest.mark.parametrize(
    ("out", "flags", "told"),
    [
        ("new", ["--lines", "0"], "--lines is 0; it must be at least 1"),
        ("new", ["--lines", "10", "--dimension", "0"], "--dimension is 0"),
        ("new", ["--lines", "999999999999999999"], "give fewer lines"),
        ("", FEW, "contains other files (thesis.tex)"),
        ("thesis.tex", FEW, "is a file; give the path of a folder"),
    ],
)
def test_what_is_refused_takes_one_line_and_changes_nothing(tmp_path, capsys, out, flags, told):
    (tmp_path / "thesis.tex").write_text("mine")
    assert run_named("sample", "--out", tmp_path / out, *flags, "--quiet") != 0
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


@pytest.fixture(scope="module")
def suites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    return write_sample(folder, lines=20, sentences=0, test_pairs=0, ppdb_version="2.0", suites=True).suites


def test_generated_suites_are_read_and_their_scores_follow_the_meaning(suites):
    read = read_suites(["all"], suites)
    assert [suite.name for suite in read] == [*SUITES]
    assert all("generated pairs, not the published data set" in suite.notes[0] for suite in read)
    report = compare([Candidate("small", "", paraembed.load("small"))], read, resamples=0)
    scores = report.metrics()
    sets = [f"sts/{year}/generated/pearson" for year in range(2012, 2017)]
    sets += ["sick/test/pearson", "pit2015/test/pearson", "phrases/pavlick/spearman", "phrases/annotated-ppdb/spearman"]
    sets += [f"words/{name}/spearman" for name in ("simlex999", "ws353", "ws353-sim", "ws353-rel")]
    sets += [f"bigrams/{name}/spearman" for name in ("JN", "NN", "VN")]
    assert {name: scores[name] for name in sets if scores[name] < 0.25} == {}
    assert scores["semeval2013/accuracy"] > 0.7  # by chance 0.5
    assert scores["turney/5/accuracy"] > 0.4  # by chance 0.2
    for suite in read:
        for pairs in suite.groups[0].sets if suite.measure != "accuracy" else ():
            concepts = [[concepts_of(text) for text in side.to_pylist()] for side in pairs.texts]
            shared = [len(one & other) / max(len(one), len(other)) for one, other in zip(*concepts, strict=True)]
            assert np.corrcoef(shared, pairs.scores)[0, 1] > 0.7, (suite.name, pairs.name)


@pytest.mark.parametrize(("task", "data_set"), [(task, name) for task, names in DATA_SETS.items() for name in names])
def test_generated_tasks_are_read(suites, task, data_set):
    examples = read_task(task, data_set, suites, 1)
    assert min(map(len, (examples.train, examples.dev, examples.test))) >= 12
    if task in {"similarity", "entailment", "sentiment"}:
        assert len(set(np.round(examples.train.labels))) >= 2


def test_a_folder_of_other_suites_is_not_overwritten(tmp_path):
    (tmp_path / "suites/sick").mkdir(parents=True)
    (tmp_path / "suites/sick/SICK_train.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"suites has no GENERATED\.md"):
        write_sample(tmp_path, lines=20, sentences=0, test_pairs=0, suites=True)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["SICK_train.txt"]
