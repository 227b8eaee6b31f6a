"""Embedding on a GPU: vectors of the CPU, parts that overlap, less memory."""

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from paraembed import checkpoint
from paraembed.embedding.part import PartWorker
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import ENCODERS, Encoder
from paraembed.encoders.configs import LstmAvgConfig
from paraembed.loading import open_encoder
from paraembed.settings import Gpus, Inference
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.embedding.without_ray import list_inputs
from tests.encoders.models import minilm, save_tiny

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries

VOCABULARY = [UNKNOWN, *(f"w{number}" for number in range(39))]


def on_gpu(test):
    """Mark a test that needs a GPU."""
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")(test))


def encoder_of(config, width=12):
    matrix = np.random.default_rng(1).standard_normal((40, width), dtype=np.float32)
    return Encoder(config, Words(pa.array(VOCABULARY), matrix), "space", 3)


def draw_texts(count, most=9, seed=5):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(VOCABULARY[1:], draw.integers(1, most + 1))) for _ in range(count)]


@on_gpu
@pytest.mark.parametrize("name", ENCODERS)
def test_own_encoders_on_a_gpu(name, tmp_path):
    config, texts = ENCODERS[name](), pa.array([*draw_texts(300), "", "w1 zebra", *draw_texts(5, 400)])
    expected = encoder_of(config).requires_grad_(False).embed(texts)
    for precision, tolerance in (("float32", 1e-5), ("bfloat16", 0.1), ("float16", 0.02)):
        found = encoder_of(config).requires_grad_(False).placed("cuda", precision).embed(texts)
        limit = tolerance * np.abs(expected.vectors).max(axis=1, keepdims=True)
        assert (np.abs(found.vectors - expected.vectors) <= limit + 1e-6).all(), precision
        assert np.array_equal(found.num_tokens, expected.num_tokens)


@on_gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_a_transformer_on_a_gpu(precision):
    texts = pa.array([*draw_texts(200, 40), "", "A man is playing a guitar."])
    expected = open_encoder(f"st:{minilm()}", Inference(device="cpu")).embed(texts)
    found = open_encoder(f"st:{minilm()}", Inference(device="cuda", precision=precision)).embed(texts)
    assert np.allclose(found.vectors, expected.vectors, atol=1e-4 if precision == "float32" else 0.02)
    assert np.array_equal(found.num_tokens, expected.num_tokens)
    assert not found.vectors[200].any()


@on_gpu
def test_an_onnx_graph_on_a_gpu(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    name, texts = save_tiny("onnx", tmp_path / "model"), pa.array(["the cat", "dog on the mat", ""])
    if "CUDAExecutionProvider" not in runtime.get_available_providers():
        assert open_encoder(name).identity["device"] == "cpu"
        with pytest.raises(ValueError, match="onnxruntime-gpu"):
            open_encoder(name, Inference(device="cuda"))
        return
    expected = open_encoder(name, Inference(device="cpu")).embed(texts)
    assert np.allclose(open_encoder(name, Inference(device="cuda")).embed(texts).vectors, expected.vectors, atol=1e-5)


@on_gpu
@pytest.mark.parametrize("kind", ["st", "lstm_avg"])
def test_too_little_memory_of_a_gpu_halves_the_batches(kind, caplog):
    texts = pa.array(draw_texts(4000, 60))
    if kind == "st":
        name = f"st:{minilm()}"
        expected = open_encoder(name, Inference(device="cuda")).embed(texts).vectors
        encoder = open_encoder(name, Inference(device="cuda", batch_tokens=1 << 20))
    else:
        config = LstmAvgConfig(width=2048)
        expected = encoder_of(config).requires_grad_(False).placed("cuda", "float32").embed(texts).vectors
        encoder = encoder_of(config).requires_grad_(False).placed("cuda", "float32")
    encoder.embed(texts[:1])
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    more = 400 << 20 if kind == "st" else 300 << 20
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + more) / total)
    try:
        with caplog.at_level(logging.WARNING):
            found = encoder.embed(texts).vectors
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert np.allclose(found, expected, atol=1e-4)
    assert ["too little free memory" in record.message for record in caplog.records] == [True]


@on_gpu
def test_parts_of_a_worker_overlap_on_a_gpu(tmp_path):
    source, out = tmp_path / "t.txt", tmp_path / "out"
    source.write_text("\n".join(draw_texts(4000, 30)) + "\n")
    (out / "data").mkdir(parents=True)
    plan = make_plan(list_inputs([source]), Settings(part_rows=1000))
    encoder = open_encoder(f"st:{minilm()}", Inference(device="cuda"))
    worker, spans = PartWorker(), []

    def embed(part):
        start = time.perf_counter()
        rows = worker.embed(encoder.packed(), plan.inputs, part, plan.settings, str(out), None).report.rows
        spans.append((start, time.perf_counter()))
        return rows

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(embed, plan.parts)) == [1000] * 4
    spans.sort()
    assert any(later[0] < earlier[1] for earlier, later in pairwise(spans))


@on_gpu
@pytest.mark.ray
@pytest.mark.parametrize("kind", ["st", "lstm_avg"])
def test_the_job_on_a_gpu(kind, tmp_path, monkeypatch):
    """Two workers share the GPU; every row is there once, and a sample agrees within the tolerance of the manifest."""
    embed = pytest.importorskip("paraembed.cluster.embed", exc_type=ImportError).embed  # needs Ray and MLflow
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "t.txt").write_text("\n".join(draw_texts(2000, 30)) + "\n")
    name = f"st:{minilm()}"
    if kind == "lstm_avg":
        name = str(tmp_path / "encoder")
        checkpoint.save(encoder_of(LstmAvgConfig()), tmp_path / "encoder", recipe={}, provenance={}, model_card="")
    settings, inputs = Settings(part_rows=250, keep=("text",)), [tmp_path / "t.txt"]
    done = embed(name, inputs, tmp_path / "out", settings, gpus=Gpus(1, 0.5))
    assert (done.rows, done.parts, done.embedded) == (2000, 8, 8)
    table = pq.read_table(sorted((tmp_path / "out").glob("data/part-*")))
    assert table["row"].to_pylist() == list(range(2000))
    assert table["text"].to_pylist() == (tmp_path / "t.txt").read_text().splitlines()
    model = json.loads((tmp_path / "out" / "_manifest.json").read_text())["model"]
    assert (model["device"], model["same_bytes"]) == ("cuda", False)
    assert all(check.ok for check in verify(tmp_path / "out", name, [str(tmp_path / "t.txt")]))
    assert embed(name, inputs, tmp_path / "out", settings, gpus=Gpus(1)).was_finished
