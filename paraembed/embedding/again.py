"""Embed a sample of the rows of a finished folder again, from the inputs, and compare."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint
from paraembed.embedding.inputs import InputFile, comparable
from paraembed.embedding.manifest import PLAN, Run, read_run
from paraembed.embedding.part import embedded
from paraembed.embedding.plan import Part
from paraembed.embedding.rows import stream_parts
from paraembed.embedding.store import Store
from paraembed.encoders import Encoder
from paraembed.io.places import require_file, size_of

_PARTS, _ROWS = 16, 256
_TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "int8": 2e-2}  # of a row's largest value; bits depend on the machine


def compare_sample(
    store: Store, encoder_folder: Path, inputs: Sequence[str], parts: Sequence[tuple[str, int]]
) -> tuple[int, list[str]]:
    """Embed the first rows of some parts of an output again, drawn by a fixed seed, and compare them.

    Args:
        store: the output.
        encoder_folder: of the encoder that embedded.
        inputs: files, folders and URIs below which input files may be read.
        parts: name and rows of each part, as the manifest has them.

    Returns:
        How many rows were compared, and what is wrong, in words.

    Raises:
        FileNotFoundError, NotADirectoryError, ValueError: the encoder's folder will not do.
    """
    encoder = checkpoint.load(encoder_folder)
    if not inputs:
        return 0, ["needs the input files: name them, or folders or URIs above them, with `input`"]
    try:
        run = read_run(store)
    except (OSError, ValueError) as error:
        return 0, [str(error)]
    if encoder.fingerprint != run.encoder:
        return 0, [f"{encoder_folder} holds encoder {encoder.fingerprint[:12]}, the rows are by {run.encoder[:12]}"]
    if [(part.name, part.rows) for part in run.plan.parts] != list(parts):
        return 0, [f"the parts of {PLAN} are not those of the manifest"]
    drawn = np.random.default_rng(0).permutation(len(run.plan.parts))[:_PARTS]
    problems, num_compared = list[str](), 0
    for number in sorted(drawn):
        part = run.plan.parts[number]
        try:
            num_rows, problem = _compare(encoder, run, part, store, inputs)
            num_compared += num_rows
        except (OSError, ValueError, pa.ArrowException) as error:
            problem = f"cannot be embedded again ({str(error).splitlines()[0]})"
        if problem:
            problems.append(f"{part.name} {problem}")
    return num_compared, problems or ([] if num_compared else ["no row could be compared"])


def _compare(encoder: Encoder, run: Run, part: Part, store: Store, inputs: Sequence[str]) -> tuple[int, str]:
    """How many rows of a part were compared, and what is wrong with them."""
    source = named_input(run.plan.inputs[part.file], inputs)
    data = next(stream_parts(source, [part]))[1] if source.is_chain else None
    settings = replace(run.plan.settings, batch_size=min(_ROWS, run.plan.settings.batch_size))
    made = next(embedded(encoder, source, part, settings, data=data), None)
    if made is None:
        return 0, ""
    with store.open(part.name) as raw, pq.ParquetFile(raw) as file:
        stored = next(file.iter_batches(len(made)), made.slice(0, 0))
    if len(stored) != len(made):
        return 0, f"has {len(stored)} rows where {len(made)} were made"
    if stored.schema.names != made.schema.names:
        return 0, f"has the columns {', '.join(stored.schema.names)[:200]}; expected {', '.join(made.schema.names)}"
    for name in stored.schema.names:
        if name not in {"embedding", "scale"} and not stored[name].equals(made[name]):
            return 0, f"has another {name}"
    if stored.schema.field("embedding").type != made.schema.field("embedding").type:
        return 0, "has vectors of another type"
    limit = _TOLERANCE[settings.dtype] * np.abs(vectors_of(made)).max(axis=1, initial=0, keepdims=True)
    far = np.flatnonzero(~(np.abs(vectors_of(stored) - vectors_of(made)) <= limit).all(axis=1))
    return len(made), f"has another vector in its row {far[0]}" if len(far) else ""


def named_input(source: InputFile, inputs: Sequence[str]) -> InputFile:
    """An input file of a plan, to be read where the user named it, or a folder above it.

    Whoever wrote the plan chose its paths: of a URI only the path is taken from there, and server, keys and options are
    those that the user gave.

    Raises:
        FileNotFoundError, ValueError: the user did not name it, or it is not the file that was embedded.
    """
    for named in inputs:
        if (place := _below(source.path, named)) is not None:
            found = replace(source, path=place)
            require_file(found.place)
            if size_of(found.place) != source.size:
                raise ValueError(f"{found.shown} has {size_of(found.place):,} bytes, it had {source.size:,}")
            return found
    raise ValueError(f"its input {source.shown[:200]!r} is opened only if `input` names it, or a folder above it")


def _below(path: str, named: str) -> str | None:
    """Where a plan's path is, at or below a place that the user named; None: somewhere else."""
    bare = path.partition("?")[0] if "://" in path else path
    try:
        target, folder = comparable(bare), comparable(named)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links that lead to each other
        return None
    if not target.is_relative_to(folder):
        return None
    if isinstance(folder, Path):
        return str(target)
    below = str(target.relative_to(folder))
    if ".." in unquote(below).split("/") or "#" in below:
        return None
    base, mark, options = named.partition("?")
    return (base if below == "." else f"{base.rstrip('/')}/{below}") + mark + options


def vectors_of(rows: pa.RecordBatch) -> npt.NDArray[np.float64]:
    """The vectors [n, d] of some rows of an output, scaled where they are int8."""
    flat = rows["embedding"].flatten().to_numpy(zero_copy_only=False)
    vectors: npt.NDArray[np.float64] = flat.reshape(len(rows), -1).astype(np.float64)
    if "scale" in rows.schema.names:
        vectors *= rows["scale"].to_numpy()[:, None]
    return vectors
