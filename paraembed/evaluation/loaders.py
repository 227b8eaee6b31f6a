"""The files of the published sets → suites. Quotes are characters like others in all of them.

Every reader takes the data folder. A set that is not there becomes a note, a suite without any set an error.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from paraembed.evaluation.known_files import changed_files, file_of
from paraembed.evaluation.sets import AnySet, Choices, Group, Measure, ScoredPairs, Suite, ThresholdPairs
from paraembed.io.escape import printable
from paraembed.io.lines import read_text
from paraembed.io.tables import Cells, read_cells

_BIGRAMS = {"adjectivenouns": "JN", "compoundnouns": "NN", "verbobjects": "VN"}


def read_scored_pairs(path: Path) -> ScoredPairs:
    """Read score and two sentences, separated by tabs; the set is named as the file, without ``.tsv`` and ``.gz``.

    Raises:
        FileNotFoundError, IsADirectoryError: as said.
        ValueError: a line that is not a scored pair (file and line named), or a file without any.
    """
    cells = read_scored_cells(path)
    return _scored(cells, printable(path.name.removesuffix(".gz").removesuffix(".tsv")), 0, 1, 2)


def read_scored_cells(path: Path) -> Cells:
    """Read the rows of a file of scored pairs, with a header or without."""
    return read_cells(path, "\t", "score, first sentence, second sentence", header="score\tsentence1\tsentence2")


def read_sick(data: Path) -> Suite:
    """SICK relatedness (Marelli et al. 2014), test set."""
    path = file_of(data, "sick/SICK_test_annotated.txt", "suite 'sick'")
    pairs = _scored(read_cells(path, "\t", 5, header=True), "test", 3, 1, 2)
    return _suite("sick", data, ["sick/SICK_test_annotated.txt"], [pairs])


def read_pit2015(data: Path) -> Suite:
    """Twitter paraphrases (Xu et al. 2015), graded scores of all 972 test pairs, debatable ones too."""
    texts, labels = (file_of(data, f"pit2015/test.{kind}", "suite 'pit2015'") for kind in ("data", "label"))
    tweets, graded = read_cells(texts, "\t", 7), read_cells(labels, "\t", 2)
    if len(tweets.rows) != len(graded.rows):
        raise ValueError(
            f"{texts} has {len(tweets.rows)} lines and {labels} has {len(graded.rows)}; expected a label a line"
        )
    pairs = ScoredPairs("test", graded.numbers(1), tweets.texts(2), tweets.texts(3))
    return _suite("pit2015", data, ["pit2015/test.data", "pit2015/test.label"], [pairs])


def read_words(data: Path) -> Suite:
    """SimLex-999 (Hill et al. 2014), WordSim-353 (Finkelstein et al. 2002) and its two parts (Agirre et al. 2009)."""
    sets: list[AnySet] = []
    files = ["word/SimLex-999.txt", "word/ws353.txt", "word/ws353-sim.txt", "word/ws353-rel.txt"]
    available = _some(data, "words", files)
    for name in available:
        path = data / name
        if name == files[0]:
            sets.append(_scored(read_cells(path, "\t", 10, header=True), "simlex999", 3, 0, 1))
        else:
            sets.append(_scored(read_cells(path, "\t", 3), path.stem, 2, 0, 1))
    return _suite("words", data, available, sets, "spearman", _missing("words", files, available))


def read_bigrams(data: Path) -> Suite:
    """Bigram similarity (Mitchell and Lapata 2010): mean rating of each pair, by type.

    Of a verb and its object the file names the object first; here the verb comes first, as in a text.
    """
    path = file_of(data, "phrase/mitchell_lapata_2010.txt", "suite 'bigrams'")
    ratings: dict[str, dict[tuple[str, str], list[float]]] = {kind: defaultdict(list) for kind in _BIGRAMS}
    cells = read_cells(path, " ", 8, header=True)
    rows = zip(cells.rows, cells.numbers(7), strict=True)
    for row, ((_, kind, _, first, two, three, four, _), rating) in enumerate(rows):
        if kind not in ratings:
            cells.refuse(row, f"type {kind[:40]!r}; expected {', '.join(_BIGRAMS)}")
        pair = (f"{two} {first}", f"{four} {three}") if kind == "verbobjects" else (f"{first} {two}", f"{three} {four}")
        ratings[kind][pair].append(rating)
    sets = [
        ScoredPairs(
            _BIGRAMS[kind],
            np.array([np.mean(ratings) for ratings in rated.values()]),
            pa.array([phrase for phrase, _ in rated], pa.string()),
            pa.array([other for _, other in rated], pa.string()),
        )
        for kind, rated in ratings.items()
        if rated
    ]
    return _suite("bigrams", data, ["phrase/mitchell_lapata_2010.txt"], sets, "spearman")


def read_phrases(data: Path) -> Suite:
    """Phrase pairs of PPDB: Pavlick et al. 2015, and Annotated-PPDB (Wieting et al. 2015), all 3,000 pairs."""
    names = ["phrase/pavlick2015_ppdb_human.tsv.gz", "phrase/annotated_ppdb_3k.txt"]
    available = _some(data, "phrases", names)
    sets: list[AnySet] = []
    if names[0] in available:
        sets.append(_scored(read_cells(data / names[0], "\t", 5), "pavlick", 0, 2, 3))
    if names[1] in available:
        sets.append(_scored(read_cells(data / names[1], "|||", 3), "annotated-ppdb", 2, 0, 1))
    return _suite("phrases", data, available, sets, "spearman", _missing("phrases", names, available))


def read_semeval2013(data: Path) -> Suite:
    """SemEval 2013 task 5(a) (Korkontzelos et al. 2013): does a word mean what a two-word phrase means?"""
    names = [f"phrase/semeval2013_5a/en.{part}Set" for part in ("train", "test")]
    train, test = (_word_and_phrase(file_of(data, name, "suite 'semeval2013'")) for name in names)
    return _suite("semeval2013", data, names, [ThresholdPairs("", train, test)], "accuracy")


def read_turney(data: Path) -> Suite:
    """Noun-modifier questions (Turney 2012): which of five words means what a bigram means?

    ``5``: the answer, a word near the modifier, one near the head, two random ones; the modifier and the head, which
    the file has as well, are left out, as in Yu and Dredze 2015. ``10``: each of them with the bigram and with its
    reverse (Zhou 2017 §3.2).
    """
    path = file_of(data, "phrase/turney2012_jair.data", "suite 'turney'")
    cells = read_cells(path, " | ", 8)
    texts: dict[str, int] = {}
    first, second = [], []
    for row, (bigram, answer, modifier, head, *others) in enumerate(cells.rows):
        if bigram != f"{modifier} {head}":
            cells.refuse(row, f"the bigram is {bigram[:40]!r}, the words {modifier[:40]!r} and {head[:40]!r}")
        both = [texts.setdefault(text, len(texts)) for text in (bigram, f"{head} {modifier}")]
        choices = [texts.setdefault(text, len(texts)) for text in (answer, *others)]
        first.append(np.repeat(both, len(choices)))
        second.append(choices * 2)
    bigrams, words = np.array(first, np.int32), np.array(second, np.int32)
    ten = Choices("10", pa.array(list(texts), pa.string()), bigrams, words)
    five = replace(ten, name="5", first=bigrams[:, :5], second=words[:, :5])
    return _suite("turney", data, ["phrase/turney2012_jair.data"], [five, ten], "accuracy")


def _scored(cells: Cells, name: str, score: int, first: int, second: int) -> ScoredPairs:
    """Scored pairs of three columns."""
    return ScoredPairs(name, cells.numbers(score), cells.texts(first), cells.texts(second))


def _word_and_phrase(path: Path) -> ScoredPairs:
    """Four lines an instance: two words, each with its part of speech behind a tab, the single word, the label."""
    lines = read_text(path)
    if len(lines) % 4:
        raise ValueError(f"{path} has {len(lines)} lines; expected four an instance: word, word, single word, label")
    wrong = next((row for row in range(3, len(lines), 4) if lines[row] not in {"0", "1"}), None)
    if wrong is not None:
        raise ValueError(f"{path}, line {wrong + 1}: the label is {lines[wrong][:40]!r}; expected 0 or 1")
    first, two = ([line.split("\t")[0] for line in lines[column::4]] for column in (0, 1))
    phrases = pa.array([f"{a} {b}" for a, b in zip(first, two, strict=True)], pa.string())
    return ScoredPairs("", np.array([float(label) for label in lines[3::4]]), phrases, pa.array(lines[2::4]))


def _suite(
    name: str,
    data: Path,
    files: Sequence[str],
    sets: Sequence[AnySet],
    measure: Measure = "pearson",
    notes: tuple[str, ...] = (),
) -> Suite:
    notes += changed_files([(file, data / file) for file in files])
    return Suite(name, (Group("", tuple(sets)),), measure=measure, notes=notes)


def _some(data: Path, suite: str, names: Sequence[str]) -> list[str]:
    available = [name for name in names if (data / name).exists()]
    if not available:
        raise FileNotFoundError(f"{data} has none of {', '.join(names)}; the suite {suite!r} needs one of them")
    return available


def _missing(suite: str, names: Sequence[str], available: Sequence[str]) -> tuple[str, ...]:
    missing = [name for name in names if name not in available]
    return (f"{suite} is without {', '.join(missing)}",) if missing else ()
