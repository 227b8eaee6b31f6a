"""A worker with a device: while it encodes one part, others are read, tokenized and written."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from paraembed import load
from paraembed.embedding.local import embed_here
from paraembed.embedding.manifest import EmbeddingRun, begun_run
from paraembed.embedding.part import PartWorker
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.encoders import Embedded
from paraembed.io.store import open_store
from tests.embedding.without_ray import list_inputs

BATCH, SECONDS = 256, 0.005


@dataclass
class Device:
    """An encoder that tokenizes for 50 ms and takes 5 ms a batch of 256 texts, as a GPU does, and notes both."""

    busy: list = field(default_factory=list)
    tokenizing: list = field(default_factory=list)
    fingerprint, tokenizer, max_tokens, reads_trees, width, identity = "f", "space", None, False, 64, {}

    def packed(self):
        return self

    def encoder(self):
        return self

    def embed(self, texts, *_, lock, **__):
        start = time.perf_counter()
        time.sleep(10 * SECONDS)
        self.tokenizing.append((start, time.perf_counter()))
        with lock:
            start = time.perf_counter()
            time.sleep(SECONDS * -(-len(texts) // BATCH))
            self.busy.append((start, time.perf_counter()))
        counts = np.ones(len(texts), np.int32)
        return Embedded(np.ones((len(texts), 64), np.float32), counts, counts * 0)


def test_parts_overlap_and_encode_in_turn(tmp_path):
    source, out = tmp_path / "t.txt", tmp_path / "out"
    source.write_text("the cat sat\n" * 120_000)
    for folder in ("data", "_reports"):
        (out / folder).mkdir(parents=True)
    settings = Settings(part_rows=20_000, batch_size=8192)
    plan = make_plan(list_inputs([source]), settings)
    worker, device, parts = PartWorker(), Device(), []

    def embed(part):
        start = time.perf_counter()
        rows = worker.embed(device, plan.inputs, part, settings, str(out), None).report.rows
        parts.append((start, time.perf_counter()))
        return rows

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(embed, plan.parts)) == 120_000
    assert not any(overlaps(device.busy))
    assert any(overlaps(parts))
    assert any(start < end_of and begin < end for start, end in device.tokenizing for begin, end_of in device.busy)


def overlaps(spans):
    ordered = sorted(spans)
    return [second[0] < first[1] for first, second in pairwise(ordered)]


def embedded_here(out, texts, encoder, threads):
    """Embed in this process; returns the reports in the order in which they came."""
    store = open_store(out)
    plan = make_plan(list_inputs([texts]), Settings(part_rows=50))
    run = EmbeddingRun(encoder.fingerprint, encoder.tokenizer, plan, encoder.identity)
    with begun_run(store, run):
        return [done.report for done in embed_here(encoder, run, plan.parts, store, threads=threads)]


def test_threads_of_the_job_write_the_bytes_of_one_in_order(tiny_encoder_folder, tmp_path):
    texts, encoder = tmp_path / "t.txt", load(str(tiny_encoder_folder))
    texts.write_text("".join(f"the cat {'sat ' * (row % 7)}{row}\n" for row in range(1000)))
    first, others = (embedded_here(tmp_path / str(threads), texts, encoder, threads) for threads in (1, 4))
    assert [report.sha256 for report in others] == [report.sha256 for report in first]
    assert [report.name for report in others] == sorted(report.name for report in others)


class Wrapped:
    def __init__(self, encoder, before):
        self._encoder, self._before = encoder, before

    def __getattr__(self, name):
        return getattr(self._encoder, name)

    def embed(self, texts, *given, on_rows, **more):
        self._before(texts.to_pylist(), on_rows)
        return self._encoder.embed(texts, *given, on_rows=on_rows, **more)


def test_parts_of_a_run_that_is_stopped_are_not_finished(tiny_encoder_folder, tmp_path):
    """The encoder encodes the first part at once, and counts rows of the others for a minute."""
    texts, store = tmp_path / "t.txt", open_store(tmp_path / "out")
    texts.write_text("the cat sat\n" * 100 + "a dog ran home\n" * 300)

    def slow(texts, on_rows):
        for _ in range(6000 * (texts[0] != "the cat sat")):
            time.sleep(0.01)
            on_rows(0)

    encoder = Wrapped(load(str(tiny_encoder_folder)), slow)
    plan = make_plan(list_inputs([texts]), Settings(part_rows=100))
    run = EmbeddingRun(encoder.fingerprint, encoder.tokenizer, plan, encoder.identity)
    with begun_run(store, run):
        results = embed_here(encoder, run, plan.parts, store, threads=3)
        assert next(results).report.rows == 100
        results.close()
    assert [path.name for path in (tmp_path / "out/data").iterdir()] == [plan.parts[0].name.removeprefix("data/")]


def test_an_error_in_one_thread_ends_the_others_and_keeps_what_they_wrote(tiny_encoder_folder, tmp_path):
    """The text comes last but for five parts, of which the threads begin two at most."""

    def fails(texts, _):
        if "the dog 750" in texts:
            raise ValueError("no vector")

    texts, encoder = tmp_path / "t.txt", Wrapped(load(str(tiny_encoder_folder)), fails)
    texts.write_text("".join(f"the dog {row}\n" for row in range(1000)))
    with pytest.raises(ValueError, match="no vector"):
        embedded_here(tmp_path / "out", texts, encoder, 3)
    assert 9 <= len(list((tmp_path / "out/data").glob("part-*.parquet"))) <= 19
