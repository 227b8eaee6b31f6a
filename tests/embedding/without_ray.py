"""Embed into a folder as jobs/embed.py does, in this process."""

from dataclasses import replace
from pathlib import Path

from paraembed.embedding.columns import complete_settings
from paraembed.embedding.inputs import find_inputs, hash_inputs
from paraembed.embedding.manifest import EmbeddingRun, begun_run, check_folder, commit, continued_run
from paraembed.embedding.part import embed_part
from paraembed.embedding.plan import Plan, make_plan
from paraembed.io.limits import DEFAULT_TABLE_LIMITS
from paraembed.io.store import open_store
from paraembed.loading import open_encoder
from paraembed.settings import DEFAULT_INFERENCE


def list_inputs(asked, limits=DEFAULT_TABLE_LIMITS, **options):
    """Find and hash input files."""
    return hash_inputs(find_inputs(asked, limits, **options))


def build(encoder, inputs, settings, out, on_duplicate_id="fail", inference=DEFAULT_INFERENCE):
    """Embed, or go on; returns the parts that were embedded, with their rows."""
    encoder, store = open_encoder(str(encoder), inference), open_store(out)
    files = list_inputs([inputs] if isinstance(inputs, Path) else inputs)
    settings = complete_settings(settings, files, encoder.reads_trees)
    new = EmbeddingRun(encoder.fingerprint, encoder.tokenizer, Plan(files, settings, ()), encoder.identity)
    run = continued_run(store, new) if check_folder(store) else replace(new, plan=make_plan(files, settings))
    plan = run.plan
    embedded = {}
    with begun_run(store, run) as reports:
        for part in plan.parts:
            if part.name not in reports:
                reports[part.name] = embed_part(encoder, plan.inputs[part.file], part, settings, store)
                embedded[part.name] = part.rows
        commit(store, run, reports, on_duplicate_id)
    return embedded
