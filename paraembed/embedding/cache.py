"""Vectors of texts for later runs with the same encoder: Parquet files in a folder, or on an object store.

A text is found by a 128-bit hash, in a folder of the encoder's digest. A run reads the files that were there when it
started, whatever other runs add meanwhile, so its bytes do not depend on them. Every file is written once, atomically.
"""

import logging
import math
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.embedding.inputs import LOOKERS
from paraembed.encoders.protocol import Embedded, Rows, TextEncoder
from paraembed.io.fingerprint import digest_of
from paraembed.io.places import Place, to_place
from paraembed.io.resume import check_names
from paraembed.io.store import Folder, Store, open_store, read_json, write_json
from paraembed.settings import CACHE_GB

FORMAT = "paraembed-vectors-1"
_MARK = "_cache.json"
_TEMPORARY = r"\..+\.[0-9a-f]{8}\.tmp"
_DIGEST = "[0-9a-f]{32}"  # of an encoder, and of the hashes in a file
_OWN = re.compile(rf"{_MARK}|{_DIGEST}|{_TEMPORARY}")
_IN_FOLDER = re.compile(rf"{_DIGEST}/(?:(?P<shard>{_DIGEST}\.parquet)|{_TEMPORARY})")
_GROUP_BYTES = 1 << 20  # of vectors in a row group, which is read at once
_LEFT_OVER_NS = 86_400 * 10**9  # after which a temporary file has lost its writer

Hashes = npt.NDArray[np.uint64]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cache:
    """Files with vectors [n, ``width``] of one encoder, as they were when a run started."""

    place: str
    encoder: str  # digest of what decides the vectors; name of the folder
    width: int
    files: tuple[str, ...]
    most_gb: float  # of all encoders


def open_cache(place: Place, encoder: TextEncoder, cache_gb: float = CACHE_GB, *, reads_only: bool = False) -> Cache:
    """Return the vectors of an encoder that are in a cache, which is created if the place is new or empty, unless
    ``reads_only``. Raise ValueError if the place holds something else, ``cache_gb`` is not positive, or the encoder
    computes a vector faster than it can be read.
    """
    if not 0 < cache_gb < math.inf:
        raise ValueError(f"`cache_gb` is {cache_gb}; it must be above 0")
    if not getattr(encoder, "encodes_once", False):
        raise ValueError("`cache` is given, but the encoder computes a vector faster than it can be read; leave it out")
    store = open_store(place)
    try:
        names = store.names()
    except NotADirectoryError:
        raise ValueError(f"`cache` is {store}, which is a file; give a folder") from None
    check_names(store, names, _OWN if _MARK in names else re.compile(_TEMPORARY), "jobs/embed.py")
    if _MARK in names:
        known = read_json(store, _MARK, dict[str, Any]).get("format")
        if known != FORMAT:
            raise ValueError(f"{store} has the format {str(known)[:80]!r}, not {FORMAT}; use another `cache`")
    elif not reads_only:
        if isinstance(store, Folder):
            store.path.mkdir(parents=True, exist_ok=True)
        write_json(store, _MARK, {"format": FORMAT})
    digest = digest_of([encoder.fingerprint, dict(encoder.identity), encoder.tokenizer, encoder.width])[:32]
    files = tuple(name for name in store.names(f"{digest}/") if name.endswith(".parquet"))
    return Cache(store.place, digest, encoder.width, files, cache_gb)


def trim(cache: Cache) -> None:
    """Remove the files that were written first, of all encoders, until the others have at most ``most_gb``. A cache
    that cannot be trimmed is left as it is.
    """
    store = open_store(to_place(cache.place))
    try:
        _trim(store, cache.most_gb * 1e9)
    except OSError as error:
        log.warning("%s cannot be trimmed (%s)", store, error)


def _trim(store: Store, most_bytes: float) -> None:
    files, now = list[tuple[int, int, str]](), time.time_ns()  # time, size, name
    folders = [name for name, stamp in store.stamps("") if not stamp and re.fullmatch(_DIGEST, name)]
    stamps = (named for folder in folders for named in store.stamps(f"{folder}/"))
    for name, stamp in stamps:
        if stamp and (own := _IN_FOLDER.fullmatch(name)):
            size, written = map(int, stamp.split(" ")[:2])
            if own["shard"]:
                files.append((written, size, name))
            elif now - written > _LEFT_OVER_NS:
                store.delete(name)
    left = sum(size for _, size, _ in files)
    for _, size, name in sorted(files):
        if left <= most_bytes:
            return
        store.delete(name)
        left -= size


def hashes_of(keys: pa.Array) -> Hashes:
    """Return the hashes of texts, uint64 [n, 2]; see ``repeated.keys_of``."""
    digests = (blake2b(key, digest_size=16).digest() for key in keys.cast(pa.large_binary()).to_pylist())
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)


class CachedVectors:
    """Vectors of a cache for the texts of a part, and the new ones of the part, to be written."""

    def __init__(self, cache: Cache) -> None:
        self._cache, self._store = cache, open_store(to_place(cache.place))
        self._index = _index(cache)
        self._new: list[tuple[Hashes, Embedded]] = []

    def find(self, hashes: Hashes, target: Embedded, rows: Rows) -> npt.NDArray[np.bool_]:
        """Write what is known of n texts to rows of ``target``; return of which texts, bool [n]."""
        is_known, files, in_file = self._index.places(hashes)
        group_rows = _group_rows(self._cache.width)
        groups = np.stack([files, in_file // group_rows])
        for file, group in np.unique(groups[:, is_known], axis=1).T.tolist():
            texts = np.flatnonzero(is_known & (groups[0] == file) & (groups[1] == group))
            name = self._cache.files[file]
            try:
                with _opened(self._store.open(f"{self._cache.encoder}/{name}"), self._cache) as shard:
                    table = shard.read_row_group(group, use_threads=False)
                target.write(rows[texts], _embedded(table, in_file[texts] - group * group_rows))
            except (OSError, ValueError, IndexError, pa.ArrowException) as error:
                _remove_damaged(self._store, self._cache, name, error)
                is_known[texts] = False
        return is_known

    def add(self, hashes: Hashes, embedded: Embedded) -> None:
        """Keep the vectors of new texts until ``write``."""
        self._new.append((hashes, embedded))

    def write(self, at_least: int = 0) -> None:
        """Write the new vectors, if they have so many bytes; a cache that cannot be written does not stop the run."""
        if not self._new or sum(embedded.vectors.nbytes for _, embedded in self._new) < at_least:
            return
        hashes = np.concatenate([hashes for hashes, _ in self._new])
        columns = [np.concatenate(arrays) for arrays in zip(*(new.arrays for _, new in self._new), strict=True)]
        self._new = []
        table = _table(hashes, columns, self._cache.width)
        name = f"{self._cache.encoder}/{blake2b(hashes.tobytes(), digest_size=16).hexdigest()}.parquet"
        try:
            self._store.make_folder(self._cache.encoder)
            self._store.write(name, partial(_write_table, table, _group_rows(self._cache.width)))
        except OSError as error:
            log.warning("%s cannot be written (%s); the run continues without it", self._store, error)


@dataclass(frozen=True)
class _Index:
    """Hashes of the texts in all files, sorted by their first half: 28 bytes a text."""

    first: npt.NDArray[np.uint64]
    second: npt.NDArray[np.uint64]
    file: npt.NDArray[np.int32]
    row: npt.NDArray[np.int64]  # in its file

    def places(self, hashes: Hashes) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return which texts are known, and the file and row of each."""
        if not len(self.first):
            none = np.zeros(len(hashes), np.int64)
            return none.astype(np.bool_), none, none
        place = np.minimum(np.searchsorted(self.first, hashes[:, 0]), len(self.first) - 1)
        is_known = (self.first[place] == hashes[:, 0]) & (self.second[place] == hashes[:, 1])
        return is_known, self.file[place].astype(np.int64), self.row[place]


@lru_cache(1)
def _index(cache: Cache) -> _Index:
    store = open_store(to_place(cache.place))
    with ThreadPoolExecutor(LOOKERS) as pool:
        read = list(pool.map(lambda name: _hashes_in(store, cache, name), cache.files))
    hashes = np.concatenate([np.zeros((0, 2), np.uint64), *read])
    sizes = np.array([len(of_file) for of_file in read], np.int64)
    order = np.argsort(hashes[:, 0], kind="stable")
    rows = np.arange(len(hashes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    files = np.repeat(np.arange(len(read), dtype=np.int32), sizes)
    return _Index(hashes[order, 0], hashes[order, 1], files[order], rows[order])


def _hashes_in(store: Store, cache: Cache, name: str) -> Hashes:
    """Return the hashes in a file; none if it is damaged."""
    try:
        with _opened(store.open(f"{cache.encoder}/{name}"), cache) as file:
            column = file.read(columns=["text"], use_threads=False)["text"].combine_chunks()
            return np.frombuffer(column.buffers()[1], np.uint64)[: 2 * len(column)].reshape(-1, 2)
    except (OSError, ValueError, pa.ArrowException) as error:
        _remove_damaged(store, cache, name, error)
        return np.zeros((0, 2), np.uint64)


def _remove_damaged(store: Store, cache: Cache, name: str, error: Exception) -> None:
    """Log that a file cannot be read, and remove it if that is the fault of its bytes: it would hide the new one."""
    if isinstance(error, FileNotFoundError):  # removed, because the cache is full
        return
    reason = str(error).splitlines()[0][:200]
    log.warning("%s: %s cannot be read (%s); its vectors are computed again", store, name, reason)
    try:
        with store.open(f"{cache.encoder}/{name}") as raw:
            data = raw.read_buffer()
    except OSError:
        return
    try:
        with _opened(pa.BufferReader(data), cache) as file:
            file.read(use_threads=False)
    except (OSError, ValueError, pa.ArrowException):
        with suppress(OSError):
            store.delete(f"{cache.encoder}/{name}")


@contextmanager
def _opened(raw: Any, cache: Cache) -> Iterator[pq.ParquetFile]:
    """Open a file of a cache, whose pages have checksums; raise ValueError if it has other columns."""
    with raw, pq.ParquetFile(raw, page_checksum_verification=True) as file:
        if file.schema_arrow != _schema(cache.width):
            raise ValueError("it has other columns")
        yield file


def _embedded(table: pa.Table, rows: Rows) -> Embedded:
    """Return rows of a row group."""
    taken = table.take(pa.array(rows))
    vectors = taken["embedding"].combine_chunks().flatten().to_numpy().reshape(len(rows), -1)
    return Embedded(vectors, *(taken[name].to_numpy() for name in _OTHERS))


_OTHERS = {"n_tokens": pa.int32(), "n_unknown": pa.int32(), "is_cut": pa.bool_(), "lacks_tree": pa.bool_()}


def _schema(width: int) -> pa.Schema:
    return pa.schema({"text": pa.binary(16), "embedding": pa.list_(pa.float32(), width), **_OTHERS})


def _table(hashes: Hashes, columns: Sequence[npt.NDArray[Any]], width: int) -> pa.Table:
    vectors, *others = columns
    arrays = [
        pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(hashes), [None, pa.py_buffer(hashes.tobytes())]),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), width),
        *map(pa.array, others),
    ]
    return pa.table(arrays, schema=_schema(width))


def _write_table(table: pa.Table, group_rows: int, file: BinaryIO) -> None:
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, file, row_group_size=group_rows, write_page_checksum=True, **options)


def _group_rows(width: int) -> int:
    return max(1, _GROUP_BYTES // (4 * width))
