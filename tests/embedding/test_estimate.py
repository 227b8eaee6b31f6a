import gzip

import pytest
import torch

from paraembed import checkpoint
from paraembed.embedding import estimate as module
from paraembed.embedding.estimate import estimate, seconds_here
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from tests.embedding.without_ray import build, list_inputs


@pytest.mark.parametrize(("name", "chunks"), [("t.txt", {}), ("t.txt.gz", {"chunk_tokens": 3, "chunk_by": "token"})])
def test_an_estimate_is_near_what_is_written(tiny_encoder_folder, tmp_path, name, chunks):
    text = b"".join(b"the cat sat on mat %d .\n" % row for row in range(20_000))
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    settings, rows = Settings(part_rows=7000, keep=("text",), **chunks), 60_000 if chunks else 20_000
    plan = make_plan(list_inputs([tmp_path / name]), settings)
    found = estimate(checkpoint.load(tiny_encoder_folder), plan, probe_seconds=60)
    assert (found.rows, found.parts) == (rows, 3)
    assert 1024 <= found.probed <= rows + 1024
    assert found.seconds == pytest.approx(rows / found.rows_per_second)
    build(tiny_encoder_folder, tmp_path / name, settings, tmp_path / "out")
    written = sum(path.stat().st_size for path in (tmp_path / "out" / "data").glob("*.parquet"))
    assert found.size == pytest.approx(written, rel=0.2)
    short = estimate(checkpoint.load(tiny_encoder_folder), plan, probe_seconds=0)
    assert short.probed == 1024


class Timed:
    """An encoder and its clock: two seconds for the first batch, in which it would import and compile."""

    def __init__(self, encoder, seconds_a_text):
        self.encoder, self.seconds_a_text, self.now = encoder, seconds_a_text, 0.0

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def perf_counter(self):
        return self.now

    def embed(self, texts, *arguments, **options):
        assert torch.get_num_threads() == 1, "as a worker has"
        self.now += (2 if self.now == 0 else 0) + self.seconds_a_text * len(texts)
        return self.encoder.embed(texts, *arguments, **options)


@pytest.fixture
def timed(tiny_encoder_folder, monkeypatch):
    def of_speed(seconds_a_text):
        encoder = Timed(checkpoint.load(tiny_encoder_folder), seconds_a_text)
        monkeypatch.setattr(module, "time", encoder)
        return encoder

    torch.set_num_threads(2)
    yield of_speed
    torch.set_num_threads(1)


@pytest.mark.parametrize(("rows", "batches", "is_rough"), [(9 * 1024, 9, False), (3000, 3, True)])
def test_the_first_batch_does_not_count(timed, tmp_path, rows, batches, is_rough):
    (tmp_path / "t.txt").write_text("the cat sat\n" * rows)
    plan = make_plan(list_inputs([tmp_path / "t.txt"]), Settings())
    found = estimate(timed(1e-4), plan, 1)
    assert (found.probed, found.batches) == (rows, batches)
    assert found.rows_per_second == pytest.approx(1e4)
    assert ("roughly" in found.basis) == is_rough


@pytest.mark.parametrize(("rows", "seconds_a_text"), [(50, 5e-3), (40_000, 1e-6), (40_000, 5e-3)])
def test_the_work_of_one_process_decides_where_rows_are_embedded(timed, tmp_path, rows, seconds_a_text):
    """Five milliseconds a text are those of a transformer on a CPU."""
    (tmp_path / "t.txt").write_text("the cat sat\n" * rows)
    plan = make_plan(list_inputs([tmp_path / "t.txt"]), Settings(part_rows=1000))
    expected = rows * seconds_a_text if rows > 64 else 0
    assert seconds_here(timed(seconds_a_text), plan, plan.parts) == pytest.approx(expected)
