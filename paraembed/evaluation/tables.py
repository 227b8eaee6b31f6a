"""Our scores beside the published ones, one table a suite."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from paraembed.evaluation.scoring import COVERED, Score, metric_name
from paraembed.papers.results import MEANS, PAPERS_22, RESULTS, Published, Row, published

RECOMPUTED, CAVEAT = "~", "*"
_MOST_BASELINES = 2  # columns of a terminal's table
_NAMES = {"pearson": "Pearson", "spearman": "Spearman", "accuracy": "accuracy"}


@dataclass(frozen=True)
class Column:
    """The scores of one encoder.

    Attributes:
        label: head of the column.
        description: what the encoder is, one line.
        scores: the same names in the same order for every column of a report.
        kind: name of the registered encoder; "" where it has none.
        is_baseline: something to beat.
        chosen_by: metric by which it is the best of the encoders of its training; "" where it is the last one.
        gold: data sets whose gold labels it was trained on.
    """

    label: str
    description: str
    scores: tuple[Score, ...]
    kind: str = ""
    is_baseline: bool = False
    chosen_by: str = ""
    gold: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table to print.

    Attributes:
        title: what it shows.
        head: names of the columns.
        rows: as many cells a row.
        bold: whether a row is a mean.
        notes: on what its cells may be compared with.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bold: tuple[bool, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Beside:
    """A published row and its values for scores of ours, by name."""

    row: Row
    cells: Mapping[str, Published]


def beside(scores: Sequence[Score], kinds: Sequence[str]) -> list[Beside]:
    """The published rows that have a value for some of our scores.

    Args:
        scores: ours.
        kinds: encoders that were scored.

    Returns:
        First those of the same encoders, then baselines, other encoders and bounds; in each, those with most values
        first, and of these the higher ones.
    """
    members = {score.name: score.members for score in scores if score.is_mean}
    found = []
    for row in RESULTS:
        names = [score.name for score in scores if score.measure == row.measure and not score.is_pooled]
        values = {name: published(row, name, members) for name in names}
        cells = {name: value for name, value in values.items() if value is not None}
        if cells:
            found.append(Beside(row, cells))

    def order(one: Beside) -> tuple[bool, int, int, float]:
        place = ("baseline", "encoder", "bound").index(one.row.role)
        mean = sum(cell.value for cell in one.cells.values()) / len(one.cells)
        return not _is_same(one.row, kinds), place, -len(one.cells), -mean

    return sorted(found, key=order)


def suite_tables(
    columns: Sequence[Column], notes: Mapping[str, Sequence[str]] = MappingProxyType({}), *, brief: bool = False
) -> tuple[Table, ...]:
    """One table a suite: set, pairs; ours with 95 % intervals; the paper's same encoder, its baselines, all others.

    Args:
        columns: ours; of a baseline the main measure is shown alone.
        notes: of each suite, by its name.
        brief: for a terminal: of the published rows one for each encoder that was scored, in their order (for a single
            one, of each paper), and two baselines, with a number that is theirs in all tables and their names in the
            notes; of several encoders no intervals.
    """
    suites = dict.fromkeys(_suite_of(score) for score in columns[0].scores)
    numbers: dict[str, int] = {}
    return tuple(_table(suite, columns, notes.get(suite, ()), numbers, brief) for suite in suites)


def _suite_of(score: Score) -> str:
    return score.name.split("/")[0]


def _is_same(row: Row, kinds: Sequence[str]) -> bool:
    return bool(row.kind) and row.kind in kinds


def _table(
    suite: str, columns: Sequence[Column], of_suite: Sequence[str], numbers: dict[str, int], brief: bool
) -> Table:
    """``numbers``: of the published rows that have one; others get theirs."""
    lines = [[one for one in column.scores if _suite_of(one) == suite] for column in columns]
    measure = lines[0][0].measure
    head = [suite, "questions" if suite in {"turney", "choose"} else "pairs"]
    rows = [[_label(score, suite), f"{score.num_pairs:,}"] for score in lines[0]]

    def add(name: str, cells: Sequence[str]) -> None:
        head.append(name)
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)

    if any(score.chance for score in lines[0]):
        add("chance", [percent(score.chance) for score in lines[0]])
    shown = [
        (column, scores) for column, scores in zip(columns, lines, strict=True) if any(one.values for one in scores)
    ]
    for name, cells in _all_ours(shown, measure, brief):
        add(name, cells)
    kinds = [*dict.fromkeys(column.kind for column in columns if column.kind)]
    others = beside(lines[0], kinds)
    chosen = _chosen(others, kinds) if brief else others
    for one in chosen:
        number = numbers.setdefault(one.row.label, len(numbers) + 1) if brief else 0
        cells = [_published(one, score.name) for score in lines[0]]
        add(f"{one.row.name} [{number}]" if brief else one.row.label, cells)
    notes = [f"[{numbers[one.row.label]}] {one.row.label}" for one in chosen] if brief else []
    return Table(
        f"{suite}: {_NAMES[measure]} ×100",
        tuple(head),
        tuple(tuple(row) for row in rows),
        tuple(score.is_mean for score in lines[0]),
        (*notes, *_notes(lines[0], chosen), *_notes_on_ours(shown), *of_suite),
    )


_TIES = "where a right answer shares the first place, its share of it counts; in brackets: counted as wrong"
_ON_COVERED = "on covered"
_GOLD_OF = {"papers-22": "sts"}  # suite → data set, where the names differ
_AMONG_THEM = "what it learned from is among what is scored here; jobs/finetune.py scores the part that it has not seen"
_SEEN = {"sts": _AMONG_THEM, "turney": _AMONG_THEM}
_ONLY_TRAINING = "of the training part, which the published values may be without"


def _label(score: Score, suite: str) -> str:
    return score.label.removeprefix(f"{suite} ") if score.name != suite else suite


def _all_ours(
    shown: Sequence[tuple[Column, Sequence[Score]]], measure: str, brief: bool
) -> Iterator[tuple[str, list[str]]]:
    """Heads and cells of every encoder; what words they know stands behind the last where it is the same for all."""
    ours = [scores for column, scores in shown if not column.is_baseline]
    shared = [tell for tell in _OF_WORDS.values() if len({tuple(tell(scores)) for scores in ours}) == 1]
    for column, scores in shown:
        yield from _ours(column, scores, measure, brief, brief and len(ours) > 1)
        for name, tell in _OF_WORDS.items():
            if not column.is_baseline and tell not in shared and any(tell(scores)):
                yield name, tell(scores)
    yield from ((name, tell(ours[0])) for name, tell in _OF_WORDS.items() if tell in shared and any(tell(ours[0])))


def _ours(
    column: Column, scores: Sequence[Score], measure: str, narrow: bool, without_intervals: bool
) -> list[tuple[str, list[str]]]:
    """Heads and cells of one encoder."""
    other = {"pearson": "spearman", "spearman": "pearson"}.get(measure)
    found = [(column.label, [_value(score) for score in scores])]
    if not column.is_baseline and not without_intervals and any(score.intervals for score in scores):
        bounds = [score.intervals.get(score.measure, ()) for score in scores]
        found.append(("95 %", [" – ".join(map(percent, one)) for one in bounds]))
    if not column.is_baseline and other and not narrow:
        found.append((_NAMES[other], [percent(score.values.get(other)) for score in scores]))
    if any(_covered(scores)):
        found.append((_ON_COVERED, [percent(score.values.get(f"{score.measure}{COVERED}")) for score in scores]))
    return found


def _unknown(scores: Sequence[Score]) -> list[str]:
    return [percent(score.unknown_share) if score.num_tokens else "" for score in scores]


def _covered(scores: Sequence[Score]) -> list[str]:
    """How many pairs have no unknown word; nothing where none has one."""
    counts = [score.num_pairs if score.num_covered is None else score.num_covered for score in scores]
    if counts == [score.num_pairs for score in scores]:
        return [""] * len(scores)
    return [f"{count:,}" for count in counts]


_OF_WORDS = {"unknown %": _unknown, "covered": _covered}
"""Columns on the words that an encoder knows."""


def _value(score: Score) -> str:
    main, strict = percent(score.values.get(score.measure)), percent(score.values.get("accuracy_strict"))
    return f"{main} ({strict})" if strict and strict != main else main


def _chosen(others: Sequence[Beside], kinds: Sequence[str]) -> list[Beside]:
    """Of the same encoders the row that the papers print first, the same one in every table, if it is there."""

    def order(one: Beside) -> tuple[bool, int]:
        return all(cell.is_recomputed for cell in one.cells.values()), RESULTS.index(one.row)

    same: dict[str, Beside] = {}
    for one in sorted((one for one in others if _is_same(one.row, kinds)), key=order):
        same.setdefault(one.row.kind if len(kinds) > 1 else one.row.paper, one)
    baselines = [one for one in others if one.row.role == "baseline" and not _is_same(one.row, kinds)]
    of_kinds = [same[kind] for kind in kinds if kind in same] if len(kinds) > 1 else list(same.values())
    return [*of_kinds, *baselines[:_MOST_BASELINES]]


def _notes_on_ours(shown: Sequence[tuple[Column, Sequence[Score]]]) -> list[str]:
    """Ties; answers of which words are unknown; encoders that were chosen by, or trained on, what is scored here."""
    notes = []
    if any("(" in _value(score) for _, scores in shown for score in scores):
        notes.append(_TIES)
    if any(any(_covered(scores)) for _, scores in shown):
        notes.append(f"{_ON_COVERED}: the same measure over the covered pairs, those without an unknown word")
    for column, scores in shown:
        known = [
            f"{score.num_known_answers:,} of {score.num_pairs:,} ({_label(score, _suite_of(score))})"
            for score in scores
            if score.num_known_answers is not None
        ]
        if known and not column.is_baseline:
            notes.append(f"{column.label} knows all words of the right answer in {', '.join(known)}")
        if column.chosen_by and any(_sets_of(score, column) & _chosen_on(column) for score in scores):
            notes.append(
                f"{column.label} was chosen by {column.chosen_by} among the encoders of its training: on those sets "
                "its score is that of an oracle (Wieting 2017), not of unseen sets"
            )
        scored_on = {_GOLD_OF.get(_suite_of(score), _suite_of(score)) for score in scores}
        notes += [
            f"{column.label} was trained on gold labels of {name}: {_SEEN.get(name, _ONLY_TRAINING)}"
            for name in column.gold
            if name in scored_on
        ]
    return notes


def _chosen_on(column: Column) -> set[str]:
    """The sets of the report behind the metric that chose an encoder."""
    return {
        one
        for score in column.scores
        if column.chosen_by in {metric_name(score.name, measure, score) for measure in score.values}
        for one in _sets_of(score, column)
    }


def _sets_of(score: Score, column: Column) -> set[str]:
    """The sets behind a score."""
    if score.is_pooled:
        group = score.name.removesuffix("pooled")
        return {one.name for one in column.scores if one.name.startswith(group) and not (one.members or one.is_pooled)}
    by_name = {one.name: one for one in column.scores}
    if not score.members:
        return {score.name}
    return {one for name in score.members if name in by_name for one in _sets_of(by_name[name], column)}


def _published(one: Beside, name: str) -> str:
    cell = one.cells.get(name)
    if cell is None:
        return ""
    return f"{cell.value:.1f}{RECOMPUTED * cell.is_recomputed}{CAVEAT * (name in one.row.caveats)}"


def _notes(scores: Sequence[Score], chosen: Sequence[Beside]) -> list[str]:
    """What the signs behind published values mean, and what is left out."""
    notes = []
    if any(cell.is_recomputed for one in chosen for cell in one.cells.values()):
        notes.append(f"{RECOMPUTED} mean of the published values over the same sets as ours, not the published mean")
    caveats: dict[str, dict[str, None]] = {}
    for one in chosen:
        for name in one.cells:
            if name in one.row.caveats:
                caveats.setdefault(one.row.caveats[name], {})[name] = None
    notes += [f"{CAVEAT} {', '.join(names)}: {caveat}" for caveat, names in caveats.items()]
    for score in scores:
        missing = set(MEANS.get(score.name, ())) - set(score.members)
        if score.is_mean and missing and score.name == PAPERS_22:
            names = ", ".join(sorted(name.removeprefix("sts/") for name in missing))
            notes.append(f"means that are printed over all 22 sets alone are left out, for ours is without {names}")
    return notes


def percent(value: float | None) -> str:
    """A share or a correlation, ×100; nothing for None."""
    return "" if value is None else f"{100 * value:.1f}"
