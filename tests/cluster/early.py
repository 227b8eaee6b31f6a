"""Embed files while the plan waits for the first parts: ``python -m tests.cluster.early ENCODER FOLDER OUT PARTS``."""

import sys
import time
from pathlib import Path

from paraembed.cluster import embed as engine
from paraembed.embedding.settings import Settings
from paraembed.io.store import open_store

NUM_READ = 3  # files that are read before


def num_parts(out):
    """The parts that are there: their temporary files have other names."""
    return sum(name.startswith("data/part-") for name, _ in open_store(out).stamps("data/"))


def embed_early(encoder, folder, out, parts, settings, **options):
    """Embed a folder on Ray; the files after the first ``NUM_READ`` are planned when there are so many parts."""

    def held_back(function, arguments):
        for number, argument in enumerate(arguments):
            while number == NUM_READ and num_parts(out) < parts:
                time.sleep(0.02)
            yield function(argument)

    before = engine._EARLY_BYTES, engine._planning_tasks
    engine._EARLY_BYTES, engine._planning_tasks = 0, lambda *_: held_back
    try:
        return engine.embed(encoder, sorted(Path(folder).iterdir()), out, settings, engine="ray", **options)
    finally:
        engine._EARLY_BYTES, engine._planning_tasks = before


if __name__ == "__main__":
    embed_early(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), Settings(part_rows=1000))
