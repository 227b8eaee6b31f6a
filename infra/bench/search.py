"""Benchmark of search and of mining: the jobs' own functions next to the bare matrix products of the same blocks."""

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from infra.bench.command import SEARCH_PROGRAMS, Search
from infra.bench.generated import draw_lines, draw_words
from infra.bench.rounds import Clock, Program, Result, has, measure, metrics, repeat, show_table, start
from paraembed.console import doing, say
from paraembed.embedding.inputs import find_inputs, hash_inputs
from paraembed.embedding.manifest import EmbeddingRun, begun_run, commit
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

GROUPS = (("read", "search_1", "product_1", "search", "product"), ("mine", "mine_product"))
COMPARED = {"search_1": "product_1", "search": "product", "mine": "mine_product"}
_MEAN_TOKENS, _TOP = 15.0, 10


def run(options: Search, log_metrics: Callable[[dict[str, float]], None]) -> dict[str, Any]:
    """Measure, print the tables, return the numbers."""
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="bench-search-", dir=options.folder) as name:
        for group, rows in zip(GROUPS, (options.rows, options.mine_rows), strict=True):
            keys = [key for key in group if not options.programs or key in options.programs]
            if keys:
                doing(f"embedding {rows:,} sentences")
                out = _write_output(options, rows, Path(name))
                results |= measure({key: partial(_start, key, options, out) for key in keys}, options.rounds)
    log_metrics(metrics(results, "rows"))

    def ratio(result: Result) -> str:
        other = next((COMPARED[key] for key in COMPARED if SEARCH_PROGRAMS[key] == result.name), "")
        return f"{result.rate / results[other].rate:.2f}" if has(results, other) else ""

    columns = {
        "rows/s": lambda result: f"{result.rate:,.0f}",
        "CPU s": lambda result: f"{result.cpu_seconds * result.rounds[0].steps:.2f}",
        "× product": ratio,
        "peak MB": lambda result: f"{result.peak_bytes / 1e6:,.0f}",
    }
    show_table(f"{options.rows:,} rows", [results[key] for key in GROUPS[0] if key in results], columns)
    show_table(
        f"{options.mine_rows:,} rows, one thread", [results[key] for key in GROUPS[1] if key in results], columns
    )
    say(f"median of {options.rounds} rounds; {options.queries:,} queries; {os.cpu_count()} cores")
    programs = {key: result.numbers() for key, result in results.items()}
    return {"settings": options.settings(), "cores": os.cpu_count(), "programs": programs}


def _write_output(options: Search, rows: int, folder: Path) -> Path:
    """Embed generated sentences as jobs/embed.py does; return the output."""
    texts, out = folder / f"{rows}.txt", folder / f"{rows}-embeddings"
    texts.write_bytes(draw_lines(rows, _MEAN_TOKENS, options.words, options.seed))
    words = draw_words(options.words, options.width, options.seed)
    encoder = Encoder(AvgConfig(), words, "space", options.seed).requires_grad_(False).eval()
    encoder.fingerprint = "bench"
    plan = make_plan(hash_inputs(find_inputs([str(texts)])), Settings(keep=("text",)))
    embedding, store = EmbeddingRun("bench", "space", plan), Folder(out)
    with begun_run(store, embedding) as reports:
        for part in plan.parts:
            reports[part.name] = embed_part(encoder, plan.inputs[0], part, plan.settings, store)
        commit(store, embedding, reports)
    return out


def _start(key: str, options: Search, out: Path) -> Program:
    """Start a program of ``SEARCH_PROGRAMS``."""
    queries = 1 if key.endswith("_1") else options.queries
    arguments = {"key": key, "out": str(out), "queries": queries, "threshold": options.threshold}
    return start(SEARCH_PROGRAMS[key], run_program, arguments, threads=1 if "mine" in key else options.threads)


def run_program(clock: Clock, key: str, out: str, queries: int, threshold: float) -> None:
    """Do the work once as warm-up, and then once per round."""
    embeddings = Embeddings(Path(out))
    vectors = next(iter(embeddings.blocks())).vectors[:queries].copy()
    blocks = [block.vectors for block in embeddings.blocks()] if "product" in key else []
    works: dict[str, Callable[[], object]] = {
        "read": lambda: [len(block.vectors) for block in embeddings.blocks()],
        "search": lambda: search(embeddings, vectors, _TOP),
        "mine": lambda: _mine(embeddings, threshold),
        "product": lambda: _products(vectors, blocks),
        "mine_product": lambda: _mine_products(blocks),
    }
    work = works[key.removesuffix("_1")]
    work()
    repeat(clock, work, embeddings.rows)


def _mine(embeddings: Embeddings, threshold: float) -> None:
    comparison = Comparison(embeddings, None, MineSettings(threshold))
    with tempfile.TemporaryDirectory() as folder:
        for block in range(len(comparison.blocks)):
            neighbors(comparison, block, Path(folder) / f"{block}.npy")


def _products(queries: Any, blocks: list[Any]) -> None:
    for vectors in blocks:
        queries @ vectors.T


def _mine_products(blocks: list[Any]) -> None:
    """Multiply the tiles that ``neighbors`` multiplies, in blocks of as many rows."""
    rows, size = np.concatenate(blocks), MineSettings().block_rows
    for first in range(0, len(rows), size):
        for left in tiles(len(rows[first : first + size])):
            for right in tiles(len(rows) - first):
                if right.stop > left.start + 1:
                    rows[first:][left] @ rows[first:][right].T
