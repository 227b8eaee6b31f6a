import gzip
import time

import pytest
import torch

from paraembed import checkpoint
from paraembed.embedding.estimate import estimate, seconds_here
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from tests.embedding.without_ray import build, list_inputs


@pytest.mark.parametrize("name", ["t.txt", "t.txt.gz"])
def test_an_estimate_is_near_what_is_written(tiny_encoder_folder, tmp_path, name):
    text = b"".join(b"the cat sat on mat %d .\n" % row for row in range(20_000))
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    settings = Settings(part_rows=7000, keep=("text",))
    plan = make_plan(list_inputs([tmp_path / name]), settings)
    found = estimate(checkpoint.load(tiny_encoder_folder), plan, probe_seconds=60)
    assert (found.rows, found.parts) == (20_000, 3)
    assert 1024 <= found.probed <= 21_000
    assert found.seconds == pytest.approx(20_000 / found.rows_per_second)
    build(tiny_encoder_folder, tmp_path / name, settings, tmp_path / "out")
    written = sum(path.stat().st_size for path in (tmp_path / "out" / "data").glob("*.parquet"))
    assert found.size == pytest.approx(written, rel=0.2)
    short = estimate(checkpoint.load(tiny_encoder_folder), plan, probe_seconds=0)
    assert short.probed == 1024


def test_the_sample_is_embedded_on_one_thread(tiny_encoder_folder, tmp_path):
    """As by a worker: a rate of all cores, times the number of workers, would promise too much."""
    (tmp_path / "t.txt").write_text("the cat sat\n" * 100)
    encoder, threads = checkpoint.load(tiny_encoder_folder), []
    encoder.composition.register_forward_hook(lambda *_: threads.append(torch.get_num_threads()))
    encoder.placed("cpu", "bfloat16")  # computed by PyTorch
    torch.set_num_threads(2)
    try:
        estimate(encoder, make_plan(list_inputs([tmp_path / "t.txt"]), Settings()), probe_seconds=0)
        assert (set(threads), torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(1)


class SlowStart:
    """An encoder whose first batch takes two seconds, as imports and compilation do."""

    def __init__(self, encoder):
        self.encoder, self.calls = encoder, 0

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def embed(self, *arguments, **options):
        self.calls += 1
        time.sleep(2 if self.calls == 1 else 0)
        return self.encoder.embed(*arguments, **options)


@pytest.mark.parametrize(("rows", "batches", "is_rough"), [(9 * 1024, 9, False), (3000, 3, True)])
def test_the_first_batch_does_not_count(tiny_encoder_folder, tmp_path, rows, batches, is_rough):
    (tmp_path / "t.txt").write_text("the cat sat\n" * rows)
    plan = make_plan(list_inputs([tmp_path / "t.txt"]), Settings())
    found = estimate(SlowStart(checkpoint.load(tiny_encoder_folder)), plan, 1)
    assert (found.probed, found.batches) == (rows, batches)
    assert found.rows_per_second > rows / 2
    assert ("roughly" in found.basis) == is_rough


class SlowTexts(SlowStart):
    """An encoder that takes five milliseconds a text, as a transformer on a CPU does."""

    def embed(self, texts, *arguments, **options):
        time.sleep(0.005 * len(texts))
        return self.encoder.embed(texts, *arguments, **options)


@pytest.mark.parametrize("rows", [50, 40_000])
def test_the_work_of_one_process_decides_where_rows_are_embedded(tiny_encoder_folder, tmp_path, rows):
    (tmp_path / "t.txt").write_text("the cat sat\n" * rows)
    plan = make_plan(list_inputs([tmp_path / "t.txt"]), Settings(part_rows=1000))
    encoder = checkpoint.load(tiny_encoder_folder)
    assert seconds_here(encoder, plan, plan.parts) < 20
    assert seconds_here(SlowStart(encoder), plan, plan.parts) < 20
    slow = seconds_here(SlowTexts(encoder), plan, plan.parts)
    assert slow >= 0.005 * rows if rows > 64 else slow == 0
