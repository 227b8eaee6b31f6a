"""Vectors of a teacher for the texts of pairs: outputs of ``jobs/embed.py``, joined with the pairs by row."""

import tempfile
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paraembed.console import doing
from paraembed.embedding.output import Embeddings
from paraembed.encoders import Encoder
from paraembed.io.places import Place
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.training.objectives import SMALLEST_NORM
from paraembed.training.pairs import MemoryLimit

SIDES = ("first", "second")


def open_teacher(places: Sequence[Place], num_pairs: int) -> list[Embeddings]:
    """Open the teacher's embeddings of the first and of the second texts.

    Raises:
        OSError, ValueError: not two finished outputs of ``jobs/embed.py``, or of other numbers of rows, or of
            different encoders.
    """
    if len(places) != len(SIDES):
        raise ValueError(
            f"{len(places)} outputs of jobs/embed.py were given as `teacher`; give two, with the vectors of the first "
            "and of the second texts of the pairs"
        )
    outputs = [Embeddings(place) for place in places]
    for side, output in zip(SIDES, outputs, strict=True):
        if output.rows != num_pairs:
            raise ValueError(
                f"{output} has {output.rows:,} rows, but there are {num_pairs:,} pairs; embed the column {side!r} of "
                "the pair shards with jobs/embed.py"
            )
    if outputs[0].encoder != outputs[1].encoder:
        raise ValueError(f"{outputs[0]} and {outputs[1]} come from different encoders; embed both columns with one")
    return outputs


def read_teacher(outputs: Sequence[Embeddings], limit: MemoryLimit | None) -> npt.NDArray[np.float32]:
    """Read the vectors of the texts of n pairs, scaled to length 1; a zero vector stays zero.

    Args:
        outputs: from ``open_teacher``.
        limit: memory limit; larger vectors are in a memory-mapped file. None: no limit.

    Returns:
        [2n, T], the two texts of a pair adjacent.

    Raises:
        OSError, ValueError: a part is missing or damaged, or the disk is full.
    """
    num_pairs, shape = outputs[0].rows, (2 * outputs[0].rows, outputs[0].width)
    vectors_NT: npt.NDArray[np.float32]
    if limit is None or 4 * shape[0] * shape[1] <= limit.max_bytes:
        vectors_NT = np.empty(shape, np.float32)
    else:
        limit.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=limit.folder) as file:
            vectors_NT = np.memmap(file, np.float32, "w+", shape=shape)
    for side, output in enumerate(outputs):
        for first, block in output.blocks():
            doing(f"reading the teacher's vectors: {first:,} of {num_pairs:,}")
            norms = np.maximum(np.linalg.norm(block, axis=1, keepdims=True), SMALLEST_NORM)
            vectors_NT[2 * first + side : 2 * (first + len(block)) + side : 2] = block / norms
    return vectors_NT


def check_teacher(encoder: Encoder, recipe: Recipe, pairs: Ragged) -> None:
    """Raise ValueError if a teacher objective has no teacher vectors, or if their width does not fit the encoder."""
    if recipe.teacher_objective == "none":
        return
    if pairs.teacher is None:
        raise ValueError(
            f"teacher_objective is {recipe.teacher_objective!r}, but there are no vectors of a teacher; give "
            "`teacher`, or set teacher_objective to none"
        )
    width = pairs.teacher.shape[1]
    if recipe.teacher_objective == "vector" and width != encoder.width:
        raise ValueError(
            f"teacher_objective is 'vector', but the vectors of the encoder have {encoder.width} dimensions and those "
            f"of the teacher {width}; use word vectors of {width} dimensions, or similarity or softened"
        )
