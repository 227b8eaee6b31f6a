"""Find paraphrase pairs within a finished output, or between two, from the exact nearest rows, block by block.

A pair counts if its cosine reaches the threshold and one of its rows is among the ``top`` nearest of the other one. The
rows of the first output are cut into blocks. The steps are functions on files, so that a job resumes from them:

1. ``neighbors``: a block is compared with all rows (within an output: with those after it): the pairs that can count;
2. ``last_of_top``: for each row, the last of its nearest over all blocks;
3. ``keep_pairs``: the pairs of a block that count, in order;
4. ``write_part``: pairs with ids and texts, as Parquet;
5. ``write_groups``: the rows that are connected by pairs, as Parquet.

Products are made in float32 and cosines in float64, see ``paraembed.embedding.search``; so the result depends only on
the vectors and the settings, not on blocks, workers or threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.embedding.columns import is_text
from paraembed.embedding.output import Embeddings, Vectors
from paraembed.embedding.search import NearestRows, candidates, exact_cosines, margin, unit
from paraembed.io.atomic import write_file
from paraembed.io.escape import listed
from paraembed.late import Late
from paraembed.settings import MineSettings

if TYPE_CHECKING:
    from scipy import sparse
    from scipy.sparse import csgraph
else:
    sparse, csgraph = Late("scipy.sparse"), Late("scipy.sparse.csgraph")

FORMAT = "paraembed-mined-pairs-1"
GROUPS = "_groups"
"""Folder of the groups in the output; readers of datasets skip names that begin with ``_``."""
PAIR = np.dtype([("first", "<i8"), ("second", "<i8"), ("cosine", "<f4")])
"""A pair of row numbers; within an output ``first`` is the smaller one."""
_TILE_ROWS = 2048  # of a product: 2048 x 2048 scores are 16 MB
LAST = np.dtype([("cosine", "<f4"), ("row", "<i8")])
"""The ``top``-th nearest row of each row; its cosine is -inf if there are fewer rows."""
Pairs = npt.NDArray[Any]
Lasts = npt.NDArray[Any]


@dataclass(frozen=True)
class Comparison:
    """A comparison: the rows of an output with each other, or with those of another output."""

    output: Embeddings  # the output
    other: Embeddings | None  # the other output; None: pairs within ``output``
    settings: MineSettings  # what decides the pairs

    @property
    def seconds(self) -> Embeddings:
        """Output that contains the second row of each pair."""
        return self.output if self.other is None else self.other

    @property
    def top(self) -> int:
        """Number of nearest rows that count for each row, at most the number of rows."""
        return min(self.settings.top, max(self.output.rows, self.seconds.rows))

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Blocks of the first rows, see ``blocks_of``."""
        return self.blocks_of(self.output)

    def blocks_of(self, output: Embeddings) -> list[tuple[int, int]]:
        """Return for each block of an output's rows its first row, and the row after its last."""
        return list(pairwise([*range(0, output.rows, self.settings.block_rows), output.rows]))

    def check(self) -> None:
        """Raise ValueError if the outputs cannot be compared or grouped, or have no texts."""
        name = self.settings.text_column
        for output in (self.output, self.seconds):
            if not output.rows:
                raise ValueError(f"{output} has no rows, so there is nothing to compare; embed more texts")
            texts = [column for column in output.carried if is_text(output.schema.field(column).type)]
            if name not in texts:
                raise ValueError(
                    f"{output} has no column {name!r} of texts; `text_column` can be: "
                    f"{listed(texts) or 'none of its'} columns; `keep` of jobs/embed.py copies columns of the input"
                )
        if self.settings.groups:
            self._check_groups()
        if self.other is None:
            return
        if self.other.encoder != self.output.encoder or self.other.width != self.output.width:
            raise ValueError(
                f"{self.output} has vectors of encoder {self.output.encoder[:12]}, width {self.output.width}, but "
                f"{self.other} has vectors of {self.other.encoder[:12]}, width {self.other.width}; embed both with "
                "the same encoder"
            )

    def _check_groups(self) -> None:
        """Raise ValueError if ids cannot name the rows to remove."""
        if self.other is not None:
            raise ValueError(
                f"`groups` is for pairs within one output, but `other` is {self.other}; leave out `groups`: the column "
                "second_id of the pairs already lists the rows of `other` that have a similar row"
            )
        if self.output.unclear_ids:
            how = "with another `id_column` of jobs/embed.py, or without it"
            how = "without chunks, or with `pool` of jobs/embed.py" if self.output.further_chunks else how
            raise ValueError(
                f"{self.output} has {self.output.unclear_ids:,} rows with a null or repeated id, but `groups` "
                f"needs ids that name the rows to remove; embed {how}"
            )


def neighbors(comparison: Comparison, block: int, path: Path, *, tile_rows: int = _TILE_ROWS) -> None:
    """Write the pairs with a first row in this block that can count, ordered by second and first row.

    These are the ``top`` nearest second rows of each first row, and the ``top`` nearest first rows in the block of each
    second row. Within one output, only second rows after the first row are compared.

    Memory: the vectors of the block twice, three row groups, a tile of scores.
    """
    settings, (start, stop) = comparison.settings, comparison.blocks[block]
    firsts = np.concatenate([rows.vectors for rows in comparison.output.blocks(start, stop)])
    units, error = unit(firsts), margin(comparison.output.width)
    nearest = NearestRows(len(firsts), comparison.top, settings.threshold)
    pairs: list[Pairs] = []
    for rows in comparison.seconds.blocks(start if comparison.other is None else 0):
        unit_rows, of_rows = unit(rows.vectors), NearestRows(len(rows.vectors), comparison.top, settings.threshold)
        for left in tiles(len(firsts), tile_rows):
            for right in tiles(len(rows.vectors), tile_rows):
                if comparison.other is None and rows.first + right.stop <= start + left.start + 1:
                    continue  # no second row is after the first ones
                scores = units[0][left] @ unit_rows[0][right].T
                scores[~units[1][left]] = -np.inf
                scores[:, ~unit_rows[1][right]] = -np.inf
                if comparison.other is None:
                    _leave_out(scores, start + left.start, rows.first + right.start)
                cuts = nearest.cuts(error)[left], of_rows.cuts(error)[right]
                row, column = candidates(scores, *cuts, comparison.top, error)
                row, column = row + left.start, column + right.start
                cosines = exact_cosines(firsts, row, rows.vectors, column)
                nearest.add(row, rows.first + column, cosines)
                of_rows.add(column, start + row, cosines)
        pairs.append(_pairs_of(of_rows, rows.first, is_second=True))
    pairs.append(_pairs_of(nearest, start, is_second=False))
    save(path, _distinct(np.concatenate(pairs)))


def tiles(rows: int, tile_rows: int = _TILE_ROWS) -> list[slice]:
    """Return the slices of rows that are multiplied at a time."""
    return [slice(start, min(rows, start + tile_rows)) for start in range(0, rows, tile_rows)]


def _leave_out(scores: Vectors, first: int, second: int) -> None:
    """Set the scores of pairs whose second row is not after the first to -inf, in a tile that starts at these rows."""
    num_firsts, num_seconds = scores.shape
    if second < first + num_firsts:
        scores[np.arange(second, second + num_seconds) <= np.arange(first, first + num_firsts)[:, None]] = -np.inf


def _pairs_of(best: NearestRows, start: int, *, is_second: bool) -> Pairs:
    """Return the pairs of a ``NearestRows`` whose items are the rows from ``start`` on, either second or first rows."""
    hits = best.hits()
    pairs = np.empty(len(hits.row), PAIR)
    pairs["second" if is_second else "first"] = start + hits.query
    pairs["first" if is_second else "second"] = hits.row
    pairs["cosine"] = hits.cosine
    return pairs


def _distinct(pairs: Pairs) -> Pairs:
    """Return distinct pairs, ordered by second and first row."""
    pairs = pairs[np.lexsort((pairs["first"], pairs["second"]))]
    repeats = (pairs["first"][1:] == pairs["first"][:-1]) & (pairs["second"][1:] == pairs["second"][:-1])
    return pairs[np.concatenate([[True], ~repeats])] if len(pairs) else pairs


def save(path: Path, rows: Pairs | Lasts) -> None:
    """Write a file of pairs or of nearest rows, atomically."""
    write_file(path, partial(np.save, arr=rows, allow_pickle=False))


def load(path: Path) -> Pairs | Lasts:
    """Return the content of a file that ``save`` wrote, memory-mapped."""
    pairs: Pairs = np.load(path, mmap_mode="r", allow_pickle=False)
    return pairs


def last_of_top(comparison: Comparison, span: tuple[int, int], *, are_seconds: bool, paths: Sequence[Path]) -> Lasts:
    """Return the ``top``-th nearest row of each row of a span (a first row of a block and the row after its last) of
    first or, if ``are_seconds``, second rows; within an output they are both. ``paths`` are the files of ``neighbors``,
    by block.
    """
    start, stop = span
    items, cosines, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)], [np.zeros(0, np.int64)]
    if not are_seconds or comparison.other is None:
        pairs = load(paths[start // comparison.settings.block_rows])
        items, cosines, rows = [pairs["first"]], [pairs["cosine"]], [pairs["second"]]
    if are_seconds or comparison.other is None:
        for path in paths:
            pairs = load(path)
            of_span = pairs[slice(*np.searchsorted(pairs["second"], [start, stop]))]
            items.append(of_span["second"])
            cosines.append(of_span["cosine"])
            rows.append(of_span["first"])
    best = NearestRows(stop - start, comparison.top)
    best.add(np.concatenate(items) - start, np.concatenate(rows), np.concatenate(cosines))
    last = np.empty(stop - start, LAST)
    last["cosine"], last["row"] = best.cosines[:, -1], best.rows[:, -1]
    return last


def keep_pairs(pair_files: Sequence[Path], of_firsts: Path, of_seconds: Path, block: int, path: Path) -> None:
    """Write the pairs of a block that count, ordered by first row, descending cosine, and second row. ``pair_files``
    are the files of ``neighbors``, one per block; ``of_firsts`` and ``of_seconds`` hold the last of the nearest rows of
    each first and second row.
    """
    pairs = np.array(load(pair_files[block]))
    keeps = np.zeros(len(pairs), np.bool_)
    for lasts, item, row in ((of_firsts, "first", "second"), (of_seconds, "second", "first")):
        last = load(lasts)[pairs[item]]
        keeps |= pairs["cosine"] > last["cosine"]
        keeps |= (pairs["cosine"] == last["cosine"]) & (pairs[row] <= last["row"])
    pairs = pairs[keeps]
    save(path, pairs[np.lexsort((pairs["second"], -pairs["cosine"], pairs["first"]))])


def write_part(comparison: Comparison, paths: Sequence[Path], span: tuple[int, int], out: Path) -> dict[str, Any]:
    """Write a part with pairs ``start`` to ``stop`` - 1 of the files of ``keep_pairs``; return its manifest entry. With
    ``distinct``, pairs of equal texts are left out.

    Memory: the texts of the pairs, and those of a row group.
    """
    pieces, first = [np.zeros(0, PAIR)], 0
    for path in paths:
        pairs = load(path)
        pieces.append(pairs[max(0, span[0] - first) : max(0, span[1] - first)])
        first += len(pairs)
    pairs, sides = np.concatenate(pieces), []
    for output, rows in ((comparison.output, pairs["first"]), (comparison.seconds, pairs["second"])):
        sides.append(output.take(rows, [comparison.settings.text_column, output.id_column]))
    (first_text, first_id), (second_text, second_id) = (side.columns for side in sides)
    table = pa.table(
        {
            "first": first_text.cast(pa.string()),
            "second": second_text.cast(pa.string()),
            "score": pa.array(pairs["cosine"]),
            "first_id": first_id,
            "second_id": second_id,
        }
    )
    if comparison.settings.distinct:
        table = table.filter(pc.fill_null(pc.not_equal(table["first"], table["second"]), True))
    return {"name": out.name, **_write_table(table, out)}


def write_groups(comparison: Comparison, paths: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write the groups of rows that the pairs in the files of ``keep_pairs`` connect; return the manifest entry.

    Columns: id; group_id, the id of the group's first row; keep, whether the row is this first row. Groups are in the
    order of their first rows, and their rows in input order. Rows without a pair are left out.

    Memory: about 100 bytes per pair, and the ids of the rows.
    """
    pairs = np.concatenate([np.zeros(0, PAIR), *map(load, paths)])
    rows, nodes = np.unique(np.concatenate([pairs["first"], pairs["second"]]), return_inverse=True)
    edges = np.ones(len(pairs), np.bool_), np.split(nodes, 2)
    num_groups, labels = csgraph.connected_components(
        sparse.coo_array(edges, shape=(len(rows), len(rows))), directed=False
    )
    first = np.unique(labels, return_index=True)[1][labels]  # of each row's group: ``rows`` ascend
    order = np.argsort(first, kind="stable")
    ids = comparison.output.take(rows, [comparison.output.id_column]).column(0)
    keeps = first[order] == order
    table = pa.table({"id": ids.take(pa.array(order)), "group_id": ids.take(pa.array(first[order])), "keep": keeps})
    largest = int(np.bincount(labels).max(initial=0))
    return {"name": f"{GROUPS}/{out.name}", **_write_table(table, out), "groups": num_groups, "largest": largest}


def _write_table(table: pa.Table, out: Path) -> dict[str, Any]:
    """Write a Parquet file; return its number of rows and its SHA-256."""
    write = partial(pq.write_table, table, compression="zstd", use_dictionary=False)
    return {"rows": table.num_rows, "sha256": write_file(out, write)}
