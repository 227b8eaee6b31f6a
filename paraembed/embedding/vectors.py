"""Convert vectors for the output: truncate, normalize, convert to the number type of the settings."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.embedding.settings import Settings
from paraembed.encoders.quantized import normalized, to_int8

_LARGEST_FLOAT16 = 65_504.0


def finish(vectors_NH: npt.NDArray[np.float32], settings: Settings) -> tuple[list[pa.Array], int]:
    """Truncate, normalize and convert vectors [n, H]; each row is independent of the others.

    Returns:
        The columns of the output: ``embedding`` [n, width], and for int8 ``scale`` float32 [n]; and the number of rows
        with a number outside of the float16 range, which is clipped.
    """
    vectors = vectors_NH[:, : settings.dim]
    if settings.normalize:
        vectors = normalized(vectors)
    if settings.dtype == "float32":
        return [_column(vectors)], 0
    if settings.dtype == "float16":
        clipped = (np.abs(vectors) > _LARGEST_FLOAT16).any(axis=1)
        halves = np.clip(vectors, -_LARGEST_FLOAT16, _LARGEST_FLOAT16).astype(np.float16)
        return [_column(halves)], int(clipped.sum())
    steps, scale = to_int8(vectors)
    return [_column(steps), pa.array(scale)], 0


def _column(numbers: npt.NDArray[np.float32 | np.float16 | np.int8]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(numbers).reshape(-1)), numbers.shape[1])
