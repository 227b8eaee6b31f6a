"""Exact nearest rows of a finished output by cosine: float32 products find candidates, and float64 cosines rank them.

A product in float32 has a rounding error, which depends on the number of rows that BLAS multiplies at once. So it only
selects the rows that can be among the nearest, with a bound on that error. Their cosines are computed again in float64,
each by itself, and rounded to float32. So equal vectors have equal cosines. Ties are in the order of ids of the input,
which a second pass compares if rows are left out that tie with the last one of a query, and else of the rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.console import doing
from paraembed.embedding.columns import finish
from paraembed.embedding.manifest import encoder_name, read_run
from paraembed.embedding.output import Embeddings, RowNumbers, Vectors
from paraembed.embedding.spot_check import open_encoder_of
from paraembed.encoders.protocol import TextEncoder
from paraembed.loading import Fetch
from paraembed.process import RunTasks, in_order
from paraembed.settings import is_peer, is_shipped

Indices = npt.NDArray[np.intp]
_TILE_VALUES = 1 << 22  # scores of a product: 16 MB
_EXACT_VALUES = 1 << 21  # numbers to multiply in float64 at a time: 16 MB, four times
_TIES = 1 << 18  # whose ids are read at a time
_DENSE = 8  # times the candidates that are needed: then the smallest of them are left out first
_SECONDS_A_NUMBER = 8e-9  # to read a vector
_MULTIPLICATIONS_PER_SECOND = 4e10
_TINY, _HUGE = 1e-30, 1e30  # squares of lengths that float32 computes without loss


@dataclass(frozen=True)
class Queries:
    """Vectors of n queries, truncated and normalized like those of the output."""

    texts: list[str]  # the queries
    vectors: Vectors  # float32 [n, d]
    without_tokens: list[int]  # numbers of the queries without tokens; their vectors are zeros
    out_of_vocabulary: list[int]  # numbers of the queries of which every token is out of vocabulary


@dataclass(frozen=True)
class Hits:
    """Nearest rows, ordered by query, best first."""

    query: RowNumbers  # number of the query, int64 [n]
    rank: RowNumbers  # from 1 within a query, int64 [n]
    row: RowNumbers  # number of the row, int64 [n]
    cosine: Vectors  # float32 [n]


def query_encoder(
    embeddings: Embeddings,
    name: str | None = None,
    *,
    prompt: str | None = None,
    fetch: Fetch | None = None,
    trust_remote_code: bool = False,
) -> TextEncoder:
    """Open the encoder of an output, with the settings of that run.

    A name that the output records may come from a stranger. So it must be the encoder in the package or an encoder
    folder, whose fingerprint is compared with that of the run. Models of other libraries are opened only by a name that
    the caller gives.

    Args:
        embeddings: the output.
        name: name of the encoder, see ``open_encoder``; default: as it was named for the output, see above.
        prompt: text put before each query, for a model that has another one for queries; default: as for the rows.
        fetch: see ``open_encoder``.
        trust_remote_code: run Python code that comes with a model.

    Raises:
        FileNotFoundError, NotADirectoryError: the encoder is missing.
        ValueError: it cannot be loaded, is another encoder, or no name is given and none is recorded.
    """
    recorded = "" if name else encoder_name(embeddings.store)
    name = name or recorded
    if not name:
        raise ValueError(
            f"{embeddings} does not record where encoder {embeddings.encoder[:12]} is; give it with `encoder`"
        )
    if recorded and not is_shipped(recorded) and (is_peer(recorded) or not Path(recorded).exists()):
        raise FileNotFoundError(
            f"{embeddings} was embedded with {recorded}, which is not an encoder folder on this machine; if you "
            "trust it, give it with `encoder`"
        )
    encoder, changed = open_encoder_of(
        embeddings.store,
        read_run(embeddings.store),
        name,
        prompt=prompt,
        fetch=None if recorded else fetch,
        trust_remote_code=trust_remote_code,
    )
    if changed:
        raise ValueError(f"{name} is not the encoder of {embeddings}: {changed}; give the right one with `encoder`")
    return encoder


def embed_queries(encoder: TextEncoder, texts: list[str], embeddings: Embeddings) -> Queries:
    """Embed queries; truncate and normalize their vectors like those of an output's rows. Raise ValueError if none of
    them has a token.
    """
    embedded = encoder.embed(pa.array(texts, pa.large_string()))
    empty = np.flatnonzero(embedded.num_tokens == 0).tolist()
    if len(empty) == len(texts):
        raise ValueError(
            "no query has a token, so their vectors are zero and no row is similar to them; give other queries"
        )
    unknown = np.flatnonzero((embedded.num_tokens > 0) & (embedded.num_unknown == embedded.num_tokens)).tolist()
    (column, *_), _ = finish(embedded.vectors, embeddings.query_settings)
    return Queries(texts, column.flatten().to_numpy().reshape(len(texts), -1), empty, unknown)


def seconds_of(embeddings: Embeddings, num_queries: int) -> float:
    """Return the estimated time of ``search`` in one process: reading, and one product of each query with each row."""
    return embeddings.rows * embeddings.width * (_SECONDS_A_NUMBER + num_queries / _MULTIPLICATIONS_PER_SECOND)


def search(embeddings: Embeddings, vectors: Vectors, top: int, run: RunTasks = map, num_tasks: int = 1) -> Hits:
    """Return the ``top`` rows with the largest cosines for each query, given as vectors float32 [Q, d]. ``run`` runs up
    to ``num_tasks`` tasks, each for some parts of the output, which do not change the result.

    Ties are in the order of the ids if these come from the input: integers by value, strings by code point. Generated
    ids, and equal ones, are in the order of the rows. A zero vector, of a query or of a row, matches nothing. A part
    that is missing or damaged is a FileNotFoundError or ValueError; so is a ``top`` below 1.
    """
    if top < 1:
        raise ValueError(f"`top` is {top}; it must be at least 1")
    if vectors.shape[1] != embeddings.width:
        raise ValueError(
            f"queries have {vectors.shape[1]} dimensions, but {embeddings} has vectors of {embeddings.width}; use "
            "the encoder of the output"
        )
    # One more than asked for shows whether rows that are left out tie with the last one.
    best = NearestRows(len(vectors), min(top + embeddings.has_input_ids, embeddings.rows))
    spans = _spans(embeddings, num_tasks)
    for hits in in_order(run, partial(_nearest, embeddings, vectors, best.top), spans):
        best.add(hits.query, hits.row, hits.cosine)
    return _ordered_by_id(embeddings, vectors, best, top, run, spans) if embeddings.has_input_ids else best.hits()


def _spans(embeddings: Embeddings, num_tasks: int) -> list[tuple[int, int]]:
    """Return the first row of each task, and the row after its last; a task reads whole parts."""
    num_parts = len(embeddings.starts) - 1
    count = min(num_tasks, num_parts)
    bounds = embeddings.starts[[num_parts * number // count for number in range(count + 1)]].tolist()
    return [(start, stop) for start, stop in pairwise(bounds) if start < stop]


def _nearest(embeddings: Embeddings, vectors: Vectors, top: int, span: tuple[int, int]) -> Hits:
    """Return the best ``top`` of some rows for each query, with ties in the order of the rows."""
    best = NearestRows(len(vectors), top)
    for query, row, cosine in _above_cuts(embeddings, vectors, best.cuts, top, span):
        best.add(query, row, cosine)
    return best.hits()


def _above_cuts(
    embeddings: Embeddings, vectors: Vectors, cuts: Callable[[float], Vectors], top: int, span: tuple[int, int]
) -> Iterator[tuple[Indices, RowNumbers, Vectors]]:
    """Yield query, row and cosine of rows that can be among the ``top``; ``cuts`` gives the least score of each."""
    queries, has_length = unit(vectors)
    error, rows_at_once = margin(embeddings.width), max(1, _TILE_VALUES // max(1, len(vectors)))
    for block in embeddings.blocks(*span):
        doing(f"searching: row {block.first:,} of {embeddings.rows:,}")
        for start in range(0, len(block.vectors), rows_at_once):
            rows = block.vectors[start : start + rows_at_once]
            scores = _products(queries, rows)
            if not has_length.all():
                scores[~has_length] = -np.inf
            query, row = candidates(scores, cuts(error), None, top, error)
            yield query, block.first + start + row, exact_cosines(vectors, query, rows, row)


def _ordered_by_id(
    embeddings: Embeddings, vectors: Vectors, best: "NearestRows", top: int, run: RunTasks, spans: list[tuple[int, int]]
) -> Hits:
    """Return the best rows, ties by id; ``best`` has them in input order, and one more if there are more."""
    hits = best.hits()
    nearest = _first_by_id(_with_ids(embeddings, hits.query, hits.cosine, hits.row), top)
    if best.top > top:
        last = best.cosines[:, top - 1]
        cut = np.flatnonzero((best.cosines[:, top] == last) & (last > -np.inf))  # queries with ties that are left out
        if len(cut):
            for ties in run(partial(_first_ties, embeddings, vectors[cut], last[cut], cut, top), spans):
                nearest = _first_by_id(pa.concat_tables([nearest, ties]), top)
    query, cosine, row = (nearest[name].to_numpy() for name in ("query", "cosine", "row"))
    return Hits(query, _ranks(query) + 1, row, cosine)


def _with_ids(embeddings: Embeddings, query: RowNumbers, cosine: Vectors, row: RowNumbers) -> pa.Table:
    ids = embeddings.take(row, [embeddings.id_column]).column(0).combine_chunks()
    ids = ids.storage if isinstance(ids, pa.ExtensionArray) else ids  # which can be ordered
    return pa.table({"query": query, "cosine": cosine, "id": ids, "row": row})


def _first_ties(
    embeddings: Embeddings, vectors: Vectors, cosines: Vectors, numbers: Indices, top: int, span: tuple[int, int]
) -> pa.Table:
    """Return the first rows by id that have the cosine of a query [Q]; ``numbers`` are those of the queries."""
    nearest = _with_ids(embeddings, np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.int64))
    for query, row in _ties(embeddings, vectors, cosines, span):
        more = _with_ids(embeddings, numbers[query], cosines[query], row)
        nearest = _first_by_id(pa.concat_tables([nearest, more]), top)
    return nearest


def _ties(
    embeddings: Embeddings, vectors: Vectors, cosines: Vectors, span: tuple[int, int]
) -> Iterator[tuple[Indices, RowNumbers]]:
    """Yield query and row of those of some rows that have the cosine of a query [Q], at most ``_TIES`` at a time."""
    waiting = [np.zeros((2, 0), np.int64)]
    for query, row, cosine in _above_cuts(embeddings, vectors, lambda error: cosines - error, embeddings.rows, span):
        is_tied = cosine == cosines[query]
        waiting.append(np.stack([query[is_tied], row[is_tied]]))
        if sum(ties.shape[1] for ties in waiting) >= _TIES:
            ties = np.concatenate(waiting, axis=1)
            for start in range(0, ties.shape[1], _TIES):
                yield tuple(ties[:, start : start + _TIES])
            waiting = waiting[:1]
    yield tuple(np.concatenate(waiting, axis=1))


def _first_by_id(hits: pa.Table, top: int) -> pa.Table:
    """Return the ``top`` first distinct rows of each query, ordered by query, cosine (descending), id and row."""
    keys = [("query", "ascending"), ("cosine", "descending"), ("id", "ascending"), ("row", "ascending")]
    ids = (
        hits["id"].cast(pa.float32()) if pa.types.is_float16(hits["id"].type) else hits["id"]
    )  # Arrow sorts no float16
    hits = hits.take(pc.sort_indices(hits.set_column(hits.schema.get_field_index("id"), "id", ids), keys))
    query, row = hits["query"].to_numpy(), hits["row"].to_numpy()
    is_new = np.ones(len(row), np.bool_)
    is_new[1:] = (query[1:] != query[:-1]) | (row[1:] != row[:-1])
    hits = hits.filter(pa.array(is_new))
    return hits.filter(pa.array(_ranks(query[is_new]) < top))


def _ranks(items: RowNumbers) -> RowNumbers:
    """Return the rank of each entry among those of its item, from 0; items are ascending."""
    return np.arange(len(items)) - np.searchsorted(items, items)


def _products(queries: Vectors, rows: Vectors) -> Vectors:
    """Return the cosines of unit vectors [Q, d] with rows [n, d], float32 [Q, n]; -inf for a row of zeros."""
    squares = _squares(rows)
    if _is_extreme(squares).any():
        rows = unit(rows)[0]
        squares = _squares(rows)
    scores = queries @ rows.T
    scores *= np.divide(1, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    if not squares.all():
        scores[:, squares == 0] = -np.inf
    return scores


def table_of(embeddings: Embeddings, queries: Queries, hits: Hits) -> pa.Table:
    """Return hits as a table: number and text of the query, rank, cosine, then the row's id and copied columns.

    A column of the output with one of these names gets the prefix ``output_``.
    """
    texts = pa.array(queries.texts, pa.string()).take(pa.array(hits.query))
    columns = {
        "query": pa.array(hits.query, pa.int32()),
        "query_text": texts,
        "rank": pa.array(hits.rank, pa.int32()),
        "cosine": pa.array(hits.cosine),
    }
    names = [embeddings.id_column, *embeddings.carried]
    for name, column in zip(names, embeddings.take(hits.row, names).columns, strict=True):
        new = name
        while new in columns or (new != name and new in names):
            new = f"output_{new}"
        columns[new] = column
    return pa.table(columns)


def margin(width: int) -> float:
    """Return a bound on the rounding error of a cosine of float32 vectors [width] that ``unit`` normalized.

    A sum of d products has an error of at most d · 2⁻²⁴ times the sum of their sizes, in any order (Higham 2002, 3.5);
    the product is such a sum, and each of the two lengths counts half because of its square root.
    """
    return (width + 16) * 2.0**-23


def unit(vectors: Vectors) -> tuple[Vectors, npt.NDArray[np.bool_]]:
    """Return vectors [n, d] divided by their lengths, and whether each has a length above zero [n]; zero vectors stay
    zero.
    """
    squares = _squares(vectors)
    extreme = _is_extreme(squares)
    if extreme.any():  # first divided by their largest number, so that no square overflows or vanishes
        vectors, rows = vectors.copy(), vectors[extreme]
        largest = np.abs(rows).max(axis=1, initial=0)[:, None]
        vectors[extreme] = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
        squares = _squares(vectors)
    scale = np.divide(1, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    return vectors * scale[:, None], squares > 0


def _squares(vectors: Vectors) -> Vectors:
    """Return the squared lengths, float32 [n]."""
    with np.errstate(over="ignore", under="ignore"):
        squares: Vectors = np.einsum("nd,nd->n", vectors, vectors)
    return squares


def _is_extreme(squares: Vectors) -> npt.NDArray[np.bool_]:
    return ~((squares > _TINY) & (squares < _HUGE))


def candidates(
    scores_RC: Vectors, row_cuts_R: Vectors, column_cuts_C: Vectors | None, top: int, error: float
) -> tuple[Indices, Indices]:
    """Return row and column of all approximate cosines that can be among the ``top`` of their row or of their column,
    if their error is at most ``error``; -inf is no score. The cuts are the smallest scores that count in each row or
    column; infinity: none does. Without ``column_cuts_C``, only rows count.
    """
    least = row_cuts_R if column_cuts_C is None else np.minimum(row_cuts_R, column_cuts_C.min())
    rows = np.flatnonzero(scores_RC.max(axis=1) >= least)  # a third of the time of a comparison of all scores
    if len(rows) < len(scores_RC):
        scores_RC, row_cuts_R = scores_RC[rows], row_cuts_R[rows]
    num_rows, num_columns = scores_RC.shape
    if column_cuts_C is None:
        few, column_cuts_C = _DENSE * top * num_rows, np.full(num_columns, np.inf, np.float32)
        flat = np.flatnonzero(scores_RC >= row_cuts_R[:, None])
        if len(flat) > few:
            row_cuts_R = np.maximum(row_cuts_R, _smallest_of_top(scores_RC, top, 1) - 2 * error)
            flat = np.flatnonzero(scores_RC >= row_cuts_R[:, None])
    else:
        few, flat = _DENSE * top * (num_rows + num_columns), _above(scores_RC, row_cuts_R, column_cuts_C)
        if len(flat) > few:
            row_cuts_R = np.maximum(row_cuts_R, _smallest_of_top(scores_RC, top, 1) - 2 * error)
            column_cuts_C = np.maximum(column_cuts_C, _smallest_of_top(scores_RC, top, 0) - 2 * error)
            flat = _above(scores_RC, row_cuts_R, column_cuts_C)
    row, column = np.divmod(flat, num_columns)
    scores = scores_RC.reshape(-1)[flat]
    counts = ((scores >= row_cuts_R[row]) | (scores >= column_cuts_C[column])) & (scores > -np.inf)
    return rows[row[counts]], column[counts]


def _above(scores_RC: Vectors, row_cuts_R: Vectors, column_cuts_C: Vectors) -> Indices:
    above = scores_RC >= row_cuts_R[:, None]
    above |= scores_RC >= column_cuts_C
    return np.flatnonzero(above)


def _smallest_of_top(scores: Vectors, top: int, axis: int) -> Vectors:
    """Return the ``top``-th largest score along an axis; -inf if there are fewer scores."""
    size = scores.shape[axis]
    if size < top:
        return np.full(scores.shape[1 - axis], -np.inf, np.float32)
    smallest: Vectors = np.partition(scores, size - top, axis=axis).take(size - top, axis=axis)
    return smallest


def exact_cosines(left: Vectors, left_rows: Indices, right: Vectors, right_rows: Indices) -> Vectors:
    """Return the cosines of n pairs of non-zero rows of ``left`` [m, d] and ``right`` [k, d], computed in float64
    independently of the batch, as float32.
    """
    cosines = np.empty(len(left_rows), np.float32)
    at_once = max(1, _EXACT_VALUES // max(1, left.shape[1]))
    for start in range(0, len(cosines), at_once):
        pairs = slice(start, start + at_once)
        a, b = left[left_rows[pairs]].astype(np.float64), right[right_rows[pairs]].astype(np.float64)
        lengths = np.sqrt((a * a).sum(axis=1)) * np.sqrt((b * b).sum(axis=1))
        cosines[pairs] = (a * b).sum(axis=1) / lengths
    return cosines


class NearestRows:
    """The best ``top`` rows of each item, with cosines of at least ``least``; ties are in the order of the rows."""

    def __init__(self, size: int, top: int, least: float = -np.inf) -> None:
        self.top = top
        self.cosines = np.full((size, top), -np.inf, np.float32)
        self.rows = np.full((size, top), -1, np.int64)
        self._least = np.float32(least)

    def cuts(self, error: float) -> Vectors:
        """Return the smallest approximate score that can still count for each item; infinity if no score can."""
        last = self.cosines[:, -1]
        cuts: Vectors = np.maximum(last, self._least) - np.float32(error)
        cuts[last >= 1] = np.inf  # a later row with the cosine 1 comes after these
        return cuts

    def add(self, items: Indices, rows: RowNumbers, cosines: Vectors) -> None:
        """Add rows with their exact cosines; for each item, they must have larger numbers than the rows added
        before.
        """
        last = self.cosines[items, -1]
        better = (cosines > last) & (cosines >= self._least)
        if not better.any():
            return
        touched, number = np.unique(items[better], return_inverse=True)
        numbers = np.concatenate([np.repeat(np.arange(len(touched)), self.top), number])
        all_cosines = np.concatenate([self.cosines[touched].reshape(-1), cosines[better]])
        all_rows = np.concatenate([self.rows[touched].reshape(-1), rows[better]])
        order = np.lexsort((all_rows, -all_cosines, numbers))
        order = order[_ranks(numbers[order]) < self.top]
        self.cosines[touched] = all_cosines[order].reshape(-1, self.top)
        self.rows[touched] = all_rows[order].reshape(-1, self.top)

    def hits(self) -> Hits:
        """Return the rows of all items."""
        query, rank = np.nonzero(self.cosines > -np.inf)
        return Hits(query, rank + 1, self.rows[query, rank], self.cosines[query, rank])
