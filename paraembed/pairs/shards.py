"""Pair shards: schema, plan, write, read, check and count.

Pair files become pair shards in three steps, each a function on files:

1. ``parse.parse_source``: one input file → its tokenized pairs (Parquet), counts, and examples of rejected rows;
2. ``deduplicate.find_repeats``: the rows, over all files, that repeat an unordered pair;
3. ``write_shard``: an equal number of the remaining rows, in the order of the input files and of their rows.

The result depends only on the input files and the settings, not on the number of processes. The counts of each block of
rows (text lengths, words, words without a vector) are tables, which ``merge_counts`` adds up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.io.atomic import SUCCESS, write_file
from paraembed.io.fingerprint import read_json, sha256_of
from paraembed.io.lines import string_array
from paraembed.io.parquet import open_parquet
from paraembed.options import Count, checked
from paraembed.pairs.schema import PAIRS, SourceReport
from paraembed.pairs.settings import ShardSettings
from paraembed.text.hashing import text_column
from paraembed.text.ragged import string_bytes

LENGTHS = pa.schema([("text", pa.string()), ("tokens", pa.int64()), ("count", pa.int64())])
WORDS = pa.schema([("word", pa.string()), ("count", pa.int64())])


@dataclass(frozen=True)
class Counts:
    """Counts over pairs."""

    lengths: pa.Table  # schema ``LENGTHS``: number of pairs by tokens of ``first``, ``second``, and the ``longer`` text
    words: pa.Table  # schema ``WORDS``: number of tokens of both texts by word


def count_pairs(table: pa.Table) -> Counts:
    """Count n pairs, given as string columns ``first`` and ``second`` with at least one token each, separated by one
    space.

    The rows of the counts are unordered; ``merge_counts`` sorts them.
    """
    if not table.num_rows:
        return merge_counts([])
    sides, words = dict[str, npt.NDArray[np.int64]](), list[pa.Table]()
    for name in ("first", "second"):  # both together could have more bytes than a string array
        tokens, sides[name] = _tokens_with_space(text_column(table, name))
        counts = pc.value_counts(tokens)
        # A word can have two values: with the space after it, and without at the end of a text.
        values = pc.ascii_rtrim(counts.field("values"), " ")
        words.append(pa.Table.from_arrays([values, counts.field("counts")], schema=WORDS))
    sides["longer"] = np.maximum(*sides.values())
    lengths = pa.concat_tables([_histogram(name, side) for name, side in sides.items()])
    return Counts(lengths, _added(pa.concat_tables(words)))


def _tokens_with_space(texts: pa.StringArray) -> tuple[pa.StringArray, npt.NDArray[np.int64]]:
    """Return the tokens [T], each with the space that follows it, and the number of tokens of each text, int64 [n]."""
    # The tokens are slices of the texts' bytes, so nothing is copied. No text is empty or ends with a space.
    octets, starts_of_texts = string_bytes(texts)
    begins = np.empty(len(octets) + 1, bool)
    np.equal(octets, ord(" "), out=begins[1:])
    begins[starts_of_texts] = True
    starts = np.flatnonzero(begins)
    last_tokens = np.flatnonzero(octets[starts[1:] - 1] != ord(" "))
    return string_array(np.diff(starts), octets), np.diff(last_tokens, prepend=-1)


def _histogram(name: str, lengths: npt.NDArray[np.int64]) -> pa.Table:
    counts = np.bincount(lengths)
    tokens = np.flatnonzero(counts)
    return pa.Table.from_arrays(
        [pa.repeat(name, len(tokens)), pa.array(tokens), pa.array(counts[tokens])], schema=LENGTHS
    )


def merge_counts(parts: Sequence[Counts]) -> Counts:
    """Return the sum of counts in an order that does not depend on the parts: lengths ascending, words by count."""
    lengths = _added(pa.concat_tables([LENGTHS.empty_table(), *(part.lengths for part in parts)]))
    words = _added(pa.concat_tables([WORDS.empty_table(), *(part.words for part in parts)]))
    return Counts(
        lengths.sort_by([("text", "ascending"), ("tokens", "ascending")]),
        words.sort_by([("count", "descending"), ("word", "ascending")]),
    )


def _added(table: pa.Table) -> pa.Table:
    names = table.column_names[:-1]
    return table.group_by(names).aggregate([("count", "sum")]).rename_columns(table.column_names)


def length_histogram(counts: Counts) -> dict[str, dict[str, int]]:
    """Return the number of pairs by number of tokens, for JSON: {"first": {"1": 20}, "second": …, "longer": …}."""
    histogram: dict[str, dict[str, int]] = {"first": {}, "second": {}, "longer": {}}
    for row in counts.lengths.to_pylist():
        histogram[row["text"]][str(row["tokens"])] = row["count"]
    return histogram


def without_vector(counts: Counts, vocabulary: pa.StringArray) -> dict[str, Any]:
    """Return how many words of the pairs are not in the vocabulary [V] (P16 §5.1).

    For ``words`` (distinct) and ``tokens`` (all occurrences): the total, the number without a vector, and their
    fraction.
    """
    missing = pc.invert(pc.is_in(counts.words["word"], value_set=vocabulary))
    lost = counts.words.filter(missing)
    tokens, lost_tokens = (int(pc.sum(table["count"]).as_py() or 0) for table in (counts.words, lost))
    return {
        name: {"all": total, "without_vector": few, "share": few / total if total else 0.0}
        for name, total, few in (("words", len(counts.words), len(lost)), ("tokens", tokens, lost_tokens))
    }


FORMAT = "paraembed-pairs-1"
VOCABULARY = "vocabulary.parquet"
"""File with each token of the pairs and its count, in columns ``word`` and ``count``."""
SUBSETS_FORMAT = "paraembed-pair-subsets-1"
"""Format of a folder whose subfolders are pair shards."""

Mask = npt.NDArray[np.bool_]


class _Entry(TypedDict):
    name: str
    rows: NotRequired[Count]
    sha256: NotRequired[str]


class _Manifest(TypedDict):
    shards: list[_Entry]


class _Counts(TypedDict):
    kept: Count


class _SourceCounts(TypedDict):
    pairs: Count
    duplicates: Count


class _Settings(TypedDict):
    halvings: NotRequired[str | None]
    format: NotRequired[str]
    tokeniser: NotRequired[str]


class _AllCounts(_Counts):
    read: Count
    duplicates: Count
    reasons: dict[str, Count]


class FinishedManifest(TypedDict):
    """Fields of a finished output's manifest that jobs/shard.py reads."""

    counts: _AllCounts
    subsets: NotRequired[dict[str, Count]]


class TrainingManifest(TypedDict):
    """Fields of a manifest that a training reads."""

    counts: _Counts
    sources: NotRequired[dict[str, _SourceCounts]]
    settings: NotRequired[_Settings]


GROUP_ROWS = 65_536
REPEATING = ["relation", "source"]
"""Columns that use a Parquet dictionary; texts do not repeat, so a dictionary would cost time and 20 % more bytes."""


def schema_of(settings: ShardSettings) -> pa.Schema:
    """Return the schema of the shards: ``PAIRS``, then features and alignment if the settings ask for them."""
    more = [pa.field(name, pa.float32()) for name in settings.features]
    more += [pa.field("alignment", pa.string())] * settings.alignment
    return pa.schema([*PAIRS, *more])


@dataclass(frozen=True)
class ShardPlan:
    """Rows of one shard: rows ``start`` to ``stop`` - 1 of the kept rows in the given row groups."""

    name: str
    groups: list[tuple[int, int]]  # (number of the parsed file, row group) in order
    start: int  # first row, counted over the kept rows in ``groups``
    stop: int  # the row after the last


def plan_shards(reports: Sequence[SourceReport], stays: Sequence[Mask], rows_per_shard: int) -> list[ShardPlan]:
    """Split the kept rows of the parsed files into equal shards, whose sizes differ by at most one row."""
    groups, counts = [], []
    for number, (report, staying) in enumerate(zip(reports, stays, strict=True)):
        ends = np.cumsum(report.groups, dtype=np.int64).tolist()
        groups += [(number, group) for group in range(len(ends))]
        counts += [int(staying[end - rows : end].sum()) for end, rows in zip(ends, report.groups, strict=True)]
    ends_of_groups = np.cumsum(counts, dtype=np.int64)
    total = sum(counts)
    count = -(-total // rows_per_shard)
    plans = []
    for shard in range(count):
        start, stop = total * shard // count, total * (shard + 1) // count
        first, last = int(np.searchsorted(ends_of_groups, start, "right")), int(np.searchsorted(ends_of_groups, stop))
        before = int(ends_of_groups[first]) - counts[first]
        name = f"pairs-{shard:05d}-of-{count:05d}.parquet"
        plans.append(ShardPlan(name, groups[first : last + 1], start - before, stop - before))
    return plans


def write_shard(
    plan: ShardPlan,
    parsed: Sequence[Path],
    stays: Mapping[int, Mask],
    folder: Path,
    counts: Path,
    first_ranks: Sequence[int] = (),
) -> dict[str, Any]:
    """Write one shard to ``folder``, and its counts to the folder ``counts``; return its entry in the manifest.

    ``stays`` maps the number of a parsed file to a mask of its kept rows; ``first_ranks`` holds the first rank of each
    parsed file, by default 0. The entry has name, rows and sha256.
    """
    tables = []
    for number, group in plan.groups:
        status = parsed[number].stat()
        metadata, starts = _footer(parsed[number], (status.st_ino, status.st_size, status.st_mtime_ns))
        start = starts[group]
        with pq.ParquetFile(parsed[number], metadata=metadata) as file:
            table = file.read_row_group(group)
        if first_ranks and first_ranks[number]:
            column = table.column_names.index("rank")
            table = table.set_column(column, table.schema.field(column), pc.add(table["rank"], first_ranks[number]))
        tables.append(table.filter(pa.array(stays[number][start : start + table.num_rows])))
    table = pa.concat_tables(tables).slice(plan.start, plan.stop - plan.start).combine_chunks()
    digest = write_file(
        folder / plan.name,
        lambda file: pq.write_table(
            table, file, compression="zstd", use_dictionary=REPEATING, row_group_size=GROUP_ROWS
        ),
    )
    counted = count_pairs(table)
    counts.mkdir(exist_ok=True)
    for name, counted_table in (("lengths", counted.lengths), ("words", counted.words)):
        pq.write_table(counted_table, counts / name)
    return {"name": plan.name, "rows": table.num_rows, "sha256": digest}


@lru_cache(maxsize=4)
def _footer(path: Path, version: tuple[int, int, int]) -> tuple[pq.FileMetaData, list[int]]:  # noqa: ARG001 - part of the key
    """Return footer and first row of each row group, read once a process: once a row group would be quadratic."""
    metadata = pq.read_metadata(path)
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return metadata, [0, *np.cumsum(rows).tolist()]


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of pair shards; raise OSError or ValueError unless its shards are files of the folder."""
    manifest: dict[str, Any] = read_json(folder / "manifest.json", _Manifest)
    for shard in manifest["shards"]:
        if Path(shard["name"]).name != shard["name"]:
            raise ValueError(
                f"{folder}/manifest.json names a file outside its folder: {shard['name'][:80]!r}; shard the pairs again"
            )
    return manifest


def has_ptb_tokens(manifest: Mapping[str, Any]) -> bool:
    """Return whether a manifest says that ``ptb-v1`` tokenized all texts; False if the manifest does not decide it."""
    settings = manifest.get("settings") or {}
    tokenizer, form = settings.get("tokeniser"), settings.get("format")
    if tokenizer != "auto":
        return bool(tokenizer == "ptb-v1")
    sources = manifest.get("sources")
    if form == "auto" and sources:  # of PPDB files, sources with pairs have a version; word lists are never detected
        return not any("ppdb_version" in source for source in sources.values())
    return form not in {"auto", "ppdb", "words", None}


def check_shard(path: Path, num_rows: int | None) -> int:
    """Return the number of rows of a pair shard; raise ValueError unless it is one of ``num_rows`` rows."""
    with open_parquet(path) as file:
        schema, rows = file.schema_arrow, int(file.metadata.num_rows)
    for name in ("first", "second"):
        column = schema.get_field_index(name)
        if column < 0 or (rows and schema.field(column).type not in {pa.string(), pa.large_string()}):
            raise ValueError(
                f"{path} is not a pair shard, because it has no column {name!r} of strings; shard the pairs again"
            )
    if num_rows not in {None, rows}:
        raise ValueError(f"{path} has {rows} rows, but the manifest says {num_rows}; shard the pairs again")
    return rows


def load_counts(folder: Path) -> Counts:
    """Load the counts that ``write_shard`` wrote."""
    return Counts(*(pq.read_table(folder / name) for name in ("lengths", "words")))


def read_pair_manifest(folder: Path, *, for_training: bool = True) -> dict[str, Any]:
    """Return the manifest of finished pair shards.

    Args:
        folder: folder of the shards.
        for_training: check that the counts that a training needs are present and add up.

    Raises:
        FileNotFoundError, ValueError: the folder does not contain finished pair shards, or a shard was changed.

    Example:
        >>> manifest = read_pair_manifest(Path("shards"))
        >>> manifest["counts"]["kept"], len(manifest["shards"])
        (2, 1)
    """
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; expected a folder of pair shards, written by jobs/shard.py")
    if not (folder / SUCCESS).is_file():
        raise ValueError(
            f"{folder} does not contain finished pair shards (no {SUCCESS}); run jobs/shard.py to write or complete "
            "them"
        )
    where = f"{folder}/manifest.json"
    form = read_json(folder / "manifest.json", dict[str, Any]).get("format")
    if form != FORMAT:
        raise ValueError(f"{folder} has the format {str(form)[:80]!r}; expected {FORMAT!r}, written by jobs/shard.py")
    if read_json(folder / SUCCESS) != {"manifest_sha256": sha256_of(folder / "manifest.json")}:
        raise ValueError(f"{where} was changed after it was written; shard the pairs again")
    manifest = read_manifest(folder)
    for shard in manifest["shards"]:
        if sha256_of(folder / shard["name"]) != shard.get("sha256"):
            raise ValueError(f"{folder / shard['name']} differs from its digest in the manifest; shard the pairs again")
        shard["rows"] = check_shard(folder / shard["name"], shard.get("rows"))
    if for_training:
        kept = checked(TrainingManifest, manifest, where)["counts"]["kept"]
        num_rows = sum(shard["rows"] for shard in manifest["shards"])
        if manifest["shards"] and num_rows != kept:
            raise ValueError(
                f"{where}: counts.kept is {kept}, but the shards have {num_rows} rows; shard the pairs again"
            )
    return manifest
