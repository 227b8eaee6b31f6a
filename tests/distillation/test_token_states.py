"""Sums of token states, and the prior that they give."""

import numpy as np
import pytest

from paraembed.distillation.student import with_states
from paraembed.encoders.token_sums import merged, sums_of
from paraembed.text.ragged import Ragged


def test_sums_do_not_depend_on_the_batches():
    draw = np.random.default_rng(0)
    tokens, states = draw.integers(0, 9, 200), draw.standard_normal((200, 5)).astype(np.float32)
    parts = [sums_of(tokens[start : start + 30], states[start : start + 30]) for start in range(0, 200, 30)]
    total = merged(parts, 5)
    assert total.tokens.tolist() == list(range(9))
    assert total.counts.tolist() == np.bincount(tokens).tolist()
    for token in range(9):
        expected = states[tokens == token].astype(np.float64).sum(axis=0)
        np.testing.assert_allclose(total.sums[token], expected, atol=1e-5)
    assert merged([], 5).sums.shape == (0, 5)


def test_rare_units_are_shrunk_towards_the_unit_alone():
    """Units: tokens 3 and 7, two tokens, a token that does not occur, none."""
    draw = np.random.default_rng(1)
    states = sums_of(np.array([3] * 6 + [7] * 2 + [9]), draw.standard_normal((9, 4)).astype(np.float32))
    alone = draw.standard_normal((5, 4)).astype(np.float32)
    alone[4] = 0
    tokens = Ragged(np.array([3, 7, 3, 9, 8], np.int32), np.array([0, 1, 2, 4, 5, 5]))
    counts = np.array([6, 2, 1, 0, 0])
    found = with_states(alone, counts, states, tokens, 4.0)
    means = states.sums[:2] / [[6], [2]]
    means = means - (6 * means[0] + 2 * means[1]) / 8
    units = alone[:4] - (6 * alone[0] + 2 * alone[1] + alone[2]) / 9
    scale = (means * units[:2]).sum() / (units[:2] ** 2).sum()
    np.testing.assert_allclose(found[0], (6 * means[0] + 4 * scale * units[0]) / 10, rtol=1e-5)
    np.testing.assert_allclose(found[1], (2 * means[1] + 4 * scale * units[1]) / 6, rtol=1e-5)
    np.testing.assert_allclose(found[2:4], scale * units[2:], rtol=1e-5)
    assert found[4] == pytest.approx(0)
