"""Selections over all pairs: sizes by rank, samples, splits, equal bins, nested subsets.

Selections work on a few numbers per pair, in the order of the output, and return masks of the rows of each output.
Samples are drawn by the hash of the unordered pair and a seed, so they do not depend on how the input is split into
files and blocks.

The numbers are in files, which are read again for each step: a row takes 1 byte of memory for each mask. The first rows
of a random order need no sorting of all: a histogram of the draws gives the bin of the last one, and only the rows of
that bin are sorted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.io.atomic import SUCCESS
from paraembed.pairs.filters import effective_size, num_tokens
from paraembed.pairs.settings import FilterOptions
from paraembed.pairs.shards import Mask, check_shard, read_manifest
from paraembed.pairs.training_sets import set_of
from paraembed.text.hashing import hash_strings, mixed, pair_keys, text_column

Columns = Callable[[], Iterable[pa.Table]]
"""Function that reads the ``selection_columns`` of all rows, in tables of any length."""

_SPLIT_SEED = 801010  # fixed, so that a pair is in the same split in every size of PPDB and in every run
_SPLITS = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}
_BIN_BITS = 16  # of a draw: of 10⁹ rows, 15,000 are in one bin
_PIECE = 1 << 20
_FEWEST = 10  # P16 §5.2.1: "until there are fewer than 10 phrase pairs"
_FROM_CHUNK, _FROM_BIN = 5_000, 500  # P15 §3.1


@dataclass(frozen=True)
class Selected:
    """Rows of one output."""

    name: str  # folder below the output; empty for the output itself
    rows: Mask  # bool, in the order of ``select``'s columns
    counts: dict[str, int] = field(default_factory=dict)  # number of all other rows, by reason


def selects(options: FilterOptions) -> bool:
    """Return whether the options select anything other than all rows in one output."""
    chosen = set_of(options)
    sizes = chosen.size, options.top, options.sample, options.match_tokens_of
    return sizes != (None,) * 4 or options.nested_subsets != "none" or bool(options.leave_out) or chosen.is_split


def selection_columns(table: pa.Table, options: FilterOptions) -> pa.Table:
    """Return the columns of n rows for ``select``: ``key`` uint64; ``num_tokens``, ``effective_size`` and hashes of the
    texts, if used.
    """
    columns = {"key": pa.array(pair_keys(table))}
    if options.match_tokens_of is not None:
        columns["num_tokens"] = _pair_tokens(table)
    if set_of(options).effective_sizes:
        columns["effective_size"] = effective_size(table).cast(pa.int32())
    if set_of(options).chunks:
        columns |= {name: pa.array(hash_strings(text_column(table, name))) for name in ("first", "second")}
    return pa.table(columns)


def write_columns(parsed: Path, stays: Mask, options: FilterOptions, to: Path) -> None:
    """Write the ``selection_columns`` of the rows of a parsed file for which ``stays`` [n] is true."""
    nothing = pa.table({"first": pa.array([], pa.string()), "second": pa.array([], pa.string())})
    start = 0
    with pq.ParquetWriter(to, selection_columns(nothing, options).schema, use_dictionary=False) as writer:
        for batch in pq.ParquetFile(parsed).iter_batches(columns=["first", "second"]):
            rows = pa.table(batch).filter(pa.array(stays[start : start + len(batch)]))
            start += len(batch)
            writer.write_table(selection_columns(rows, options))


def read_columns(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield the rows of files of ``write_columns``, in order."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from map(pa.table, file.iter_batches())


def select(options: FilterOptions, columns: Columns, num_rows: int) -> Iterator[Selected]:
    """Yield the rows of each output, given the columns of all rows, best first, without duplicates.

    The steps, in this order: leave out pairs, split, resize (top, then sample, for each split), nested subsets. The
    outputs are one named ""; for a split into all parts ``train``, ``dev`` and ``test``; for nested subsets ``1-of-1``,
    ``1-of-2``, ``1-of-4``, …, each a subset of the previous one. Raise FileNotFoundError or ValueError if pair shards
    that an option names are missing, or have more tokens than the rows.
    """
    selected = Selected("", np.ones(num_rows, bool))
    if options.leave_out:
        keys = [pair_keys(table) for folder in options.leave_out for table in _pair_shards(Path(folder))]
        held_out = np.unique(np.concatenate([np.zeros(0, np.uint64), *keys]))
        others = [~np.isin(table["key"].to_numpy(), held_out) for table in columns()]
        selected = _keep(selected, _joined(others, bool), "left out")
    chosen = set_of(options)
    parts = _split(selected, columns, options.split) if chosen.is_split else [selected]
    parts = [_resize(part, options, columns) for part in parts]
    if options.nested_subsets == "none":
        yield from parts
    else:
        yield from _halve(parts[0], options, columns)


def select_masks(
    options: FilterOptions, columns: Columns, stays: Sequence[Mask]
) -> Iterator[tuple[Selected, list[Mask]]]:
    """Yield ``select``'s outputs, each with masks of the selected rows of every parsed file.

    ``columns`` reads those of the rows that stay, of all files in order.
    """
    staying = np.concatenate(stays)
    ends = np.cumsum([len(mask) for mask in stays])
    for selected in select(options, columns, int(staying.sum())):
        rows = staying.copy()
        rows[staying] = selected.rows
        yield selected, np.split(rows, ends[:-1])


def _joined(blocks: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *blocks])


def _keep(selected: Selected, rows: Mask, reason: str) -> Selected:
    """Return a selection of those of its rows that are in a mask; count the others."""
    rows = selected.rows & rows
    lost = int(selected.rows.sum()) - int(rows.sum())
    counts = {**selected.counts, reason: lost} if lost else selected.counts
    return Selected(selected.name, rows, counts)


def _split(selected: Selected, columns: Columns, split: str) -> list[Selected]:
    """Split into tenths by the hash of the unordered pair, so that no pair, in either order, is in two splits."""
    tenths = (mixed(table["key"].to_numpy(), _SPLIT_SEED) % np.uint64(10) for table in columns())
    tenth = _joined([block.astype(np.uint8) for block in tenths], np.uint8)
    names = _SPLITS if split == "all" else (split,)
    kept = {name: np.isin(tenth, list(_SPLITS[name])) for name in names}
    parts = [replace(_keep(selected, rows, "in another part of the split"), name=name) for name, rows in kept.items()]
    return parts if split == "all" else [replace(parts[0], name="")]


def _resize(selected: Selected, options: FilterOptions, columns: Columns) -> Selected:
    if set_of(options).chunks:
        return _to_be_rated(selected, options, columns)
    if set_of(options).effective_sizes:
        return _equal_bins(selected, options, columns)
    if options.top is not None:
        selected = _keep(selected, _first(selected.rows, options.top), "below the top")
    if options.sample is not None:
        selected = _keep(selected, _drawn(selected.rows, options.sample, options, columns), "not drawn")
    if options.match_tokens_of is not None:
        matched = _pair_shards(Path(options.match_tokens_of))
        wanted, start, have = sum(int(pc.sum(_pair_tokens(table)).as_py() or 0) for table in matched), 0, 0
        for table in columns():
            have += int(table["num_tokens"].to_numpy()[selected.rows[start : start + len(table)]].sum(dtype=np.int64))
            start += len(table)
        if have < wanted:
            raise ValueError(
                f"{selected.rows.sum():,} pairs have {have:,} tokens, but {options.match_tokens_of} has {wanted:,}; "
                "give more pairs, or smaller pair shards to match"
            )
        drawn = _drawn(selected.rows, max(1, wanted), options, columns, "num_tokens")
        selected = _keep(selected, drawn, "not drawn")
    return selected


def _equal_bins(selected: Selected, options: FilterOptions, columns: Columns) -> Selected:
    """Return the same number of pairs for each effective size: the first ones, or a random ``sample``."""
    chosen = set_of(options)
    last = chosen.effective_sizes[-1]
    clipped = [np.minimum(table["effective_size"].to_numpy(), last).astype(np.uint8) for table in columns()]
    sizes = _joined(clipped, np.uint8)
    bins = [selected.rows & (sizes == size) for size in chosen.effective_sizes]
    if options.top is not None:
        bins = [_first(rows, options.top // len(bins)) for rows in bins]
    wanted = options.sample or options.top or chosen.size or 0
    each = min(wanted // len(bins), *(int(rows.sum()) for rows in bins))
    if options.sample is not None:
        kept = [_drawn(rows, each, options, columns) for rows in bins]
    else:
        kept = [_first(rows, each) for rows in bins]
    return _keep(selected, np.logical_or.reduce(kept), "bin of its effective size is full")


def _to_be_rated(selected: Selected, options: FilterOptions, columns: Columns) -> Selected:
    """Return pairs as Annotated-PPDB was drawn before it was rated (P15 §3.1): of each chunk 5,000 pairs, of these 500
    of each effective size, and of all these the first ones of a random order in which no text is repeated.

    The paper's chunks have 1M lines of PPDB XXL each; here the pairs that passed the filters are cut into equal ones.
    """
    chosen = set_of(options)
    rows = np.flatnonzero(selected.rows if options.top is None else _first(selected.rows, options.top))
    table = pa.concat_tables(columns())
    draws = mixed(table["key"].to_numpy() ^ mixed(np.array([options.sample_seed], np.uint64)))
    sizes = np.minimum(table["effective_size"].to_numpy(), chosen.effective_sizes[-1])
    bins = []
    for chunk in np.array_split(rows, chosen.chunks):
        drawn = chunk[np.argsort(draws[chunk], kind="stable")[:_FROM_CHUNK]]
        bins += [drawn[sizes[drawn] == size][:_FROM_BIN] for size in chosen.effective_sizes]
    candidates = np.concatenate(bins)
    candidates = candidates[np.argsort(mixed(draws[candidates]), kind="stable")]
    sides = [table[name].to_numpy()[candidates].tolist() for name in ("first", "second")]
    kept, taken = np.zeros(len(table), bool), set[int]()
    wanted = options.sample or chosen.size or 0
    for row, *texts in zip(candidates.tolist(), *sides, strict=True):
        if len(taken) < 2 * wanted and taken.isdisjoint(texts):
            kept[row] = True
            taken.update(texts)
    return _keep(selected, kept, "not drawn")


def _first(rows: Mask, number: int) -> Mask:
    """Return the mask of the first ``number`` rows of a mask."""
    kept = rows.copy()
    for start in range(0, len(kept), _PIECE):
        piece = kept[start : start + _PIECE]
        piece[np.flatnonzero(piece)[number:]] = False
        number -= int(piece.sum())
    return kept


def _drawn(rows: Mask, wanted: int, options: FilterOptions, columns: Columns, weight: str | None = None) -> Mask:
    """Return the mask of rows drawn at random from a mask until their weights (1, if None) reach ``wanted``."""
    kept = np.zeros(len(rows), bool)
    if not wanted:
        return kept

    def draws() -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
        start = 0
        for table in columns():
            places = np.flatnonzero(rows[start : start + len(table)])
            order = mixed(table["key"].to_numpy()[places] ^ mixed(np.array([options.sample_seed], np.uint64)))
            weights = np.ones(len(places), np.int64) if weight is None else table[weight].to_numpy()[places]
            yield start + places, order, weights.astype(np.int64)
            start += len(table)

    shift, sums = np.uint64(64 - _BIN_BITS), np.zeros(1 << _BIN_BITS)
    for _, order, weights in draws():
        sums += np.bincount((order >> shift).astype(np.int64), weights, len(sums))
    ends = np.concatenate(([0], np.cumsum(sums)))
    last = int(np.searchsorted(ends[1:], wanted))
    edge = []
    for places, order, weights in draws():
        bins = (order >> shift).astype(np.int64)
        kept[places[bins < last]] = True
        edge.append([column[bins == last] for column in (places, order, weights)])
    if last < len(sums):
        places, order, weights = map(np.concatenate, zip(*edge, strict=True))
        ranked = np.argsort(order, kind="stable")
        reached = np.searchsorted(ends[last] + np.cumsum(weights[ranked]), wanted)
        kept[places[ranked[: int(reached) + 1]]] = True
    return kept


def _halve(selected: Selected, options: FilterOptions, columns: Columns) -> Iterator[Selected]:
    """Yield nested subsets of n, n/2, n/4, … rows, rounded down, until one has fewer than 10."""
    rows, whole = selected.rows, int(selected.rows.sum())
    for level in range(max(1, whole.bit_length())):
        size = whole >> level
        is_ordered = options.nested_subsets == "ordered"
        rows = _first(rows, size) if is_ordered else _drawn(rows, size, options, columns)
        yield replace(_keep(selected, rows, "not in the subset"), name=f"1-of-{1 << level}")
        if size < _FEWEST:
            break


def _pair_tokens(table: pa.Table) -> pa.Int32Array:
    return pc.add(*(num_tokens(text_column(table, name)) for name in ("first", "second")))


def _pair_shards(folder: Path) -> Iterator[pa.Table]:
    """Yield the texts of the pair shards in a folder, several thousand pairs at a time."""
    if not (folder / SUCCESS).is_file():
        raise FileNotFoundError(f"{folder} does not contain finished pair shards; write them with jobs/shard.py")
    for shard in read_manifest(folder)["shards"]:
        check_shard(folder / shard["name"], None)
        for batch in pq.ParquetFile(folder / shard["name"]).iter_batches(columns=["first", "second"]):
            yield pa.table(batch)
