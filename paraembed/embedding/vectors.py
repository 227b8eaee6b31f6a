"""Convert vectors for the output: truncate, normalize, convert to the number type of the settings."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.embedding.settings import Settings
from paraembed.encoders.quantized import normalized, to_int8

_LARGEST_FLOAT16 = 65_504.0


@dataclass(frozen=True)
class Finished:
    """Vectors of n rows as columns of the output.

    Attributes:
        columns: ``embedding`` [n, width], and for int8 ``scale`` float32 [n].
        num_clipped: rows with a number outside of the float16 range.
    """

    columns: list[pa.Array]
    num_clipped: int


def finish(vectors_NH: npt.NDArray[np.float32], settings: Settings) -> Finished:
    """Truncate, normalize and convert vectors [n, H]; each row is independent of the others."""
    vectors = vectors_NH[:, : settings.dim]
    if settings.normalize:
        vectors = normalized(vectors)
    if settings.dtype == "float32":
        return Finished([_column(vectors)], 0)
    if settings.dtype == "float16":
        clipped = (np.abs(vectors) > _LARGEST_FLOAT16).any(axis=1)
        halves = np.clip(vectors, -_LARGEST_FLOAT16, _LARGEST_FLOAT16).astype(np.float16)
        return Finished([_column(halves)], int(clipped.sum()))
    steps, scale = to_int8(vectors)
    return Finished([_column(steps), pa.array(scale)], 0)


def _column(numbers: npt.NDArray[np.float32 | np.float16 | np.int8]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(numbers).reshape(-1)), numbers.shape[1])
