"""Read a finished output of ``jobs/embed.py``: vectors block by block, and rows by number."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed.embedding.columns import output_fields
from paraembed.embedding.manifest import MANIFEST, REPAIR, columns_of, open_output, read_manifest, read_superseded
from paraembed.embedding.settings import Settings
from paraembed.io.places import Place
from paraembed.io.store import is_committed
from paraembed.process import map_in_threads

Vectors = npt.NDArray[np.float32]
RowNumbers = npt.NDArray[np.int64]
_READERS = 2  # threads that read row groups ahead


class VectorBlock(NamedTuple):
    """Vectors float32 [n, d] of consecutive rows, starting at row ``first``."""

    first: int
    vectors: Vectors


class _Group(NamedTuple):
    part: int
    number: int  # in the part
    first: int  # number of its first row in the output
    rows: int


class Embeddings:
    """A finished output. Rows are numbered from 0 in the order of the parts, which is the order of the input. Rows that
    newer ones supersede have vectors of zeros, which are similar to nothing.

    Raise FileNotFoundError or NotADirectoryError if the folder does not exist, ValueError if the output is not
    finished, or damaged.
    """

    def __init__(self, place: Place) -> None:
        self.store, _ = open_output(place)
        if not is_committed(self.store, MANIFEST):
            raise ValueError(f"{self.store} is not finished; run the same jobs/embed.py command again to finish it")
        known, where = read_manifest(self.store), f"{self.store}/{MANIFEST}"
        self.digest = self.store.sha256(MANIFEST)
        """SHA-256 of the manifest, which has the digests of the parts."""
        self.encoder: str = known["fingerprints"]["encoder"]
        """Fingerprint of the encoder."""
        settings: Settings = known["settings"]
        self.query_settings = Settings(dim=settings.dim, normalize=settings.normalize)
        """How to finish the vector of a query: truncated and normalized as the rows, in float32."""
        self.names = [part["name"] for part in known["parts"]]
        if not self.names:
            raise ValueError(f"{where} is damaged: it has no parts; {REPAIR}")
        self.starts = np.cumsum([0, *(part["rows"] for part in known["parts"])], dtype=np.int64)
        """Number of the first row of each part, then the number of rows: int64 [parts + 1]."""
        self.superseded = read_superseded(self.store, known)
        """Numbers of the rows that newer ones supersede, ascending, int64 [n]."""
        self._digests = [part["sha256"] for part in known["parts"]]
        self._columns = known["schema"]
        with self._open_part(0) as file:
            self.schema: pa.Schema = file.schema_arrow
        kind: Any = self.schema.field("embedding").type if "embedding" in self.schema.names else None
        if not pa.types.is_fixed_size_list(kind) or known["id_column"] not in self.schema.names:
            raise ValueError(f"{where} is damaged: its schema has no ids or no vectors; {REPAIR}")
        self.width: int = kind.list_size
        """Length d of a vector."""
        self.id_column: str = known["id_column"]
        self.has_input_ids = settings.id_column is not None
        """Whether the ids were read from a column of the input, not generated."""
        self.further_chunks: int = sum(part.get("n_further_chunks", 0) for part in known["parts"])
        """Number of rows that are chunks of a text other than its first."""
        self.unclear_ids: int = known["n_null_ids"] + known["n_duplicate_ids"] + self.further_chunks
        """Number of rows whose id is null or repeats that of another row."""
        added = {self.id_column, *output_fields(settings.dtype)}
        self.carried = [name for name in self.schema.names if name not in added]
        """Names of the columns that were carried from the input."""

    def __str__(self) -> str:
        return str(self.store)

    @property
    def rows(self) -> int:
        """Number of rows, including superseded ones."""
        return int(self.starts[-1])

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[VectorBlock]:
        """Yield the vectors of rows ``start`` to ``stop`` - 1, one row group at a time, while threads read ahead. Raise
        FileNotFoundError or ValueError if a part is missing or damaged.

        int8 vectors are not multiplied by their scale, because a positive factor does not change a cosine. Memory:
        three row groups; those of ``jobs/embed.py`` have about 32 MB.
        """
        stop = self.rows if stop is None else stop
        for block in map_in_threads(self._read_vectors, self._groups(start, stop), _READERS, ahead=1):
            first = max(start, block.first)
            yield VectorBlock(first, block.vectors[first - block.first : stop - block.first])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are not superseded, with all columns, in order, up to 8,192 at a time. The SHA-256 of a
        part is checked before its first row; the errors are those of ``blocks``.
        """
        first = 0
        for part, name in enumerate(self.names):
            with self._open_part(part) as file:
                if self.store.sha256(name) != self._digests[part]:
                    raise ValueError(f"{self.store}/{name} has another SHA-256 than the manifest says; {REPAIR}")
                for batch in file.iter_batches(8_192, use_threads=False):
                    is_current = np.ones(len(batch), np.bool_)
                    is_current[self._superseded_in(first, len(batch))] = False
                    first += len(batch)
                    yield batch if is_current.all() else batch.filter(pa.array(is_current))

    def _superseded_in(self, first: int, rows: int) -> RowNumbers:
        """Return which of some rows are superseded, counted from the first of them."""
        return self.superseded[slice(*np.searchsorted(self.superseded, [first, first + rows]))] - first

    def take(self, numbers: RowNumbers, columns: Sequence[str]) -> pa.Table:
        """Return columns of the rows with these numbers, in their order; the errors are those of ``blocks``."""
        unique, order = np.unique(numbers, return_inverse=True)
        tables = [self.schema.empty_table().select(list(columns))]
        for part in np.unique(np.searchsorted(self.starts, unique, side="right") - 1).tolist():
            with self._open_part(part) as file:
                for group in self._groups_of(part, file):
                    rows = unique[slice(*np.searchsorted(unique, [group.first, group.first + group.rows]))]
                    if len(rows):
                        table = file.read_row_group(group.number, columns=list(columns), use_threads=False)
                        tables.append(table.select(list(columns)).take(pa.array(rows - group.first)))
        return pa.concat_tables(tables).unify_dictionaries().combine_chunks().take(pa.array(order.reshape(-1)))

    def _groups(self, start: int, stop: int) -> Iterator[_Group]:
        """Yield the row groups that contain rows from ``start`` to ``stop`` - 1."""
        for part in range(len(self.names)):
            if self.starts[part] < stop and self.starts[part + 1] > start:
                with self._open_part(part) as file:
                    groups = self._groups_of(part, file)
                yield from (group for group in groups if group.first < stop and group.first + group.rows > start)

    def _groups_of(self, part: int, file: pq.ParquetFile) -> list[_Group]:
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        firsts = int(self.starts[part]) + np.cumsum([0, *sizes])
        return [_Group(part, number, int(firsts[number]), rows) for number, rows in enumerate(sizes)]

    def _read_vectors(self, group: _Group) -> VectorBlock:
        with self._open_part(group.part) as file:
            table = file.read_row_group(group.number, columns=["embedding"], use_threads=False)
            flat = table["embedding"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        vectors: Vectors = flat.reshape(group.rows, self.width).astype(np.float32, copy=False)
        old = self._superseded_in(group.first, group.rows)
        if len(old):
            vectors = vectors.copy()
            vectors[old] = 0
        return VectorBlock(group.first, vectors)

    @contextmanager
    def _open_part(self, part: int) -> Iterator[pq.ParquetFile]:
        """Open a part; if it is missing, unreadable or not that of the manifest, raise an error that names it."""
        name = self.names[part]
        try:
            with self.store.open(name) as raw, pq.ParquetFile(raw) as file:
                rows = int(self.starts[part + 1] - self.starts[part])
                if file.metadata.num_rows != rows or columns_of(file.schema_arrow) != self._columns:
                    raise ValueError(
                        f"{self.store}/{name} has {file.metadata.num_rows:,} rows or other columns than the manifest "
                        f"says; {REPAIR}"
                    )
                yield file
        except FileNotFoundError:
            raise FileNotFoundError(f"{self.store}/{name} is missing; {REPAIR}") from None
        except (pa.ArrowException, OSError) as error:
            if getattr(error, "errno", None):  # an error of the disk, not of the file
                raise
            reason = str(error).splitlines()[0]
            raise ValueError(f"{self.store}/{name} cannot be read ({reason}); {REPAIR}") from None
