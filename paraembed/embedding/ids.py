"""Count repeated ids of an output exactly, in time linear in the rows and in bounded memory.

The 64-bit hashes of the ids of each part are written to a file, sorted. Ranges of hashes are merged over all files,
each in a task; ids whose hashes are equal are read again from the parts and compared.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.embedding.columns import CHUNK_FIELDS
from paraembed.embedding.plan import IDS
from paraembed.io.store import Folder, Store
from paraembed.process import RunTasks, in_order
from paraembed.text.hashing import hash_strings, mixed

_ROWS = 16_384  # read at a time
_BUCKETS = 256  # of hashes, by their first byte
_HEADER_BYTES = 8 * (_BUCKETS + 1)
_READERS = 16  # threads of a task: an answer of an object store takes 20 ms and more
_LEAST_TASKS = 4  # worth a process other than this one, which takes seconds to start
Hashes = npt.NDArray[np.uint64]


def hashes_name(part: str) -> str:
    """Return the path of the hashes of a part's ids, relative to the output."""
    return f"{IDS}/{Path(part).stem}.hashes"


def hashes_of(ids: pa.Array) -> Hashes:
    """Return the hash of each id that is not null, uint64 [n]; equal ids have equal hashes."""
    ids = comparable(ids.drop_null())
    if pa.types.is_integer(ids.type):
        return mixed(ids.to_numpy(zero_copy_only=False).astype(np.uint64))
    return hash_strings(ids.cast(pa.binary()))


def file_of(pieces: Sequence[Hashes]) -> bytes:
    """Return the content of a file of hashes: where the hashes of each first byte start, uint64 [257], then the hashes,
    ascending.
    """
    hashes = np.concatenate([np.zeros(0, np.uint64), *pieces])
    hashes.sort()
    bounds = np.arange(1, _BUCKETS, dtype=np.uint64) << np.uint64(56)
    starts = [0, *np.searchsorted(hashes, bounds), len(hashes)]
    return np.array(starts, "<u8").tobytes() + hashes.astype("<u8").tobytes()


def count_duplicates(
    store: Store,
    parts: Sequence[str],
    column: str,
    rows: int,
    files: Store,
    run: RunTasks = map,
    *,
    has_chunks: bool = False,
    max_hashes: int = 1 << 24,
    max_ids: int = 1 << 20,
) -> tuple[int, Any]:
    """Return the number of rows whose id already occurred in an earlier row, and one such id; null does not count as an
    id, and of the chunks of a row only the first counts.

    The hashes are in ``files``, see ``hashes_name``; they are computed and written there for parts whose file is
    missing. ``rows`` is the number of rows, about. A task merges about ``max_hashes`` hashes, at most 256 tasks in all:
    16M need 0.3 GB. Ids with equal hashes are compared up to ``max_ids`` different hashes at a time, in this process,
    which also keeps these hashes.
    """
    present = set(files.names(IDS))
    missing = [part for part in parts if Path(hashes_name(part)).name not in present]
    if missing:
        files.make_folder(IDS)
        list(_tasks(run, missing)(partial(_write_hashes, store, column, files, has_chunks), missing))
    count = min(_BUCKETS, 1 + rows // max_hashes)
    spans = [(_BUCKETS * number // count, _BUCKETS * (number + 1) // count) for number in range(count)]
    results = list(in_order(_tasks(run, spans), partial(_repeated, files, parts), spans))
    repeated = np.concatenate([hashes for hashes, _ in results])
    holding = {part for _, of_span in results for part in of_span}
    holders = [part for part in parts if part in holding]
    counts = [
        _compare(store, holders, column, has_chunks, repeated[start : start + max_ids], run)
        for start in range(0, len(repeated), max_ids)
    ]
    return sum(number for number, _ in counts), next((example for number, example in counts if number), None)


def _tasks(run: RunTasks, arguments: Sequence[Any]) -> RunTasks:
    return run if len(arguments) >= _LEAST_TASKS else map


def _write_hashes(store: Store, column: str, files: Store, has_chunks: bool, part: str) -> None:
    content = file_of([hashes_of(ids) for ids in _read(store, part, column, has_chunks)])
    files.write(hashes_name(part), lambda file: file.write(content))


def _repeated(files: Store, parts: Sequence[str], span: tuple[int, int]) -> tuple[Hashes, list[str]]:
    """Return the hashes of a span of first bytes that occur more than once, ascending, and the parts that have them."""
    with ThreadPoolExecutor(1 if isinstance(files, Folder) else _READERS) as pool:
        pieces = list(pool.map(partial(_read_span, files, span), parts))
    hashes = np.concatenate([np.zeros(0, np.uint64), *pieces])
    hashes.sort()
    repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    if not len(repeated):
        return repeated, []
    return repeated, [part for part, piece in zip(parts, pieces, strict=True) if _is_in(piece, repeated).any()]


def _read_span(files: Store, span: tuple[int, int], part: str) -> Hashes:
    with files.open(hashes_name(part)) as file:
        header = file.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES:
            raise ValueError(f"{files}/{hashes_name(part)} is damaged; remove it and run the same command again")
        start, stop = np.frombuffer(header, "<u8")[list(span)].tolist()
        file.seek(_HEADER_BYTES + 8 * start)
        return np.frombuffer(file.read(8 * (stop - start)), "<u8")


def _is_in(hashes: Hashes, ascending: Hashes) -> npt.NDArray[np.bool_]:
    """Return which hashes [n] occur in a sorted array that is not empty: bool [n]."""
    index = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
    is_in: npt.NDArray[np.bool_] = ascending[index] == hashes
    return is_in


def _compare(
    store: Store, parts: Sequence[str], column: str, has_chunks: bool, wanted: Hashes, run: RunTasks
) -> tuple[int, Any]:
    """Return the number of rows that repeat an id whose hash is wanted, and the first such id."""
    counts = list[pa.Table]()
    for table in in_order(_tasks(run, parts), partial(_count_ids, store, column, has_chunks, wanted), parts):
        counts.append(table)
        if sum(map(len, counts)) > 4 * len(wanted):  # the same ids in many parts
            counts = [_added(counts)]
    total = _added(counts)
    several = total.filter(pc.greater(total["count"], 1))
    return pc.sum(total["count"]).as_py() - len(total), several["id"][0].as_py() if len(several) else None


def _count_ids(store: Store, column: str, has_chunks: bool, wanted: Hashes, part: str) -> pa.Table:
    """Return how often each id of a part whose hash is wanted occurs: ``id``, ``count``, in the order of the rows."""
    read = _read(store, part, column, has_chunks)
    kept = [comparable(ids).filter(pa.array(_is_in(hashes_of(ids), wanted))) for ids in read]
    ids = pa.chunked_array(kept)
    return _added([pa.table({"id": ids, "count": pa.repeat(pa.scalar(1, pa.int64()), len(ids))})])


def _added(counts: list[pa.Table]) -> pa.Table:
    groups = pa.concat_tables(counts).group_by("id", use_threads=False).aggregate([("count", "sum")])
    return groups.rename_columns(["id", "count"])


def _read(store: Store, part: str, column: str, has_chunks: bool) -> Iterator[pa.Array]:
    """Yield the ids of a part that are not null, of first chunks, and an empty array first, for their type."""
    with store.open(part) as raw, pq.ParquetFile(raw) as file:
        kind = file.schema_arrow.field(column).type
        yield pa.array([], kind)
        columns = [column, *([CHUNK_FIELDS[0].name] if has_chunks else [])]
        for batch in file.iter_batches(_ROWS, columns=columns, use_threads=False):
            rows = batch.filter(pc.equal(batch[columns[1]], 0)) if has_chunks else batch
            yield rows[column].drop_null()


def comparable(ids: pa.Array) -> pa.Array:
    """Return ids as integers, bytes or strings, of which equal ones are equal ids; with 64-bit offsets, since strings
    may exceed 2 GiB.
    """
    if isinstance(ids, pa.ExtensionArray):
        ids = ids.storage
    kind = ids.type
    if pa.types.is_integer(kind):
        return ids
    if pa.types.is_floating(kind):
        return ids.cast(pa.int64())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        if pa.types.is_date64(kind):  # this and seconds are not types of Parquet
            ids = ids.cast(pa.date32(), safe=False)
        elif getattr(kind, "unit", "") == "s":
            ids = ids.cast(pa.time32("ms") if pa.types.is_time(kind) else pa.timestamp("ms", kind.tz))
        return ids.view(pa.int64() if ids.type.bit_width == 64 else pa.int32())
    return ids.cast(pa.large_binary() if pa.types.is_fixed_size_binary(kind) else pa.large_string())
