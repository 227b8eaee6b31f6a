"""Which combinations of three concepts are for testing: fixed by a hash, so no two samples leak into each other."""

import numpy as np
import numpy.typing as npt

HELD_OUT_OF = 8
"""One combination of concepts in this many is for testing and never occurs in the training lines."""


def mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scramble 64 bits (splitmix64, Steele, Lea and Flood 2014)."""
    numbers = (numbers + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def is_held_out(concepts_N3: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Say which combinations are for testing, [N].

    The order inside one does not count, so both ways round of "the doctor helped the lawyer" are on one side.

    Args:
        concepts_N3: positions in ``lexicon.CONCEPTS``.
    """
    total_N = mix(concepts_N3.astype(np.uint64)).sum(axis=-1, dtype=np.uint64)
    return np.asarray(mix(total_N) % np.uint64(HELD_OUT_OF) == 0)
