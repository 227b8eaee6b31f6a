"""Readers of evaluation data on hostile files, and scores of hostile sets.

What is read agrees with a plain reading of the same bytes; scores are finite, or an error names the set.
"""

import gzip
import json
import math
import random
import re

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.analyses.gates import read_tagged
from paraembed.evaluation.baselines import overlap_candidates, read_counts
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.choose import read_choose
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Choices, Group, ScoredPairs, Suite, ThresholdPairs
from paraembed.evaluation.suites import SUITES, read_pairs_files, read_scored_pairs
from tests import fuzz

SPACES = ("\u2028", "\u00a0", "a\u0085b")
TEXTS = ("a cat", "the dog", "", " ", '"', "a 'b", "日本 語", "e\u0301", "=1", "x" * 300, *SPACES)
NUMBERS = ("0", "1", "2.5", "5", "-1", "1e3", "0.25", " 3 ", "+4", "1_0", "1e308", "5e-324")
NOT_NUMBERS = (b"nan", b"inf", b"-inf", b"1e999", b"0x1", b"1,5", b"", b"--")
TOKENS = (b"\0", b"\n", b"\r", b"\r\n", b"\t", b'"', b" | ", b"|||", b" ", b"\xff", b"\xef\xbb\xbf", *NOT_NUMBERS)

Draw = random.Random


def text(draw):
    return draw.choice(TEXTS)


def word(draw):
    return draw.choice(("a", "cat", "dog's", "né", "on", "x-y", "-", "#"))


def number(draw):
    return draw.choice(NUMBERS)


def rows(draw, separator, cells, header=""):
    lines = [separator.join(cell(draw) for cell in cells) for _ in range(draw.choice((1, 1, 2, 3, 8)))]
    end = draw.choice(("\n", "\r\n"))
    last = draw.choice(("", end))
    return (end.join(([header] if header else []) + lines) + last).encode()


def mitchell(draw):
    def kind(draw):
        return draw.choice(("adjectivenouns", "compoundnouns", "verbobjects"))

    header = "participant type ver s1lemma1 s1lemma2 s2lemma1 s2lemma2 rating"
    return rows(draw, " ", (word, kind, word, word, word, word, word, lambda draw: number(draw).strip()), header)


def semeval(draw):
    entries = [f"{word(draw)}\tJJ\n{word(draw)}\tNN\n{word(draw)}\n{draw.randrange(2)}\n" for _ in range(3)]
    return "".join(entries[: draw.randint(1, 3)]).encode()


def turney(draw):
    entries = []
    for _ in range(draw.randint(1, 3)):
        modifier, head, *others = (word(draw) for _ in range(7))
        entries.append(" | ".join((f"{modifier} {head}", others[0], modifier, head, *others[1:])))
    return "\n".join(entries).encode()


SCORED = (number, text, text)
FILES = {
    "sick/SICK_test_annotated.txt": lambda draw: rows(draw, "\t", (word, text, text, number, word), "a\tb\tc\td\te"),
    "pit2015/test.data": lambda _: b"1\tt\ta\tb\t3\tx\ty\n" * 2,
    "pit2015/test.label": lambda _: rows(Draw(1), "\t", (word, number)) * 2,
    "word/SimLex-999.txt": lambda draw: rows(draw, "\t", (text, text, word, number, *[word] * 6), "w1\tw2" + "\t" * 8),
    "word/ws353.txt": lambda draw: rows(draw, "\t", (text, text, number)),
    "phrase/mitchell_lapata_2010.txt": mitchell,
    "phrase/pavlick2015_ppdb_human.tsv.gz": lambda draw: rows(draw, "\t", (number, word, text, text, word)),
    "phrase/annotated_ppdb_3k.txt": lambda draw: rows(draw, "|||", (text, text, number)),
    "phrase/semeval2013_5a/en.trainSet": semeval,
    "phrase/semeval2013_5a/en.testSet": semeval,
    "phrase/turney2012_jair.data": turney,
    "sts/2012/MSRpar.tsv": lambda draw: rows(draw, "\t", SCORED, draw.choice(("", "score\tsentence1\tsentence2"))),
    "sts/2013/OnWN.tsv.gz": lambda draw: rows(draw, "\t", SCORED),
}
OF_SUITE = {
    "sick": ["sick/SICK_test_annotated.txt"],
    "pit2015": ["pit2015/test.data", "pit2015/test.label"],
    "words": ["word/SimLex-999.txt", "word/ws353.txt"],
    "bigrams": ["phrase/mitchell_lapata_2010.txt"],
    "phrases": ["phrase/pavlick2015_ppdb_human.tsv.gz", "phrase/annotated_ppdb_3k.txt"],
    "semeval2013": ["phrase/semeval2013_5a/en.trainSet", "phrase/semeval2013_5a/en.testSet"],
    "turney": ["phrase/turney2012_jair.data"],
    "sts": ["sts/2012/MSRpar.tsv", "sts/2013/OnWN.tsv.gz"],
}
assert {*OF_SUITE} == {*SUITES}


def hostile(data, draw):
    """Mutate a file as its format is likely to break: bytes, encodings, line ends."""
    match draw.randrange(8):
        case 0:
            return data.decode().encode(draw.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig")))
        case 1:
            return data.decode().encode("latin-1", "replace")
        case 2:
            return data.replace(b"\n", b"\r")
        case 3:
            lines = data.split(b"\n")
            draw.shuffle(lines)
            return b"\n".join(lines)
        case _:
            return fuzz.mutated(data, draw, TOKENS)


def plain_lines(data):
    """Return the lines of a file as Python reads them: LF or CRLF, no byte order mark."""
    lines = data.decode("utf-8-sig").split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def put(path, data, draw, chance=0.7):
    """Write a file, mutated as likely as ``chance``; return its text and whether it was mutated."""
    mutates = draw.random() < chance
    data = hostile(data, draw) if mutates else data
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(data, 1, mtime=0) if path.suffix == ".gz" else data
    if mutates and path.suffix == ".gz" and draw.random() < 0.2:
        packed = fuzz.mutated(packed, draw)
    path.write_bytes(packed)
    return data, mutates


def scores_of(one):
    if isinstance(one, ScoredPairs):
        yield from one.scores
    elif isinstance(one, ThresholdPairs):
        yield from one.train.scores
        yield from one.test.scores


def test_suites_have_a_row_of_the_file_each_or_refuse_it(tmp_path):
    headers = {"sick": 1, "words": 1, "bigrams": 1}
    read = set()

    def case(draw):
        name = draw.choice(list(SUITES))
        written = {file: put(tmp_path / file, FILES[file](draw), draw) for file in OF_SUITE[name]}
        try:
            suite = SUITES[name](tmp_path)
        except ValueError:
            assert any(mutated for _, mutated in written.values()), f"a valid file of {name} was refused"
            raise
        read.add(name)
        sets = [one for group in suite.groups for one in group.sets]
        assert all(math.isfinite(score) for one in sets for score in scores_of(one))
        lines = [plain_lines(data) for data, _ in written.values()]
        if name == "semeval2013":
            assert sum(map(len, lines)) == 4 * (len(sets[0].train) + len(sets[0].test))
        elif name == "bigrams":
            pairs = {(line.split(" ")[1], *line.split(" ")[3:7]) for line in lines[0][1:]}
            assert sum(map(len, sets)) == len(pairs)
        elif name == "pit2015":
            assert len(sets[0]) == len(lines[0]) == len(lines[1])
        elif name == "sts":
            known = "score\tsentence1\tsentence2"
            assert [len(one) for one in sets] == [len(one) - (one[0].lower() == known) for one in lines]
        else:
            counts = [len(one) for one in lines]
            counts[0] -= headers.get(name, 0)
            assert [len(one) for one in sets] == (counts * 2 if name == "turney" else counts)
        return "read"

    assert fuzz.run(case)["read"] > 0
    assert read == {*SUITES}


def test_scored_pairs_agree_with_a_plain_reading(tmp_path):
    path = tmp_path / "pairs.tsv"

    def case(draw):
        data, mutated = put(path, FILES["sts/2012/MSRpar.tsv"](draw), draw)
        try:
            pairs = read_scored_pairs(path)
        except ValueError as error:
            if not mutated or str(path) not in str(error):
                raise AssertionError(f"a message without the file, or a valid file was refused: {error}") from error
            raise
        lines = [line.split("\t") for line in plain_lines(data)]
        lines = lines[lines[0][0].lower() == "score" :]
        assert [float(score) for score, _, _ in lines] == pairs.scores.tolist()
        assert [[first, second] for _, first, second in lines] == [
            [*both] for both in zip(*(side.to_pylist() for side in pairs.texts), strict=True)
        ]
        return "read"

    assert fuzz.run(case)["read"] > 0


def test_counts_of_the_vocabulary_are_no_more_than_all(tmp_path):
    path, vocabulary = tmp_path / "counts", pa.array(["a", "cat", "né", "UUUNKKK"])

    def case(draw):
        cells = [word, lambda draw: str(draw.randrange(draw.choice((2, 10**6, 10**18))))]
        data, mutated = put(path, rows(draw, draw.choice((" ", "\t", "   ")), draw.sample(cells, 2)), draw)
        try:
            counts, total = read_counts(path, vocabulary)
        except ValueError:
            lines = plain_lines(data) if not mutated else []
            assert mutated or len({line.split()[0].isdigit() for line in lines}) > 1 or all("0" in one for one in lines)
            raise
        cells_of = [re.split(r"[ \t\n\f\r]+", line.strip()) for line in plain_lines(data)]  # not at U+001E
        sums = [sum(int(cells[at]) for cells in cells_of) for at in (0, 1) if all(c[at].isdigit() for c in cells_of)]
        assert any(math.isclose(total, number) for number in sums)
        assert 0 <= counts.sum() <= total * (1 + 1e-12)
        return "read"

    assert fuzz.run(case)["read"] > 0


def test_tagged_sentences(tmp_path):
    tagged = tmp_path / "tagged"

    def case(draw):
        conll = (lambda draw: str(draw.randint(1, 9)), word, word, word, word, *[word] * 5)
        cells = draw.choice((conll, (word, word), (word, word, word)))
        put(tagged, rows(draw, "\t", cells) + b"\n\n" + rows(draw, "\t", cells), draw)
        found = read_tagged(tagged)
        assert len(found.tokens) == len(found.tags) == found.offsets[-1]
        assert (np.diff(found.offsets) > 0).all()
        return "tagged"

    assert fuzz.run(case)["tagged"]


def test_held_out_pairs_are_questions_or_counted_as_left_out(tmp_path):
    path = tmp_path / "pairs.tsv"

    def case(draw):
        names = [f"{word(draw)} {at} {text(draw)}".strip() for at in range(draw.randint(2, 9))]
        lines = [f"{name}\t{draw.choice(names)}" for name in names]
        data, _ = put(path, "\n".join(lines).encode(), draw, 0.5)
        suite = read_choose(path, 2)
        (questions,) = suite.groups[0].sets
        assert isinstance(questions, Choices)
        left_out = int(suite.notes[0].split()[1].replace(",", "")) if suite.notes else 0
        assert len(plain_lines(data)) - len(questions) - left_out in {0, 1}  # there may be a header
        assert (questions.first != questions.second).all()
        return "read"

    assert fuzz.run(case)["read"] > 0


def hostile_set(draw, name):
    """A set of 0 to 5 pairs with constant, tiny, huge, infinite or missing scores."""
    size = draw.choice((0, 1, 2, 3, 5))
    values = draw.choice(
        ((1.0,), (0.0, 1.0), (1.0, 1.0 + 1e-15), (1e308, -1e308), (5e-324, 0.0), (0.5, math.nan, math.inf))
    )
    vocabulary = ("the cat", "a dog", "zebra", "", "the", "cat the", "mat on")
    sides = [pa.array(draw.choices(vocabulary, k=size), pa.string()) for _ in range(2)]
    return ScoredPairs(name, np.array(draw.choices(values, k=size)), *sides)


def test_scores_are_finite_or_an_error_names_the_set(tiny_words):
    trained = Candidate("avg", "avg", Encoder(AvgConfig(), tiny_words, "space"))
    plain = ScoredPairs("plain", np.arange(3.0), pa.array(["the cat", "dog", "a"]), pa.array(["a", "mat", "on"]))
    suite = Suite("sts", (Group("", (plain,)),))
    compare([trained, *overlap_candidates()], [suite], resamples=9)  # compiles, which takes longer than a case may

    def case(draw):
        kind = draw.randrange(3)
        if kind == 0:
            sets = (hostile_set(draw, "one"), hostile_set(draw, "two"))
        elif kind == 1:
            sets = (ThresholdPairs("one", hostile_set(draw, "train"), hostile_set(draw, "test")),)
        else:
            texts = pa.array(["the cat", "a dog", "zebra", "mat"])
            size, options = draw.choice((0, 1, 3)), draw.choice((1, 2, 3))
            first, second = (
                np.array([[draw.randrange(4) for _ in range(options)] for _ in range(size)], np.int32).reshape(
                    -1, options
                )
                for _ in range(2)
            )
            sets = (Choices("one", texts, first, second),)
        group = Group(draw.choice(("", "2012")) if kind == 0 else "", sets)
        suite = Suite("sts", (group,), "year", draw.choice(("pearson", "spearman")) if kind == 0 else "accuracy")
        candidates = [trained, *overlap_candidates()][draw.randrange(2) :]
        try:
            report = compare(candidates, [suite], resamples=draw.choice((0, 20)))
        except ValueError as error:
            if "sts/" not in str(error):
                raise AssertionError(f"a message without the set: {error}") from error
            raise
        assert all(map(math.isfinite, report.metrics().values()))
        json.dumps(report.json(), allow_nan=False)
        assert report.markdown().count("\n| ") > 0
        assert len(report.csv().splitlines()) > 0
        return "scored"

    assert fuzz.run(case, fuzz.CASES // 5)["scored"] > 0  # ten times as slow as a reader


@pytest.mark.parametrize("data", [b"5\ta\tb" * 2_000_000, b"5\t" + b"x" * 10_000_000 + b"\ty\n" * 2, b"\xff\xfe5\0"])
def test_long_lines_and_other_encodings_are_refused_or_read(tmp_path, data):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"pairs\.tsv") as caught:
        read_pairs_files([path])
    assert len(str(caught.value)) < 1000
