"""The distinct rows of the word matrix that a batch touches."""

import numpy as np
import numpy.typing as npt


def distinct(
    ids: npt.NDArray[np.int32], seen: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Distinct ids and where each id is among them.

    Args:
        ids: int32 [T].
        seen: scratch, int32 [V]; its content does not matter. It spares the sort of ``np.unique``.

    Returns:
        rows [R], and local [T] with ``rows[local] == ids``.
    """
    places = np.arange(len(ids), dtype=np.int32)
    seen[ids] = places
    last = seen[ids]  # the place of each id's last occurrence stands for the id
    chosen = last == places
    number = np.cumsum(chosen, dtype=np.int32) - 1
    return ids[chosen], number[last]
