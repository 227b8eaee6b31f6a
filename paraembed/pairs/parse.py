"""Parse one source of pairs into tokenized pairs (Parquet), the same rows by partition, counts, and rejected
examples.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.io.atomic import write_file
from paraembed.io.inflate import BLOCK_BYTES, Span
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.pairs.blocks import Block, refuse
from paraembed.pairs.deduplicate import partition_writer
from paraembed.pairs.filters import EQUAL_TEXTS
from paraembed.pairs.formats import Reading, Source, unparsed_blocks
from paraembed.pairs.labels import LabelRule
from paraembed.pairs.ppdb import PpdbPairs
from paraembed.pairs.schema import PAIRS, SourceReport
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import GROUP_ROWS, REPEATING, Mask, schema_of
from paraembed.pairs.source_parts import SAMPLED, sum_counts
from paraembed.pairs.training_sets import RowRules, judge_rows, row_rules, set_of
from paraembed.process import keep_memory, map_in_threads
from paraembed.text.ragged import string_bytes
from paraembed.text.tokenize import tokenize
from paraembed.text.trees import read_trees


def parse_source(
    source: Source,
    name: str,
    settings: ShardSettings,
    out: Path,
    partitions: int = 1,
    vocabulary: pa.StringArray | None = None,
    span: Span | None = None,
    *,
    is_labeled: bool = False,
    sampled: int = SAMPLED,
    limits: ReadLimits = DEFAULT_LIMITS,
    block_bytes: int = BLOCK_BYTES,
    rows_per_group: int = GROUP_ROWS,
    threads: int = 1,
) -> SourceReport:
    """Parse, tokenize and filter one source in a stream, and write it to ``out`` (Parquet, ``schema_of(settings)``).

    Besides the rows that the format rejects, these are rejected: a text without tokens, a tree that does not match the
    tokens of its text (``paraembed.text.trees``), and rows that fail the filters of the settings
    (``paraembed.pairs.training_sets``). A second file next to ``out`` holds the rows by partition (``partitions_of``),
    for the search for duplicates. ``name`` is the value of the column ``source``; ``vocabulary`` [V] holds the known
    words, for the training sets that need them. Ranks are counted from the beginning of the ``span``, which is one of
    ``formats.spans_of``. With ``is_labeled``, rows without a label are rejected. At most ``sampled`` rejected rows are
    kept as examples for each reason. Several ``threads`` parse and filter the blocks while this one writes;
    the files are the same. Raise the errors of ``read_pairs`` and ``row_rules``.
    """
    keep_memory()
    report, totals, versions = SourceReport(0, 0, {}), Counter[str](), set[str]()
    rules, schema = row_rules(settings, vocabulary), schema_of(settings)

    def tables() -> Iterator[pa.Table]:
        reading = reading_of(settings, limits)
        labels = replace(reading.labels, is_labeled=is_labeled)
        reading = replace(reading, labels=labels, block_bytes=block_bytes)

        def kept(parse: Callable[[], Block]) -> tuple[Block, pa.Table, pa.StringArray]:
            block = parse()
            return block, *keep_pairs(block, name, _tokenizer(block, settings), settings.remove, rules)

        for block, table, refused in map_in_threads(kept, unparsed_blocks(source, reading, span), threads):
            totals.update(read=len(block), parsed=table.num_rows)
            report.labels.update(sum_counts([report.labels, labels.count(block)]))
            totals["lines"] = block.first_row + len(block)
            versions.update(block.pairs.versions if isinstance(block.pairs, PpdbPairs) else ())
            _count(name, block, refused, report, sampled)
            yield _with_columns(table, schema)

    def write(file: BinaryIO, parts: BinaryIO) -> None:
        with (
            pq.ParquetWriter(
                file, schema, compression="lz4", use_dictionary=REPEATING, write_statistics=False
            ) as writer,
            partition_writer(parts, partitions) as write_partitioned,
        ):
            for group in group_rows(tables(), rows_per_group):
                writer.write_table(group)
                write_partitioned(group)
                report.groups.append(group.num_rows)

    write_file(partitions_of(out), lambda parts: write_file(out, lambda file: write(file, parts)))
    version = "mixed" if len(versions) > 1 else next(iter(versions), None)
    return replace(report, read=totals["read"], parsed=totals["parsed"], lines=totals["lines"], version=version)


def reading_of(settings: ShardSettings, limits: ReadLimits = DEFAULT_LIMITS) -> Reading:
    """Return how to read pair files with these settings; a bigram set needs the alignment."""
    alignment = settings.alignment or set_of(settings).bigrams is not None
    columns, features = settings.columns, settings.features
    reading = Reading(settings.format, columns, features, alignment, settings.non_terminals, settings.no_header, limits)
    return replace(reading, labels=LabelRule(settings.keep_labels, all_entailments=settings.training_set is not None))


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of the schema; a column that is missing in the source is null."""
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type) for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def partitions_of(parsed: Path) -> Path:
    """Return the file that holds the rows of a parsed file by partition."""
    return parsed.with_suffix(".arrow")


def group_rows(tables: Iterator[pa.Table], rows: int = GROUP_ROWS) -> Iterator[pa.Table]:
    """Yield the same rows as tables of ``rows`` rows and a last one of fewer."""
    waiting: list[pa.Table] = []
    num_waiting = 0
    for table in tables:
        if waiting and not table.num_rows:
            continue  # all rows of a block were rejected
        waiting.append(table)
        num_waiting += table.num_rows
        if num_waiting >= rows:
            whole = pa.concat_tables(waiting)
            full = whole.num_rows - whole.num_rows % rows
            yield from (whole.slice(start, rows).combine_chunks() for start in range(0, full, rows))
            waiting, num_waiting = [whole.slice(full)], num_waiting - full
    rest = pa.concat_tables(waiting).combine_chunks()
    if rest.num_rows:
        yield rest


def _tokenizer(block: Block, settings: ShardSettings) -> str:
    if settings.tokenizer != "auto":
        return settings.tokenizer
    return "space" if block.form in {"ppdb", "words"} else "ptb-v1"


def keep_pairs(
    block: Block, source: str, tokenizer: str, remove: Sequence[str], rules: RowRules
) -> tuple[pa.Table, pa.StringArray]:
    """Return the rows of a block that are pairs (``PAIRS`` and further columns), and why the others [n] are not."""
    pairs = block.pairs
    texts, bad_trees = [], []
    for text, tree in ((pairs.first, pairs.first_tree), (pairs.second, pairs.second_tree)):
        for string in remove:
            text = pc.replace_substring(text, string, " ")  # noqa: PLW2901 - one text, step by step
        if tree.null_count == len(tree):
            texts.append(join_tokens(text, tokenizer))
        else:
            tokens = tokenize(text, tokenizer)
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
    table, reasons = judge_rows(table.filter(good), rules)
    if reasons.null_count == len(reasons):
        return table, refused
    return table.filter(pc.is_null(reasons)), pc.replace_with_mask(refused, good, reasons)


def join_tokens(texts: pa.StringArray, tokenizer: str) -> pa.StringArray:
    """Return the tokens of texts [n], joined by one space.

    Texts of PPDB are already tokenized: printable ASCII with single spaces only needs lower-casing, which is 10 times
    as fast.
    """
    if tokenizer != "space":
        return tokenize(texts, tokenizer).joined()
    # A copy: for empty strings in a slice, pyarrow 25's ``ascii_lower`` returns an invalid array.
    joined = pc.ascii_lower(pa.concat_arrays([texts]))
    others = _not_tokenized(joined)
    if not others.any():
        return joined
    return pc.replace_with_mask(joined, pa.array(others), tokenize(texts.filter(pa.array(others)), tokenizer).joined())


def _not_tokenized(texts: pa.StringArray) -> Mask:
    """Return whether each text [n] contains anything but printable ASCII and single inner spaces."""
    others = np.zeros(len(texts), bool)
    octets, offsets = string_bytes(texts)
    if not len(octets):
        return others
    # Values below a space wrap around: 0 is a space, 95 and above is not printable ASCII.
    shifted = octets - np.uint8(32)
    spaces = shifted == 0
    odd = shifted >= 95
    odd[1:] |= spaces[1:] & spaces[:-1]
    filled = np.flatnonzero(np.diff(offsets))
    others[filled] = spaces[offsets[filled]] | spaces[offsets[filled + 1] - 1]
    places = np.flatnonzero(odd)
    others[np.searchsorted(offsets, places, "right") - 1] = True
    return others


def _count(source: str, block: Block, refused: pa.StringArray, report: SourceReport, sampled: int) -> None:
    """Add a block's rejected rows to the counts by reason, and the first rows of each reason to the sample, in which
    those of each block that was read are sorted by reason.
    """
    start = 0
    for size in block.sizes or [len(block)]:
        counts = pc.value_counts(refused.slice(start, size).drop_null())
        for reason, count in zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True):
            before = report.refused.get(reason, 0)
            report.refused[reason] = before + count
            if before < sampled:
                is_sampled = pc.fill_null(pc.equal(refused.slice(start, size), reason), False)
                for row in map(int, start + np.flatnonzero(is_sampled)[: sampled - before]):
                    text = block.raw(row)[:500].decode("utf-8", "replace")
                    report.sample.append({"file": source, "line": block.line_of(row), "reason": reason, "text": text})
        start += size
