"""Correlations: by hand, by scipy, and where they are not defined."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from paraembed.evaluation.correlation import Vector, cosine, pearson, spearman


def vector(*values: float) -> Vector:
    return np.array(values, np.float64)


def test_by_hand() -> None:
    # Deviations (-1, 0, 1) and (-1, -1, 2): r = 3 / √(2 · 6). Ranks (1, 2, 3) and (1.5, 1.5, 3): ρ = 1.5 / √(2 · 1.5).
    predicted, gold = vector(1, 2, 3), vector(1, 1, 4)
    assert pearson(predicted, gold) == pytest.approx(3 / np.sqrt(12))
    assert spearman(predicted, gold) == pytest.approx(1.5 / np.sqrt(3))
    assert pearson(predicted, -predicted) == pytest.approx(-1)
    assert spearman(predicted, vector(1, 10, 100)) == pytest.approx(1)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 20)), min_size=3, max_size=30))
def test_as_scipy(pairs: list[tuple[int, int]]) -> None:
    predicted, gold = (vector(*side) / 10 for side in zip(*pairs, strict=True))
    if np.ptp(predicted) == 0 or np.ptp(gold) == 0:
        with pytest.raises(ValueError, match="needs some that differ"):
            pearson(predicted, gold)
    else:
        assert pearson(predicted, gold) == stats.pearsonr(predicted, gold).statistic
        assert spearman(predicted, gold) == stats.spearmanr(predicted, gold).statistic


@pytest.mark.parametrize("correlation", [pearson, spearman])
@pytest.mark.parametrize(
    ("predicted", "gold", "message"),
    [
        (vector(0.5, 0.5, 0.5), vector(1, 2, 3), r"the 3 predictions are all 0\.5; .* in the vocabulary\?"),
        (vector(1, 1, 1 + 1e-15), vector(1, 2, 3), "the 3 predictions are all 1;"),
        (vector(0, 0, 0), vector(1, 2, 3), "the 3 predictions are all 0;"),
        (vector(1, 2, 3), vector(5, 5, 5), "the 3 gold scores are all 5; a correlation needs some that differ$"),
        (vector(1, np.nan, 3), vector(1, 2, 3), "number 2 of the predictions is nan"),
        (vector(1, 2, 3), vector(1, 2, -np.inf), "number 3 of the gold scores is -inf"),
        (vector(1), vector(1), "one pair has no correlation; it takes at least 2"),
        (vector(1, 2), vector(1, 2, 3), "2 predictions and 3 gold scores"),
    ],
)
def test_what_is_not_defined_is_said(correlation: type, predicted: Vector, gold: Vector, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        correlation(predicted, gold)


def test_cosine() -> None:
    first = np.array([[3, 4], [1, 0], [1, 1], [0, 0], [1e-30, 0]], np.float32)
    second = np.array([[6, 8], [0, 2], [-1, -1], [1, 2], [1e-30, 1e-30]], np.float32)
    np.testing.assert_allclose(cosine(first, second), [1, 0, -1, 0, np.sqrt(0.5)], atol=1e-7)
    assert cosine(first, first)[3] == 0
    assert cosine(first[:0], first[:0]).shape == (0,)


def test_cosine_as_scipy_in_double_precision() -> None:
    first, second = np.random.default_rng(0).standard_normal((2, 50, 30)).astype(np.float32)
    norms = np.linalg.norm(first.astype(np.float64), axis=1) * np.linalg.norm(second.astype(np.float64), axis=1)
    expected = (first.astype(np.float64) * second).sum(axis=1) / norms
    np.testing.assert_allclose(cosine(first, second), expected, rtol=1e-13)
