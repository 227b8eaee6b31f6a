"""Scores of one or several encoders next to published scores: tables, Markdown, CSV, JSON, metrics, model card.

Tables show scores ×100, as the papers do, and OOV tokens in %; in JSON, CSV and metrics, this run's scores are
fractions.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, count
from operator import methodcaller
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from paraembed.encoders import config_to_dict
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.measures import Vector
from paraembed.evaluation.paired import compare_scores, is_comparable
from paraembed.evaluation.scoring import COVERED, Score, mean_of, mean_score, metric_name, score_suite
from paraembed.evaluation.sets import Suite
from paraembed.evaluation.tables import Column, PublishedRow, Table, percent, published_rows, suite_tables
from paraembed.io.atomic import write_file
from paraembed.io.escape import csv_text, listed, markdown, markdown_row
from paraembed.io.fingerprint import json_bytes
from paraembed.papers.results import MEANS, PAPERS_22
from paraembed.process import versions
from paraembed.recipe import BaseRecipe, Recipe
from paraembed.settings import RESAMPLES, SHIPPED_FOLDER
from paraembed.text import WORDPIECE
from paraembed.text.vocabulary import load_vocabulary

if TYPE_CHECKING:
    from paraembed.encoders import Encoder

HUB_TAGS = ("sentence-similarity", "feature-extraction", "paraembed")
_TASK = "sentence-similarity"
_MOST_RESULTS = 200  # of a card
_CARD = Path(__file__).with_name("model_card.md")
_METADATA = re.compile(r"\A---\n.*?^---\n+", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """Scores of an evaluation, with one column for each encoder."""

    columns: tuple[Column, ...]
    notes: tuple[str, ...]  # notes that are not about a single suite
    # Notes on what the scores may be compared with, by suite.
    suite_notes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def predictions(self) -> dict[tuple[str, str], Vector]:
        """Predicted similarities [n] of graded pairs, by column label and score name."""
        scores = [(column.label, score) for column in self.columns for score in column.scores]
        return {(label, score.name): score.predicted for label, score in scores if score.predicted is not None}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return header and rows: set, number of pairs, then measures and OOV tokens of each encoder."""
        used = {measure for column in self.columns for score in column.scores for measure in score.values}
        measures = [measure for measure in ("pearson", "spearman", "accuracy") if measure in used]
        head = ["set", "pairs"]
        for column in self.columns:
            whose = f"{column.label}: " if len(self.columns) > 1 else ""
            head += [f"{whose}{measures[0].title()}", *(measure.title() for measure in measures[1:]), "unknown %"]
        rows = []
        for line in zip(*(column.scores for column in self.columns), strict=True):
            row = [line[0].label, f"{line[0].num_pairs:,}"]
            for score in line:
                row += [percent(score.values.get(measure)) for measure in measures]
                row.append(percent(score.unknown_share if score.num_tokens else None))
            rows.append(row)
        return head, rows

    def tables(self, *, brief: bool = False) -> tuple[Table, ...]:
        """Return one table per suite, next to the published scores; ``brief``: fewer columns, for a terminal."""
        return suite_tables(self.columns, self.suite_notes, brief=brief)

    def markdown(self) -> str:
        """Return a Markdown document, with means in bold."""
        lines = ["# Scores", "", *_markdown_list([f"{column.label}: {column.description}" for column in self.columns])]
        for table in self.tables():
            head = [markdown_row(table.head), "|---|" + "---:|" * (len(table.head) - 1)]
            lines += ["", f"## {markdown(table.title)}", "", *head]
            for row, bold in zip(table.rows, table.bold, strict=True):
                lines.append(markdown_row([f"**{cell}**" if cell else "" for cell in row] if bold else row))
            lines += ["", *_markdown_list(table.notes)] if table.notes else []
        if self.notes:
            lines += ["", "## Notes", "", *_markdown_list(self.notes)]
        return "\n".join(lines) + "\n"

    def json(self) -> dict[str, Any]:
        """Return every score in full precision, by encoder and name, next to the published scores, ×100 as printed."""
        encoders = [
            {
                "label": column.label,
                "description": column.description,
                "kind": column.kind,
                "chosen_by": column.chosen_by,
                "gold": list(column.gold),
                "scores": {score.name: _json(score) for score in column.scores},
            }
            for column in self.columns
        ]
        notes = [note for notes_of in (self.notes, *self.suite_notes.values()) for note in notes_of]
        return {
            "encoders": encoders,
            "comparisons": self._comparisons(),
            "published": [_published(results) for results in self._rows()],
            "notes": notes,
        }

    def _comparisons(self) -> list[dict[str, Any]]:
        """Return the paired test of every pair of encoders on every set and mean, if there are resamples."""
        comparisons = []
        for column, other in combinations(self.columns, 2):
            for first, second in zip(column.scores, other.scores, strict=True):
                if is_comparable(first) and is_comparable(second):
                    about = {"set": first.name, "measure": first.measure, "a": column.label, "b": other.label}
                    numbers = vars(compare_scores(first, second)).items()
                    comparisons.append(about | {name: None if math.isnan(value) else value for name, value in numbers})
        return comparisons

    def csv(self) -> str:
        """Return one line per value: its source (this run, or table and row of a paper), measure and score."""
        head = "whose kind score measure value low high sets pairs tokens unknown remark"
        rows: list[Sequence[str | float]] = [head.split()]
        for column in self.columns:
            for score in column.scores:
                counts = (score.num_sets, score.num_pairs, score.num_tokens, score.num_unknown)
                for measure, value in score.values.items():
                    bounds = score.intervals.get(measure, ("", ""))
                    remark = f"over {score.num_covered} pairs without an OOV word" * measure.endswith(COVERED)
                    rows.append((column.label, column.kind, score.name, measure, value, *bounds, *counts, remark))
        for results in self._rows():
            row = results.row
            for name, cell in results.cells.items():
                remarks = ["recomputed over the same sets"] * cell.is_recomputed
                remarks += [row.caveats[name]] if name in row.caveats else []
                value = round(cell.value / 100, 6)
                rows.append((row.label, row.kind, name, row.measure, value, *[""] * 6, "; ".join(remarks)))
        return csv_text(rows)

    def _rows(self) -> list[PublishedRow]:
        return published_rows(self.columns[0].scores, [column.kind for column in self.columns if column.kind])

    def metrics(self) -> dict[str, float]:
        """Return metrics such as ``sts/2012/MSRpar/pearson`` and ``…/spearman``; means are ``sts/mean`` (Pearson) and
        ``sts/mean_spearman``.

        The metrics of columns after the first are prefixed with their label.
        """
        metrics: dict[str, float] = {}
        for number, column in enumerate(self.columns):
            for score in column.scores:
                name = f"{column.label}/{score.name}" if number else score.name
                metrics |= {metric_name(name, measure, score): value for measure, value in score.values.items()}
        return metrics

    def num_sets(self) -> dict[str, int]:
        """Return how many sets each mean covers, by its name in ``metrics``."""
        means = [score for score in self.columns[0].scores if score.is_mean]
        return {metric_name(score.name, "pearson", score): score.num_sets for score in means}

    def write(self, folder: Path) -> tuple[Path, ...]:
        """Write ``scores.json``, ``scores.md`` and ``scores.csv`` to a folder, which is created if it is missing."""
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder} is a file, but the scores need a folder; choose another `out`")
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"scores.md": self.markdown(), "scores.csv": self.csv()}
        return write_files(
            folder, {"scores.json": json_bytes(self.json())} | {name: text.encode() for name, text in texts.items()}
        )


def write_files(folder: Path, files: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Write files to a folder, given their names and contents; return their paths."""
    for name, data in files.items():
        write_file(folder / name, methodcaller("write", data))
    return tuple(folder / name for name in files)


def compare(
    candidates: Sequence[Candidate],
    suites: Sequence[Suite],
    *,
    resamples: int | None = RESAMPLES,
    progress: Callable[[str], object] = lambda _: None,
) -> Report:
    """Score candidates on suites.

    Args:
        candidates: encoders to score.
        suites: data sets to score them on.
        resamples: bootstrap resamples for the 95 % intervals and the paired tests; 0: neither; None: no values either,
            only their names.
        progress: called with a description of each step.

    Raises:
        ValueError: a score is undefined (the message names candidate and set), or two candidates have the same label.

    Example:
        >>> report = compare([trained(Path("encoder"))], [read_pairs_files([Path("scored.tsv")])], resamples=0)
        >>> sorted(report.metrics())
        ['pairs/scored/pearson', 'pairs/scored/spearman']
    """
    labels = [candidate.label for candidate in candidates]
    if len({*labels}) < len(labels):
        raise ValueError(f"two candidates are called {max(labels, key=labels.count)!r}; rename one of them")
    columns: list[Column] = []
    notes: list[str] = []
    for candidate in candidates:
        try:
            scores = _scored(candidate, suites, resamples, progress)
        except ValueError as error:
            raise ValueError(f"{candidate.label}, {error}") from None
        scores += _papers_22(scores)
        about = {name: getattr(candidate, name) for name in ("kind", "is_baseline", "chosen_by", "gold")}
        columns.append(Column(candidate.label, candidate.description, tuple(scores), **about))
        undefined = [score.name for score in scores if score.predicted is not None and not score.values]
        if undefined:
            notes.append(
                f"{candidate.label} has no value for {listed(undefined, 100)}: all its predictions are equal there"
            )
    return Report(tuple(columns), tuple(notes), {suite.name: suite.notes for suite in suites})


def _scored(
    candidate: Candidate, suites: Sequence[Suite], resamples: int | None, progress: Callable[[str], object]
) -> list[Score]:
    """Score a candidate on suites, reporting the progress over all sets."""
    total = sum(len(group.sets) for suite in suites for group in suite.groups)
    numbers = count(1)

    def on_set(name: str) -> None:
        progress(f"scoring {candidate.label}: set {next(numbers)} of {total}, {name}")

    scores = []
    for suite in suites:
        progress(f"scoring {candidate.label}: embedding the texts of {suite.name}")
        scores += score_suite(candidate.encoder, suite, resamples=resamples, on_set=on_set)
    return scores


def _papers_22(scores: Sequence[Score]) -> list[Score]:
    """Return the mean over those of the papers' 22 sets that are present; none unless STS, SICK and Twitter are."""
    known = [score for score in scores if score.name in MEANS[PAPERS_22]]
    if len({score.name.split("/")[0] for score in known}) < 3:
        return []
    return [mean_score(known, PAPERS_22, f"{mean_of(known, 'set')} of the papers' 22")]


def _markdown_list(notes: Sequence[str]) -> list[str]:
    return [f"* {markdown(note)}" for note in notes]


def _json(score: Score) -> dict[str, Any]:
    about = ("label", "measure", "num_sets", "num_pairs", "num_tokens", "num_unknown")
    return {
        **score.values,
        **{name: getattr(score, name) for name in about},
        **({"members": list(score.members)} if score.is_mean else {}),
        **({"chance": score.chance} if score.chance else {}),
        **({"num_covered": score.num_covered} if score.num_covered is not None else {}),
        "intervals": {name: list(bounds) for name, bounds in score.intervals.items()},
    }


def _published(results: PublishedRow) -> dict[str, Any]:
    row = results.row
    return {
        **{name: getattr(row, name) for name in ("paper", "table", "name", "kind", "role", "measure")},
        "scores": {name: cell.value for name, cell in results.cells.items()},
        "recomputed": [name for name, cell in results.cells.items() if cell.is_recomputed],
        "caveats": {name: text for name, text in row.caveats.items() if name in results.cells},
    }


def model_card(
    name: str,
    recipe: Recipe,
    encoder: "Encoder",
    loss: float,
    sources: Mapping[str, int],
    scores: Report | None,
    kept: str = "",
    start: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    license_id: str = "",
) -> str:
    """Return the README of an encoder folder: metadata for the Hugging Face hub, description, usage, how it was made,
    limits and scores.

    What ``config.json`` records of the encoder is taken from the encoder: a recipe may name another tokenizer than that
    of the word vectors. ``loss`` is the last mean loss per pair, ``sources`` the number of pairs by source; ``scores``
    are those of the trained and the untrained encoder; ``kept`` is a sentence on the kept checkpoint, empty for that of
    the last step; ``start`` is what the training started from, by kind, with name, size and digest.
    """
    options = config_to_dict(encoder.config)
    kind = options.pop("name")
    rows_of_recipe = {**options, **settings_of(recipe, encoder)}.items()
    table = f"\n#{scores.markdown()}" if scores else ""
    origin = {key: ", ".join(f"{field} {value}" for field, value in record.items()) for key, record in start.items()}
    origin["versions"] = ", ".join(f"{package} {number}" for package, number in versions().items())
    known = scores.json()["encoders"][0]["scores"] if scores else {}
    card = _CARD.read_text(encoding="utf-8").format(
        metadata=encoder_metadata(encoder, name, scores=known, datasets=sources, license_id=license_id),
        kind=kind,
        name=markdown(name),
        loss=loss,
        kept=f"\nO{markdown(kept[1:])}.\n" if kept else "",
        width=encoder.width,
        sources="\n".join(markdown_row((source, f"{count:,}")) for source, count in sources.items()),
        origins="\n".join(map(markdown_row, origin.items())),
        settings="\n".join(markdown_row((key, str(value))) for key, value in rows_of_recipe),
        limits="\n".join(_markdown_list(_limits(encoder))),
    )
    return card + table


def _limits(encoder: "Encoder") -> list[str]:
    """Return what a user of an encoder must know, from what it is."""
    limits = ["It repeats the biases of its pairs and word vectors; their terms of use apply to it, too."]
    if encoder.config.adds is not None:
        limits.append('The order of the words does not count: "dog bites man" equals "man bites dog".')
    if encoder.oov == "shared":
        limits.append(f"All tokens that are not among its {len(encoder.vocabulary):,} words share one vector.")
    if encoder.max_tokens is not None:
        limits.append(f"Texts are truncated to {encoder.max_tokens:,} tokens.")
    return limits


def encoder_metadata(
    encoder: "Encoder",
    *tags: str,
    scores: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    task: str = _TASK,
    datasets: Iterable[str] = (),
    license_id: str = "",
) -> str:
    """Return the metadata of the card of a folder that paraembed loads, see ``hub_metadata``; it names a language only
    for ``ptb-v1``, whose rules are those of English, and for the words of ``small``.
    """
    kind, language = encoder.config.name, "en" if encoder.tokenizer.startswith("ptb-v1") else None
    if encoder.tokenizer == WORDPIECE and encoder.vocabulary.equals(load_vocabulary(SHIPPED_FOLDER / "words.txt")):
        language = "en"
    return hub_metadata(
        f"paraembed-{kind}",
        scores,
        task=task,
        license=license_id,
        library_name="paraembed",
        language=language,
        tags=[*HUB_TAGS, kind, *tags],
        datasets=[*datasets][:_MOST_RESULTS],
    )


def hub_metadata(name: str, scores: Mapping[str, Mapping[str, Any]], *, task: str = _TASK, **about: Any) -> str:
    """Return the YAML with which a card for the Hugging Face hub begins; values that are None or empty are left out.

    ``scores`` are those of an encoder in ``scores.json``; they become the ``model-index`` of ``name``, as fractions
    rounded to four digits. ``task`` is the hub's name of what the model does. JSON is YAML, whatever a name or a value
    contains, except numbers below 0.0001.
    """
    results = [
        {
            "task": {"type": task},
            "dataset": {"type": label, "name": label},
            "metrics": [{"type": score["measure"], "value": round(float(score[score["measure"]]), 4)}],
        }
        for label, score in scores.items()
        if score["measure"] in score
    ]
    about = {**about, "pipeline_tag": task}
    if results:
        about["model-index"] = [{"name": name, "results": results[:_MOST_RESULTS]}]
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in about.items() if value]
    return "\n".join(["---", *lines, "---", ""])


def known_metadata(card: str) -> dict[str, Any]:
    """Return the metadata of a card that ``hub_metadata`` wrote; without the values of lines that somebody changed."""
    known, block = {}, _METADATA.match(card)
    for line in block[0].splitlines() if block else ():
        key, _, value = line.partition(": ")
        with suppress(ValueError):
            known[key] = json.loads(value)
    return known


def settings_of(recipe: BaseRecipe, encoder: "Encoder") -> dict[str, Any]:
    """Return the fields of a recipe for a model card, with the values that ``config.json`` records of the encoder."""
    decided = {name: getattr(encoder, name) for name in ("tokenizer", "bos_eos_tokens", "max_tokens")}
    return {name: decided.get(name, value) for name, value in recipe.values().items() if name != "encoder"}


def without_usage(card: str) -> str:
    """Return a model card without its metadata, code and plots, for the card of another folder, where they are not
    right.
    """
    return re.sub(r"(?ms)^```.*?^```\n+|^!\[.*?\)\n+", "", _METADATA.sub("", card))
