"""Count repeated ids of an output exactly, or find the rows that newer ones supersede, in time linear in the rows and
in bounded memory.

The 64-bit hashes of the ids of each part are written to a file, sorted. Ranges of hashes are merged over all files,
each in a task; ids whose hashes are equal are read again from the parts and compared. The files remain, so that rows
that are added later are compared with those before without reading the ids again.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.embedding.columns import CHUNK_FIELDS, ordered_stamps
from paraembed.embedding.plan import DATA, IDS
from paraembed.io.store import Folder, Store
from paraembed.process import RunTasks, in_order
from paraembed.text.hashing import hash_strings, mixed

_ROWS = 16_384  # read at a time
_BUCKETS = 256  # of hashes, by their first byte
_HEADER_BYTES = 8 * (_BUCKETS + 1)
_READERS = 16  # threads of a task: an answer of an object store takes 20 ms and more
_LEAST_TASKS = 4  # worth a process other than this one, which takes seconds to start
_MAX_HASHES, _MAX_IDS = 1 << 24, 1 << 20
_HEXADECIMAL = re.compile("[0-9a-f]*")
Hashes = npt.NDArray[np.uint64]


class Parts(NamedTuple):
    """Parts of an output whose ids are compared.

    ``new`` and ``before`` are the SHA-256 of the parts, by name; those of ``before`` were compared with each other
    earlier, and count only if one of ``new`` repeats them. The hashes of their ids are in ``files``, see
    ``hashes_name``; they are computed and written there for parts whose file is missing.
    """

    store: Store
    column: str  # name of the ids
    new: Mapping[str, str]
    files: Store
    before: Mapping[str, str] = {}
    has_chunks: bool = False  # then only the first chunk of a row counts

    def hashes_name(self, part: str) -> str:
        """Return the path of the hashes of a part's ids."""
        return hashes_name(part, {**self.before, **self.new}[part])


def hashes_name(part: str, digest: str) -> str:
    """Return the path of the hashes of the ids of a part with this SHA-256, relative to the output."""
    if not _HEXADECIMAL.fullmatch(digest):  # of a damaged list of parts
        raise ValueError(f"{part}: {digest[:80]!r} is no SHA-256")
    path = PurePosixPath(part)
    folder = path.parent.parent if path.parent.name == DATA else path.parent
    return str(folder / IDS / f"{path.stem}.{digest[:16]}.hashes")


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
    parts: Parts, rows: int, run: RunTasks = map, *, max_hashes: int = _MAX_HASHES, max_ids: int = _MAX_IDS
) -> tuple[int, Any]:
    """Return the number of rows of ``parts.new`` whose id already occurred in an earlier row, and one such id; null
    does not count as an id.

    ``rows`` is the number of rows of ``parts.new``, about. A task merges about ``max_hashes`` hashes, at most 256 tasks
    in all: 16M need 0.3 GB. Ids with equal hashes are compared up to ``max_ids`` different hashes at a time, in this
    process, which also keeps these hashes.
    """
    repeated, holders = _all_repeated(parts, rows, run, max_hashes)
    counts = [
        _compare(parts, holders, repeated[start : start + max_ids], run) for start in range(0, len(repeated), max_ids)
    ]
    return sum(number for number, _ in counts), next((example for number, example in counts if number), None)


def superseded_rows(
    parts: Parts, stamp: str, rows: int, run: RunTasks = map, *, max_hashes: int = _MAX_HASHES, max_ids: int = _MAX_IDS
) -> pa.Table:
    """Return the rows of repeated ids that do not have the largest value in the column ``stamp``: ``part``, the name,
    ``row``, the number in the part, and ``chunk``; of several with the largest one, all but the first. Null is the
    smallest value. Rows of ``parts.before`` are only among them if one of ``parts.new`` has their id. All chunks of a
    row go together.

    The other arguments are those of ``count_duplicates``. Raise ValueError if strings are neither numbers nor times.
    """
    repeated, holders = _all_repeated(parts, rows, run, max_hashes)
    tables = [pa.schema([("part", pa.string()), ("row", pa.int64()), ("chunk", pa.int64())]).empty_table()]
    for start in range(0, len(repeated), max_ids):
        read = partial(_versions, parts, stamp, repeated[start : start + max_ids])
        versions = list(in_order(_tasks(run, holders), read, holders))
        numbers = np.repeat(np.arange(len(holders)), list(map(len, versions)))
        names = pa.array(holders, pa.string())
        old = _older(pa.concat_tables(versions).append_column("part", pa.array(numbers)), stamp)
        old = old.set_column(old.schema.get_field_index("part"), "part", names.take(old["part"].combine_chunks()))
        tables.append(old.select(["part", "row", "chunk"]))
    return pa.concat_tables(tables)


def _versions(parts: Parts, stamp: str, wanted: Hashes, part: str) -> pa.Table:
    """Return id, stamp, row and chunk of the rows whose hash is wanted, and ``first``, the row of their first chunk."""
    tables, first = list[pa.Table](), 0
    with parts.store.open(part) as raw, pq.ParquetFile(raw) as file:
        schema = file.schema_arrow
        kinds = comparable(pa.array([], schema.field(parts.column).type)).type, schema.field(stamp).type
        fields = [("id", kinds[0]), ("stamp", kinds[1])]
        fields += [("row", pa.int64()), ("chunk", pa.int64()), ("first", pa.int64())]
        tables.append(pa.schema(fields).empty_table())
        columns = [parts.column, stamp, *[CHUNK_FIELDS[0].name] * parts.has_chunks]
        for batch in file.iter_batches(_ROWS, columns=columns, use_threads=False):
            ids = batch[parts.column]
            is_wanted = np.zeros(len(batch), np.bool_)
            is_wanted[ids.is_valid().to_numpy(zero_copy_only=False)] = _is_in(hashes_of(ids), wanted)
            rows, chunks = np.arange(first, first + len(batch)), np.zeros(len(batch), np.int64)
            if parts.has_chunks:
                chunks = batch[CHUNK_FIELDS[0].name].to_numpy().astype(np.int64)
            values = [comparable(ids), batch[stamp], *map(pa.array, (rows, chunks, rows - chunks))]
            tables.append(pa.table(values, names=tables[0].column_names).filter(pa.array(is_wanted)))
            first += len(batch)
    return pa.concat_tables(tables)


def _older(versions: pa.Table, name: str) -> pa.Table:
    """Return the rows that are not the newest of their id."""
    versions = versions.set_column(1, "stamp", ordered_stamps(versions["stamp"], name))
    keys = [("id", "ascending"), ("stamp", "descending"), ("part", "ascending"), ("row", "ascending")]
    versions = versions.take(pc.sort_indices(versions, keys))
    is_new_id = np.ones(len(versions), np.bool_)
    ids = versions["id"].combine_chunks()
    is_new_id[1:] = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    places = np.stack([versions[name].to_numpy() for name in ("part", "first")])
    newest = places[:, np.flatnonzero(is_new_id)][:, np.cumsum(is_new_id) - 1]
    is_older = (places != newest).any(axis=0)
    return versions.filter(pa.array(is_older)).sort_by([("part", "ascending"), ("row", "ascending")])


def _all_repeated(parts: Parts, rows: int, run: RunTasks, max_hashes: int) -> tuple[Hashes, list[str]]:
    """Return the hashes of new ids that occur more than once, ascending, and the parts that have them."""
    names = [*parts.before, *parts.new]
    files = {part: PurePosixPath(parts.hashes_name(part)) for part in names}
    present = {folder: {*parts.files.names(str(folder))} for folder in {file.parent for file in files.values()}}
    missing = [part for part, file in files.items() if file.name not in present[file.parent]]
    if missing:
        for folder in {str(files[part].parent) for part in missing}:
            parts.files.make_folder(folder)
        list(_tasks(run, missing)(partial(_write_hashes, parts), missing))
    count = min(_BUCKETS, 1 + rows // max_hashes)
    spans = [(_BUCKETS * number // count, _BUCKETS * (number + 1) // count) for number in range(count)]
    results = list(in_order(_tasks(run, spans), partial(_repeated, parts), spans))
    holding = {part for _, of_span in results for part in of_span}
    return np.concatenate([hashes for hashes, _ in results]), [part for part in names if part in holding]


def _tasks(run: RunTasks, arguments: Sequence[Any]) -> RunTasks:
    return run if len(arguments) >= _LEAST_TASKS else map


def _write_hashes(parts: Parts, part: str) -> None:
    content = file_of([hashes_of(ids) for ids in _read(parts, part)])
    parts.files.write(parts.hashes_name(part), lambda file: file.write(content))


def _repeated(parts: Parts, span: tuple[int, int]) -> tuple[Hashes, list[str]]:
    """Return the repeated hashes in a span of first bytes, ascending, and the parts that have them."""
    with ThreadPoolExecutor(1 if isinstance(parts.files, Folder) else _READERS) as pool:
        pieces = list(pool.map(partial(_read_span, parts, span), parts.new))
        hashes = np.concatenate([np.zeros(0, np.uint64), *pieces])
        hashes.sort()
        occurs = np.zeros(len(hashes), np.bool_)
        occurs[1:] = hashes[1:] == hashes[:-1]
        holding = dict[str, Hashes]()  # hashes of an earlier part that are also among the new ones
        for part, piece in zip(parts.before, pool.map(partial(_read_span, parts, span), parts.before), strict=True):
            if len(hashes) and len(common := piece[_is_in(piece, hashes)]):
                holding[part] = common
                occurs |= _is_in(hashes, common)
    repeated = np.unique(hashes[occurs])
    if not len(repeated):
        return repeated, []
    return repeated, [
        *holding,
        *(part for part, piece in zip(parts.new, pieces, strict=True) if _is_in(piece, repeated).any()),
    ]


def _read_span(parts: Parts, span: tuple[int, int], part: str) -> Hashes:
    files, name = parts.files, parts.hashes_name(part)
    with files.open(name) as file:
        header = file.read(_HEADER_BYTES).ljust(_HEADER_BYTES, b"\0")
        start, stop, end = np.frombuffer(header, "<u8")[[*span, -1]].tolist()
        if file.size() != _HEADER_BYTES + 8 * end:
            raise ValueError(f"{files}/{name} is damaged; remove it and run the same command again")
        file.seek(_HEADER_BYTES + 8 * start)
        return np.frombuffer(file.read(8 * (stop - start)), "<u8")


def _is_in(hashes: Hashes, ascending: Hashes) -> npt.NDArray[np.bool_]:
    """Return which hashes [n] occur in a sorted array that is not empty: bool [n]."""
    index = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
    is_in: npt.NDArray[np.bool_] = ascending[index] == hashes
    return is_in


def _compare(parts: Parts, holders: Sequence[str], wanted: Hashes, run: RunTasks) -> tuple[int, Any]:
    """Return the number of new rows that repeat an id whose hash is wanted, and the first such id."""
    counts, repeats_before = list[pa.Table](), 0
    num_before = sum(part in parts.before for part in holders)
    for number, table in enumerate(in_order(_tasks(run, holders), partial(_count_ids, parts, wanted), holders)):
        if number == num_before and counts:
            counts = [_added(counts)]
            repeats_before = pc.sum(counts[0]["count"]).as_py() - len(counts[0])
        counts.append(table)
        if sum(map(len, counts)) > 4 * len(wanted):  # the same ids in many parts
            counts = [_added(counts)]
    total = _added(counts)
    several = total.filter(pc.greater(total["count"], 1))
    repeats = pc.sum(total["count"]).as_py() - len(total) - repeats_before
    return repeats, several["id"][0].as_py() if repeats else None


def _count_ids(parts: Parts, wanted: Hashes, part: str) -> pa.Table:
    """Return how often each id of a part whose hash is wanted occurs: ``id``, ``count``, in the order of the rows."""
    kept = [comparable(ids).filter(pa.array(_is_in(hashes_of(ids), wanted))) for ids in _read(parts, part)]
    ids = pa.chunked_array(kept)
    return _added([pa.table({"id": ids, "count": pa.repeat(pa.scalar(1, pa.int64()), len(ids))})])


def _added(counts: list[pa.Table]) -> pa.Table:
    groups = pa.concat_tables(counts).group_by("id", use_threads=False).aggregate([("count", "sum")])
    return groups.rename_columns(["id", "count"])


def _read(parts: Parts, part: str) -> Iterator[pa.Array]:
    """Yield the ids of a part that are not null, of first chunks, and an empty array first, for their type."""
    with parts.store.open(part) as raw, pq.ParquetFile(raw) as file:
        kind = file.schema_arrow.field(parts.column).type
        yield pa.array([], kind)
        columns = [parts.column, *[CHUNK_FIELDS[0].name] * parts.has_chunks]
        for batch in file.iter_batches(_ROWS, columns=columns, use_threads=False):
            rows = batch.filter(pc.equal(batch[columns[1]], 0)) if parts.has_chunks else batch
            yield rows[parts.column].drop_null()


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
