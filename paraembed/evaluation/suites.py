"""Suites of sets by name, and how the data folder holds them."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from paraembed.evaluation.known_files import changed_files
from paraembed.evaluation.loaders import (
    read_bigrams,
    read_phrases,
    read_pit2015,
    read_scored_pairs,
    read_semeval2013,
    read_sick,
    read_turney,
    read_words,
)
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.io.escape import listed
from paraembed.papers.results import PAPERS_STS

HEURISTICS = "ppdb-heuristics"
"""Two baselines: word overlap, strict and lemmatized. As a suite: the suite phrases with these baselines."""
_TAKEN = {"mean", "pooled"}  # what scores over several sets are called
_BENCHMARK = "STS benchmark dev: 1,129 of its 1,500 pairs are in the years' sets, too; who tunes on it has seen them."


def read_sts(folder: Path) -> Suite:
    """SemEval's semantic textual similarity tasks: ``<year>/<set>.tsv``, or ``.gz``, in a folder or in its ``sts``.

    As in the papers a set's score is the correlation of the cosine with the gold score, a year's the mean of its sets.
    The development set of the STS benchmark, ``benchmark/dev.tsv``, is a group without a mean: most of its
    pairs are in the years' sets.

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
        if not years:
            continue
        groups = [Group(year, _read_sets(paths)) for year, paths in sorted(years.items())]
        notes = _missing_sets(groups)
        files = [(f"sts/{path.parent.name}/{path.name}", path) for paths in years.values() for path in paths]
        benchmark = root / "benchmark" / "dev.tsv"
        if benchmark.exists():
            groups.append(Group("benchmark", (read_scored_pairs(benchmark),), has_mean=False))
            files.append(("sts/benchmark/dev.tsv", benchmark))
            notes += (_BENCHMARK,)
        return Suite("sts", tuple(groups), "year", notes=notes + changed_files(files))
    raise ValueError(f"{folder} holds no STS sets; expected <year>/<set>.tsv in it or in {folder / 'sts'}")


SUITES: dict[str, Callable[[Path], Suite]] = {
    "sts": read_sts,
    "sick": read_sick,
    "pit2015": read_pit2015,
    "words": read_words,
    "bigrams": read_bigrams,
    "phrases": read_phrases,
    "semeval2013": read_semeval2013,
    "turney": read_turney,
}
"""Name → reader of the data folder."""


def read_suites(names: Sequence[str], data: Path) -> tuple[Suite, ...]:
    """Suites by name, in the order of ``SUITES``; ``all`` selects every one.

    Raises:
        ValueError: an unknown name, with those that are allowed; a set that cannot be read.
        FileNotFoundError: a suite's files are not there.
    """
    unknown = [name for name in names if name not in {*SUITES, "all"}]
    if unknown:
        raise ValueError(f"unknown suite {unknown[0]!r}; allowed: all, {', '.join(SUITES)}")
    return tuple(read(data) for name, read in SUITES.items() if name in names or "all" in names)


def read_pairs_files(paths: Sequence[Path]) -> Suite:
    """A suite ``pairs`` of files of scored pairs that a user named.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: a file that cannot be read; two of the same name.
    """
    return Suite("pairs", (Group("", _read_sets(paths)),))


def _missing_sets(years: Sequence[Group]) -> tuple[str, ...]:
    """One note for every year whose mean is over fewer sets than the papers' mean of that year."""
    notes = []
    for year in years:
        available = {pairs.name for pairs in year.sets}
        missing = [name for name in PAPERS_STS.get(year.name, ()) if name not in available]
        if missing:
            notes.append(
                f"STS {year.name} is without {', '.join(missing)}: "
                f"its mean is not the papers' mean, which is over {len(PAPERS_STS[year.name])} sets."
            )
    return tuple(notes)


def _read_sets(paths: Sequence[Path]) -> tuple[ScoredPairs, ...]:
    sets = tuple(read_scored_pairs(path) for path in paths)
    name, times = Counter(pairs.name for pairs in sets).most_common(1)[0]
    if times > 1:
        same = [str(path) for path, pairs in zip(paths, sets, strict=True) if pairs.name == name]
        raise ValueError(f"{times} sets are named {name!r} ({listed(same)}); rename or leave out all but one")
    for path, pairs in zip(paths, sets, strict=True):
        if pairs.name in _TAKEN:
            raise ValueError(f"{path}: {pairs.name!r} is the name of a score over several sets; rename the file")
    return sets
