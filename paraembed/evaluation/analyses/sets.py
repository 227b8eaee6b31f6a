"""Analyses over the sets: score and rare or OOV words, and how encoders rank on the sets and agree about them."""

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.evaluation.analyses.content import (
    AnalysisInputs,
    AnalysisTable,
    CannotMakeError,
    Cell,
    Content,
    cell,
    defined_or_nan,
    text_pools,
)
from paraembed.evaluation.measures import Vector, pearson, spearman
from paraembed.evaluation.scoring import score_name
from paraembed.evaluation.sets import ScoredPairs
from paraembed.pairs.shards import VOCABULARY
from paraembed.papers.results import find_row
from paraembed.plots import Panel, Series, scatter

MEDIAN, UPPER_QUARTILE, BEST = (
    find_row(f"Wieting 2016 table 2: {name} of the task").values for name in ("median", "75th percentile", "best")
)
"""Name of a set → median, 75th percentile and best of the systems that took part in the task, Pearson × 100."""
NEAR = 3.0
"""Points below the best system of the task that the paper counts as near it."""
FREQUENT = 100
"""Occurrences in the training pairs from which on a word is not rare."""
_LEAST_SETS = 3  # or pairs, for a correlation


def across_sets(inputs: AnalysisInputs) -> Content:
    """Correlate the encoders' scores over the sets, and count the sets on which each ranks high among the systems that
    took part in the tasks.
    """
    scores = {
        column.label: {
            score.name: 100 * score.pearson
            for score in column.scores
            if not (score.is_mean or score.is_pooled or np.isnan(score.pearson))
        }
        for column in inputs.report.columns
    }
    pairs: list[tuple[Cell, ...]] = []
    for first, other in combinations(scores, 2):
        names = [name for name in scores[first] if name in scores[other] and name in BEST]
        left, right = (np.array([scores[label][name] for name in names]) for label in (first, other))
        both = (defined_or_nan(correlation, left, right, _LEAST_SETS) for correlation in (pearson, spearman))
        pairs.append((first, other, len(names), *(cell(100 * value) for value in both)))
    ranks: list[tuple[Cell, ...]] = []
    for label, of_encoder in scores.items():
        names = [name for name in of_encoder if name in BEST]
        levels = (MEDIAN, UPPER_QUARTILE, {name: BEST[name] - NEAR for name in names}, BEST)
        counts = (sum(round(of_encoder[name], 1) >= level[name] for name in names) for level in levels)
        ranks += [(label, len(names), *counts)] if names else []
    if not ranks:
        raise CannotMakeError("sets of the papers are needed; add `suite` sts")
    text = (
        "Correlations × 100 of two encoders' scores over the papers' sets. Then, on how many of these an encoder's "
        "Pearson's r × 100, rounded as printed, reaches the median, the top 25 % and the best of the systems that took "
        f"part in the task, or is at most {NEAR:g} points below the best. The paper's XXL average is within 3 points "
        "of the best on 8 of 22 sets, and reaches it on 4."
    )
    heads = ("encoder", "other", "sets", "Pearson", "Spearman")
    counted = ("encoder", "sets", "median", "top 25 %", f"best less {NEAR:g}", "best")
    tables = (
        AnalysisTable("", "correlation over the sets", heads, tuple(pairs)),
        AnalysisTable("-ranks", "sets on which a score reaches", counted, tuple(ranks)),
    )
    return Content(text, tuple(table for table in tables if table.rows))


def raters(inputs: AnalysisInputs) -> Content:
    """Describe how far the people who rated the pairs of a set agree: mean absolute deviation of the ratings of a pair
    from their mean, by that mean; and rank correlation of two raters, over the pairs that both rated.
    """
    rated = [
        (score_name(suite, group, pairs), pairs.ratings)
        for suite in inputs.suites
        for group in suite.groups
        for pairs in group.sets
        if isinstance(pairs, ScoredPairs) and pairs.ratings is not None and pairs.ratings.shape[1] > 1
    ]
    if not rated:
        raise CannotMakeError("sets with the ratings of each person are needed; add `suite` bigrams or phrases")
    rows: list[tuple[Cell, ...]] = []
    correlations: list[tuple[Cell, ...]] = []
    for name, of_all in rated:
        ratings = of_all[~np.isnan(of_all).all(axis=1)]
        means = np.nanmean(ratings, axis=1)
        deviation = np.nanmean(np.abs(ratings - means[:, None]), axis=1)
        lows = np.minimum(np.floor(means), np.nanmax(ratings) - 1)  # the last range includes the highest rating
        for low in np.unique(lows).tolist():
            inside = lows == low
            rows.append((name, f"{low:g} to {low + 1:g}", float(deviation[inside].mean()), 100 * float(inside.mean())))
        rows.append((name, "all", float(deviation.mean()), 100.0))
        agreed = []
        for left, right in combinations(ratings.T, 2):
            both = ~np.isnan(left + right)
            agreed.append(defined_or_nan(spearman, left[both], right[both], _LEAST_SETS))
        defined = [value for value in agreed if not np.isnan(value)]
        correlations.append((name, len(defined), 100 * float(np.mean(defined)) if defined else None))
    text = (
        "Of ratings without names, the first one of each pair counts as one person's. For the sets of Mitchell and "
        "Lapata, the paper quotes ρ × 100 of 52 (JN), 49 (NN) and 55 (VN); for its own 3,000 pairs, which were "
        "released without single ratings, it has a mean deviation of 0.80."
    )
    heads = ("set", "mean", "deviation", "% of pairs"), ("set", "pairs of raters", "Spearman")
    tables = (
        AnalysisTable("", "mean deviation by mean rating", heads[0], tuple(rows)),
        AnalysisTable("-agreement", "rank correlation of two raters", heads[1], tuple(correlations)),
    )
    return Content(text, tables)


def unknown_words(inputs: AnalysisInputs) -> Content:
    """Relate the score of each set to its fraction of rare tokens if pairs are given, else of OOV tokens, for each
    candidate that counts them.
    """
    names = list(dict.fromkeys(name for pool in text_pools(inputs) for name in pool.sets))
    rare = rare_shares(inputs)
    rows: list[tuple[Cell, ...]] = []
    correlations: list[tuple[Cell, ...]] = []
    panels: tuple[list[Series], list[Series]] = ([], [])
    for column in inputs.report.columns:
        by_name = {score.name: score for score in column.scores}
        known = [by_name[name] for name in names if by_name[name].num_tokens and not np.isnan(by_name[name].pearson)]
        if len(known) < _LEAST_SETS:
            continue
        unknown = np.array([100 * rare.get(score.name, score.unknown_share) for score in known])
        scores = np.array([100 * score.pearson for score in known])
        deviations = scores - np.array([UPPER_QUARTILE.get(score.name, np.nan) for score in known])
        rows += [
            (column.label, score.name, float(unknown[index]), float(scores[index]), cell(deviations[index]))
            for index, score in enumerate(known)
        ]
        line: list[Cell] = [column.label]
        for values, series in zip((scores, deviations), panels, strict=True):
            sets, rho = int((~np.isnan(values)).sum()), 100 * rank_correlation(unknown, values)
            line += [sets, cell(rho)]
            shown = "" if np.isnan(rho) else f" (ρ {rho:.1f} over {sets} sets)"
            series.append(Series(f"{column.label}{shown}", values, unknown))
        correlations.append(tuple(line))
    if not rows:
        raise CannotMakeError(
            f"at least {_LEAST_SETS} sets of sentences and an encoder that counts OOV words are needed; add `suite` sts"
        )
    what = f"occurs in the pairs of `margin_pairs` fewer than {FREQUENT} times" if rare else "has no vector"
    text = (
        f"A word counts here that {what}. Each point is a set. Right: Pearson's r × 100 less the 75th percentile of "
        "the systems that took part in the task, as in the paper, whose ρ × 100 is -45.1 (it counts words that occur "
        f"fewer than {FREQUENT} times in its training pairs, as with `margin_pairs`)."
    )
    heads = ("encoder", "sets", "ρ with the score", "sets with a 75th percentile", "ρ with the deviation")
    tables = (
        AnalysisTable("-correlation", "rank correlation", heads, tuple(correlations)),
        AnalysisTable(
            "",
            "sets",
            ("encoder", "set", "rare, %" if rare else "unknown, %", "Pearson", "against the 75th percentile"),
            tuple(rows),
        ),
    )
    plots = (
        Panel("Pearson's r × 100", panels[0]),
        Panel("less the 75th percentile of the task's systems", panels[1], level=0),
    )
    return Content(text, tables, scatter(plots, ("rare tokens, %" if rare else "tokens without a vector, %", "")))


def rare_shares(inputs: AnalysisInputs) -> dict[str, float]:
    """Return the fraction of each set's tokens that occur in the given pairs fewer than ``FREQUENT`` times; without
    pairs, none.
    """
    if inputs.options.margin_pairs is None:
        return {}
    words = pq.read_table(inputs.options.margin_pairs / VOCABULARY)
    frequent = words.filter(pc.greater_equal(words["count"], FREQUENT))["word"].combine_chunks()
    nothing = np.zeros(2, np.int64)
    totals: dict[str, npt.NDArray[np.int64]] = {}
    for pool in text_pools(inputs):
        for tokens in pool.tokens:
            is_rare = ~pc.is_in(tokens.flat, value_set=frequent).to_numpy(zero_copy_only=False)
            before = np.concatenate([[0], np.cumsum(is_rare)])[tokens.offsets]
            counts = np.stack([np.diff(before), np.diff(tokens.offsets)], axis=1)
            for name in dict.fromkeys(pool.sets):
                totals[name] = totals.get(name, nothing) + counts[np.array(pool.sets) == name].sum(axis=0)
    return {name: int(rare) / max(1, int(total)) for name, (rare, total) in totals.items()}


def rank_correlation(unknown: Vector, values: Vector) -> float:
    """Return Spearman's ρ over the sets that have a value; NaN for fewer than three sets or a constant side."""
    defined = ~np.isnan(values)
    return defined_or_nan(spearman, unknown[defined], values[defined], _LEAST_SETS)
