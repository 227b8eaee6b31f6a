"""The regression against a dense solve, its statistics, and the steps before and after it."""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from paraembed.distillation import device_matrix
from paraembed.distillation.device_matrix import DeviceMatrix
from paraembed.distillation.ridge import Regression
from paraembed.distillation.student import principal, prior_of, with_rare_length, with_states
from paraembed.distillation.texts import IDS, OFFSETS
from paraembed.encoders.tables import of_mean_length
from paraembed.encoders.token_sums import merged, sums_of
from paraembed.text.ragged import Ragged
from tests.embedding.output_of import encoder_of, output_of

TEXTS, UNITS, WIDTH = 90, 12, 5
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """A regression of 90 texts, two of them empty, on 12 units, two of which no text has; its A, T and prior."""
    folder = tmp_path_factory.mktemp("ridge")
    draw = np.random.default_rng(0)
    lengths = draw.integers(1, 9, TEXTS)
    lengths[[3, 50]] = 0
    ids = draw.integers(0, UNITS - 2, lengths.sum()).astype(np.int32)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    np.save(folder / IDS, ids)
    np.save(folder / OFFSETS, offsets)
    vectors = draw.standard_normal((TEXTS, WIDTH)).astype(np.float32) + 0.5
    out = output_of(encoder_of(vectors, folder / "encoder"), range(TEXTS), folder / "vectors")
    prior = draw.standard_normal((UNITS, WIDTH)).astype(np.float32)
    np.save(folder / "prior.npy", prior)
    dense = np.zeros((TEXTS, UNITS))
    for text in range(TEXTS):
        for row in ids[offsets[text] : offsets[text + 1]]:
            dense[text, row] += 1 / lengths[text]
    return Regression(folder, out, folder / "prior.npy", 0.7, 100), dense, vectors.astype(np.float64), prior


def solved(regression, width=WIDTH, scale=None):
    slices = [slice(start, min(start + width, WIDTH)) for start in range(0, WIDTH, width)]
    sums = [regression.normal(columns) for columns in slices]
    if scale is None:
        scale = sum(part.products.sum() for part in sums) / sum(part.squares.sum() for part in sums)
    parts = [regression.solve(part, columns, scale) for part, columns in zip(sums, slices, strict=True)]
    return np.concatenate([part[0] for part in parts], axis=1), np.concatenate([part[1] for part in parts]), scale, sums


@pytest.mark.parametrize("block_rows", [7, 1000])
def test_the_result_is_that_of_a_dense_solve(problem, block_rows):
    regression, A, T, prior = problem
    found, errors, scale, (sums,) = solved(replace(regression, block_rows=block_rows))
    centered = T - T.mean(axis=0)
    estimate = A @ prior.astype(np.float64)
    assert scale == pytest.approx((estimate * centered).sum() / (estimate**2).sum(), rel=1e-12)
    used = np.count_nonzero((A**2).sum(0))
    assert used == UNITS - 2
    weight = regression.l2 * (A**2).sum() / used
    S = scale * prior.astype(np.float64)
    expected = S + np.linalg.solve(A.T @ A + weight * np.eye(UNITS), A.T @ (centered - A @ S))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(found[-2:], S[-2:].astype(np.float32))
    np.testing.assert_allclose(errors, ((centered - A @ expected) ** 2).sum(0), rtol=1e-6)
    np.testing.assert_allclose(sums.total, (centered**2).sum(0), rtol=1e-9)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
@pytest.mark.parametrize("num_units", [None, 7])
def test_a_device_has_the_result_of_scipy(problem, device, num_units, monkeypatch):
    monkeypatch.setattr(device_matrix, "_PIECE", 3)
    regression = replace(problem[0], num_units=num_units, block_rows=40, steps=12)
    expected, errors, *_ = solved(regression)
    found, of_device, *_ = solved(replace(regression, device=device))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(of_device, errors, rtol=1e-9)
    monkeypatch.setattr(Regression, "_kept", [])  # as if the GPU had too little memory
    assert solved(replace(regression, device=device))[0].tobytes() == found.tobytes()


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 9), st.integers(0, 60))
def test_products_of_a_matrix_on_a_device(seed, rows, columns, entries):
    draw = np.random.default_rng(seed)
    places = draw.integers(0, rows, entries), draw.integers(0, columns, entries)
    matrix = sparse.csr_matrix((draw.standard_normal(entries), places), (rows, columns))
    X, Y = (draw.standard_normal((size, 4)) for size in (columns, rows))
    with mock.patch.object(device_matrix, "_PIECE", 4):
        A = DeviceMatrix.of(matrix, "cpu")
        np.testing.assert_allclose(A @ torch.tensor(X), matrix @ X, atol=1e-12)
        np.testing.assert_allclose(A.T @ torch.tensor(Y), matrix.T @ Y, atol=1e-12)


def test_bigrams_get_half_of_their_solution_and_have_no_part_in_the_weight(problem):
    regression, A, T, prior = problem
    num_units = 7
    counts = A * np.diff(np.load(regression.units / OFFSETS))[:, None]
    A = counts / np.maximum(counts[:, :num_units].sum(axis=1, keepdims=True), 1)
    found, errors, scale, _ = solved(replace(regression, num_units=num_units))
    S, centered = scale * prior.astype(np.float64), T - T.mean(axis=0)
    weight = regression.l2 * (A[:, :num_units] ** 2).sum() / num_units
    expected = np.linalg.solve(A.T @ A + weight * np.eye(UNITS), A.T @ (centered - A @ S))
    expected[num_units:] /= 2
    np.testing.assert_allclose(found, S + expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(errors, ((centered - A @ (S + expected)) ** 2).sum(0), rtol=1e-6)


def test_slices_of_columns_are_independent(problem):
    regression, *_ = problem
    whole, errors, scale, _ = solved(regression)
    found, of_slices, other, _ = solved(regression, width=2, scale=scale)
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-7)
    np.testing.assert_allclose(of_slices, errors, rtol=1e-9)
    assert solved(regression, width=2, scale=scale)[0].tobytes() == found.tobytes()
    assert other == scale


def test_principal_components_keep_the_products_of_the_text_vectors(problem):
    regression, A, _, prior = problem
    found = principal(prior, regression, WIDTH)
    np.testing.assert_allclose(A @ found @ found.T @ A.T, A @ prior @ prior.T @ A.T, atol=1e-5)
    variances = ((A @ found) ** 2).sum(0)
    assert (np.diff(variances) < 0).all()
    few = principal(prior, regression, 2)
    np.testing.assert_allclose(few, found[:, :2], atol=1e-6)
    lost = ((A @ prior) ** 2).sum() - ((A @ few) ** 2).sum()
    assert lost == pytest.approx(np.linalg.eigvalsh((A @ prior).T @ (A @ prior))[:3].sum(), rel=1e-5)


def test_prior_and_mean_length():
    alone = np.array([[3, 0], [0, 1], [0, 0], [1, 1]], np.float32)
    counts = np.array([6, 3, 1, 0])
    mean = (6 * alone[0] + 3 * alone[1]) / 9
    weights = 0.1 / (0.1 + counts / 10)
    expected = (alone - mean) * weights[:, None] * [[1], [1], [0], [1]]
    found = prior_of(alone, counts, 0.1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    lengths = np.linalg.norm(of_mean_length(found), axis=1)
    assert lengths[[0, 1, 3]].mean() == pytest.approx(1)
    for unknown in (0, 3):
        matrix = np.diag([4, 3, 2, 1, 0]).astype(np.float32)[[4, 0, 1, 2] if unknown == 0 else [0, 1, 2, 3]]
        scaled = with_rare_length(matrix, unknown)
        assert np.linalg.norm(scaled[unknown]) == pytest.approx(np.mean([9, 4]) ** 0.5)
        np.testing.assert_array_equal(np.delete(scaled, unknown, 0), np.delete(matrix, unknown, 0))
    np.testing.assert_array_equal(of_mean_length(np.zeros((2, 3), np.float32)), np.zeros((2, 3)))


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
