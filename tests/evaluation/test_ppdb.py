"""Scores of PPDB: its confidence, and a regression on its features, against both by hand."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.svm import SVR

from paraembed.evaluation import ppdb
from paraembed.evaluation.ppdb import ppdb_candidates, read_features
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.pairs.sample import ppdb_lines

ORIGINAL = json.loads((Path(__file__).parents[1] / "pairs" / "ppdb_original.json").read_text())


def by_hand(line):
    """The pair of a line, and its features."""
    _, first, second, cells, *_ = line.split(" ||| ")
    values = dict(cell.rsplit("=", 1) for cell in cells.split())
    return (first, second), {name: float(value) for name, value in values.items() if value != "NA"}


def suite_of(pairs, scores=None):
    scores = np.arange(len(pairs), dtype=float) if scores is None else np.array(scores)
    sides = [pa.array(side, pa.string()) for side in zip(*pairs, strict=True)]
    return Suite("pairs", (Group("", (ScoredPairs("test", scores, *sides),)),))


@pytest.fixture(params=["1.0", "2.0"])
def lines(request, tmp_path):
    """Lines of PPDB with one line a pair, and their file."""
    seen, unique = set(), []
    for line in "".join(ppdb_lines(request.param, 400, seed=3)).splitlines():
        pair = frozenset(by_hand(line)[0])
        if pair not in seen:
            unique.append(line)
        seen.add(pair)
    with gzip.open(tmp_path / "ppdb.gz", "wt") as file:
        file.writelines(f"{line}\n" for line in unique)
    return unique, tmp_path / "ppdb.gz"


def test_features_are_those_of_the_first_line_of_the_pairs_alone(lines):
    unique, file = lines
    expected = dict(map(by_hand, unique))
    wanted = list(expected)[::7]
    found = read_features([file, file], [pair[:: (-1) ** number] for number, pair in enumerate(wanted)])
    assert found == {pair: expected[pair] for pair in wanted}
    sizes = {len(cells) for cells in found.values()}
    assert max(sizes) >= 33
    repeated = file.with_name("again")
    cut = unique[0].split(" ||| ")
    repeated.write_text(f"{' ||| '.join([*cut[:3], 'A=1 B=-2.5 C=NA D=1e999', *cut[4:]])}\n{unique[0]}\n")
    assert list(read_features([repeated], [by_hand(unique[0])[0]]).values()) == [{"A": 1.0, "B": -2.5}]


def test_the_confidence_of_1_is_the_negative_sum_of_both_log_probabilities(tmp_path):
    """PPDB 2.0 prints the score by which PPDB 1.0 was ordered."""
    values = {name: value for name, value in ORIGINAL["values"].items() if value is not None}
    old = {name.replace("-log", "").replace("e2", "f").replace("e1", "e"): value for name, value in values.items()}
    for cells in (values, old):
        for name in ("PPDB2.0Score", *(["PPDB1.0Score"] if cells is old else [])):
            cells.pop(name, None)
        text = " ".join(f"{name}={value}" for name, value in cells.items())
        (tmp_path / "ppdb").write_text(f"[NN] ||| a b ||| c d ||| {text} ||| 0-0\n")
        (candidate,) = ppdb_candidates([tmp_path / "ppdb"], None, [suite_of([("a b", "c d"), ("c d", "x")])])
        scores = candidate.encoder.similarity(pa.array(["a b", "c d", "c d"]), pa.array(["c d", "a b", "x"]))
        assert scores.tolist() == pytest.approx([-17.51317, -17.51317, -18.51317], abs=1e-9)


def test_the_regression_is_that_of_scaled_features(lines, monkeypatch):
    """With one point in the grid: the predictions of scikit-learn's SVR on a matrix that is scaled by hand."""
    monkeypatch.setattr(ppdb, "_GRID", {"svr__C": [8.0], "svr__gamma": [0.03], "svr__epsilon": [0.1]})
    unique, file = lines
    known = dict(map(by_hand, unique))
    pairs = sorted(known)
    names = sorted({name for cells in known.values() for name in cells if not name.startswith("PPDB")})
    sparse = np.array([[known[pair].get(name, np.nan) for name in names] for pair in pairs])
    matrix = np.where(np.isnan(sparse), np.nanmean(sparse[::2], axis=0), sparse)
    ratings = matrix[:, 3] - np.abs(matrix[:, 8]) / 4
    train, test = np.arange(0, len(pairs), 2), np.arange(1, len(pairs), 2)
    low, high = matrix[train].min(axis=0), matrix[train].max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    scaled = (matrix - low) / span * 2 - 1
    expected = SVR(C=8.0, gamma=0.03, epsilon=0.1).fit(scaled[train], ratings[train]).predict(scaled[test])

    rated = file.with_name("rated.tsv")
    # Half of the rated pairs are in the other order.
    rows = [(float(ratings[row]), *pairs[row][:: 1 if row % 4 else -1]) for row in train]
    rated.write_text("".join(f"{score!r}\t{first}\t{second}\n" for score, first, second in rows))
    confidence, regression = ppdb_candidates([file], rated, [suite_of([pairs[row] for row in test], ratings[test])])
    sides = [pa.array(side) for side in zip(*(pairs[row] for row in test), strict=True)]
    assert regression.encoder.similarity(*sides) == pytest.approx(expected, abs=1e-6)
    assert regression.encoder.similarity(*sides[::-1]) == pytest.approx(expected, abs=1e-6)
    assert not np.allclose(confidence.encoder.similarity(*sides), expected)
    assert np.corrcoef(expected, ratings[test])[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("lines", ["2.0"], indirect=True)
def test_the_parameters_are_chosen_by_cross_validation(lines, monkeypatch):
    """Ratings of which a small C cannot follow the range."""
    monkeypatch.setitem(ppdb._GRID, "svr__gamma", [2.0**-15, 2.0**-7])
    unique, file = lines
    known = dict(map(by_hand, unique))
    pairs = sorted(known)[:60]
    rated = file.with_name("rated.tsv")
    rated.write_text("".join(f"{100 * known[pair]['AGigaSim']:.5f}\t{pair[0]}\t{pair[1]}\n" for pair in pairs))
    _, regression = ppdb_candidates([file], rated, [suite_of(sorted(known)[60:90])])
    assert regression.description.startswith("regression (C 128, ")
    assert "gamma 0.0078125)" in regression.description
    assert "60 pairs of rated" in regression.description


@pytest.mark.parametrize("lines", ["1.0"], indirect=True)
def test_what_cannot_be_compared_is_an_error(lines, tmp_path):
    unique, file = lines
    pairs = [by_hand(line)[0] for line in unique]
    scored = suite_of(pairs[:20])
    rated = tmp_path / "rated.tsv"
    rated.write_text("".join(f"1\t{second}\t{first}\n" for first, second in pairs[19:40]))
    with pytest.raises(ValueError, match="has 1 of the pairs that"):
        ppdb_candidates([file], rated, [scored])
    rated.write_text("".join(f"1\t{first}\t{second}\n" for first, second in [*pairs[20:29], ("x", "y")]))
    with pytest.raises(ValueError, match="`rated`: 9 of the pairs"):
        ppdb_candidates([file], rated, [scored])
    with pytest.raises(ValueError, match="none of the 1 pairs"):
        ppdb_candidates([file], None, [suite_of([("x", "y")])])
    with pytest.raises(ValueError, match="is not a file of PPDB"):
        ppdb_candidates([rated], None, [scored])
    rated.write_text("[NN] ||| a b ||| c d ||| AGigaSim=1 ||| 0-0\n")
    with pytest.raises(ValueError, match="not all of the pairs have"):
        ppdb_candidates([rated], None, [suite_of([("a b", "c d")])])
