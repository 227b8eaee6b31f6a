"""From pair files to pair shards in three steps, each a plain function on files.

1. ``parse_source``: one input file → its tokenised pairs (Parquet), counts, and a sample of what was refused;
2. ``duplicates.find_duplicates``: the rows, over all files, that repeat an unordered pair;
3. ``write_shard``: an equal share of the rows that stay, in the order of the input files and of their rows.

What comes out depends on the input files and the settings alone, not on how many processes take part.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.data.delimited import Role
from paraembed.data.duplicates import partition_writer
from paraembed.data.filters import EQUAL_TEXTS, FilterOptions
from paraembed.data.pairs import Format, Reading, Source, read_pairs
from paraembed.data.parsed import Block, refuse
from paraembed.data.ppdb import PpdbPairs
from paraembed.data.schemas import PAIRS
from paraembed.data.selection import selection_columns
from paraembed.data.statistics import Counts, count_pairs
from paraembed.data.training_sets import RowRules, judge_rows, row_rules, set_of
from paraembed.data.trees import read_trees
from paraembed.files import write_file
from paraembed.text import check_tokeniser, tokenise

FORMAT = "paraembed-pairs-1"
SUBSETS_FORMAT = "paraembed-pair-subsets-1"
"""Of a folder whose folders are pair shards."""

Mask = npt.NDArray[np.bool_]

_GROUP_ROWS = 65_536
_REPEATING = ["relation", "source"]  # a dictionary of texts, which do not repeat, costs time and a fifth more bytes
_SAMPLED = 100  # refused rows shown, a reason and file


@dataclass(frozen=True)
class ShardSettings(FilterOptions):
    """What decides the rows of the shards, apart from the input files."""

    format: Format = "auto"
    """Format of the input: auto looks at each file's name and first line."""
    columns: tuple[Role, ...] = ()
    """What the columns of TSV, CSV, Parquet or JSONL input are, in order. By default their names say it."""
    features: tuple[str, ...] = ()
    """Features of PPDB that become columns, such as PPDB1.0Score or AGigaSim; NA is null."""
    alignment: bool = False
    """Keep the word alignment of PPDB as a column."""
    non_terminals: bool = False
    """Keep syntactic rules of PPDB with non-terminals such as [NP,1]."""
    tokeniser: str = "auto"
    """ptb-v1, space, or auto: space for PPDB and word lists (tokenised already), ptb-v1 for the rest."""
    remove: tuple[str, ...] = ()
    """Strings that are cut out of the texts, such as the marker <::::> of WikiSplit."""
    rows_per_shard: int = 250_000
    """Most rows of a shard file, 1 to 1,000,000."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        super().__post_init__()
        if self.tokeniser != "auto":
            check_tokeniser(self.tokeniser)
        if not 1 <= self.rows_per_shard <= 1_000_000:
            raise ValueError(f"rows_per_shard is {self.rows_per_shard}; allowed: 1 to 1,000,000")
        taken = {*PAIRS.names, "alignment"}
        if len({*self.features} - taken) < len(self.features):
            raise ValueError(f"features are {', '.join(self.features)}; give each once, and none of {', '.join(taken)}")
        if "" in self.remove:
            raise ValueError("remove holds an empty string; give the strings to cut out, or none")


@dataclass(frozen=True)
class SourceReport:
    """What became of one input file.

    Attributes:
        read: rows, without a header.
        parsed: rows that are pairs, before duplicates are removed.
        refused: the other rows, by reason.
        sample: up to 100 refused rows a reason: file, line from 1, reason, text.
        groups: rows of each row group of the parsed file.
        version: of PPDB, ``1.0`` or ``2.0`` (which adds the entailment), ``mixed``; None for another format.
    """

    read: int
    parsed: int
    refused: dict[str, int]
    sample: list[dict[str, Any]] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    version: str | None = None


def parse_source(
    source: Source,
    name: str,
    settings: ShardSettings,
    out: Path,
    partitions: int = 1,
    vocabulary: pa.StringArray | None = None,
) -> SourceReport:
    """Parse, tokenise and filter one source into ``out`` (Parquet, ``schema_of(settings)``), streaming.

    Refused, after what the format refuses: a text without tokens, a tree that is not over the tokens of its text
    (``paraembed.data.trees``), and what the rules of the settings refuse (``paraembed.data.training_sets``). Beside
    ``out`` its rows stand by partition (``partitions_of``), for the search for duplicates.

    Args:
        source: the input file, or two aligned ones.
        name: what the column ``source`` says.
        settings: how to read it.
        out: where the parsed pairs go.
        partitions: how many the rows are cut into.
        vocabulary: known words [V], for the training sets that need them.

    Raises:
        OSError, ValueError: as ``read_pairs`` and ``row_rules``.
    """
    report = SourceReport(0, 0, {})
    totals = {"read": 0, "parsed": 0}
    seen: dict[str, int] = {}
    versions: set[str] = set()
    rules = row_rules(settings, vocabulary)
    schema = schema_of(settings)

    def tables() -> Iterator[pa.Table]:
        for block in read_pairs(source, reading_of(settings)):
            table, refused = keep_pairs(block, name, _tokeniser(block, settings), settings.remove, rules)
            totals["read"] += len(block.raw)
            totals["parsed"] += table.num_rows
            versions.update(block.pairs.versions if isinstance(block.pairs, PpdbPairs) else ())
            _count(name, block, refused, seen, report.sample)
            yield _with_columns(table, schema)

    def write(file: BinaryIO, parts: BinaryIO) -> None:
        with (
            pq.ParquetWriter(file, schema, compression="lz4", use_dictionary=_REPEATING) as writer,
            partition_writer(parts, partitions) as by_partition,
        ):
            for group in group_rows(tables()):
                writer.write_table(group)
                by_partition.write(group)
                report.groups.append(group.num_rows)

    write_file(partitions_of(out), lambda parts: write_file(out, lambda file: write(file, parts)))
    version = "mixed" if len(versions) > 1 else next(iter(versions), None)
    return SourceReport(**totals, refused=seen, sample=report.sample, groups=report.groups, version=version)


def schema_of(settings: ShardSettings) -> pa.Schema:
    """The columns of the shards: ``PAIRS``, then those that were asked for."""
    more = [pa.field(name, pa.float32()) for name in settings.features]
    more += [pa.field("alignment", pa.string())] * settings.alignment
    return pa.schema([*PAIRS, *more])


def reading_of(settings: ShardSettings) -> Reading:
    """How files are read; a bigram set needs the alignment."""
    alignment = settings.alignment or set_of(settings).bigrams is not None
    return Reading(settings.format, settings.columns, settings.features, alignment, settings.non_terminals)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of the schema; null where the source has no such column."""
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def partitions_of(parsed: Path) -> Path:
    """Where the rows of a parsed file stand by partition."""
    return parsed.with_suffix(".arrow")


def group_rows(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows of tables again, as tables of ``_GROUP_ROWS`` rows and a last one of fewer."""
    rows = _GROUP_ROWS
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(one.num_rows for one in held) >= rows:
            whole = pa.concat_tables(held)
            full = whole.num_rows - whole.num_rows % rows
            yield from (whole.slice(start, rows).combine_chunks() for start in range(0, full, rows))
            held = [whole.slice(full)]
    rest = pa.concat_tables(held).combine_chunks()
    if rest.num_rows:
        yield rest


def _tokeniser(block: Block, settings: ShardSettings) -> str:
    if settings.tokeniser != "auto":
        return settings.tokeniser
    return "space" if block.form in {"ppdb", "words"} else "ptb-v1"


def keep_pairs(
    block: Block, source: str, tokeniser: str, remove: Sequence[str], rules: RowRules
) -> tuple[pa.Table, pa.StringArray]:
    """Rows of a block that are pairs (schema ``PAIRS`` and what else there is), and why each other is not [n]."""
    pairs = block.pairs
    texts, bad_trees = [], []
    for text, tree in ((pairs.first, pairs.first_tree), (pairs.second, pairs.second_tree)):
        for string in remove:
            text = pc.replace_substring(text, string, " ")  # noqa: PLW2901 - one text, step by step
        if tree.null_count == len(tree):
            texts.append(join_tokens(text, tokeniser))
        else:
            tokens = tokenise(text, tokeniser)
            texts.append(tokens.joined())
            bad_trees.append(read_trees(tree, tokens).refused)
    empty = refuse([(pc.or_(pc.equal(texts[0], ""), pc.equal(texts[1], "")), "empty text")])
    equal = refuse([(pc.equal(texts[0], texts[1]), EQUAL_TEXTS.reason)]) if EQUAL_TEXTS in rules.filters else empty
    refused = pc.coalesce(pairs.refused, empty, equal, *bad_trees)
    rank = pa.array(np.arange(block.first_row, block.first_row + len(refused)))
    sources = pa.repeat(source, len(refused))
    columns = [*texts, pairs.score, rank, pairs.relation, sources, pairs.first_tree, pairs.second_tree]
    table = pa.Table.from_arrays(columns, schema=PAIRS)
    for name, column in pairs.extra.items():
        table = table.append_column(name, column)
    good = pc.is_null(refused)
    table, judged = judge_rows(table.filter(good), rules)
    if judged.null_count == len(judged):
        return table, refused
    return table.filter(pc.is_null(judged)), pc.replace_with_mask(refused, good, judged)


def join_tokens(texts: pa.StringArray, tokeniser: str) -> pa.StringArray:
    """The tokens of texts [n], joined by one space.

    Texts of PPDB are tokenised: where they are printable ASCII with single spaces between words, nothing but capitals
    has to change, which is 10 times as fast.
    """
    if tokeniser != "space":
        return tokenise(texts, tokeniser).joined()
    joined = pc.ascii_lower(texts)
    others = _not_tokenised(joined)
    if not others.any():
        return joined
    return pc.replace_with_mask(joined, pa.array(others), tokenise(texts.filter(pa.array(others)), tokeniser).joined())


def _not_tokenised(texts: pa.StringArray) -> Mask:
    """Texts [n] that hold more than printable ASCII and single spaces inside."""
    texts = pa.concat_arrays([texts])  # buffers of its own
    others = np.zeros(len(texts), bool)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    if not len(texts) or offsets[-1] == offsets[0]:
        return others
    octets = np.frombuffer(texts.buffers()[2], np.uint8)[: offsets[-1]]
    # Below a space wrap around: 0 is a space, 95 and more is not printable ASCII.
    shifted = octets - np.uint8(32)
    spaces = shifted == 0
    odd = shifted >= 95
    odd[1:] |= spaces[1:] & spaces[:-1]
    filled = np.flatnonzero(np.diff(offsets))
    others[filled] = spaces[offsets[filled]] | spaces[offsets[filled + 1] - 1]
    places = np.flatnonzero(odd)
    others[np.searchsorted(offsets, places, "right") - 1] = True
    return others


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
                text = block.raw[int(row)][:500].decode("utf-8", "replace")
                sample.append({"file": source, "line": block.line_of(int(row)), "reason": reason, "text": text})


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


def plan_shards(reports: Sequence[SourceReport], stays: Sequence[Mask], rows_per_shard: int) -> list[ShardPlan]:
    """Cut the rows that stay into equal shards (sizes differ by one row at most).

    Args:
        reports: one a parsed file.
        stays: for each parsed file which of its rows stay, bool.
        rows_per_shard: most rows of a shard.
    """
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


def selection_table(parsed: Path, stays: Mask, options: FilterOptions) -> pa.Table:
    """What ``select`` must know of the rows of a parsed file that stay."""
    tables, start = [], 0
    for batch in pq.ParquetFile(parsed).iter_batches(_GROUP_ROWS, columns=["first", "second"]):
        rows = pa.table(batch).filter(pa.array(stays[start : start + len(batch)]))
        start += len(batch)
        tables.append(selection_columns(rows, options))
    return pa.concat_tables(tables)


def write_shard(
    plan: ShardPlan, parsed: Sequence[Path], stays: Mapping[int, Mask], folder: Path, counts: Path
) -> dict[str, Any]:
    """Write one shard; returns its entry in the manifest: name, rows, sha256.

    Args:
        plan: its rows.
        parsed: the parsed files.
        stays: by the number of a parsed file, which of its rows stay, bool.
        folder: where the shard goes.
        counts: folder for the counts of its lengths and words.
    """
    tables = []
    for number, group in plan.groups:
        file = pq.ParquetFile(parsed[number])
        start = sum(file.metadata.row_group(before).num_rows for before in range(group))
        table = file.read_row_group(group)
        tables.append(table.filter(pa.array(stays[number][start : start + table.num_rows])))
    table = pa.concat_tables(tables).slice(plan.start, plan.stop - plan.start).combine_chunks()
    digest = write_file(
        folder / plan.name,
        lambda file: pq.write_table(
            table, file, compression="zstd", use_dictionary=_REPEATING, row_group_size=_GROUP_ROWS
        ),
    )
    counted = count_pairs(table)
    counts.mkdir(exist_ok=True)
    for name, counted_table in (("lengths", counted.lengths), ("words", counted.words)):
        pq.write_table(counted_table, counts / name)
    return {"name": plan.name, "rows": table.num_rows, "sha256": digest}


def load_counts(folder: Path) -> Counts:
    """What ``write_shard`` counted."""
    return Counts(*(pq.read_table(folder / name) for name in ("lengths", "words")))


def save_report(report: SourceReport, path: Path) -> None:
    """Write a report as JSON."""
    write_file(path, lambda file: file.write(json.dumps(asdict(report), ensure_ascii=False).encode()))


def load_report(path: Path) -> SourceReport:
    """Read what ``save_report`` wrote."""
    values = json.loads(path.read_bytes())
    return SourceReport(**values)


def iter_refused(reports: Sequence[SourceReport]) -> Iterator[dict[str, Any]]:
    """All sampled refused rows, in the order of the inputs."""
    for report in reports:
        yield from report.sample
