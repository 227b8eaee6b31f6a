"""Vectors of a teacher for the texts of pairs: outputs of ``jobs/embed.py``, joined with the pairs by row."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paraembed.console import doing
from paraembed.embedding.output import Embeddings
from paraembed.io.places import Place
from paraembed.recipe import Recipe
from paraembed.training.objectives import SMALLEST_NORM
from paraembed.training.pairs import MemoryLimit

SIDES = ("first", "second")


def open_teacher(places: Sequence[Place], shards: Sequence[Mapping[str, Any]]) -> list[Embeddings]:
    """Open the teacher's embeddings of the first and of the second texts of pair shards, given their entries in the
    manifest.

    Raises:
        OSError, ValueError: not two finished outputs of ``jobs/embed.py``, or not of these columns, shards and rows, or
            of different encoders.
    """
    if len(places) != len(SIDES):
        raise ValueError(
            f"{len(places)} outputs of jobs/embed.py were given as `teacher`; give two, with the vectors of the first "
            "and of the second texts of the pairs"
        )
    outputs, num_pairs = [Embeddings(place) for place in places], sum(shard["rows"] for shard in shards)
    for side, output in zip(SIDES, outputs, strict=True):
        column, digests = output.source
        again = f"; embed the pair shards with {side} as `text_column` of jobs/embed.py"
        if column != side:
            raise ValueError(f"{output} has vectors of the column {column!r}, not of the column {side!r}{again}")
        if digests != [shard.get("sha256") for shard in shards]:
            raise ValueError(f"{output} has vectors of other files than the {len(shards)} pair shards{again}")
        if output.rows != num_pairs:
            raise ValueError(
                f"{output} has {output.rows:,} rows, but there are {num_pairs:,} pairs, and none may be rejected{again}"
            )
    if outputs[0].encoder != outputs[1].encoder:
        raise ValueError(f"{outputs[0]} and {outputs[1]} come from different encoders; embed both columns with one")
    return outputs


def read_teacher(outputs: Sequence[Embeddings], limit: MemoryLimit | None) -> npt.NDArray[np.float32]:
    """Read the vectors of the texts of n pairs, scaled to length 1, [2n, T], the two texts of a pair adjacent; a zero
    vector stays zero. Vectors beyond the memory limit are in a memory-mapped file.

    Raises:
        OSError, ValueError: a part is missing or damaged, or the disk is full.
    """
    num_pairs, shape = outputs[0].rows, (2 * outputs[0].rows, outputs[0].width)
    vectors_NT: npt.NDArray[np.float32]
    if limit is None or 4 * shape[0] * shape[1] <= limit.max_bytes:
        vectors_NT = np.empty(shape, np.float32)
    else:
        vectors_NT = _in_file(shape, limit.folder)
    for side, output in enumerate(outputs):
        for first, block in output.blocks():
            doing(f"reading the teacher's vectors of the {SIDES[side]} texts: {first:,} of {num_pairs:,}")
            norms = np.maximum(np.linalg.norm(block, axis=1, keepdims=True), SMALLEST_NORM)
            vectors_NT[2 * first + side : 2 * (first + len(block)) + side : 2] = block / norms
    return vectors_NT


def _in_file(shape: tuple[int, int], folder: Path) -> npt.NDArray[np.float32]:
    """Return an array in a file without a name; raise OSError if the disk has too little space for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        try:  # a full disk would end the process when it writes to the mapped memory
            os.posix_fallocate(file.fileno(), 0, 4 * shape[0] * shape[1])
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from None
        return np.memmap(file, np.float32, "r+", shape=shape)


def check_uses_teacher(recipes: Sequence[Recipe], *, has_teacher: bool) -> None:
    """Raise ValueError if a recipe lacks the vectors of a teacher, or if no recipe uses those that are given."""
    if has_teacher and all(recipe.teacher_objective == "none" for recipe in recipes):
        raise ValueError(
            "`teacher` is given, but `teacher_objective` is 'none'; set it to vector, similarity or softened, or leave "
            "`teacher` out"
        )
    if not has_teacher:
        for recipe in recipes:
            check_teacher(recipe, 0, None)


def check_teacher(recipe: Recipe, width: int, teacher_width: int | None) -> None:
    """Raise ValueError if a teacher objective has no teacher vectors (``teacher_width`` None), or if their width does
    not fit the encoder's.
    """
    form = recipe.teacher_objective
    if form == "none":
        return
    if teacher_width is None:
        raise ValueError(
            f"`teacher_objective` is {form!r}, but there are no vectors of a teacher; give `teacher` two outputs of "
            "jobs/embed.py, or set `teacher_objective` to none"
        )
    if form == "vector" and teacher_width != width:
        raise ValueError(
            f"`teacher_objective` is 'vector', but the vectors of the encoder have {width} dimensions and those of the "
            f"teacher {teacher_width}; use word vectors of {teacher_width} dimensions, or set `teacher_objective` to "
            "similarity or softened"
        )
