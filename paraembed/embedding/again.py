"""Embed a sample of the rows of a finished folder again, from the inputs, and compare."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint
from paraembed.embedding.manifest import Run, read_run
from paraembed.embedding.part import embedded
from paraembed.embedding.plan import Part
from paraembed.embedding.rows import stream_parts
from paraembed.embedding.store import Store
from paraembed.encoders import Encoder

_PARTS, _ROWS = 16, 256
_TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "int8": 2e-2}  # of a row's largest value; bits depend on the machine


def differing_rows(store: Store, encoder_folder: Path) -> Iterator[str]:
    """What differs, in words, in the first rows of some parts of an output, drawn by a fixed seed.

    Raises:
        FileNotFoundError, NotADirectoryError, ValueError: the encoder's folder will not do.
    """
    encoder, run = checkpoint.load(encoder_folder), read_run(store)
    if encoder.fingerprint != run.encoder:
        yield f"{encoder_folder} holds encoder {encoder.fingerprint[:12]}, the rows are by {run.encoder[:12]}"
        return
    drawn = np.random.default_rng(0).permutation(len(run.plan.parts))[:_PARTS]
    for number in sorted(drawn):
        part = run.plan.parts[number]
        try:
            problem = _difference(encoder, run, part, store)
        except (OSError, ValueError, pa.ArrowException) as error:
            problem = f"cannot be embedded again ({str(error).splitlines()[0]})"
        if problem:
            yield f"{part.name} {problem}"


def _difference(encoder: Encoder, run: Run, part: Part, store: Store) -> str:
    source = run.plan.inputs[part.file]
    data = next(stream_parts(source, [part]))[1] if source.is_chain else None
    settings = replace(run.plan.settings, batch_size=min(_ROWS, run.plan.settings.batch_size))
    made = next(embedded(encoder, source, part, settings, data=data), None)
    if made is None:
        return ""
    with store.open(part.name) as raw, pq.ParquetFile(raw) as file:
        stored = next(file.iter_batches(len(made)), made.slice(0, 0))
    if len(stored) != len(made):
        return f"has {len(stored)} rows where {len(made)} were made"
    for name in stored.schema.names:
        if name not in {"embedding", "scale"} and not stored[name].equals(made[name]):
            return f"has another {name}"
    limit = _TOLERANCE[settings.dtype] * np.abs(vectors_of(made)).max(axis=1, initial=0, keepdims=True)
    far = np.flatnonzero((np.abs(vectors_of(stored) - vectors_of(made)) > limit).any(axis=1))
    return f"has another vector in its row {far[0]}" if len(far) else ""


def vectors_of(rows: pa.RecordBatch) -> npt.NDArray[np.float64]:
    """The vectors [n, d] of some rows of an output, scaled where they are int8."""
    flat = rows["embedding"].flatten().to_numpy(zero_copy_only=False)
    vectors: npt.NDArray[np.float64] = flat.reshape(len(rows), -1).astype(np.float64)
    if "scale" in rows.schema.names:
        vectors *= rows["scale"].to_numpy()[:, None]
    return vectors
