"""Suites of published data sets by name: their files, digests and readers.

Quotes are plain characters in all of these files. Every reader takes the data folder. A missing set becomes a note; a
suite without any set is an error.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.aliases import did_you_mean
from paraembed.evaluation.sets import AnySet, Choices, Group, Measure, ScoredPairs, Suite, ThresholdPairs
from paraembed.io.escape import listed, printable
from paraembed.io.fingerprint import sha256_of
from paraembed.io.inflate import read_blocks
from paraembed.io.lines import read_text
from paraembed.io.tables import Cells, read_cells
from paraembed.pairs.sample_suites import NOTE
from paraembed.papers.results import PAPERS_STS

_DIGESTS = Path(__file__).with_name("known_files.sha256").read_text(encoding="utf-8").splitlines()  # by sha256sum
KNOWN_FILES = {name: digest for digest, name in map(str.split, _DIGESTS)}
"""Path in the data folder → sha256."""


def changed_files(files: Sequence[tuple[str, Path]]) -> tuple[str, ...]:
    """Return a note that names the files whose content differs from the known files; an empty result if none does.

    A file is its path in the data folder, and the actual file; a ``.gz`` file counts as its decompressed content.
    """
    changed = [name for name, path in files if _is_changed(name, path)]
    if not changed:
        return ()
    return (f"not the known files, by their sha256: {', '.join(changed)}; other scores may be over other pairs",)


def _is_changed(name: str, path: Path) -> bool:
    if name in KNOWN_FILES:
        return sha256_of(path) != KNOWN_FILES[name]
    inside = KNOWN_FILES.get(name.removesuffix(".gz"))
    if inside is None:
        return False
    return hashlib.sha256(b"".join(read_blocks(path, 1 << 20))).hexdigest() != inside


def file_of(data: Path, name: str, needed_by: str) -> Path:
    """Return the path of a file in the data folder; raise FileNotFoundError if it is missing."""
    if not (data / name).exists():
        raise FileNotFoundError(
            f"{data / name} does not exist, but the {needed_by} needs it; download the data, or choose another data "
            "folder"
        )
    return data / name


_BIGRAMS = {"adjectivenouns": "JN", "compoundnouns": "NN", "verbobjects": "VN"}
_COLUMNS = {
    "sick/SICK_test_annotated.txt": ("test", "\t", 5, True, (3, 1, 2)),
    "word/SimLex-999.txt": ("simlex999", "\t", 10, True, (3, 0, 1)),
    "word/ws353.txt": ("ws353", "\t", 3, False, (2, 0, 1)),
    "word/ws353-sim.txt": ("ws353-sim", "\t", 3, False, (2, 0, 1)),
    "word/ws353-rel.txt": ("ws353-rel", "\t", 3, False, (2, 0, 1)),
    "phrase/pavlick2015_ppdb_human.tsv.gz": ("pavlick", "\t", 5, False, (0, 2, 3)),
    "phrase/annotated_ppdb_3k.txt": ("annotated-ppdb", "|||", 3, False, (2, 0, 1)),
    **{
        f"phrase/ml_paraphrase_{kind}.txt": (f"ml-paraphrase-{kind.upper()}", "|||", 3, False, (2, 0, 1))
        for kind in ("jn", "nn", "vn")
    },
}
"""File → name of its set, separator, number of columns, whether it has a header, and columns of score and texts."""


def read_scored_pairs(path: Path, columns: Sequence[str] | None = None) -> ScoredPairs:
    """Read score and two sentences, separated by tabs; the set's name is the file name without ``.tsv`` and ``.gz``.

    ``columns`` are those of both sentences and of the score, by name or number, if the file has others; None in suites.

    Raise ValueError, with file and line, if a line is not a scored pair, or the file has no pairs.
    """
    hint = "" if columns is None else "; name other columns with `pair_columns`"
    cells = _chosen_cells(path, columns) if columns else read_scored_cells(path, hint)
    name = printable(path.name.removesuffix(".gz").removesuffix(".tsv"))
    return ScoredPairs(name, cells.numbers(0), cells.texts(1), cells.texts(2))


def read_scored_cells(path: Path, hint: str = "") -> Cells:
    """Read the rows of a file of scored pairs, with a header or without; errors have the hint."""
    names = f"score, first sentence, second sentence{hint}"
    return read_cells(path, "\t", names, header="score\tsentence1\tsentence2")


def _chosen_cells(path: Path, columns: Sequence[str]) -> Cells:
    """Return score, first and second sentence of a tab-separated file, given the columns of both and of the score.

    Columns by name need a header. If all are numbers, from 1, a first line whose score is not a number is a header.
    """
    rows = [line.split("\t") for line in read_text(path)]
    places = [int(name) - 1 if name.isdecimal() else rows[0].index(name) if name in rows[0] else -1 for name in columns]
    wrong = [name for name, place in zip(columns, places, strict=True) if not 0 <= place < len(rows[0])]
    if wrong:
        names = ", ".join(f"{number} {name[:40]!r}" for number, name in enumerate(rows[0], start=1))
        raise ValueError(f"{path} has no column {wrong[0]!r} for `pair_columns`; its first line has: {names}")
    first, second, score = places
    has_header = not all(map(str.isdecimal, columns)) or re.search(r"\d|^\s*$", rows[0][score]) is None
    cells = Cells(path, 1 + has_header, rows[has_header:], f"expected {max(places) + 1} or more, separated by tabs")
    for number, row in enumerate(cells.rows):
        if len(row) <= max(places):
            cells.refuse(number, f"{len(row)} columns; {cells.expected}")
    return replace(cells, rows=[[row[score], row[first], row[second]] for row in cells.rows])


def read_sick(data: Path) -> Suite:
    """Read the test set of SICK relatedness (Marelli et al. 2014)."""
    file = "sick/SICK_test_annotated.txt"
    file_of(data, file, "suite 'sick'")
    return _suite("sick", data, [file], [_read_columns(data, file)])


def read_pit2015(data: Path) -> Suite:
    """Read Twitter paraphrases (Xu et al. 2015): graded scores of all 972 test pairs, including debatable ones."""
    texts, labels = (file_of(data, f"pit2015/test.{kind}", "suite 'pit2015'") for kind in ("data", "label"))
    tweets, graded = read_cells(texts, "\t", 7), read_cells(labels, "\t", 2)
    if len(tweets.rows) != len(graded.rows):
        raise ValueError(
            f"{texts} has {len(tweets.rows)} lines, but {labels} has {len(graded.rows)}; expected one label per line"
        )
    pairs = ScoredPairs("test", graded.numbers(1), tweets.texts(2), tweets.texts(3))
    return _suite("pit2015", data, ["pit2015/test.data", "pit2015/test.label"], [pairs])


def read_words(data: Path) -> Suite:
    """Read SimLex-999 (Hill et al. 2014), WordSim-353 (Finkelstein 2002) and its subsets (Agirre et al. 2009)."""
    return _of_available("words", data, [file for file in _COLUMNS if file.startswith("word/")])


def read_bigrams(data: Path) -> Suite:
    """Read bigram similarity (Mitchell and Lapata 2010): mean rating of each pair, by type; and, if its files exist,
    ML-Paraphrase (Wieting 2015 §3.1), in the form of Annotated-PPDB.

    For verb–object bigrams, the file lists the object first; here the verb comes first, as in a text.
    """
    path = file_of(data, "phrase/mitchell_lapata_2010.txt", "suite 'bigrams'")
    ratings: dict[str, dict[tuple[str, str], dict[str, float]]] = {kind: defaultdict(dict) for kind in _BIGRAMS}
    cells = read_cells(path, " ", 8, header=True)
    rows = zip(cells.rows, cells.numbers(7), strict=True)
    for row, ((rater, kind, _, first, two, three, four, _), rating) in enumerate(rows):
        if kind not in ratings:
            cells.refuse(row, f"type {kind[:40]!r}; expected {', '.join(_BIGRAMS)}")
        pair = (f"{two} {first}", f"{four} {three}") if kind == "verbobjects" else (f"{first} {two}", f"{three} {four}")
        ratings[kind][pair][rater] = rating
    sets = [
        ScoredPairs(
            _BIGRAMS[kind],
            np.array([np.mean([*ratings.values()]) for ratings in rated.values()]),
            pa.array([phrase for phrase, _ in rated], pa.string()),
            pa.array([other for _, other in rated], pa.string()),
            _by_rater([*rated.values()]),
        )
        for kind, rated in ratings.items()
        if rated
    ]
    others = [file for file in _COLUMNS if "ml_paraphrase" in file and (data / file).exists()]
    sets += [_read_columns(data, file) for file in others]
    return _suite("bigrams", data, ["phrase/mitchell_lapata_2010.txt", *others], sets, "spearman")


def read_phrases(data: Path) -> Suite:
    """Read phrase pairs of PPDB: Pavlick et al. 2015, and all 3,000 pairs of Annotated-PPDB (Wieting et al. 2015)."""
    return _of_available("phrases", data, ["phrase/pavlick2015_ppdb_human.tsv.gz", "phrase/annotated_ppdb_3k.txt"])


def read_semeval2013(data: Path) -> Suite:
    """Read SemEval 2013 task 5(a) (Korkontzelos et al. 2013): whether a word means the same as a two-word phrase."""
    names = [f"phrase/semeval2013_5a/en.{part}Set" for part in ("train", "test")]
    train, test = (_word_and_phrase(file_of(data, name, "suite 'semeval2013'")) for name in names)
    return _suite("semeval2013", data, names, [ThresholdPairs("", train, test)], "accuracy")


def read_turney(data: Path) -> Suite:
    """Read noun-modifier questions (Turney 2012): which of five words means the same as a bigram.

    ``5``: the options are the answer, a word related to the modifier, one related to the head, and two random words.
    The file also lists the modifier and the head themselves, which are left out as in Yu and Dredze 2015. ``10``: each
    option with the bigram and with the reversed bigram (Zhou 2017 §3.2).
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


def _training_part(read: Callable[[Path], Suite], data: Path) -> Suite:
    """Return a suite of the training examples of a task."""
    suite = read(data)
    sets: list[AnySet] = []
    for whole in suite.groups[0].sets:
        if isinstance(whole, ThresholdPairs):
            sets.append(replace(whole, test=whole.train))
        elif isinstance(whole, Choices):
            sets.append(replace(whole, first=whole.first[:TURNEY_TRAIN], second=whole.second[:TURNEY_TRAIN]))
    return replace(suite, name=f"{suite.name}-train", groups=(Group("", tuple(sets)),))


def _by_rater(ratings: Sequence[Mapping[str, float]]) -> npt.NDArray[np.float64]:
    """Return the rating of each pair by each person, float64 [n, raters], NaN if not rated."""
    raters = {rater: column for column, rater in enumerate(dict.fromkeys(chain.from_iterable(ratings)))}
    values = np.full((len(ratings), len(raters)), np.nan)
    for row, of_pair in enumerate(ratings):
        values[row, [raters[rater] for rater in of_pair]] = [*of_pair.values()]
    return values


def _read_columns(data: Path, file: str) -> ScoredPairs:
    name, separator, num_columns, header, (score, first, second) = _COLUMNS[file]
    cells = read_cells(data / file, separator, num_columns, header=header)
    ratings = None
    if name == "pavlick":  # ratings without names, such as 3.0,4.0,4.0
        lists = (re.findall(r"(?<![^,])\d+(?:\.\d+)?(?![^,])", row[4]) for row in cells.rows)
        ratings = _by_rater([{str(rater): float(value) for rater, value in enumerate(values)} for values in lists])
    return ScoredPairs(name, cells.numbers(score), cells.texts(first), cells.texts(second), ratings)


def _word_and_phrase(path: Path) -> ScoredPairs:
    """Read four lines per instance: two words, each with its part of speech after a tab, the single word, the label."""
    lines = read_text(path)
    if len(lines) % 4:
        raise ValueError(f"{path} has {len(lines)} lines; expected four per instance: word, word, single word, label")
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


def _of_available(name: str, data: Path, files: Sequence[str]) -> Suite:
    """Return a suite of the sets whose files exist, with a note on the others."""
    available = [file for file in files if (data / file).exists()]
    if not available:
        raise FileNotFoundError(f"{data} has none of {', '.join(files)}; the suite {name!r} needs at least one of them")
    missing = [file for file in files if file not in available]
    notes = (f"{name} is without {', '.join(missing)}",) if missing else ()
    return _suite(name, data, available, [_read_columns(data, file) for file in available], "spearman", notes)


TURNEY_TRAIN = 680
"""Questions to train on, the first of 2,180 (Turney 2012; Zhou 2017 table 2)."""
_GENERATED = "generated pairs, not the published data set: these scores are not comparable with the papers'"
_TAKEN = {"mean", "pooled"}  # what scores over several sets are called
_BENCHMARK = "STS benchmark dev: 1,129 of its 1,500 pairs are in the years' sets, too; who tunes on it has seen them."


def read_sts(folder: Path) -> Suite:
    """Read SemEval's semantic textual similarity tasks: ``<year>/<set>.tsv``, or ``.gz``, in a folder or in its
    ``sts``.

    As in the papers, the score of a set is the correlation of the cosine with the gold score, and the score of a year
    is the mean of its sets. The dev set of the STS benchmark, ``benchmark/dev.tsv``, is a group without a mean, because
    most of its pairs are in the years' sets. Raise OSError if the folder does not exist, ValueError if it has no set,
    or a set cannot be read.
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
    raise ValueError(f"{folder} has no STS sets; expected <year>/<set>.tsv in it or in {folder / 'sts'}")


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
TRAINING_PARTS: dict[str, Callable[[Path], Suite]] = {
    f"{name}-train": partial(_training_part, SUITES[name]) for name in ("semeval2013", "turney")
}
"""Suites to select a checkpoint by: Zhou 2017 stops the training on PPDB early by them (§3.2)."""


def read_suites(names: Sequence[str], data: Path) -> tuple[Suite, ...]:
    """Return suites by name, in the order of ``SUITES`` and ``TRAINING_PARTS``; ``all`` selects all of ``SUITES``.

    Raise ValueError if a name is unknown or a set cannot be read, FileNotFoundError if the files of a suite are
    missing.
    """
    readers = {**SUITES, **TRAINING_PARTS}
    unknown = [name for name in names if name not in {*readers, "all"}]
    if unknown:
        near = did_you_mean(unknown[0], readers)
        raise ValueError(f"unknown suite {unknown[0]!r}; allowed: all, {', '.join(readers)}{near}")
    wanted = {*names, *(SUITES if "all" in names else ())}
    suites = tuple(read(data) for name, read in readers.items() if name in wanted)
    if not (data / NOTE).exists():
        return suites
    return tuple(replace(suite, notes=(f"{_GENERATED} ({data / NOTE})", *suite.notes)) for suite in suites)


def read_pairs_files(paths: Sequence[Path], columns: Sequence[str] = ()) -> Suite:
    """Return a suite ``pairs`` of the user's files of scored pairs, see ``read_scored_pairs``; raise ValueError if two
    have the same name.
    """
    return Suite("pairs", (Group("", _read_sets(paths, columns)),))


def _missing_sets(years: Sequence[Group]) -> tuple[str, ...]:
    """Return a note for every year that has fewer sets than the papers' mean of that year."""
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


def _read_sets(paths: Sequence[Path], columns: Sequence[str] | None = None) -> tuple[ScoredPairs, ...]:
    sets = tuple(read_scored_pairs(path, columns) for path in paths)
    name, times = Counter(pairs.name for pairs in sets).most_common(1)[0]
    if times > 1:
        same = [str(path) for path, pairs in zip(paths, sets, strict=True) if pairs.name == name]
        raise ValueError(f"{times} sets are named {name!r} ({listed(same)}); rename or leave out all but one")
    for path, pairs in zip(paths, sets, strict=True):
        if pairs.name in _TAKEN:
            raise ValueError(f"{path}: {pairs.name!r} is also the name of a score over several sets; rename the file")
    return sets
