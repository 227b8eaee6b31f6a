"""Scores of this run next to published scores, one table per suite."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from paraembed.evaluation.paired import ALPHA, BEST, TIE, marks
from paraembed.evaluation.scoring import COVERED, Score, mean_of, mean_score, metric_name
from paraembed.papers.results import MEANS, PAPERS_22, RESULTS, Published, Row, published

RECOMPUTED, CAVEAT = "~", "*"
_MOST_BASELINES = 2  # columns of a terminal's table
_NAMES = {"pearson": "Pearson", "spearman": "Spearman", "accuracy": "accuracy"}


@dataclass(frozen=True)
class Column:
    """The scores of one encoder."""

    label: str
    description: str
    scores: tuple[Score, ...]  # scores, with the same names in the same order in every column of a report
    kind: str = ""  # name of the registered encoder; "" without one
    is_baseline: bool = False  # whether the encoder is a baseline
    # Metric by which it was selected as the best checkpoint of its training; "" for the last checkpoint.
    chosen_by: str = ""
    gold: tuple[str, ...] = ()  # data sets whose labeled examples it was trained on


@dataclass(frozen=True)
class Table:
    """A table to print."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # cells, one sequence per row
    bold: tuple[bool, ...]  # whether each row is a mean
    notes: tuple[str, ...]  # notes on what the cells may be compared with


@dataclass(frozen=True)
class PublishedRow:
    """A published row, with its values by name of this run's scores."""

    row: Row
    cells: Mapping[str, Published]


def published_rows(scores: Sequence[Score], kinds: Sequence[str]) -> list[PublishedRow]:
    """Return the published rows that have a value for at least one score of this run.

    Rows of the same encoders (``kinds``) come first, then baselines, other encoders and bounds; within each group, rows
    with the most values, then those with the higher values.
    """
    members = {score.name: score.members for score in scores if score.is_mean}
    rows = []
    for row in RESULTS:
        names = [score.name for score in scores if score.measure == row.measure and not score.is_pooled]
        values = {name: published(row, name, members) for name in names}
        cells = {name: value for name, value in values.items() if value is not None}
        if cells:
            rows.append(PublishedRow(row, cells))

    def order(results: PublishedRow) -> tuple[bool, int, int, float]:
        place = ("baseline", "encoder", "bound").index(results.row.role)
        mean = sum(cell.value for cell in results.cells.values()) / len(results.cells)
        return not _is_same(results.row, kinds), place, -len(results.cells), -mean

    return sorted(rows, key=order)


def suite_tables(
    columns: Sequence[Column], notes: Mapping[str, Sequence[str]], *, brief: bool = False
) -> tuple[Table, ...]:
    """Return one table per suite: set, number of pairs; this run with 95 % intervals; published encoders and baselines.

    For baselines of this run, only the main measure is shown. A ``brief`` table, for a terminal, shows one published
    row per scored encoder (or per paper, for a single encoder) and two baselines, numbered consistently over all tables
    and named in the notes; with several encoders, it omits intervals.
    """
    suites = dict.fromkeys(_suite_of(score) for score in columns[0].scores)
    numbers: dict[str, int] = {}
    return tuple(_table(suite, columns, notes.get(suite, ()), numbers, brief) for suite in suites)


def summary_table(columns: Sequence[Column]) -> Table:
    """Return the mean of each suite, a row, by encoder, a column, with 95 % intervals; of a single set its score."""
    head = ("suite", *(column.label for column in columns))
    by_suite = [{suite: list(scores) for suite, scores in groupby(column.scores, _suite_of)} for column in columns]
    rows = []
    for suite in by_suite[0]:
        scores = [_summary(suite, of_column[suite]) for of_column in by_suite]
        name = scores[0].label if scores[0].label.startswith(suite) else f"{suite}, {scores[0].label}"
        cells = [_with_interval(score, sign) for score, sign in zip(scores, marks(scores), strict=True)]
        rows.append((f"{name}, {_NAMES[scores[0].measure]}", *cells))
    notes = _notes_on_marks(rows)
    return Table("Summary: means ×100 with 95 % intervals", head, tuple(rows), (False,) * len(rows), tuple(notes))


def _summary(suite: str, scores: Sequence[Score]) -> Score:
    """Return the mean over the groups of a suite, or over its sets if it has no groups."""
    whole = next((score for score in scores if score.name == f"{suite}/mean"), None)
    if whole is not None or len(scores) == 1:
        return whole or scores[0]
    return mean_score(scores, f"{suite}/mean", mean_of(scores, "set"))


def _with_interval(score: Score, sign: str) -> str:
    bounds = score.intervals.get(score.measure, ())
    interval = f"\n({' – '.join(map(percent, bounds))})" if bounds else ""
    return f"{percent(score.values.get(score.measure))}{sign}{interval}"


def _notes_on_marks(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the explanations of the marks in the cells of encoders."""
    text = " ".join(cell for row in rows for cell in row[1:])
    return [note for sign, note in ((BEST, _BEST), (TIE, _TIE)) if sign in text]


def _suite_of(score: Score) -> str:
    return score.name.split("/")[0]


def _is_same(row: Row, kinds: Sequence[str]) -> bool:
    return bool(row.kind) and row.kind in kinds


def _table(
    suite: str, columns: Sequence[Column], of_suite: Sequence[str], numbers: dict[str, int], brief: bool
) -> Table:
    """Return the table of one suite. ``numbers`` holds the numbers of published rows; new rows get new numbers."""
    lines = [[score for score in column.scores if _suite_of(score) == suite] for column in columns]
    measure = lines[0][0].measure
    unit = "questions" if suite in {"turney", "choose"} else "pairs"
    table = [
        (suite, [score.label.removeprefix(f"{suite} ") if score.name != suite else suite for score in lines[0]]),
        (unit, [f"{score.num_pairs:,}" for score in lines[0]]),
    ]
    if any(score.chance for score in lines[0]):
        table.append(("chance", [percent(score.chance) for score in lines[0]]))
    shown = [
        (column, scores) for column, scores in zip(columns, lines, strict=True) if any(score.values for score in scores)
    ]
    table += _all_columns(shown, measure, brief)
    kinds = [*dict.fromkeys(column.kind for column in columns if column.kind)]
    others = published_rows(lines[0], kinds)
    chosen = _chosen(others, kinds) if brief else others
    notes = []
    for results in chosen:
        name = label = results.row.label
        if brief:
            number = numbers.setdefault(label, len(numbers) + 1)
            name = f"{results.row.name} [{number}]"
            notes.append(f"[{number}] {label}")
        table.append((name, [_published(results, score.name) for score in lines[0]]))
    head, cells = zip(*table, strict=True)
    return Table(
        f"{suite}: {_NAMES[measure]} ×100",
        head,
        tuple(zip(*cells, strict=True)),
        tuple(score.is_mean for score in lines[0]),
        (
            *notes,
            *_notes_on_marks(zip(*cells, strict=True)),
            *_notes(lines[0], chosen),
            *_notes_on_columns(shown),
            *of_suite,
        ),
    )


_BEST = f"{BEST} best score of this run in its row, better than every other (paired test, p < {ALPHA})"
_TIE = f"{TIE} best score, or not significantly worse than the best (paired test, p ≥ {ALPHA}): a tie"
_TIES = "where a right answer shares the first place, its share of it counts; in brackets: counted as wrong"
_ON_COVERED = "on covered"
_GOLD_OF = {"papers-22": "sts"}  # suite → data set, where the names differ
_AMONG_THEM = "what it learned from is among what is scored here; jobs/finetune.py scores the part that it has not seen"
_SEEN = {"sts": _AMONG_THEM, "turney": _AMONG_THEM}
_ONLY_TRAINING = "of the training part, which the published values may be without"


def _all_columns(
    shown: Sequence[tuple[Column, Sequence[Score]]], measure: str, brief: bool
) -> Iterator[tuple[str, list[str]]]:
    """Yield heads and cells of every encoder; the vocabulary coverage comes last if it is the same for all."""
    trained = [scores for column, scores in shown if not column.is_baseline]
    shared = [cells_of for cells_of in _OF_WORDS.values() if len({tuple(cells_of(scores)) for scores in trained}) == 1]
    signs = zip(*(marks(row) for row in zip(*(scores for _, scores in shown), strict=True)), strict=True)
    for (column, scores), of_column in zip(shown, signs, strict=True):
        yield from _columns_of(column, scores, of_column, measure, brief, brief and len(trained) > 1)
        for name, cells_of in _OF_WORDS.items():
            if not column.is_baseline and cells_of not in shared and any(cells_of(scores)):
                yield name, cells_of(scores)
    yield from (
        (name, cells_of(trained[0]))
        for name, cells_of in _OF_WORDS.items()
        if cells_of in shared and any(cells_of(trained[0]))
    )


def _columns_of(
    column: Column, scores: Sequence[Score], signs: Sequence[str], measure: str, narrow: bool, without_intervals: bool
) -> list[tuple[str, list[str]]]:
    """Return heads and cells of one encoder."""
    other = {"pearson": "spearman", "spearman": "pearson"}.get(measure)
    columns = [(column.label, [_value(*score_and_sign) for score_and_sign in zip(scores, signs, strict=True)])]
    if not column.is_baseline and not without_intervals and any(score.intervals for score in scores):
        bounds = [score.intervals.get(score.measure, ()) for score in scores]
        columns.append(("95 %", [" – ".join(map(percent, interval)) for interval in bounds]))
    if not column.is_baseline and other and not narrow:
        columns.append((_NAMES[other], [percent(score.values.get(other)) for score in scores]))
    if any(_covered(scores)):
        columns.append((_ON_COVERED, [percent(score.values.get(f"{score.measure}{COVERED}")) for score in scores]))
    return columns


def _unknown(scores: Sequence[Score]) -> list[str]:
    return [percent(score.unknown_share) if score.num_tokens else "" for score in scores]


def _covered(scores: Sequence[Score]) -> list[str]:
    """Return the numbers of pairs without an OOV word; empty if no score counts them."""
    counts = [score.num_pairs if score.num_covered is None else score.num_covered for score in scores]
    if counts == [score.num_pairs for score in scores]:
        return [""] * len(scores)
    return [f"{count:,}" for count in counts]


_OF_WORDS = {"unknown %": _unknown, "covered": _covered}
"""Columns about the words that an encoder knows."""


def _value(score: Score, sign: str = "") -> str:
    main, strict = percent(score.values.get(score.measure)), percent(score.values.get("accuracy_strict"))
    return f"{main}{sign} ({strict})" if strict and strict != main else f"{main}{sign}"


def _chosen(others: Sequence[PublishedRow], kinds: Sequence[str]) -> list[PublishedRow]:
    """Choose, among the rows of the same encoders, the one that the papers print first, the same in every table."""

    def order(results: PublishedRow) -> tuple[bool, int]:
        return all(cell.is_recomputed for cell in results.cells.values()), RESULTS.index(results.row)

    same: dict[str, PublishedRow] = {}
    for candidate in sorted((results for results in others if _is_same(results.row, kinds)), key=order):
        same.setdefault(candidate.row.kind if len(kinds) > 1 else candidate.row.paper, candidate)
    baselines = [results for results in others if results.row.role == "baseline" and not _is_same(results.row, kinds)]
    of_kinds = [same[kind] for kind in kinds if kind in same] if len(kinds) > 1 else list(same.values())
    return [*of_kinds, *baselines[:_MOST_BASELINES]]


def _notes_on_columns(shown: Sequence[tuple[Column, Sequence[Score]]]) -> list[str]:
    """Return notes on ties, on covered pairs, and on encoders selected by, or trained on, the scored sets."""
    notes = []
    if any("(" in _value(score) for _, scores in shown for score in scores):
        notes.append(_TIES)
    if any(any(_covered(scores)) for _, scores in shown):
        notes.append(f"{_ON_COVERED}: the same measure over the covered pairs, those without an OOV word")
    for column, scores in shown:
        if column.chosen_by and any(_sets_of(score, column) & _chosen_on(column) for score in scores):
            notes.append(
                f"{column.label} was chosen by {column.chosen_by} among the encoders of its training: on those sets "
                "its score is that of an oracle (Wieting 2017), not of unseen sets"
            )
        scored_on = {_GOLD_OF.get(_suite_of(score), _suite_of(score)) for score in scores}
        notes += [
            f"{column.label} was trained on labeled examples of {name}: {_SEEN.get(name, _ONLY_TRAINING)}"
            for name in column.gold
            if name in scored_on
        ]
    return notes


def _chosen_on(column: Column) -> set[str]:
    """Return the sets of the report that the metric which selected an encoder covers."""
    return {
        name
        for score in column.scores
        if column.chosen_by in {metric_name(score.name, measure, score) for measure in score.values}
        for name in _sets_of(score, column)
    }


def _sets_of(score: Score, column: Column) -> set[str]:
    """Return the sets that a score covers."""
    if score.is_pooled:
        group, sets = score.name.removesuffix("pooled"), [other for other in column.scores if not other.is_mean]
        return {member.name for member in sets if member.name.startswith(group) and not member.is_pooled}
    if not score.is_mean:
        return {score.name}
    members = [member for member in column.scores if member.name in score.members]
    return {name for member in members for name in _sets_of(member, column)}


def _published(results: PublishedRow, name: str) -> str:
    cell = results.cells.get(name)
    if cell is None:
        return ""
    return f"{cell.value:.1f}{RECOMPUTED * cell.is_recomputed}{CAVEAT * (name in results.row.caveats)}"


def _notes(scores: Sequence[Score], chosen: Sequence[PublishedRow]) -> list[str]:
    """Return notes that explain the signs after published values, and what is left out."""
    notes = []
    if any(cell.is_recomputed for results in chosen for cell in results.cells.values()):
        notes.append(
            f"{RECOMPUTED} mean of the published values over the same sets as this run, not the published mean"
        )
    caveats: dict[str, dict[str, None]] = {}
    for row_results in chosen:
        for name in row_results.cells:
            if name in row_results.row.caveats:
                caveats.setdefault(row_results.row.caveats[name], {})[name] = None
    notes += [f"{CAVEAT} {', '.join(names)}: {caveat}" for caveat, names in caveats.items()]
    members = next((score.members for score in scores if score.name == PAPERS_22), MEANS[PAPERS_22])
    if missing := set(MEANS[PAPERS_22]) - set(members):
        names = ", ".join(sorted(name.removeprefix("sts/") for name in missing))
        notes.append(f"means that are printed over all 22 sets alone are left out, because this run is without {names}")
    return notes


def percent(value: float | None) -> str:
    """Return a fraction or a correlation ×100; an empty text for None."""
    return "" if value is None else f"{100 * value:.1f}"
