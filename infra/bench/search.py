"""Time the search of embeddings and the mining of pairs next to the bare matrix products of the same blocks."""

import tempfile
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from infra.bench.command import Add, count, path
from infra.bench.generated import draw_lines, draw_words
from infra.bench.rounds import Clock, Log, Program, measure, ratio, repeat, report, show_table, start
from paraembed.console import doing
from paraembed.embedding.commit import commit
from paraembed.embedding.identity import hash_inputs
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.manifest import EmbeddingRun, begun_run
from paraembed.embedding.mine import Comparison, neighbors, tiles
from paraembed.embedding.output import Embeddings
from paraembed.embedding.part import embed_part
from paraembed.embedding.plan import make_plan
from paraembed.embedding.search import search
from paraembed.embedding.settings import Settings
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.io.store import Folder
from paraembed.settings import MineSettings

PROGRAMS = {
    "search": "search",
    "product": "matrix product in memory",
    "mine": "neighbors of all blocks, one thread",
    "mine_product": "matrix products of the same tiles in memory",
}
GROUPS = (("search", "product"), ("mine", "mine_product"))
WORDS, MEAN_TOKENS, TOP = 40_000, 15.0, 10


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--rows", type=count, default=1_000_000, help="rows that are searched")
    add("--queries", type=count, default=1000, help="queries of a search")
    add("--mine-rows", type=count, default=50_000, help="rows that are compared with each other")
    add("--threshold", type=float, default=0.8, help="smallest cosine of a pair")
    add("--width", type=count, default=300, help="width of the vectors")
    add("--threads", type=count, default=2, help="threads of a search")
    add("--folder", type=path, help="folder for temporary files, 1 kB per row")


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure, print the table, return the numbers."""
    programs: dict[str, Program] = {}
    with tempfile.TemporaryDirectory(prefix="bench-search-", dir=options.folder) as name:
        for group, rows in zip(GROUPS, (options.rows, options.mine_rows), strict=True):
            if keys := [key for key in group if key in options.programs]:
                doing(f"embedding {rows:,} sentences")
                out = write_output(options, rows, Path(name))
                starts = {key: partial(_start, key, options, out) for key in keys}
                programs |= measure(starts, options.rounds, log, "rows")
    columns = {
        "rows": lambda program: f"{program.rounds[0].steps:,}",
        "rows/s": lambda program: f"{program.rate:,.0f}",
        "paraembed ×": ratio(programs, {second: first for first, second in GROUPS}),
        "peak MB": lambda program: f"{program.peak_bytes / 1e6:,.0f}",
    }
    show_table("program", programs.values(), columns)
    return report(options, programs, f"{options.queries:,} queries")


def write_output(options: Namespace, rows: int, folder: Path) -> Path:
    """Embed generated sentences as jobs/embed.py does; return the output."""
    texts, out = folder / f"{rows}.txt", folder / f"{rows}-embeddings"
    texts.write_bytes(draw_lines(rows, MEAN_TOKENS, WORDS, options.seed))
    words = draw_words(WORDS, options.width, options.seed)
    encoder = Encoder(AvgConfig(), words, "space", options.seed).requires_grad_(False).eval()
    encoder.fingerprint = "bench"
    plan = make_plan(hash_inputs(find_inputs([str(texts)])), Settings(keep=("text",)))
    embedding, store = EmbeddingRun("bench", "space", plan), Folder(out)
    with begun_run(store, embedding) as reports:
        for part in plan.parts:
            reports.add(embed_part(encoder, plan.sources(part), part, plan.settings, store))
        commit(store, embedding, reports)
    return out


def _start(key: str, options: Namespace, out: Path) -> Program:
    arguments = {"key": key, "out": str(out), "queries": options.queries, "threshold": options.threshold}
    return start(PROGRAMS[key], run_program, arguments, threads=1 if "mine" in key else options.threads)


def run_program(clock: Clock, key: str, out: str, queries: int, threshold: float) -> None:
    """Do the work once as warm-up, and then once per round."""
    embeddings = Embeddings(Path(out))
    vectors = next(iter(embeddings.blocks())).vectors[:queries].copy()
    blocks = [block.vectors for block in embeddings.blocks()] if "product" in key else []
    works: dict[str, Callable[[], object]] = {
        "search": lambda: search(embeddings, vectors, TOP),
        "mine": lambda: _mine(embeddings, threshold),
        "product": lambda: [len(vectors @ block.T) for block in blocks],
        "mine_product": lambda: _mine_products(blocks),
    }
    works[key]()
    repeat(clock, works[key], embeddings.rows)


def _mine(embeddings: Embeddings, threshold: float) -> None:
    comparison = Comparison(embeddings, None, MineSettings(threshold))
    with tempfile.TemporaryDirectory() as folder:
        for block in range(len(comparison.blocks)):
            neighbors(comparison, block, Path(folder) / f"{block}.npy")


def _mine_products(blocks: list[Any]) -> None:
    """Multiply the tiles that ``neighbors`` multiplies, in blocks of as many rows."""
    rows, size = np.concatenate(blocks), MineSettings().block_rows
    for first in range(0, len(rows), size):
        for left in tiles(len(rows[first : first + size])):
            for right in tiles(len(rows) - first):
                if right.stop > left.start + 1:
                    rows[first:][left] @ rows[first:][right].T
