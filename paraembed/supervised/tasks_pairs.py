"""Tasks on pairs of sentences: SICK's relatedness and entailment, and the STS sets of 2012 to 2015."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from paraembed.data.similarity import read_scored_pairs
from paraembed.evaluation.cells import Cells, read_cells, read_text
from paraembed.evaluation.known_files import changed_files
from paraembed.papers.results import PAPERS_STS
from paraembed.supervised.parts import Examples, Split, Task, drawn_parts, file_of

_SICK = {"train": "sick/SICK_train.txt", "dev": "sick/SICK_trial.txt", "test": "sick/SICK_test_annotated.txt"}
_JUDGEMENTS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
_STS_YEARS = ("2012", "2013", "2014", "2015")
_STS_SHARES = (0.4, 0.1)  # of each set, for train and dev; Wieting 2017 §4.3


def read_sick(data: Path, task: str) -> Task:
    """SICK (Marelli et al. 2014) as published: 4,500 pairs to train on, 500 trial pairs for dev, 4,927 to test on.

    Args:
        data: folder with ``sick/``.
        task: ``similarity`` (relatedness, 1 to 5) or ``entailment`` (three classes).
    """
    files = [(name, file_of(data, task, name)) for name in _SICK.values()]
    train, dev, test = (_sick_part(path, task) for _, path in files)
    notes = changed_files(files)
    if task == "entailment":
        return Task("entailment", "sick", train, dev, test, _JUDGEMENTS, 0, "accuracy", notes)
    return Task("similarity", "sick", train, dev, test, tuple("12345"), 1, "pearson", notes)


def read_sts(data: Path, seed: int) -> Task:
    """The STS sets of 2012 to 2015 that are there, each 40 : 10 : 50 (Wieting 2017 §4.3); scores 0 to 5.

    The paper does not say which pairs it drew. Here each set's draw depends on its name and the seed, not on what other
    sets there are.

    Args:
        data: folder with ``sts/<year>/<set>.tsv``, or ``.gz``.
        seed: of the draw.
    """
    root = data / "sts"
    files = {
        f"{year}/{path.name.removesuffix('.gz').removesuffix('.tsv')}": path
        for year in _STS_YEARS
        for path in sorted([*root.glob(f"{year}/*.tsv.gz"), *root.glob(f"{year}/*.tsv")])
    }
    if not files:
        raise FileNotFoundError(
            f"{root} has no <year>/<set>.tsv of {_STS_YEARS[0]} to {_STS_YEARS[-1]}; the task 'similarity' needs one"
        )
    parts: list[list[Examples]] = [[], [], []]
    split: Split = {}
    for name, path in files.items():
        pairs = read_scored_pairs(path)
        wrong = np.flatnonzero((pairs.scores < 0) | (pairs.scores > 5))
        if len(wrong):
            line = len(read_text(path)) - len(pairs) + int(wrong[0]) + 1  # there may be a header
            raise ValueError(f"{path}, line {line}: the score is {pairs.scores[wrong[0]]:g}; expected 0 to 5")
        examples = Examples(pairs.texts, pairs.scores)
        drawn = drawn_parts(len(pairs), _STS_SHARES, f"sts/{name}", seed)
        for part, rows in zip(parts, drawn, strict=True):
            part.append(examples.take(rows))
        split[name] = {part: rows.tolist() for part, rows in zip(("train", "dev", "test"), drawn, strict=True)}
    train, dev, test = (Examples.joined(part) for part in parts)
    notes = (
        *_missing_sets(list(files)),
        f"drawn here: {len(train):,}, {len(dev):,} and {len(test):,} pairs of {len(files)} sets for train, dev and "
        "test; the paper's 4,481, 1,207 and 6,060 of 20 sets are others",
        f"of these {_repeated(dev, train):,} of dev and {_repeated(test, train):,} of test stand in train, too: the "
        "sets repeat pairs, within and across years",
        *changed_files([(f"sts/{path.parent.name}/{path.name}", path) for path in files.values()]),
    )
    scores = tuple("012345")
    return Task("similarity", "sts", train, dev, test, scores, 0, "pearson", notes, split)


def _repeated(part: Examples, train: Examples) -> int:
    """How many pairs stand in the training part, in either order, apart from case."""
    known = {*_unordered(train)}
    return sum(pair in known for pair in _unordered(part))


def _unordered(examples: Examples) -> list[frozenset[str]]:
    first, second = (pc.utf8_lower(one).to_pylist() for one in examples.texts)
    return [frozenset(pair) for pair in zip(first, second, strict=True)]


def _sick_part(path: Path, task: str) -> Examples:
    cells = read_cells(path, "\t", 5, has_header=True)
    labels = _judgements(cells) if task == "entailment" else _relatedness(cells)
    return Examples((cells.texts(1), cells.texts(2)), labels)


def _relatedness(cells: Cells) -> npt.NDArray[np.float64]:
    scores = cells.numbers(3)
    for at in np.flatnonzero((scores < 1) | (scores > 5)).tolist():
        cells.refuse(at, f"the score is {scores[at]:g}; expected 1 to 5")
    return scores


def _judgements(cells: Cells) -> npt.NDArray[np.float64]:
    for at, row in enumerate(cells.rows):
        if row[4] not in _JUDGEMENTS:
            cells.refuse(at, f"the judgement is {row[4][:40]!r}; expected {', '.join(_JUDGEMENTS)}")
    return np.array([_JUDGEMENTS.index(row[4]) for row in cells.rows], np.float64)


def _missing_sets(there: list[str]) -> tuple[str, ...]:
    missing = [f"{year}/{name}" for year in _STS_YEARS for name in PAPERS_STS[year] if f"{year}/{name}" not in there]
    return (f"sts is without {', '.join(missing)}",) if missing else ()
