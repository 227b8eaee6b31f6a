"""PPDB's own scores of its pairs, to compare encoders with (Wieting 2015 §6.4, table 6).

``PPDB`` is the confidence by which PPDB is ordered: PPDB2.0Score, or of PPDB 1.0 the negative of PPDB1.0Score, which is
-log p(e1|e2) - log p(e2|e1) (equal in all of 100 original lines of PPDB 2.0, which print it). ``PPDB + SVR`` is a
support vector regression (Chang and Lin 2011) on the other features of a pair, 33 in PPDB 1.0, each scaled to -1 to 1.
Its parameters have the lowest squared error in 5-fold cross-validation over rated pairs; it is then trained on all of
them. The paper does not print its grid; this one is a part of the grid that LIBSVM's guide proposes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.console import doing
from paraembed.evaluation.candidates import Candidate, PairScorer
from paraembed.evaluation.sets import ScoredPairs, Suite
from paraembed.evaluation.suites import read_scored_pairs
from paraembed.io.escape import listed
from paraembed.io.lines import read_lines, strings_at
from paraembed.pairs.ppdb import BORDER, SCORE, looks_like_ppdb, parse_ppdb

Pair = tuple[str, str]
Features = Mapping[str, float]

_BORDER = BORDER.decode()
_OLD_SCORE = "PPDB1.0Score"
_LOGS = ("p(e|f)", "p(f|e)")  # as PPDB 1.0 calls -log p(e2|e1) and -log p(e1|e2)
_FOLDS = 5
_GRID = {
    "svr__C": [2.0**power for power in range(-5, 8, 2)],
    "svr__gamma": [2.0**power for power in range(-15, 2, 2)],
    "svr__epsilon": [0.1, 0.25, 0.5],
}


class PpdbScorer(PairScorer):
    """Scorer of pairs by a number for each pair of PPDB; a pair in the other order has the same score, a pair that is
    not in PPDB less than all others.
    """

    def __init__(self, scores: Mapping[Pair, float]) -> None:
        self.scores, self.least = scores, min(scores.values()) - 1

    def similarity(self, first: pa.StringArray, second: pa.StringArray) -> npt.NDArray[np.float64]:
        """Return the score of each text [n] with its counterpart, float64 [n]."""
        pairs = _pairs(first, second)
        return np.array([self.scores.get(pair, self.scores.get(pair[::-1], self.least)) for pair in pairs], np.float64)


def ppdb_candidates(files: Sequence[Path], rated: Path | None, suites: Sequence[Suite]) -> list[Candidate]:
    """Return the confidence of PPDB, and with ``rated``, a file of scored pairs, the regression that is trained on it.

    ``files`` are PPDB files, best pairs first, of which only the pairs of the ``suites`` and the rated pairs are kept.
    Raise OSError or ValueError if a file cannot be read, has none of the pairs, or if rated pairs are scored, too.
    """
    sets = [pairs for suite in suites for group in suite.groups for pairs in group.sets]
    scored = {pair for pairs in sets if isinstance(pairs, ScoredPairs) for pair in _pairs(pairs.first, pairs.second)}
    ratings = None if rated is None else read_scored_pairs(rated, ())
    trained = [] if ratings is None else _pairs(ratings.first, ratings.second)
    shared = scored.intersection(chain(trained, (pair[::-1] for pair in trained)))
    if shared:
        raise ValueError(
            f"`rated` {rated} has {len(shared)} of the pairs that are scored, such as {listed(min(shared))}; give "
            "other pairs to train on"
        )
    features = read_features(files, scored.union(trained))
    names = listed([file.name for file in files])
    known = sum(bool(features.keys() & {pair, pair[::-1]}) for pair in scored)
    if not known:
        raise ValueError(f"{names}: none of the {len(scored):,} pairs that are scored is in `ppdb`; give other files")
    of = f"of {names}, which has {known / len(scored):.0%} of the scored pairs"
    confidence = _confidence(features)
    candidates = [Candidate("PPDB", f"confidence {of}", PpdbScorer(confidence), is_baseline=True)]
    if ratings is not None:
        targets = dict(zip(trained, ratings.scores.tolist(), strict=True))
        scores, how = _regress(features, targets, ratings.name)
        candidates.append(Candidate("PPDB + SVR", f"{how} {of}", PpdbScorer(scores), is_baseline=True))
    return candidates


def read_features(files: Sequence[Path], wanted: Iterable[Pair]) -> dict[Pair, Features]:
    """Return the features of those of the wanted pairs, in either order, that are in PPDB files; of a pair with several
    lines, those of the first. Raise OSError or ValueError if a file cannot be read or is not PPDB.
    """
    keys = pa.array([_BORDER.join(order) for pair in wanted for order in (pair, pair[::-1])], pa.string())
    features: dict[Pair, Features] = {}
    for file in files:
        for lines in read_lines(file):
            if not lines.first and not looks_like_ppdb(str(lines.text[0])):
                raise ValueError(f"{file} is not a file of PPDB: {str(lines.text[0])[:60]!r}; give `ppdb` its files")
            doing(f"looking for the pairs in {file.name}: line {lines.first:,}")
            pairs = parse_ppdb(lines)
            here = pc.binary_join_element_wise(pairs.first, pairs.second, _BORDER)
            chosen = pc.and_(pc.is_in(here, value_set=keys), pc.is_null(pairs.refused))
            rows = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
            for line in strings_at(lines.octets, lines.starts[rows], lines.ends[rows]).to_pylist():
                _, first, second, cells, *_ = line.split(_BORDER)
                features.setdefault((first, second), _numbers(cells))
    return features


def _pairs(first: pa.StringArray, second: pa.StringArray) -> list[Pair]:
    return list(zip(first.to_pylist(), second.to_pylist(), strict=True))


def _numbers(cells: str) -> Features:
    """Return the finite numbers of ``name=value …``; PPDB writes ``NA`` for a feature that a pair does not have."""
    numbers = {}
    for cell in cells.split():
        name, _, value = cell.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            numbers[name] = number
    return numbers


def _confidence(features: Mapping[Pair, Features]) -> dict[Pair, float]:
    """Return the first of PPDB's scores that all pairs have, so that they are on one scale."""
    for names, sign in (((SCORE,), 1), ((_OLD_SCORE,), -1), (("-logp(e1|e2)", "-logp(e2|e1)"), -1), (_LOGS, -1)):
        if all(cells.keys() >= {*names} for cells in features.values()):
            return {pair: sign * sum(cells[name] for name in names) for pair, cells in features.items()}
    raise ValueError(
        f"`ppdb`: not all of the pairs have {SCORE}, nor {_OLD_SCORE}, nor {' and '.join(_LOGS)}; give original files "
        "of one version of PPDB"
    )


def _regress(
    features: Mapping[Pair, Features], targets: Mapping[Pair, float], name: str
) -> tuple[dict[Pair, float], str]:
    """Return the predicted rating of every pair, and a description of the regression."""
    from sklearn.impute import SimpleImputer  # noqa: PLC0415 - a second to import
    from sklearn.model_selection import GridSearchCV, KFold  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import MinMaxScaler  # noqa: PLC0415
    from sklearn.svm import SVR  # noqa: PLC0415

    names = sorted({*chain.from_iterable(features.values())} - {SCORE, _OLD_SCORE})
    inputs = {pair: [cells.get(name, math.nan) for name in names] for pair, cells in features.items()}
    rated = sorted(pair for pair in inputs if pair in targets or pair[::-1] in targets)
    if len(rated) < 2 * _FOLDS:
        raise ValueError(
            f"`rated`: {len(rated)} of the pairs of {name} are in `ppdb`; the regression needs {2 * _FOLDS} or more"
        )
    doing(f"training the regression on {len(rated)} pairs")
    ratings = [targets[pair] if pair in targets else targets[pair[::-1]] for pair in rated]
    model = make_pipeline(SimpleImputer(), MinMaxScaler((-1, 1)), SVR())  # a missing feature has its mean
    folds = KFold(_FOLDS, shuffle=True, random_state=0)
    search = GridSearchCV(model, _GRID, scoring="neg_mean_squared_error", cv=folds).fit(
        [inputs[pair] for pair in rated], ratings
    )
    best = ", ".join(f"{key.partition('__')[2]} {value:g}" for key, value in search.best_params_.items())
    predicted = search.predict(list(inputs.values())).tolist()
    return dict(zip(inputs, predicted, strict=True)), f"regression ({best}) on {len(rated)} pairs of {name} by features"
