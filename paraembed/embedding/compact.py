"""Rewrite an output of several generations as one, without the rows that newer ones supersede."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paraembed.console import doing
from paraembed.embedding import manifest
from paraembed.embedding.append import finish_append
from paraembed.embedding.columns import CHUNK_FIELDS
from paraembed.embedding.commit import commit_compacted
from paraembed.embedding.manifest import NEXT, planned
from paraembed.embedding.output import Embeddings
from paraembed.embedding.part import FOOTER, ROW_GROUP_BYTES, PartReport, in_footer, layout, tables_of
from paraembed.embedding.plan import DATA, part_name
from paraembed.io.fingerprint import digest_of
from paraembed.io.places import Place
from paraembed.io.store import Store


class Compacted(NamedTuple):
    """Result of ``compact``: rows and parts before and after; equal if there was nothing to do."""

    rows_before: int
    parts_before: int
    rows: int
    parts: int


def compact(out: Place) -> Compacted:
    """Rewrite a finished output of several generations, or with superseded rows, as one generation; readers see the old
    one until it is complete. A call that was stopped is finished, or begun again, by the next one.

    The rows keep their order, and the vectors their bytes. The parts cannot be embedded again from the inputs, so a
    damaged one cannot be repaired; the inputs are still known, so that files can be added. Lists of rejected rows stay.

    Raise FileNotFoundError or ValueError if the output is not finished or damaged, or files are being added to it.
    """
    home, _ = manifest.open_output(out)
    if not manifest.check_folder(home):
        raise FileNotFoundError(f"{home} has no plan of jobs/embed.py; expected a folder that it wrote")
    with home.held():
        finish_append(home)
        before = Embeddings(out)
        known = manifest.read_manifest(home)
        generations = manifest.generations_of(known)
        done = Compacted(before.rows, len(before.names), before.rows, len(before.names))
        if len(generations) == 1 and not len(before.superseded):
            return done
        if planned(home.below(NEXT)):
            raise ValueError(f"{home} has files that were not added completely; run that jobs/embed.py command again")
        home.delete_folder(NEXT)  # of a call that was killed
        number = max(generations) + 1
        reports = _write_parts(home, before, number)
        commit_compacted(home, number, reports)
        finish_append(home)
    return done._replace(rows=sum(report.rows for report in reports), parts=len(reports))


def _write_parts(home: Store, before: Embeddings, number: int) -> list[PartReport]:
    """Write the rows to the parts of a new generation in ``NEXT``; return their reports."""
    store, settings = home.below(NEXT), manifest.read_run(home).plan.settings
    for folder in ("", DATA):
        store.make_folder(folder)
    rest, batches, reports = list[pa.RecordBatch](), before.batches(), list[PartReport]()
    left = before.rows - len(before.superseded)
    while left:
        name, counts = part_name(len(reports), number), Counter[Any]()
        report = PartReport(name, 0, 0, 0, 0, 0, "", 0.0, made_of=digest_of([before.digest, name]))

        def write(file: BinaryIO, counts: Counter[Any] = counts, report: PartReport = report) -> None:
            options = layout(before.schema, settings) | {"write_page_checksum": True}
            with pq.ParquetWriter(file, before.schema, **options) as writer:
                taken = _take(settings.part_rows, rest, batches, has_chunks=settings.has_chunks)
                for table in tables_of(taken, max(1024, ROW_GROUP_BYTES // (4 * before.width))):
                    writer.write_table(table, row_group_size=table.num_rows)
                    counts.update(rows=len(table), n_null_ids=table[before.id_column].null_count)
                    counts.update({name: pc.sum(table[name]).as_py() for name in ("n_tokens", "n_unknown")})
                    if settings.has_chunks:
                        is_further = pc.greater(table[CHUNK_FIELDS[0].name], 0)
                        counts.update(n_further_chunks=pc.sum(is_further).as_py())
                footer = json.dumps(in_footer(replace(report, **dict[str, Any](counts))), sort_keys=True)
                writer.add_key_value_metadata({FOOTER: footer})

        digest = store.write(name, write)
        reports.append(replace(report, **dict[str, Any](counts), sha256=digest))
        left -= counts["rows"]
        doing(f"compacting: {before.rows - left:,} of {before.rows:,} rows")
    return reports


def _take(
    rows: int, rest: list[pa.RecordBatch], batches: Iterator[pa.RecordBatch], *, has_chunks: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the next rows of ``rest`` and ``batches``, never a part of a document; others go to ``rest``."""
    while (batch := rest.pop() if rest else next(batches, None)) is not None:
        stop = min(max(rows, 0), len(batch))
        if has_chunks:
            firsts = np.flatnonzero(batch[CHUNK_FIELDS[0].name].to_numpy() == 0)
            stop = int(min(firsts[firsts >= stop], default=len(batch)))
        yield batch.slice(0, stop)
        if stop < len(batch):
            rest.append(batch.slice(stop))
            return
        rows -= len(batch)
