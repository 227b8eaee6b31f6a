"""Our scores beside the published ones, one table a suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paraembed.evaluation.scoring import Score
from paraembed.papers.published import MEANS, PAPERS_22, Published, Row, published
from paraembed.papers.results import RESULTS

RECOMPUTED, CAVEAT = "~", "*"
_MOST_SAME, _MOST_BASELINES = 3, 2  # columns of a terminal's table
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
    """

    label: str
    description: str
    scores: tuple[Score, ...]
    kind: str = ""
    is_baseline: bool = False


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


def suite_tables(columns: Sequence[Column], *, brief: bool = False) -> tuple[Table, ...]:
    """One table a suite: set, pairs; ours with 95 % intervals; the paper's same encoder, its baselines, all others.

    Args:
        columns: ours; of a baseline the main measure is shown alone.
        brief: for a terminal: of the published rows only the best of each paper's same encoder (of each encoder, where
            several are scored) and two baselines, numbered, with their names in the notes.
    """
    suites = dict.fromkeys(_suite_of(score) for score in columns[0].scores)
    return tuple(_table(suite, columns, brief) for suite in suites)


def _suite_of(score: Score) -> str:
    return score.name.split("/")[0]


def _is_same(row: Row, kinds: Sequence[str]) -> bool:
    return bool(row.kind) and row.kind in kinds


def _table(suite: str, columns: Sequence[Column], brief: bool) -> Table:
    lines = [[one for one in column.scores if _suite_of(one) == suite] for column in columns]
    measure = lines[0][0].measure
    head = [suite, "questions" if suite in {"turney", "choose"} else "pairs"]
    rows = [[_label(score, suite), f"{score.num_pairs:,}"] for score in lines[0]]
    for column, scores in zip(columns, lines, strict=True):
        if not any(score.values for score in scores):
            continue
        named, cells = _ours(column, scores, measure, brief and len(columns) > 1)
        head += named
        for row, more in zip(rows, cells, strict=True):
            row.extend(more)
    kinds = [column.kind for column in columns if column.kind]
    others = beside(lines[0], kinds)
    chosen = _chosen(others, kinds) if brief else others
    for number, one in enumerate(chosen, 1):
        head.append(f"{one.row.name} [{number}]" if brief else one.row.label)
        for row, score in zip(rows, lines[0], strict=True):
            row.append(_published(one, score.name))
    notes = [f"[{number}] {one.row.label}" for number, one in enumerate(chosen, 1)] if brief else []
    has_ties = any("(" in row[2] for row in rows)
    return Table(
        f"{suite}: {_NAMES[measure]} ×100",
        tuple(head),
        tuple(tuple(row) for row in rows),
        tuple(score.is_mean for score in lines[0]),
        (*notes, *_notes(lines[0], chosen), *([_TIES] * has_ties)),
    )


_TIES = "a right answer that shares the first place is wrong; in brackets: it counts as its share of the first place"


def _label(score: Score, suite: str) -> str:
    return score.label.removeprefix(f"{suite} ") if score.name != suite else suite


def _ours(column: Column, scores: Sequence[Score], measure: str, narrow: bool) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of one encoder."""
    other = {"pearson": "spearman", "spearman": "pearson"}.get(measure)
    head, rows = [column.label], [[_value(score)] for score in scores]
    if not column.is_baseline:
        if any(score.intervals for score in scores):
            head.append("95 %")
            for row, score in zip(rows, scores, strict=True):
                row.append(" – ".join(percent(bound) for bound in score.intervals.get(score.measure, ())))
        if other and not narrow:
            head.append(_NAMES[other])
            for row, score in zip(rows, scores, strict=True):
                row.append(percent(score.values.get(other)))
        if any(score.num_tokens for score in scores):
            head.append("unknown %")
            for row, score in zip(rows, scores, strict=True):
                row.append(percent(score.unknown_share if score.num_tokens else None))
    return head, rows


def _value(score: Score) -> str:
    shared = score.values.get("accuracy_ties_shared")
    main = percent(score.values.get(score.measure))
    return main if shared is None or percent(shared) == main else f"{main} ({percent(shared)})"


def _chosen(others: Sequence[Beside], kinds: Sequence[str]) -> list[Beside]:
    same: dict[str, Beside] = {}
    for one in others:
        if _is_same(one.row, kinds):
            same.setdefault(one.row.kind if len({*kinds}) > 1 else one.row.paper, one)
    baselines = [one for one in others if one.row.role == "baseline" and not _is_same(one.row, kinds)]
    return [*list(same.values())[:_MOST_SAME], *baselines[:_MOST_BASELINES]]


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
