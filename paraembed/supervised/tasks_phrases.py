"""Tasks on words and two-word phrases: SemEval 2013 task 5(a) and Turney's questions (Zhou 2017 §3.2)."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from paraembed.data.similarity import ScoredPairs
from paraembed.evaluation import loaders
from paraembed.evaluation.known_files import changed_files
from paraembed.evaluation.sets import Choices, ThresholdPairs
from paraembed.supervised.parts import Examples, Rows, Task, drawn_parts, file_of

_SEMEVAL = "phrase/semeval2013_5a/en.trainSet", "phrase/semeval2013_5a/en.testSet"
_TURNEY = "phrase/turney2012_jair.data"
_TURNEY_TRAIN = 680  # of 2,180 questions; Turney 2012, Zhou 2017 table 2
_DEV = 0.1


def read_semeval2013(data: Path, seed: int) -> Task:
    """Does a word mean what a phrase means (Korkontzelos et al. 2013)?

    Train: a word, a phrase that means it, a phrase that does not. The data set was made by words: it puts as many wrong
    as right phrases beside most of them (4,315 of 4,828; one of each beside 3,673). Phrases have none to several wrong
    words (1,662 of 4,903 have one right word and no wrong one), so a word's phrases are contrasted here, not a
    phrase's words. An example is a right phrase with one wrong phrase; of a word with several all combinations are
    there, so that their terms add up to Zhou 2017's sum over contrasts. A word that lacks either is not trained on.

    Dev: a drawn tenth of the words of en.trainSet, with all their pairs; test: en.testSet. Both are pairs of word and
    phrase, labelled 1 the same or 0 not.

    Args:
        data: folder with ``phrase/semeval2013_5a/``.
        seed: of the draw of dev.
    """
    files = [(name, file_of(data, "semeval2013", name)) for name in _SEMEVAL]
    (pairs,) = loaders.read_semeval2013(data).groups[0].sets
    assert isinstance(pairs, ThresholdPairs)
    words = pairs.train.second.to_pylist()
    number = {word: at for at, word in enumerate(dict.fromkeys(words))}
    dev_words, _ = drawn_parts(len(number), (_DEV,), _SEMEVAL[0], seed)
    is_dev = np.isin([number[word] for word in words], dev_words)
    dev_rows, train_rows = np.flatnonzero(is_dev), np.flatnonzero(~is_dev)
    given = _labelled(pairs.train)
    right, wrong = _contrasts(given, words, train_rows)
    train = Examples(
        (given.texts[0].take(right), given.texts[1].take(right), given.texts[1].take(wrong)), np.zeros(len(right))
    )
    return Task(
        "semeval2013",
        "semeval2013",
        train,
        dev=given.take(dev_rows),
        test=_labelled(pairs.test),
        classes=(),
        low=0,
        measure="accuracy",
        notes=(
            f"{len(pairs.train):,} and {len(pairs.test):,} pairs for train and test; the paper has 11,722 and 7,814",
            *changed_files(files),
        ),
        split={_SEMEVAL[0]: {"train": train_rows.tolist(), "dev": dev_rows.tolist()}},
        threshold=given.take(train_rows),
    )


def read_turney(data: Path, seed: int) -> Task:
    """Which word means what a bigram means (Turney 2012)? 7 texts: bigram, reversed bigram, answer, 4 other words.

    The first 680 questions are to train on, a drawn tenth of them for dev, the 1,500 after them to test on: the file
    does not say which are which.

    Args:
        data: folder with ``phrase/turney2012_jair.data``.
        seed: of the draw of dev.
    """
    path = file_of(data, "turney", _TURNEY)
    _, ten = loaders.read_turney(data).groups[0].sets
    assert isinstance(ten, Choices)
    if len(ten) <= _TURNEY_TRAIN:
        raise ValueError(
            f"{path} has {len(ten)} questions; expected more than the {_TURNEY_TRAIN} to train on: fetch it again"
        )
    num_words = ten.first.shape[1] // 2
    columns = (ten.first[:, 0], ten.first[:, num_words], *ten.second[:, :num_words].T)
    questions = Examples(tuple(ten.distinct.take(pa.array(column)) for column in columns), np.zeros(len(ten)))
    dev_rows, train_rows = drawn_parts(_TURNEY_TRAIN, (_DEV,), _TURNEY, seed)
    parts = {"train": train_rows, "dev": dev_rows, "test": np.arange(_TURNEY_TRAIN, len(ten))}
    return Task(
        "turney",
        "turney",
        questions.take(train_rows),
        dev=questions.take(dev_rows),
        test=questions.take(parts["test"]),
        classes=(),
        low=0,
        measure="accuracy",
        notes=(
            f"{_TURNEY} does not mark the {_TURNEY_TRAIN} questions to train on; taken as its first ones",
            *changed_files([(_TURNEY, path)]),
        ),
        split={_TURNEY: {part: rows.tolist() for part, rows in parts.items()}},
    )


def _labelled(pairs: ScoredPairs) -> Examples:
    """Word, phrase, label."""
    return Examples((pairs.second, pairs.first), pairs.scores)


def _contrasts(given: Examples, words: list[str], rows: Rows) -> tuple[Rows, Rows]:
    """Rows of right and of wrong phrases beside the same word, every combination; in the order of the right ones."""
    wrong: dict[str, list[int]] = {}
    for row in rows.tolist():
        if given.labels[row] == 0:
            wrong.setdefault(words[row], []).append(row)
    pairs = [(row, other) for row in rows.tolist() if given.labels[row] for other in wrong.get(words[row], ())]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
