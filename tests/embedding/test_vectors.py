import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paraembed.embedding.columns import finish
from paraembed.embedding.settings import Settings, check_dim

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
VECTORS = arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 6)), elements=FLOATS)


def numbers(chosen, vectors):
    """Stored numbers [n, d] and, scaled, the vectors that they stand for, in float64; rows that were clipped."""
    (column, *scales), num_clipped = finish(vectors, chosen)
    stored = column.flatten().to_numpy(zero_copy_only=False).reshape(len(vectors), column.type.list_size)
    scale = scales[0].to_numpy()[:, None].astype(np.float64) if chosen.dtype == "int8" else 1.0
    return stored, stored.astype(np.float64) * scale, num_clipped


@example(np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 1e-45], [0, 0], [65503, 65521]], np.float32), True, None)
@example(np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 1e-45], [0, 0], [65503, 65521]], np.float32), False, None)
@given(VECTORS, st.booleans(), st.none() | st.integers(1, 6))
def test_what_is_stored_stands_for_the_vector(vectors, normalize, dim):
    expected = vectors.astype(np.float64)[:, :dim]
    if normalize:
        largest = np.abs(expected).max(axis=1, keepdims=True, initial=0)
        scaled = np.divide(expected, largest, out=np.zeros_like(expected), where=largest > 0)
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        expected = np.divide(scaled, lengths, out=np.zeros_like(scaled), where=lengths > 0)
    for dtype in ("float32", "float16", "int8"):
        stored, meant, num_clipped = numbers(Settings(dtype=dtype, normalize=normalize, dim=dim), vectors)
        assert stored.dtype == np.dtype(dtype)
        assert np.isfinite(meant).all()
        largest = np.abs(expected).max(axis=1, keepdims=True, initial=0)
        if dtype == "float32":
            assert np.allclose(meant, expected, rtol=1e-6, atol=1e-44)
        elif dtype == "float16":
            assert np.allclose(meant, np.clip(expected, -65504, 65504), rtol=5e-4, atol=3e-8)
            assert num_clipped == (largest > 65504).sum()
        else:
            assert (np.abs(meant - expected) <= largest / 253 + 1e-43).all()
            assert not (stored == -128).any()
        assert not meant[~expected.any(axis=1)].any()


def test_no_more_numbers_than_there_are():
    check_dim(Settings(dim=4), 4)
    check_dim(Settings(), 4)
    with pytest.raises(ValueError, match=r"`dim` is 5, .* 4 dimensions"):
        check_dim(Settings(dim=5), 4)
