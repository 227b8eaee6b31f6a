"""From pair files to pair shards in three steps, each a plain function on files.

1. ``parse_source``: one input file → its tokenised pairs (Parquet), counts, and a sample of what was refused;
2. ``find_duplicates``: the rows, over all files, that repeat an unordered pair;
3. ``write_shard``: an equal share of the rows that stay, in the order of the input files and of their rows.

What comes out depends on the input files and the settings alone, not on how many processes take part.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.data.delimited import Role
from paraembed.data.pairs import Format, read_pairs
from paraembed.data.parsed import Block, refuse
from paraembed.data.schemas import PAIRS
from paraembed.data.trees import read_trees
from paraembed.files import write_file
from paraembed.text import check_tokeniser, tokenise

FORMAT = "paraembed-pairs-1"
_GROUP_ROWS = 65_536
_SAMPLED = 20  # refused rows shown, a reason and file
_BUCKET_ROWS = 4_000_000  # pairs whose keys are compared at a time: about 1 GB


@dataclass(frozen=True)
class ShardSettings:
    """What decides the rows of the shards, apart from the input files."""

    format: Format = "auto"
    """Format of the input: auto looks at each file's name and first line."""
    columns: tuple[Role, ...] = ()
    """What the columns of TSV or CSV input are, in order. Default: by the header, else first second."""
    tokeniser: str = "auto"
    """ptb-v1, space, or auto: space for PPDB (tokenised already), ptb-v1 for the rest."""
    remove: tuple[str, ...] = ()
    """Strings that are cut out of the texts, such as the marker <::::> of WikiSplit."""
    rows_per_shard: int = 250_000
    """Most rows of a shard file, 1 to 1,000,000."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        if self.tokeniser != "auto":
            check_tokeniser(self.tokeniser)
        if not 1 <= self.rows_per_shard <= 1_000_000:
            raise ValueError(f"rows_per_shard is {self.rows_per_shard}; allowed: 1 to 1,000,000")
        if "" in self.remove:
            raise ValueError("remove holds an empty string; give the strings to cut out, or none")


@dataclass(frozen=True)
class SourceReport:
    """What became of one input file.

    Attributes:
        read: rows, without a header.
        parsed: rows that are pairs, before duplicates are removed.
        refused: the other rows, by reason.
        sample: up to 20 refused rows a reason: file, line from 1, reason, text.
        groups: first rank and rows of each row group of the parsed file.
    """

    read: int
    parsed: int
    refused: dict[str, int]
    sample: list[dict[str, Any]] = field(default_factory=list)
    groups: list[tuple[int, int]] = field(default_factory=list)


def parse_source(path: Path, source: str, settings: ShardSettings, out: Path) -> SourceReport:
    """Parse and tokenise one input file into ``out`` (Parquet, schema ``PAIRS``), streaming.

    Refused, after what the format refuses: a text without tokens, a pair of two equal texts, and a tree that is not
    over the tokens of its text (``paraembed.data.trees``).

    Args:
        path: the input file.
        source: what the column ``source`` says.
        settings: how to read it.
        out: where the parsed pairs go.

    Raises:
        OSError, ValueError: as ``read_pairs``.
    """
    report = SourceReport(0, 0, {})
    totals = {"read": 0, "parsed": 0}
    seen: dict[str, int] = {}

    def write(file: Any) -> None:
        with pq.ParquetWriter(file, PAIRS, compression="zstd") as writer:
            for block in read_pairs(path, settings.format, settings.columns):
                table, refused = _tokenised(block, source, _tokeniser(block, settings), settings.remove)
                totals["read"] += len(block.raw)
                totals["parsed"] += table.num_rows
                _count(source, block, refused, seen, report.sample)
                for start in range(0, table.num_rows, _GROUP_ROWS):
                    group = table.slice(start, _GROUP_ROWS)
                    writer.write_table(group)
                    report.groups.append((group["rank"][0].as_py(), group.num_rows))

    write_file(out, write)
    return SourceReport(**totals, refused=seen, sample=report.sample, groups=report.groups)


def _tokeniser(block: Block, settings: ShardSettings) -> str:
    if settings.tokeniser != "auto":
        return settings.tokeniser
    return "space" if block.form == "ppdb" else "ptb-v1"


def _tokenised(block: Block, source: str, tokeniser: str, remove: Sequence[str]) -> tuple[pa.Table, pa.StringArray]:
    """Rows of a block that are pairs (schema ``PAIRS``), and why each of the others is not [n]."""
    pairs = block.pairs
    texts, bad_trees = [], []
    for text, tree in ((pairs.first, pairs.first_tree), (pairs.second, pairs.second_tree)):
        for string in remove:
            text = pc.replace_substring(text, string, " ")  # noqa: PLW2901 - one text, step by step
        tokens = tokenise(text, tokeniser)
        texts.append(tokens.joined())
        bad_trees.append(read_trees(tree, tokens).refused)
    empty = pc.or_(pc.equal(texts[0], ""), pc.equal(texts[1], ""))
    ours = refuse([(empty, "empty text"), (pc.equal(texts[0], texts[1]), "equal texts")])
    refused = pc.coalesce(pairs.refused, ours, *bad_trees)
    rank = pa.array(np.arange(block.first_row, block.first_row + len(refused)))
    sources = pa.repeat(source, len(refused))
    columns = [*texts, pairs.score, rank, pairs.relation, sources, pairs.first_tree, pairs.second_tree]
    return pa.Table.from_arrays(columns, schema=PAIRS).filter(pc.is_null(refused)), refused


def _count(
    source: str, block: Block, refused: pa.StringArray, seen: dict[str, int], sample: list[dict[str, Any]]
) -> None:
    """Add a block's refused rows to the counts by reason, and the first of each reason to the sample."""
    counts = pc.value_counts(refused.drop_null())
    for reason, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
        room = _SAMPLED - seen.get(reason, 0)
        seen[reason] = seen.get(reason, 0) + count
        if room > 0:
            for row in np.flatnonzero(pc.fill_null(pc.equal(refused, reason), False))[:room]:
                text = block.raw[int(row)].as_py()[:500].decode("utf-8", "replace")
                sample.append({"file": source, "line": block.first_row + int(row) + 1, "reason": reason, "text": text})


def num_buckets(num_rows: int) -> int:
    """How many parts the search for duplicates takes, so that each fits in memory."""
    return max(1, -(-num_rows // _BUCKET_ROWS))


def find_duplicates(parsed: Sequence[Path], bucket: int = 0, buckets: int = 1) -> list[npt.NDArray[np.int64]]:
    """The rows that repeat an unordered pair; the one with the lowest rank (then in the first file) stays.

    Args:
        parsed: the files of ``parse_source``, in the order of the inputs.
        bucket: only pairs whose key hashes to this bucket are looked at.
        buckets: how many there are.

    Returns:
        For each file the ranks of its rows to drop, ascending.
    """
    keys, places = [], []
    for number, path in enumerate(parsed):
        for batch in pq.ParquetFile(path).iter_batches(_GROUP_ROWS, columns=["first", "second", "rank"]):
            first, second = batch["first"], batch["second"]
            swapped = pc.greater(first, second)
            low, high = pc.if_else(swapped, second, first), pc.if_else(swapped, first, second)
            key = pc.binary_join_element_wise(low, high, "\t")
            chosen = pa.array(hash_strings(key) % np.uint64(buckets) == bucket)
            keys.append(key.filter(chosen))
            places.append(batch["rank"].filter(chosen).to_numpy() * len(parsed) + number)
    if not keys:
        return [np.zeros(0, np.int64) for _ in parsed]
    # Codes of the keys: the same for equal strings, over all chunks.
    codes = pa.chunked_array(keys).dictionary_encode().combine_chunks().indices.to_numpy()
    place = np.concatenate(places)
    best = np.full(int(codes.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(best, codes, place)
    dropped = np.sort(place[place != best[codes]])
    return [dropped[dropped % len(parsed) == number] // len(parsed) for number in range(len(parsed))]


def hash_strings(texts: pa.StringArray) -> npt.NDArray[np.uint64]:
    """A polynomial hash of each string, uint64 [n]; the same on every machine."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or offsets[-1] == offsets[0]:
        return np.zeros(len(texts), np.uint64)
    octets = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].astype(np.uint64)
    lengths = np.diff(offsets)
    powers = np.cumprod(np.full(int(lengths.max()), 0x100000001B3, np.uint64))  # wraps, as a hash may
    places = np.arange(len(octets)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum((octets + np.uint64(1)) * powers[places])))
    hashes = sums[offsets[1:] - offsets[0]] - sums[offsets[:-1] - offsets[0]]
    mixed: npt.NDArray[np.uint64] = hashes ^ (hashes >> np.uint64(29))
    return mixed


@dataclass(frozen=True)
class ShardPlan:
    """Which rows make one shard: rows ``start`` … ``stop`` - 1 of those that stay in the given row groups.

    Attributes:
        name: file name of the shard.
        groups: (number of the parsed file, row group) in order.
        start: first row, counted over the rows that stay in ``groups``.
        stop: the row after the last.
    """

    name: str
    groups: list[tuple[int, int]]
    start: int
    stop: int


def plan_shards(
    reports: Sequence[SourceReport], dropped: Sequence[npt.NDArray[np.int64]], rows_per_shard: int
) -> list[ShardPlan]:
    """Cut the rows that stay into equal shards (sizes differ by one row at most)."""
    groups, stays = [], []
    for number, report in enumerate(reports):
        firsts = np.array([first for first, _ in report.groups] + [np.iinfo(np.int64).max])
        gone = np.diff(np.searchsorted(dropped[number], firsts))
        groups += [(number, group) for group in range(len(report.groups))]
        stays += [rows - int(lost) for (_, rows), lost in zip(report.groups, gone, strict=True)]
    ends = np.cumsum(stays, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    count = -(-total // rows_per_shard)
    plans = []
    for shard in range(count):
        start, stop = total * shard // count, total * (shard + 1) // count
        first, last = int(np.searchsorted(ends, start, "right")), int(np.searchsorted(ends, stop))
        before = int(ends[first]) - stays[first]
        name = f"pairs-{shard:05d}-of-{count:05d}.parquet"
        plans.append(ShardPlan(name, groups[first : last + 1], start - before, stop - before))
    return plans


def write_shard(
    plan: ShardPlan, parsed: Sequence[Path], dropped: Sequence[npt.NDArray[np.int64]], folder: Path
) -> dict[str, Any]:
    """Write one shard; returns its entry in the manifest: name, rows, sha256."""
    tables = []
    for number, group in plan.groups:
        table = pq.ParquetFile(parsed[number]).read_row_group(group)
        gone = np.isin(table["rank"].to_numpy(), dropped[number], assume_unique=True)
        tables.append(table.filter(pa.array(~gone)))
    table = pa.concat_tables(tables).slice(plan.start, plan.stop - plan.start).combine_chunks()
    digest = write_file(
        folder / plan.name, lambda file: pq.write_table(table, file, compression="zstd", row_group_size=_GROUP_ROWS)
    )
    return {"name": plan.name, "rows": table.num_rows, "sha256": digest}


def save_report(report: SourceReport, path: Path) -> None:
    """Write a report as JSON."""
    write_file(path, lambda file: file.write(json.dumps(asdict(report), ensure_ascii=False).encode()))


def load_report(path: Path) -> SourceReport:
    """Read what ``save_report`` wrote."""
    values = json.loads(path.read_bytes())
    return SourceReport(**{**values, "groups": [tuple(group) for group in values["groups"]]})


def iter_refused(reports: Sequence[SourceReport]) -> Iterator[dict[str, Any]]:
    """All sampled refused rows, in the order of the inputs."""
    for report in reports:
        yield from report.sample
