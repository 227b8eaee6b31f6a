"""Embed into a folder as jobs/embed.py does, in this process."""

from pathlib import Path

from paraembed import checkpoint
from paraembed.embedding.columns import complete_settings
from paraembed.embedding.inputs import list_inputs
from paraembed.embedding.manifest import Run, begun_run, check_folder, commit, continued_plan
from paraembed.embedding.part import embed_part
from paraembed.embedding.plan import make_plan
from paraembed.embedding.rows import stream_parts
from paraembed.embedding.store import open_store


def build(
    encoder_folder,
    inputs,
    settings,
    out,
    on_duplicate_id="fail",
):
    """Embed, or go on; returns the parts that were embedded, with their rows."""
    encoder, store = checkpoint.load(encoder_folder), open_store(out)
    decides = encoder.fingerprint, encoder.tokenizer
    files = list_inputs([inputs] if isinstance(inputs, Path) else inputs)
    settings = complete_settings(settings, files, encoder.config.reads_trees)
    plan = continued_plan(store, *decides, files, settings) if check_folder(store) else make_plan(files, settings)
    run = Run(*decides, plan)
    embedded = {}
    with begun_run(store, run) as reports:
        for part in plan.parts:
            if part.name not in reports:
                source = plan.inputs[part.file]
                data = next(stream_parts(source, [part]))[1] if source.is_chain else None
                reports[part.name] = embed_part(encoder, source, part, settings, store, data=data)
                embedded[part.name] = part.rows
        commit(store, run, reports, on_duplicate_id)
    return embedded
