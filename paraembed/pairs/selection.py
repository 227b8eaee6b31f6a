"""Selections over all pairs: sizes by rank, samples, splits, equal bins, nested subsets.

Selections work on a few numbers per pair, in the order of the output, and return the rows of each output. Samples are
drawn by the hash of the unordered pair and a seed, so they do not depend on how the input is split into files and
blocks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from paraembed.text.hashing import mixed, pair_keys, text_column

Rows = npt.NDArray[np.int64]

_SPLIT_SEED = 801010  # fixed, so that a pair is in the same split in every size of PPDB and in every run
_SPLITS = {"train": range(8), "dev": range(8, 9), "test": range(9, 10)}
_FEWEST = 10  # P16 §5.3: "until there are fewer than 10 phrase pairs"


@dataclass(frozen=True)
class Selected:
    """Rows of one output."""

    name: str  # folder below the output; empty for the output itself
    rows: Rows  # int64, ascending row numbers, in the order of ``select``'s columns
    counts: dict[str, int] = field(default_factory=dict)  # number of all other rows, by reason


def selects(options: FilterOptions) -> bool:
    """Return whether the options select anything other than all rows in one output."""
    chosen = set_of(options)
    sizes = chosen.size, options.top, options.sample, options.match_tokens_of
    return sizes != (None,) * 4 or options.nested_subsets != "none" or bool(options.leave_out) or chosen.is_split


def selection_columns(table: pa.Table, options: FilterOptions) -> pa.Table:
    """Return the columns of n rows for ``select``: ``key`` uint64; ``num_tokens`` and ``effective_size`` if used."""
    columns = {"key": pa.array(pair_keys(table))}
    if options.match_tokens_of is not None:
        columns["num_tokens"] = _pair_tokens(table)
    if set_of(options).effective_sizes:
        columns["effective_size"] = effective_size(table).cast(pa.int32())
    return pa.table(columns)


def selection_table(parsed: Path, stays: npt.NDArray[np.bool_], options: FilterOptions) -> pa.Table:
    """Return the ``selection_columns`` of the rows of a parsed file for which ``stays`` [n] is true."""
    nothing = pa.table({"first": pa.array([], pa.string()), "second": pa.array([], pa.string())})
    tables, start = [selection_columns(nothing, options)], 0
    for batch in pq.ParquetFile(parsed).iter_batches(columns=["first", "second"]):
        rows = pa.table(batch).filter(pa.array(stays[start : start + len(batch)]))
        start += len(batch)
        tables.append(selection_columns(rows, options))
    return pa.concat_tables(tables)


def select(options: FilterOptions, columns: pa.Table) -> list[Selected]:
    """Return the rows of each output, given the ``selection_columns`` of all rows, best first, without duplicates.

    The steps, in this order: leave out pairs, split, resize (top, then sample, for each split), nested subsets. The
    outputs are one named ""; for a split into all parts ``train``, ``dev`` and ``test``; for nested subsets ``1-of-1``,
    ``1-of-2``, ``1-of-4``, …, each a subset of the previous one. Raise FileNotFoundError or ValueError if pair shards
    that an option names are missing, or have more tokens than the rows.
    """
    keys = columns["key"].to_numpy()
    selected = Selected("", np.arange(len(keys)))
    if options.leave_out:
        held_out = np.unique(np.concatenate([_keys_of(Path(folder)) for folder in options.leave_out]))
        selected = _keep(selected, np.flatnonzero(~np.isin(keys, held_out)), "left out")
    chosen = set_of(options)
    parts = _split(selected, keys, options.split) if chosen.is_split else [selected]
    parts = [_resize(part, options, columns) for part in parts]
    if options.nested_subsets == "none":
        return parts
    rows = parts[0].rows
    return list(_halve(parts[0], rows if options.nested_subsets == "ordered" else _drawn(rows, options, columns)))


def select_masks(options: FilterOptions, columns: pa.Table, stays: Sequence[Mask]) -> list[tuple[Selected, list[Mask]]]:
    """Return ``select``'s outputs, each with masks of the selected rows of every parsed file.

    ``columns`` are the ``selection_columns`` of the rows that stay, of all files in order.
    """
    kept = np.flatnonzero(np.concatenate(stays))
    ends = np.cumsum([len(mask) for mask in stays])
    selections = []
    for selected in select(options, columns.combine_chunks()):
        rows = np.zeros(ends[-1], bool)
        rows[kept[selected.rows]] = True
        selections.append((selected, np.split(rows, ends[:-1])))
    return selections


def _keep(selected: Selected, rows: Rows, reason: str) -> Selected:
    """Return a selection of some rows of another, given in any order; count the others."""
    lost = len(selected.rows) - len(rows)
    counts = {**selected.counts, reason: lost} if lost else selected.counts
    return Selected(selected.name, np.sort(rows), counts)


def _split(selected: Selected, keys: npt.NDArray[np.uint64], split: str) -> list[Selected]:
    """Split into tenths by the hash of the unordered pair, so that no pair, in either order, is in two splits."""
    tenth = mixed(keys[selected.rows], _SPLIT_SEED) % np.uint64(10)
    names = _SPLITS if split == "all" else (split,)
    kept = {name: selected.rows[np.isin(tenth, list(_SPLITS[name]))] for name in names}
    parts = [replace(_keep(selected, rows, "in another part of the split"), name=name) for name, rows in kept.items()]
    return parts if split == "all" else [replace(parts[0], name="")]


def _resize(selected: Selected, options: FilterOptions, columns: pa.Table) -> Selected:
    if set_of(options).effective_sizes:
        return _equal_bins(selected, options, columns)
    if options.top is not None:
        selected = _keep(selected, selected.rows[: options.top], "below the top")
    if options.sample is not None:
        selected = _keep(selected, _drawn(selected.rows, options, columns)[: options.sample], "not drawn")
    if options.match_tokens_of is not None:
        drawn = _drawn(selected.rows, options, columns)
        sums = np.cumsum(columns["num_tokens"].to_numpy()[drawn], dtype=np.int64)
        wanted = _tokens_of(Path(options.match_tokens_of))
        have = int(sums[-1]) if len(sums) else 0
        if have < wanted:
            raise ValueError(
                f"{len(drawn):,} pairs have {have:,} tokens, but {options.match_tokens_of} has {wanted:,}; give more "
                "pairs, or smaller pair shards to match"
            )
        selected = _keep(selected, drawn[: int(np.searchsorted(sums, wanted)) + 1], "not drawn")
    return selected


def _equal_bins(selected: Selected, options: FilterOptions, columns: pa.Table) -> Selected:
    """Return the same number of pairs for each effective size: the first ones, or a random ``sample``."""
    chosen = set_of(options)
    sizes = columns["effective_size"].to_numpy()[selected.rows]
    last = chosen.effective_sizes[-1]
    bins = [selected.rows[np.minimum(sizes, last) == size] for size in chosen.effective_sizes]
    if options.top is not None:
        bins = [rows[: options.top // len(bins)] for rows in bins]
    if options.sample is not None:
        bins = [_drawn(rows, options, columns) for rows in bins]
    wanted = options.sample or options.top or chosen.size or 0
    each = min(wanted // len(bins), *map(len, bins))
    return _keep(selected, np.concatenate([rows[:each] for rows in bins]), "bin of its effective size is full")


def _drawn(rows: Rows, options: FilterOptions, columns: pa.Table) -> Rows:
    """Return rows in a random order decided by the seed; equal pairs keep their order."""
    order = mixed(columns["key"].to_numpy()[rows] ^ mixed(np.array([options.sample_seed], np.uint64)))
    drawn: Rows = rows[np.argsort(order, kind="stable")]
    return drawn


def _halve(selected: Selected, ordered: Rows) -> Iterator[Selected]:
    """Yield nested subsets of n, n/2, n/4, … rows, rounded down, until one has fewer than 10."""
    for level in range(max(1, len(ordered).bit_length())):
        size = len(ordered) >> level
        yield replace(_keep(selected, ordered[:size], "not in the subset"), name=f"1-of-{1 << level}")
        if size < _FEWEST:
            break


def _pair_tokens(table: pa.Table) -> pa.Int32Array:
    return pc.add(*(num_tokens(text_column(table, name)) for name in ("first", "second")))


def _tokens_of(folder: Path) -> int:
    return sum(int(pc.sum(_pair_tokens(table)).as_py() or 0) for table in _pair_shards(folder))


def _keys_of(folder: Path) -> npt.NDArray[np.uint64]:
    return np.concatenate([np.zeros(0, np.uint64), *map(pair_keys, _pair_shards(folder))])


def _pair_shards(folder: Path) -> Iterator[pa.Table]:
    """Yield the texts of the pair shards in a folder, several thousand pairs at a time."""
    if not (folder / SUCCESS).is_file():
        raise FileNotFoundError(f"{folder} does not contain finished pair shards; write them with jobs/shard.py")
    for shard in read_manifest(folder)["shards"]:
        check_shard(folder / shard["name"], None)
        for batch in pq.ParquetFile(folder / shard["name"]).iter_batches(columns=["first", "second"]):
            yield pa.table(batch)
