"""Embed into a folder as jobs/embed.py does, in this process."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc

from paraembed.embedding.columns import complete_settings
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.manifest import EmbeddingRun, begun_run, check_folder, commit, continued_run
from paraembed.embedding.part import embed_part
from paraembed.embedding.plan import Plan, make_plan, parts_of
from paraembed.embedding.records import arrow_bytes, inputs_of, inputs_table
from paraembed.io.limits import DEFAULT_TABLE_LIMITS
from paraembed.io.store import open_store
from paraembed.loading import open_encoder
from paraembed.settings import DEFAULT_INFERENCE


def list_inputs(asked, limits=DEFAULT_TABLE_LIMITS, **options):
    """Find input files."""
    return find_inputs(asked, limits, **options)


def build(encoder, inputs, settings, out, on_duplicate_id="fail", inference=DEFAULT_INFERENCE, hashed=tuple):
    """Embed, or go on; returns the parts that were embedded, with their rows."""
    encoder, store = open_encoder(str(encoder), inference), open_store(out)
    files = hashed(find_inputs([inputs] if isinstance(inputs, Path) else inputs))
    settings = complete_settings(settings, files, encoder.reads_trees)
    new = EmbeddingRun(encoder.fingerprint, encoder.tokenizer, Plan(files, settings, ()), encoder.identity)
    run = continued_run(store, new) if check_folder(store) else replace(new, plan=make_plan(files, settings))
    plan = run.plan
    embedded = {}
    with begun_run(store, run) as begun:
        for part in plan.parts:
            if part.name not in begun.reports:
                begun.add(embed_part(encoder, plan.sources(part), part, settings, store))
                embedded[part.name] = part.rows
        commit(store, run, begun.reports, on_duplicate_id)
    return embedded


def read_again(plan):
    """A plan as a later run reads it from the tables of its inputs and pieces."""
    inputs = inputs_of(inputs_table(plan.inputs))
    with pa.ipc.open_file(arrow_bytes(plan.pieces())) as file:
        return replace(plan, inputs=inputs, parts=parts_of(file.read_all(), inputs))
