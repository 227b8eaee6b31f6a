"""Thresholds and choices: against trying everything."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.evaluation.measures import best_threshold, first_place


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=20))
def test_the_threshold_is_the_lowest_of_the_best(pairs):
    values, labels = (np.array(side, np.float64) for side in zip(*pairs, strict=True))
    if np.ptp(values) == 0:
        with pytest.raises(ValueError, match=r"predictions are all .*in the vocabulary\?"):
            best_threshold(values, labels)
        return
    distinct = np.unique(values)
    tried = [-np.inf, *(distinct[:-1] + distinct[1:]) / 2, np.inf]
    right = [np.mean((values >= one) == (labels > 0)) for one in tried]
    assert best_threshold(values, labels) == tried[int(np.argmax(right))]


def test_a_choice_by_hand():
    similarities = np.array(
        [[0.9, 0.1, 0.2], [0.5, 0.5, 0.1], [0.3, 0.3 + 1e-8, 0.3], [0.1, 0.2, 0.2], [0.5, 0.4, 0.5 + 1e-3]],
        np.float32,
    )
    won, shared = first_place(similarities)
    assert won.tolist() == [True, False, False, False, False]
    np.testing.assert_allclose(shared, [1, 1 / 2, 1 / 3, 0, 0])


def test_what_cannot_be_decided_is_an_error():
    with pytest.raises(ValueError, match=r"6 predictions are all 0\.25"):
        first_place(np.full((2, 3), 0.25, np.float32))
    with pytest.raises(ValueError, match="not finite"):
        first_place(np.array([[0.1, np.nan]], np.float32))
    with pytest.raises(ValueError, match="not finite"):
        best_threshold(np.array([0.1, np.inf]), np.array([0.0, 1.0]))
