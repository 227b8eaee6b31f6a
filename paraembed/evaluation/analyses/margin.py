"""Margin statistic 2·cos(g1, g2) - cos(n1, g1) - cos(n2, g2) of pairs (Wieting 2016 §5)."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.evaluation.analyses.content import AnalysisInputs, AnalysisTable, CannotMakeError, Content
from paraembed.evaluation.candidates import PairScorer
from paraembed.evaluation.choose import is_trained_on
from paraembed.evaluation.measures import Vector
from paraembed.late import Late
from paraembed.pairs.shards import read_pair_manifest
from paraembed.papers.results import MARGINS
from paraembed.plots import Panel, Series, lines

if TYPE_CHECKING:
    from pyarrow import dataset
else:
    dataset = Late("pyarrow.dataset")  # with pandas

BATCH = 100
"""Number of pairs whose texts are candidates for negatives; the batch size of the papers."""
MOST_PAIRS = 10_000


def margins(first_BH: npt.NDArray[np.float32], second_BH: npt.NDArray[np.float32]) -> Vector:
    """Return the statistic of each of B ≥ 2 pairs, [B], between -4 and 4.

    n1 is the text most similar to g1 among both texts of the other pairs (negatives ``max`` from ``both_sides``).
    """
    texts = np.stack([first_BH, second_BH], axis=1).astype(np.float64)  # [B, 2, H]
    norms = np.linalg.norm(texts, axis=2, keepdims=True)
    texts = np.divide(texts, norms, out=np.zeros_like(texts), where=norms > 0)
    cosines = np.einsum("ish,jth->isjt", texts, texts, optimize=True)
    pairs = np.arange(len(texts))
    positive = cosines[pairs, 0, pairs, 1].copy()
    cosines[pairs, :, pairs, :] = -np.inf
    negative = cosines.max(axis=(2, 3))  # [B, 2]
    statistic: Vector = 2 * positive - negative.sum(axis=1)
    return statistic


def read_some_pairs(folder: Path, *, most_pairs: int = MOST_PAIRS) -> tuple[pa.StringArray, pa.StringArray, int]:
    """Return first and second texts of some pairs of pair shards, in a fixed random order, and the number of all."""
    shards = read_pair_manifest(folder, for_training=False)["shards"]
    total = sum(int(shard["rows"]) for shard in shards)
    drawn = np.random.default_rng(0).permutation(total)[:most_pairs]
    pairs = dataset.dataset([folder / shard["name"] for shard in shards], format="parquet")
    little = {"batch_readahead": 1, "fragment_readahead": 1}  # not 64 batches in memory
    table = pairs.take(pa.array(drawn), columns=["first", "second"], **little)
    return table["first"].combine_chunks(), table["second"].combine_chunks(), total


def margin(inputs: AnalysisInputs) -> Content:
    """Analyze the distribution of the statistic for each candidate with vectors."""
    folder = inputs.options.margin_pairs
    if folder is None:
        raise CannotMakeError(
            "no pairs were given; set `margin_pairs` to a folder of pair shards, written by jobs/shard.py"
        )
    first, second, total = read_some_pairs(folder)
    size = len(first) - len(first) % BATCH if len(first) >= BATCH else len(first)
    if size < 2:
        raise CannotMakeError(
            f"{folder} has {total} pair, but a negative comes from another pair; give at least two pairs"
        )
    statistics = {}
    for candidate in inputs.candidates:
        if isinstance(candidate.encoder, PairScorer):
            continue
        first_vectors, other = (candidate.encoder.embed(texts.slice(0, size)).vectors for texts in (first, second))
        batches = [
            margins(first_vectors[start : start + BATCH], other[start : start + BATCH])
            for start in range(0, size, BATCH)
        ]
        statistics[candidate.label] = np.concatenate(batches)
    if not statistics:
        raise CannotMakeError("no candidate has vectors; add an encoder")
    rows = tuple(
        (label, size, float(values.mean()), float((values > 0).mean() * 100)) for label, values in statistics.items()
    )
    printed = ", ".join(f"{label} {mean}" for label, mean in MARGINS.items())
    text = (
        f"{size:,} of the {total:,} pairs in {folder.name}, drawn at random, in batches of {BATCH}: n1 and n2 are the "
        "texts of the other pairs of the batch that are most similar to g1 and g2, equal ones, too, as in training. "
        f"{_whose(folder, inputs)} Higher is better on training pairs, and more of it there than on held-out pairs is "
        "overfitting. "
        f"Means the paper prints for PPDB XL: {printed}."
    )
    head = ("encoder", "pairs", "mean", "above zero, %")
    return Content(text, (AnalysisTable("", "", head, rows, 4),), _draw(statistics))


def _whose(folder: Path, inputs: AnalysisInputs) -> str:
    """Return a note on whether these are the training pairs of the candidates."""
    trained = [candidate.label for candidate in inputs.candidates if is_trained_on(folder, candidate.trained_on)]
    others = [
        candidate.label for candidate in inputs.candidates if candidate.trained_on and candidate.label not in trained
    ]
    notes = [
        f"{what} of {', '.join(who)}"
        for what, who in (("the training pairs", trained), ("other pairs than those", others))
        if who
    ]
    return f"They are {' and '.join(notes)}." if notes else "Whether a candidate was trained on them is not known."


def _draw(statistics: dict[str, Vector]) -> bytes:
    """Draw a histogram for each candidate, with the means and the first published mean marked."""
    all_values = np.concatenate([*statistics.values()])
    edges = np.linspace(min(0, all_values.min()), max(2, all_values.max()), 61)
    name, mean = next(iter(MARGINS.items()))
    series = [Series(f"paper: {name} ({mean:.3f})", [], [], is_published=True, mark=mean)]
    for label, values in statistics.items():
        counts = [*np.histogram(values, edges)[0], 0]
        series.append(Series(f"{label} ({values.mean():.3f})", counts, edges, mark=float(values.mean())))
    labels = ("2·cos(g1, g2) - cos(n1, g1) - cos(n2, g2); means dashed", "pairs")
    return lines([Panel("", series)], labels, steps=True)
