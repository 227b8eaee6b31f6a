"""Count repeated ids of an output exactly and in bounded memory."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.io.parquet import chunks_of
from paraembed.io.store import Store
from paraembed.text.hashing import hash_strings, mixed

_ROWS = 16_384  # read at a time
_ID_BYTES = 32  # of a hash table, and of the place of a string, each id
Hashes = npt.NDArray[np.uint64]


def count_duplicates(
    store: Store, parts: Sequence[str], column: str, *, max_bytes: int = 256 << 20, max_hashes: int = 1 << 25
) -> tuple[int, Any]:
    """Return the number of rows whose id already occurred in an earlier row, and one such id; null does not count as an
    id.

    Up to ``max_bytes`` of ids (integers or strings) are compared directly, for which Arrow needs four times as much
    memory, 1 GB. For more ids, 64-bit hashes are compared, reading the column once for each batch of ``max_hashes``
    hashes; 33M need 0.25 GB, and twice that while they are collected. The column is then read again for the ids whose
    hashes are equal, and these ids are compared.
    """
    sizes = [_size(store, part, column) for part in parts]
    rows, size = sum(count for count, _ in sizes), sum(size for _, size in sizes)
    if size <= max_bytes:
        return _compare(_read(store, parts, column), max_bytes)
    max_ids = max(1, max_bytes * rows // size)
    results = [
        _compare(_with_hashes(_read(store, parts, column), shared[start : start + max_ids]), max_bytes)
        for shared in _shared_hashes(store, parts, column, 1 + rows // max_hashes)
        for start in range(0, len(shared), max_ids)
    ]
    return sum(count for count, _ in results), next((repeated for count, repeated in results if count), None)


def _size(store: Store, part: str, column: str) -> tuple[int, int]:
    """Return rows and bytes of the ids, from the footer, which is exact because the column has no dictionary."""
    with store.open(part) as raw, pq.ParquetFile(raw) as file:
        groups = chunks_of(file, range(file.num_row_groups), [column])
        rows = int(file.metadata.num_rows)
        return rows, _ID_BYTES * rows + sum(chunk.total_uncompressed_size for chunks in groups for chunk in chunks)


def _shared_hashes(store: Store, parts: Sequence[str], column: str, partitions: int) -> Iterator[Hashes]:
    """Yield, for each partition of the hashes, those that occur more than once, ascending."""
    for partition in range(partitions):
        pieces = [np.zeros(0, np.uint64)]
        for ids in _read(store, parts, column):
            hashes = _hashes(ids)
            pieces.append(hashes[hashes % np.uint64(partitions) == partition])
        hashes = np.concatenate(pieces)
        hashes.sort()
        yield np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _with_hashes(ids: Iterator[pa.Array], wanted: Hashes) -> Iterator[pa.Array]:
    """Yield the ids whose hash is in ``wanted``, which is ascending and not empty."""
    for batch in ids:
        hashes = _hashes(batch)
        index = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
        yield batch.filter(pa.array(wanted[index] == hashes))


def _compare(ids: Iterator[pa.Array], max_bytes: int) -> tuple[int, Any]:
    """Return the number of rows that repeat an id, and one such id."""
    waiting, size, rows, repeated = list[pa.Array](), 0, 0, None
    for batch in ids:
        rows += len(batch)
        waiting.append(batch)
        size += batch.nbytes + _ID_BYTES * len(batch)
        if size > 2 * max_bytes:  # the same ids over and over
            waiting, repeated = _distinct(waiting, repeated)
            size = sum(array.nbytes + _ID_BYTES * len(array) for array in waiting)
    distinct, repeated = _distinct(waiting, repeated)
    return rows - sum(map(len, distinct)), repeated


def _distinct(ids: list[pa.Array], repeated: Any) -> tuple[list[pa.Array], Any]:
    """Return the distinct ids, and an id that occurred twice; ``repeated`` is such an id of earlier batches."""
    if not ids:
        return [], repeated
    counts = pc.value_counts(pa.chunked_array(ids))
    if repeated is None and len(several := counts.filter(pc.greater(counts.field("counts"), 1))):
        repeated = several[0]["values"].as_py()
    return [counts.field("values")], repeated


def _read(store: Store, parts: Sequence[str], column: str) -> Iterator[pa.Array]:
    """Yield the ids that are not null, see ``_comparable``; 64-bit offsets, since strings may exceed 2 GiB."""
    for part in parts:
        with store.open(part) as raw, pq.ParquetFile(raw) as file:
            for batch in file.iter_batches(_ROWS, columns=[column]):
                yield _comparable(batch[column].drop_null())


def _comparable(ids: pa.Array) -> pa.Array:
    """Return ids as integers, bytes or strings, of which equal ones are equal ids."""
    if isinstance(ids, pa.ExtensionArray):
        ids = ids.storage
    kind = ids.type
    if pa.types.is_integer(kind):
        return ids
    if pa.types.is_floating(kind):
        return ids.cast(pa.int64())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return ids.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    return ids.cast(pa.large_binary() if pa.types.is_fixed_size_binary(kind) else pa.large_string())


def _hashes(ids: pa.Array) -> Hashes:
    if pa.types.is_integer(ids.type):
        return mixed(ids.to_numpy(zero_copy_only=False).astype(np.uint64))
    return hash_strings(ids.cast(pa.binary()))
