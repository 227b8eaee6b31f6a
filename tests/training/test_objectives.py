import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.training.objectives import contrastive_terms, margin_terms, positive, squared_l2_terms, unit


def embeddings(count, seed):
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(
    num_pairs=st.integers(1, 8),
    num_pool=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    margin=st.floats(0.1, 1.5),
    cosine=st.booleans(),
)
def test_margin_terms_are_the_papers_equations(num_pairs, num_pool, seed, margin, cosine):
    vectors, pool = embeddings(2 * num_pairs, seed), embeddings(num_pool, seed + 1)
    negatives = torch.randint(-1, num_pool, (2 * num_pairs,), generator=torch.Generator().manual_seed(seed))
    rows, candidates = vectors.numpy(), pool.numpy()
    if cosine:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        candidates = candidates / np.linalg.norm(candidates, axis=1, keepdims=True)
        vectors, pool = unit(vectors), unit(pool)
    terms = margin_terms(vectors, pool, negatives, margin)
    for pair in range(num_pairs):
        for side in (0, 1):
            text, at = rows[2 * pair + side], negatives[2 * pair + side]
            expected = max(0.0, margin - rows[2 * pair] @ rows[2 * pair + 1] + text @ candidates[at]) if at >= 0 else 0
            assert terms[pair, side].item() == pytest.approx(expected, abs=1e-12)
    assert positive(vectors).flatten().tolist() == pytest.approx(
        [float(a @ b) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    )


@given(num_pairs=st.integers(1, 6), count=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_contrastive_terms_are_zhous_equation(num_pairs, count, seed):
    vectors, contrast = embeddings(2 * num_pairs, seed), embeddings(7, seed + 1)
    drawn = torch.randint(0, 7, (num_pairs, count), generator=torch.Generator().manual_seed(seed))
    terms = contrastive_terms(vectors, contrast, drawn, 1.0)
    for pair in range(num_pairs):
        first, second = vectors[2 * pair].numpy(), vectors[2 * pair + 1].numpy()
        expected = [max(0.0, 1 - first @ second + first @ contrast[at].numpy()) for at in drawn[pair]]
        assert terms[pair].tolist() == pytest.approx(expected, abs=1e-12)


def test_squared_l2_is_the_squared_distance():
    assert squared_l2_terms(torch.tensor([[1.0, 2.0], [4.0, -2.0], [0.0, 0.0], [0.0, 0.5]])).tolist() == [
        [25.0],
        [0.25],
    ]


@pytest.mark.parametrize("name", ["margin", "contrastive", "squared_l2"])
def test_gradients_are_the_difference_quotients(name):
    contrast, drawn = embeddings(3, 2), torch.tensor([[0, 2], [1, 1], [2, 0]])
    negatives = torch.tensor([2, 4, -1, 0, 1, 3])
    losses = {
        "margin": lambda vectors: margin_terms(unit(vectors), unit(vectors), negatives, 0.4),
        "contrastive": lambda vectors: contrastive_terms(vectors, contrast, drawn, 1.0),
        "squared_l2": squared_l2_terms,
    }
    assert torch.autograd.gradcheck(losses[name], embeddings(6, 1).requires_grad_())


def test_unit_has_length_one_and_leaves_zero():
    vectors = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    scaled = unit(vectors)
    assert scaled.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, 0.0]]
    scaled.sum().backward()
    assert vectors.grad is not None
    assert np.isfinite(vectors.grad.numpy()).all()
