from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.training.negatives import most_similar
from paraembed.training.objectives import margin_terms, unit


def embeddings(num_pairs: int, seed: int, coarse: bool) -> torch.Tensor:
    """Random vectors; coarse ones make many similarities equal."""
    generator = torch.Generator().manual_seed(seed)
    if coarse:
        return torch.nn.functional.one_hot(torch.randint(0, 3, (2 * num_pairs,), generator=generator), 3).double()
    return unit(torch.randn(2 * num_pairs, 4, generator=generator, dtype=torch.float64))


@given(
    num_pairs=st.integers(2, 12),
    seed=st.integers(0, 10_000),
    coarse=st.booleans(),
    pool=st.sampled_from(["both_sides", "same_side"]),
)
def test_max_is_the_first_best_candidate_and_never_the_own_pair(
    num_pairs: int, seed: int, coarse: bool, pool: Literal["both_sides", "same_side"]
) -> None:
    vectors = embeddings(num_pairs, seed, coarse)
    chosen = most_similar(vectors, pool).tolist()
    similarity = (vectors @ vectors.T).numpy()
    for text, negative in enumerate(chosen):
        candidates = [
            other
            for other in range(2 * num_pairs)
            if other // 2 != text // 2 and (pool == "both_sides" or other % 2 == text % 2)
        ]
        assert negative == max(candidates, key=lambda other: (similarity[text, other], -other))


@given(num_pairs=st.integers(2, 8), seed=st.integers(0, 10_000), margin=st.floats(0.1, 1.5))
def test_terms_are_equation_11(num_pairs: int, seed: int, margin: float) -> None:
    vectors = embeddings(num_pairs, seed, coarse=False)
    negatives = most_similar(vectors, "both_sides")
    terms = margin_terms(vectors, negatives, margin)
    rows = vectors.numpy()
    for pair in range(num_pairs):
        first, second = rows[2 * pair], rows[2 * pair + 1]
        for side, text in enumerate((first, second)):
            negative = rows[negatives[2 * pair + side]]
            expected = max(0.0, margin - first @ second + text @ negative)
            assert terms[pair, side].item() == pytest.approx(expected, abs=1e-12)


def test_unit_has_length_one_and_leaves_zero() -> None:
    vectors = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    scaled = unit(vectors)
    assert scaled.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]
    scaled.sum().backward()
    assert vectors.grad is not None
    assert np.isfinite(vectors.grad.numpy()).all()
