r"""Read the supervised tasks SICK, STS, SemEval 2013 5(a), Turney's questions and SST.

SST is binary sentiment from the Stanford Sentiment Treebank (Socher et al. 2013). Each of its lines is a tree ``(4 (3
lovely) (2 films))`` with a label from 0 (very negative) to 4 on every constituent. ``-LRB-`` and similar escapes become
brackets again, ``\/`` and ``\*`` a slash and an asterisk.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.evaluation import suites
from paraembed.evaluation.sets import Choices, ScoredPairs, ThresholdPairs
from paraembed.evaluation.suites import TURNEY_TRAIN, changed_files, file_of
from paraembed.io.lines import read_text
from paraembed.io.tables import Cells, read_cells
from paraembed.papers.results import PAPERS_STS
from paraembed.settings import DataSet, TaskName
from paraembed.supervised.tasks import Examples, Rows, Split, Task, drawn_parts
from paraembed.text.trees import FAULTS, parse_trees

DATA_SETS: Mapping[str, tuple[DataSet, ...]] = {
    "similarity": ("sick", "sts"),
    "entailment": ("sick",),
    "sentiment": ("sst",),
    "semeval2013": ("semeval2013",),
    "turney": ("turney",),
}
"""Task → its data sets; the first is the default."""
_SICK = {"train": "sick/SICK_train.txt", "dev": "sick/SICK_trial.txt", "test": "sick/SICK_test_annotated.txt"}
_JUDGEMENTS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
_STS_YEARS = ("2012", "2013", "2014", "2015")
_STS_SHARES = (0.4, 0.1)  # of each set, for train and dev; Wieting 2017 §4.3
_SEMEVAL = "phrase/semeval2013_5a/en.trainSet", "phrase/semeval2013_5a/en.testSet"
_TURNEY = "phrase/turney2012_jair.data"
_DEV = 0.1


def read_task(name: str, data_set: str | None, data: Path, seed: int) -> Task:
    """Read a task, one of ``TaskName``, from the data folder with ``sick/``, ``sst/``, ``sts/``, ``phrase/``.

    The data set is one of ``DATA_SETS``; None: the first. The seed decides the splits of sts, semeval2013 and turney;
    the other splits are published.

    Raises:
        FileNotFoundError: a file is missing; the message names it and the task.
        ValueError: the task or set is unknown, or a file cannot be read (the message names the line).
    """
    if name not in get_args(TaskName):
        raise ValueError(f"unknown task {name!r}; allowed: {', '.join(get_args(TaskName))}")
    allowed = DATA_SETS[name]
    chosen = allowed[0] if data_set is None else data_set
    if chosen not in allowed:
        raise ValueError(f"the task {name!r} has no data set {chosen!r}; allowed: {', '.join(allowed)}")
    if name == "sentiment":
        return read_sst(data)
    if name == "semeval2013":
        return read_semeval2013(data, seed)
    if name == "turney":
        return read_turney(data, seed)
    return read_sts(data, seed) if chosen == "sts" else read_sick(data, name)


def read_sick(data: Path, task: str) -> Task:
    """Read SICK (Marelli et al. 2014), relatedness or entailment, with its published splits: 4,500 training, 500 dev
    (trial) and 4,927 test pairs.
    """
    files = [(name, file_of(data, name, f"task {task!r}")) for name in _SICK.values()]
    train, dev, test = (_sick_part(path, task) for _, path in files)
    notes = changed_files(files)
    if task == "entailment":
        return Task("entailment", "sick", train, dev, test, _JUDGEMENTS, notes)
    return Task("similarity", "sick", train, dev, test, tuple("12345"), notes)


def read_sts(data: Path, seed: int) -> Task:
    """Read the available STS sets of 2012 to 2015 (``sts/<year>/<set>.tsv``, or ``.gz``), each split 40 : 10 : 50
    (Wieting 2017 §4.3); scores 0 to 5.

    The paper does not publish its split. Here each set's split depends only on its name and the seed, not on which
    other sets are available.
    """
    root = data / "sts"
    files = {
        f"{year}/{path.name.removesuffix('.gz').removesuffix('.tsv')}": path
        for year in _STS_YEARS
        for path in sorted([*root.glob(f"{year}/*.tsv.gz"), *root.glob(f"{year}/*.tsv")])
    }
    if not files:
        raise FileNotFoundError(
            f"{root} has no <year>/<set>.tsv of {_STS_YEARS[0]} to {_STS_YEARS[-1]}, but the task 'similarity' needs "
            "at least one"
        )
    parts: list[list[Examples]] = [[], [], []]
    split: Split = {}
    for name, path in files.items():
        cells = suites.read_scored_cells(path)
        examples = Examples((cells.texts(1), cells.texts(2)), _graded(cells, 0, low=0))
        drawn = drawn_parts(len(examples), _STS_SHARES, f"sts/{name}", seed)
        for part, rows in zip(parts, drawn, strict=True):
            part.append(examples.take(rows))
        split[name] = {part: rows.tolist() for part, rows in zip(("train", "dev", "test"), drawn, strict=True)}
    train, dev, test = (Examples.joined(part) for part in parts)
    notes = (
        *_missing_sets(list(files)),
        f"drawn here: {len(train):,}, {len(dev):,} and {len(test):,} pairs of {len(files)} sets for train, dev and "
        "test; the paper's 4,481, 1,207 and 6,060 of 20 sets are others",
        f"of these {_repeated(dev, train):,} of dev and {_repeated(test, train):,} of test are also in train: the "
        "sets repeat pairs, within and across years",
        *changed_files([(f"sts/{path.parent.name}/{path.name}", path) for path in files.values()]),
    )
    return Task("similarity", "sts", train, dev, test, tuple("012345"), notes, split)


def read_semeval2013(data: Path, seed: int) -> Task:
    """Read SemEval 2013 5(a): does a word mean the same as a phrase (Korkontzelos et al. 2013)?

    A training example is a word, a phrase with its meaning, and a phrase with another meaning. The data set was built
    by word: for most words it has as many wrong as right phrases (4,315 of 4,828; one of each for 3,673). Phrases have
    zero to several wrong words (1,662 of 4,903 have one right word and no wrong one), so the contrasts are a word's
    phrases, not a phrase's words. An example is a right phrase with one wrong phrase; a word with several phrases gives
    all combinations, so that their terms add up to Zhou 2017's sum over contrasts. Words without a right or without a
    wrong phrase are not used for training.

    Dev: a random tenth of the words of en.trainSet, with all their pairs; test: en.testSet. Both are pairs of word and
    phrase with the label 1 (same meaning) or 0.
    """
    files = [(name, file_of(data, name, "task 'semeval2013'")) for name in _SEMEVAL]
    (pairs,) = suites.read_semeval2013(data).groups[0].sets
    assert isinstance(pairs, ThresholdPairs)
    words = pairs.train.second.to_pylist()
    number = {word: index for index, word in enumerate(dict.fromkeys(words))}
    dev_words, _ = drawn_parts(len(number), (_DEV,), _SEMEVAL[0], seed)
    is_dev = np.isin([number[word] for word in words], dev_words)
    dev_rows, train_rows = np.flatnonzero(is_dev), np.flatnonzero(~is_dev)
    given = _labeled(pairs.train)
    right, wrong = _contrasts(given, words, train_rows)
    train = Examples(
        (given.texts[0].take(right), given.texts[1].take(right), given.texts[1].take(wrong)), np.zeros(len(right))
    )
    return Task(
        "semeval2013",
        "semeval2013",
        train,
        dev=given.take(dev_rows),
        test=_labeled(pairs.test),
        notes=(
            f"{len(pairs.train):,} and {len(pairs.test):,} pairs for train and test; the paper has 11,722 and 7,814",
            *changed_files(files),
        ),
        split={_SEMEVAL[0]: {"train": train_rows.tolist(), "dev": dev_rows.tolist()}},
        threshold=given.take(train_rows),
    )


def read_turney(data: Path, seed: int) -> Task:
    """Read Turney's questions: which word means the same as a bigram (Turney 2012)?

    An example has 7 texts: bigram, reversed bigram, answer, 4 other words. The first 680 questions are for training,
    with a random tenth of them as dev set, and the other 1,500 for testing; the file does not mark the splits.
    """
    path = file_of(data, _TURNEY, "task 'turney'")
    _, ten = suites.read_turney(data).groups[0].sets
    assert isinstance(ten, Choices)
    if len(ten) <= TURNEY_TRAIN:
        raise ValueError(
            f"{path} has {len(ten)} questions; expected more than the {TURNEY_TRAIN} for training: download it again"
        )
    num_words = ten.first.shape[1] // 2
    columns = (ten.first[:, 0], ten.first[:, num_words], *ten.second[:, :num_words].T)
    questions = Examples(tuple(ten.distinct.take(pa.array(column)) for column in columns), np.zeros(len(ten)))
    dev_rows, train_rows = drawn_parts(TURNEY_TRAIN, (_DEV,), _TURNEY, seed)
    parts = {"train": train_rows, "dev": dev_rows, "test": np.arange(TURNEY_TRAIN, len(ten))}
    return Task(
        "turney",
        "turney",
        questions.take(train_rows),
        dev=questions.take(dev_rows),
        test=questions.take(parts["test"]),
        notes=(
            f"{_TURNEY} does not mark the {TURNEY_TRAIN} questions to train on; taken as its first ones",
            *changed_files([(_TURNEY, path)]),
        ),
        split={_TURNEY: {part: rows.tolist() for part, rows in parts.items()}},
    )


def _repeated(part: Examples, train: Examples) -> int:
    """Return the number of pairs that are also in the training set, in either order, ignoring case."""
    known = {*_unordered(train)}
    return sum(pair in known for pair in _unordered(part))


def _unordered(examples: Examples) -> list[frozenset[str]]:
    first, second = (pc.utf8_lower(side).to_pylist() for side in examples.texts)
    return [frozenset(pair) for pair in zip(first, second, strict=True)]


def _sick_part(path: Path, task: str) -> Examples:
    cells = read_cells(path, "\t", 5, header=True)
    labels = _judgements(cells) if task == "entailment" else _graded(cells, 3, low=1)
    return Examples((cells.texts(1), cells.texts(2)), labels)


def _graded(cells: Cells, column: int, low: int) -> npt.NDArray[np.float64]:
    """Return a column of scores from ``low`` to 5."""
    scores = cells.numbers(column)
    for row_number in np.flatnonzero((scores < low) | (scores > 5)).tolist():
        cells.refuse(row_number, f"the score is {scores[row_number]:g}; expected {low} to 5")
    return scores


def _judgements(cells: Cells) -> npt.NDArray[np.float64]:
    for number, row in enumerate(cells.rows):
        if row[4] not in _JUDGEMENTS:
            cells.refuse(number, f"the judgement is {row[4][:40]!r}; expected {', '.join(_JUDGEMENTS)}")
    return np.array([_JUDGEMENTS.index(row[4]) for row in cells.rows], np.float64)


def _missing_sets(available: list[str]) -> tuple[str, ...]:
    missing = [
        f"{year}/{name}" for year in _STS_YEARS for name in PAPERS_STS[year] if f"{year}/{name}" not in available
    ]
    return (f"sts is without {', '.join(missing)}",) if missing else ()


def _labeled(pairs: ScoredPairs) -> Examples:
    """Return word, phrase and label as examples."""
    return Examples((pairs.second, pairs.first), pairs.scores)


def _contrasts(given: Examples, words: list[str], rows: Rows) -> tuple[Rows, Rows]:
    """Return the rows of all combinations of a right and a wrong phrase of the same word, in the right ones' order."""
    wrong: dict[str, list[int]] = {}
    for row in rows.tolist():
        if given.labels[row] == 0:
            wrong.setdefault(words[row], []).append(row)
    pairs = [(row, other) for row in rows.tolist() if given.labels[row] for other in wrong.get(words[row], ())]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


_NEUTRAL = 2
_MOST_CHARACTERS = 20_000  # of a line; the longest of SST has 700, and a tree's constituents take its square
_PARTS = ("train", "dev", "test")
_TWO_WORDS = re.compile("\\((.) ([^\\s()]+)\xa0([^\\s()]+)\\)")  # "8\xa01\\/2" is a word there, and two to a tokenizer
_STANDS_FOR = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


@dataclass(frozen=True)
class _Constituent:
    label: int
    text: str
    tree: str


def read_sst(data: Path) -> Task:
    """Read negative and positive texts: constituents for training, sentences for dev and test, without neutral ones.

    Training set: all non-neutral constituents of every non-neutral training sentence, each distinct text and label
    once. These are 67,349 constituents of 6,920 sentences, the number in the authors' file, and except for the spelling
    of 240 texts (``colour``, ``gonna``) the same texts. The constituents of neutral sentences would add 10,267. Dev and
    test sets: 872 and 1,821 sentences.

    The texts are tokenized; the tokenizer ``space`` returns the leaves of every tree, whereas ``ptb-v1`` splits words
    like ``and/or`` and so does not fit 810 of the training trees.
    """
    files = [(name, file_of(data, name, "task 'sentiment'")) for name in (f"sst/{part}.txt.gz" for part in _PARTS)]
    train, dev, test = (_sentences(path) for _, path in files)
    constituents = {
        (node.text, node.label > _NEUTRAL): node for tree in train for node in tree if node.label != _NEUTRAL
    }
    return Task(
        "sentiment",
        "sst",
        _examples([*constituents.values()]),
        _examples([tree[-1] for tree in dev]),
        _examples([tree[-1] for tree in test]),
        ("negative", "positive"),
        changed_files(files),
    )


def _sentences(path: Path) -> list[list[_Constituent]]:
    """Return the constituents of each non-neutral sentence; the last one is the sentence itself."""
    lines = [(f"{path}, line {number}", line) for number, line in enumerate(read_text(path), 1) if line.strip()]
    for where, line in lines:
        if len(line) > _MOST_CHARACTERS:
            raise _refusal(where, f"the line has {len(line):,} characters; allowed: up to {_MOST_CHARACTERS:,}")
    texts = [_TWO_WORDS.sub(r"(\1 (2 \2) (2 \3))", line) for _, line in lines]
    parsed = parse_trees(pa.array(texts, pa.string()), np.full(len(texts), -1))
    words = [_plain(word) for word in parsed.words.to_pylist()]
    nodes, leaf_offsets, node_offsets = (
        numbers.tolist() for numbers in (parsed.nodes, parsed.leaf_offsets, parsed.node_offsets)
    )
    trees = []
    for number, ((where, _), text) in enumerate(zip(lines, texts, strict=True)):
        if fault := FAULTS[parsed.faults[number]]:
            raise _refusal(where, fault)
        leaves = words[leaf_offsets[number] : leaf_offsets[number + 1]]
        trees.append(
            _constituents(nodes[node_offsets[number] : node_offsets[number + 1]], text.encode(), leaves, where)
        )
    kept = [tree for tree in trees if tree[-1].label != _NEUTRAL]
    if not kept:
        raise ValueError(f"{path} has no non-neutral sentences; download it again")
    return kept


def _constituents(nodes: list[list[int]], text: bytes, words: list[str], where: str) -> list[_Constituent]:
    if not nodes:
        raise _refusal(where, "a word without a label")
    tree = []
    for start, stop, label_start, label_stop, first, last in nodes:
        label = text[label_start:label_stop] if label_start >= 0 else b""
        if label not in {b"0", b"1", b"2", b"3", b"4"}:
            raise _refusal(where, f"the label is {label.decode()[:40]!r}; expected 0 to 4")
        tree.append(_Constituent(int(label), " ".join(words[first:last]), text[start:stop].decode()))
    return tree


def _plain(word: str) -> str:
    return _STANDS_FOR.get(word, word).replace(r"\/", "/").replace(r"\*", "*")


def _examples(chosen: list[_Constituent]) -> Examples:
    texts, trees = ([getattr(node, field) for node in chosen] for field in ("text", "tree"))
    labels = np.array([node.label > _NEUTRAL for node in chosen], np.float64)
    return Examples((pa.array(texts, pa.string()),), labels, (pa.array(trees, pa.string()),))


def _refusal(where: str, what: str) -> ValueError:
    return ValueError(
        f"{where}: {what}; expected a tree such as (3 (2 fine) (2 films)); correct the file, or download it again"
    )
