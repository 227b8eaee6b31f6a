"""Which sets make a suite, and the scores of an encoder on it.

``sts``: SemEval's semantic textual similarity tasks, ``<year>/<set>.tsv``. As in the papers a set's score is the
correlation of the cosine with the gold score, a year's the mean of its sets, and the last line the mean of the years.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.data.similarity import ScoredPairs, read_scored_pairs
from paraembed.encoders import Embedded, Encoder
from paraembed.evaluation.correlation import cosine, pearson, spearman

PAPERS_STS = {
    "2012": ("MSRpar", "MSRvid", "OnWN", "SMTeuroparl", "SMTnews"),
    "2013": ("FNWN", "OnWN", "SMT", "headlines"),
    "2014": ("OnWN", "deft-forum", "deft-news", "headlines", "images", "tweet-news"),
    "2015": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "2016": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
"""The sets behind the papers' means (Wieting 2016, 2017), under their official file names."""


@dataclass(frozen=True)
class Group:
    """Sets that share a mean, as a year of STS; without a name, files that a user put together: no mean."""

    name: str
    sets: tuple[ScoredPairs, ...]


@dataclass(frozen=True)
class Suite:
    """Groups of sets; ``group_is`` is what a group is called in the mean over them."""

    name: str
    groups: tuple[Group, ...]
    group_is: str = "group"


@dataclass(frozen=True)
class Score:
    """One line of a report: a set, or a mean over several.

    Attributes:
        name: for machines: ``sts/2012/MSRpar``, ``sts/2012/mean``, ``sts/mean``.
        label: for people: ``2012 MSRpar``, ``2012 mean of 5 sets``, ``mean of 5 years``.
        pearson: correlation, or mean of correlations.
        spearman: the same.
        num_pairs: how many pairs lie behind it.
        num_tokens: tokens of both sides of the pairs.
        num_unknown: those of them that are not in the vocabulary.
        is_mean: whether it is a mean over sets or groups.
    """

    name: str
    label: str
    pearson: float
    spearman: float
    num_pairs: int
    num_tokens: int
    num_unknown: int
    is_mean: bool = False

    @property
    def unknown_share(self) -> float:
        """Share of the tokens that are not in the vocabulary."""
        return self.num_unknown / max(self.num_tokens, 1)


def read_sts(folder: Path) -> Suite:
    """The STS sets below a folder: ``<year>/<set>.tsv`` in it or in its subfolder ``sts``, plain or ``.gz``.

    Raises:
        FileNotFoundError, NotADirectoryError: no such folder.
        ValueError: no set in it, or a set that cannot be read.
    """
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; expected a folder with STS sets: <year>/<set>.tsv")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; expected a folder with STS sets: <year>/<set>.tsv")
    for root in (folder, folder / "sts"):
        years: dict[str, list[Path]] = {}
        for path in sorted([*root.glob("[0-9][0-9][0-9][0-9]/*.tsv"), *root.glob("[0-9][0-9][0-9][0-9]/*.tsv.gz")]):
            years.setdefault(path.parent.name, []).append(path)
        if years:
            groups = (Group(year, _read_sets(paths)) for year, paths in sorted(years.items()))
            return Suite("sts", tuple(groups), "year")
    raise ValueError(f"{folder} holds no STS sets; expected <year>/<set>.tsv in it or in {folder / 'sts'}")


def read_pairs_files(paths: Sequence[Path]) -> Suite:
    """A suite ``pairs`` of files of scored pairs that a user named.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: a file that cannot be read; two of the same name.
    """
    return Suite("pairs", (Group("", _read_sets(paths)),))


def missing_from_papers(suite: Suite) -> list[str]:
    """One note for every STS year whose mean is over fewer sets than the papers' mean of that year."""
    notes = []
    for year in suite.groups if suite.name == "sts" else ():
        there = {pairs.name for pairs in year.sets}
        missing = [name for name in PAPERS_STS.get(year.name, ()) if name not in there]
        if missing:
            notes.append(
                f"STS {year.name} is without {', '.join(missing)}: "
                f"its mean is not the papers' mean, which is over {len(PAPERS_STS[year.name])} sets."
            )
    return notes


def score_suite(encoder: Encoder, suite: Suite) -> tuple[Score, ...]:
    """Score an encoder: each set, the mean of each group's sets, the mean of the groups' means.

    Sets of a group without a name have no mean. Every distinct sentence is encoded once.

    Raises:
        ValueError: a correlation that is not defined, with the set's name.
    """
    sides = [side for group in suite.groups for pairs in group.sets for side in (pairs.first, pairs.second)]
    sentences = pc.unique(pa.chunked_array(sides))
    embedded = encoder.embed(sentences)
    encoder.warn_of_unread(embedded)
    lines: list[Score] = []
    means: list[Score] = []
    for group in suite.groups:
        name, label = (f"{suite.name}/{group.name}", f"{group.name} ") if group.name else (suite.name, "")
        scores = [
            _score(pairs, sentences, embedded, f"{name}/{pairs.name}", f"{label}{pairs.name}") for pairs in group.sets
        ]
        lines += scores
        if group.name:
            means.append(_mean(scores, f"{name}/mean", f"{label}{_mean_of(scores, 'set')}"))
            lines.append(means[-1])
    if means:
        lines.append(_mean(means, f"{suite.name}/mean", _mean_of(means, suite.group_is)))
    return tuple(lines)


def _score(pairs: ScoredPairs, sentences: pa.StringArray, embedded: Embedded, name: str, label: str) -> Score:
    """Score of one set, whose sentences are rows of ``embedded``."""
    first, second = (pc.index_in(side, value_set=sentences).to_numpy() for side in (pairs.first, pairs.second))
    predicted = cosine(embedded.vectors[first], embedded.vectors[second])
    try:
        r, rho = pearson(predicted, pairs.scores), spearman(predicted, pairs.scores)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    rows = np.concatenate([first, second])
    num_tokens, num_unknown = int(embedded.num_tokens[rows].sum()), int(embedded.num_unknown[rows].sum())
    return Score(name, label, r, rho, len(rows) // 2, num_tokens, num_unknown)


def _mean_of(scores: Sequence[Score], what: str) -> str:
    return f"mean of {len(scores)} {what}{'' if len(scores) == 1 else 's'}"


def _mean(scores: Sequence[Score], name: str, label: str) -> Score:
    return Score(
        name,
        label,
        float(np.mean([score.pearson for score in scores])),
        float(np.mean([score.spearman for score in scores])),
        sum(score.num_pairs for score in scores),
        sum(score.num_tokens for score in scores),
        sum(score.num_unknown for score in scores),
        is_mean=True,
    )


def _read_sets(paths: Sequence[Path]) -> tuple[ScoredPairs, ...]:
    sets = tuple(read_scored_pairs(path) for path in paths)
    name, times = Counter(pairs.name for pairs in sets).most_common(1)[0]
    if times > 1:
        same = [str(path) for path, pairs in zip(paths, sets, strict=True) if pairs.name == name]
        raise ValueError(f"{times} sets are named {name!r} ({', '.join(same)}); rename or leave out all but one")
    return sets
