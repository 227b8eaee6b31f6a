"""Embed into a folder as jobs/embed.py does, in this process."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from paraembed.embedding.append import finish_append, steps
from paraembed.embedding.columns import complete_settings
from paraembed.embedding.commit import commit
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.local import embed_here
from paraembed.embedding.manifest import NEXT, EmbeddingRun, begun_run, check_folder, columns_to_add, continued_run
from paraembed.embedding.plan import Plan, make_plan, parts_of
from paraembed.embedding.records import arrow_bytes, inputs_of, inputs_table
from paraembed.io.inflate import BLOCK_BYTES
from paraembed.io.limits import DEFAULT_TABLE_LIMITS
from paraembed.io.store import open_store
from paraembed.loading import open_encoder
from paraembed.settings import DEFAULT_INFERENCE


def list_inputs(asked, limits=DEFAULT_TABLE_LIMITS, block_bytes=BLOCK_BYTES):
    """Find input files, of which so many bytes are read at a time."""
    return tuple(replace(file, block_bytes=block_bytes) for file in find_inputs(asked, limits))


def build(
    encoder,
    inputs,
    settings,
    out,
    on_duplicate_id="fail",
    inference=DEFAULT_INFERENCE,
    hashed=tuple,
    append=False,
    threads=1,
):
    """Embed, or go on; returns the parts that were embedded, with their rows."""
    encoder, home = open_encoder(str(encoder), inference), open_store(out)
    finish_append(home)
    check_folder(home)
    files = hashed(find_inputs([inputs] if isinstance(inputs, Path) else inputs))
    embedded = {}
    for step in steps(home, files, settings, append=append):
        of_step = complete_settings(settings, step.files, encoder.reads_trees)
        plan = Plan(step.files, of_step, generation=step.generation)
        new = EmbeddingRun(encoder.fingerprint, encoder.tokenizer, plan, encoder.identity)
        store, columns = (home.below(NEXT), columns_to_add(home, new)) if step.is_next else (home, None)
        if check_folder(store):
            run = continued_run(store, new)
        else:
            run = replace(new, plan=make_plan(step.files, of_step, generation=step.generation, columns=columns))
        with begun_run(store, run) as reports:
            todo = run.plan.parts.without(reports.names)
            for part, done in zip(todo, embed_here(encoder, run, todo, store, threads=threads), strict=True):
                reports.add(done.report)
                embedded[part.name] = part.rows
            commit(store, run, reports, on_duplicate_id, added_to=home if step.is_next else None)
        finish_append(home)
    return embedded


def assert_is_read_again(plan):
    """A later run reads an equal plan from the tables of its inputs and pieces."""
    inputs = inputs_of(inputs_table(plan.inputs))
    with pa.ipc.open_file(arrow_bytes(plan.pieces())) as file:
        parts = parts_of(file.read_all(), inputs)
    assert (inputs, [*parts]) == (plan.inputs, [*plan.parts])
