"""Spot check of a finished output: embed a sample of its rows from the inputs, and compare the vectors."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.embedding.inputs import InputFile, comparable
from paraembed.embedding.manifest import EmbeddingRun, planned, read_run, tolerance
from paraembed.embedding.part import embedded
from paraembed.embedding.plan import Part
from paraembed.encoders.devices import chosen_device
from paraembed.encoders.protocol import TextEncoder
from paraembed.io.fingerprint import differences
from paraembed.io.places import size_of
from paraembed.io.store import Folder, Store
from paraembed.loading import Fetch, open_encoder
from paraembed.settings import Inference, is_peer

_PARTS, _ROWS = 16, 256
_TOLERANCE = {"float32": 0.0, "float16": 2e-3, "int8": 2e-2}  # of a row's largest value: rounding to the number type
_OF_A_MACHINE = ("device", "libraries")  # values of an encoder's identity that the check tolerates


def compare_sample(
    store: Store,
    encoder: str,
    inputs: Sequence[str],
    parts: Sequence[tuple[str, int]],
    *,
    fetch: Fetch | None = None,
    trust_remote_code: bool = False,
) -> tuple[str, list[str]]:
    """Embed the first rows of up to 16 parts, drawn with a fixed seed, and compare them with the output. Return how
    many rows were compared with which tolerance, and the problems.

    Only files at or below ``inputs``, which are files, folders and URIs, may be read. ``parts`` are name and number of
    rows of each part, from the manifest. The errors are those of ``open_encoder``, which takes ``encoder``, ``fetch``
    and ``trust_remote_code``.
    """
    if not inputs:
        return "", ["the check needs the input files; give them, or folders or URIs that contain them, as `input`"]
    try:
        runs = [read_run(store, generation) for generation in planned(store) or [0]]
    except (OSError, ValueError) as error:
        return "", [str(error)]
    run, all_parts = runs[0], [(run, part) for run in runs for part in run.plan.parts]
    if not all(run.plan.parts for run in runs):
        return "", [f"{store} was compacted, so its rows cannot be embedded again; leave `encoder` out"]
    loaded, changed = open_encoder_of(store, run, encoder, fetch=fetch, trust_remote_code=trust_remote_code)
    if changed:
        return "", [f"{encoder} is not the encoder of the rows: {changed}"]
    if [(part.name, part.rows) for _, part in all_parts] != list(parts):
        return "", ["the parts of the plan are not those of the manifest"]
    drawn = np.random.default_rng(0).permutation(len(all_parts))[:_PARTS]
    problems, num_compared = list[str](), 0
    for number in sorted(drawn):
        of_part, part = all_parts[number]
        try:
            num_rows, problem = _compare(loaded, of_part, part, store, inputs)
            num_compared += num_rows
        except (OSError, ValueError, pa.ArrowException) as error:
            problem = f"cannot be checked ({str(error).splitlines()[0]})"
        if problem:
            problems.append(f"{part.name} {problem}")
    done = f"{num_compared:,} rows, vectors equal within {_tolerance(run):g} of their largest value"
    return done, problems or ([] if num_compared else ["no row could be compared"])


def open_encoder_of(
    store: Store,
    run: EmbeddingRun,
    name: str,
    *,
    prompt: str | None = None,
    fetch: Fetch | None = None,
    trust_remote_code: bool = False,
) -> tuple[TextEncoder, str]:
    """Open the encoder of an output with the settings of its run, and with another ``prompt``, if given; also return
    the fields in which it differs from that of the run, not those of the machine. The device is the run's if this
    machine has it. The errors are those of ``open_encoder``; and a ValueError if a model of another library is inside
    of the output, whose author may be a stranger.
    """
    path = Path(name.partition(":")[2])
    inside = is_peer(name) and isinstance(store, Folder) and path.exists()
    if inside and path.resolve().is_relative_to(Path(store.place).resolve()):
        raise ValueError(f"{name} is a folder of the output {store}; if you trust it, copy it to another place first")
    fields = ("precision", "prompt", "backend", "pooling", "batch_tokens")
    settings = {field: run.identity[field] for field in fields if run.identity.get(field) is not None}
    settings |= {} if prompt is None else {"prompt": prompt}
    device = chosen_device("auto", gains=run.identity.get("device") == "cuda")
    encoder = open_encoder(name, Inference(device=device, trust_remote_code=trust_remote_code, **settings), fetch)
    tolerated = {*_OF_A_MACHINE, *(() if prompt is None else ("prompt", "max_tokens"))}
    before, now = (
        {field: value for field, value in identity.items() if field not in tolerated}
        for identity in (run.identity, encoder.identity)
    )
    if "files" in before:
        return encoder, differences(before, now)
    return encoder, differences({"fingerprint": run.encoder}, {"fingerprint": encoder.fingerprint})


def _compare(
    encoder: TextEncoder, run: EmbeddingRun, part: Part, store: Store, inputs: Sequence[str]
) -> tuple[int, str]:
    """Return the number of compared rows of a part, and a problem, or an empty string."""
    sources = [named_input(source, inputs) for source in run.plan.sources(part)]
    settings = replace(run.plan.settings, batch_size=min(_ROWS, run.plan.settings.batch_size))
    expected = next(embedded(encoder, sources, part, settings), None)
    if expected is None:
        return 0, ""
    with store.open(part.name) as raw, pq.ParquetFile(raw) as file:
        stored = next(file.iter_batches(len(expected)), expected.slice(0, 0))
    if len(stored) != len(expected):
        return 0, f"has {len(stored)} rows; expected {len(expected)}"
    names = expected.schema.names
    if stored.schema.names != names:
        return 0, f"has the columns {', '.join(stored.schema.names)[:200]}; expected {', '.join(names)}"
    for name in names:
        if name not in {"embedding", "scale"} and not stored[name].equals(expected[name]):
            return 0, f"has another {name}"
    if stored.schema.field("embedding").type != expected.schema.field("embedding").type:
        return 0, "has vectors of another type"
    limit = _tolerance(run) * np.abs(vectors_of(expected)).max(axis=1, initial=0, keepdims=True)
    far = np.flatnonzero(~(np.abs(vectors_of(stored) - vectors_of(expected)) <= limit).all(axis=1))
    return len(expected), f"has another vector in row {far[0]}" if len(far) else ""


def _tolerance(run: EmbeddingRun) -> float:
    """Return the largest difference of a row's vector that is accepted, relative to its largest value."""
    return _TOLERANCE[run.plan.settings.dtype] + tolerance(run.identity)


def named_input(source: InputFile, inputs: Sequence[str]) -> InputFile:
    """Return an input file of a plan, located at or below a place that the user named. Raise FileNotFoundError or
    ValueError if the user did not name the file, or its size differs.

    The paths in a plan are not trusted: only the path component of a URI is taken from the plan; server, keys and
    options come from the user.
    """
    for named in inputs:
        if (place := _below(source.path, named)) is not None:
            file = replace(source, path=place)
            if size_of(file.place) != source.size:
                raise ValueError(f"{file.shown} has {size_of(file.place):,} bytes; expected {source.size:,}")
            return file
    raise ValueError(
        f"its input {source.shown[:200]!r} is not below `input`; give it, or a folder that contains it, as `input`"
    )


def _below(path: str, named: str) -> str | None:
    """Return the place of a plan's path if it is at or below a place that the user named, or None."""
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
    """Return the vectors [n, d] of an output's rows; int8 vectors are multiplied by their scale."""
    flat = rows["embedding"].flatten().to_numpy(zero_copy_only=False)
    vectors: npt.NDArray[np.float64] = flat.reshape(len(rows), -1).astype(np.float64)
    if "scale" in rows.schema.names:
        vectors *= rows["scale"].to_numpy()[:, None]
    return vectors
