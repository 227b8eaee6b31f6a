"""Encoders of other libraries: their vectors are those of the library, with our counts, identity and batches."""

import hashlib
import json
import os
import pickle
import shutil
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from threading import Lock, Thread

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders.foreign import sentence_transformers
from paraembed.encoders.foreign.base import ragged
from paraembed.encoders.foreign.batches import Batch, InBatches, ModelTokens, packed, padded
from paraembed.encoders.foreign.files import ModelFiles
from paraembed.encoders.foreign.sentence_transformers import (
    _TEXTS,
    SentenceTransformerEncoder,
    backend_options,
    cosine_of_bfloat16,
)
from paraembed.io.fingerprint import sha256_of
from paraembed.loading import open_encoder
from paraembed.settings import Inference
from tests.encoders.models import MATRIX, TAUGHT, minilm, save_onnx, save_tiny, save_transformer, subword_tokenizer
from tests.jobs import ran
from tests.text.pieces import RARE, SPECIAL
from tests.text.pieces import library as uncased_tokenizer

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries

TEXTS = ["the cat", "dog on the mat", "", "cat", "the zebra", None, "  "]
ROWS = [[5, 1], [2, 3, 5, 4], [], [1], [5, 0], [], []]  # of MATRIX, for each of TEXTS
SENTENCES = [
    "A man is playing a guitar.",
    "Two dogs run through the snow while a child watches them from the porch of an old wooden house.",
    "",
    "Rain.",
    "The quick brown fox jumps over the lazy dog, again and again, until the sun goes down behind the hills.",
] * 7


@pytest.fixture(params=["st", "m2v", "onnx"])
def tiny(request, tmp_path):
    return save_tiny(request.param, tmp_path / "model")


@pytest.fixture(scope="module")
def transformer():
    return open_encoder(f"st:{minilm()}")


@pytest.fixture(scope="module")
def bare():
    """The library's own model of ``transformer``."""
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(minilm()), device="cpu", local_files_only=True)


def test_vectors_and_counts_of_tiny_models(tiny):
    """model2vec leaves unknown words out of the mean; the others take the vector of <unk>."""
    result = open_encoder(tiny).embed(pa.array(TEXTS))
    for vector, rows in zip(result.vectors, ROWS, strict=True):
        kept = [row for row in rows if row or not tiny.startswith("m2v")]
        expected = MATRIX[kept].mean(axis=0) if kept else np.zeros(4)
        assert np.allclose(vector, expected, atol=1e-6)
    assert result.num_tokens.tolist() == [2, 4, 0, 1, 2, 0, 0]
    assert result.num_unknown.tolist() == [0, 0, 0, 0, 1, 0, 0]
    assert result.num_cut == 0
    assert open_encoder(tiny).embed(pa.array([], pa.string())).vectors.shape == (0, 4)


def test_a_transformer_as_its_library_has_it(transformer, bare):
    long = " ".join(["word"] * 400)
    texts = [*SENTENCES, long]
    result = transformer.embed(pa.array(texts))
    filled = np.array([bool(text) for text in texts])
    assert np.allclose(result.vectors[filled], bare.encode([text for text in texts if text]), atol=1e-5)
    assert not result.vectors[~filled].any()
    expected = [len(ids) for ids in bare.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]]
    assert result.num_tokens.tolist() == expected
    assert (transformer.width, transformer.max_tokens, result.num_cut) == (384, 254, 1)
    assert transformer.encode([]).shape == (0, 384)


def test_token_states_are_summed_in_the_same_pass(transformer, bare):
    texts = ["the cat sat on the mat", "", "a cat \u0378 ran", "the end of the unaffable story"]
    embedded, sums = transformer.embed_states(pa.array(texts))
    assert np.array_equal(embedded.vectors, transformer.embed(pa.array(texts)).vectors)
    expected = {}
    for text in filter(None, texts):
        ids = bare.tokenizer(text)["input_ids"][1:-1]
        states = bare.encode(text, output_value="token_embeddings")[1:-1].numpy()
        for token, state in zip(ids, states, strict=True):
            expected.setdefault(token, []).append(state)
    assert sums.tokens.tolist() == sorted(expected)
    assert sums.counts.tolist() == [len(expected[token]) for token in sorted(expected)]
    assert sums.counts.max() == 4  # "the"
    found = np.array([np.sum(expected[token], axis=0) for token in sorted(expected)])
    np.testing.assert_allclose(sums.sums, found, atol=2e-5)
    assert transformer.has_states
    assert not open_encoder(f"st:{minilm()}", Inference(prompt="query: ")).has_states
    assert transformer.token_ids(pa.array(["unaffable", "cat"])).lengths.tolist() == [3, 1]


def test_a_prompt_is_read_and_not_counted(transformer, bare):
    asked = open_encoder(f"st:{minilm()}", Inference(prompt="query: "))
    result, texts = asked.embed(pa.array(SENTENCES[:5])), [text for text in SENTENCES[:5] if text]
    assert np.allclose(result.vectors[[0, 1, 3, 4]], bare.encode(texts, prompt="query: "), atol=1e-5)
    assert np.array_equal(result.num_tokens, transformer.embed(pa.array(SENTENCES[:5])).num_tokens)
    assert asked.max_tokens == transformer.max_tokens - 2  # "query" and ":"


def test_what_decides_the_vectors_changes_the_fingerprint(tmp_path):
    name, changed = save_transformer(subword_tokenizer("cased"), tmp_path), tmp_path / "changed"
    shutil.copytree(tmp_path / "model", changed)
    first = open_encoder(name)
    (changed / "README.md").write_text("another card\n")
    assert open_encoder(f"st:{changed}").fingerprint == first.fingerprint
    weights = bytearray((changed / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (changed / "model.safetensors").write_bytes(weights)
    others = {"files": open_encoder(f"st:{changed}")}
    for field, settings in (
        ("max_tokens", {"prompt": "query: "}),
        ("precision", {"precision": "bfloat16"}),
        ("batch_tokens", {"batch_tokens": 512}),
    ):
        others[field] = open_encoder(name, Inference(**settings))
    for field, other in others.items():
        assert other.fingerprint != first.fingerprint
        assert other.identity[field] != first.identity[field]


def test_a_model_travels_with_its_files(tiny, tmp_path, monkeypatch):
    encoder = open_encoder(tiny)
    buffers = []
    sent = pickle.dumps(encoder.packed(), protocol=5, buffer_callback=buffers.append)  # as Ray's object store does
    shared = [bytes(buffer) for buffer in buffers]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    local = pickle.dumps(encoder.packed(is_local=True))
    assert len(local) < 10_000
    assert pickle.loads(local).encoder().fingerprint == encoder.fingerprint
    here = pickle.loads(sent, buffers=shared).encoder()
    assert here.files.folder == encoder.files.folder
    Path(tiny.partition(":")[2]).rename(tmp_path / "moved")  # as on a machine without the driver's disk
    with pytest.raises(ValueError, match="changed while the job ran"):
        pickle.loads(local).encoder()
    there = [pickle.loads(sent, buffers=shared).encoder() for _ in range(2)]
    for arrived in (here, *there):
        assert arrived.fingerprint == encoder.fingerprint
    assert np.array_equal(there[1].encode(["the cat"]), encoder.encode(["the cat"]))
    (copy,) = (tmp_path / "cache" / "paraembed" / "models").iterdir()
    assert there[0].files.folder == copy
    (copy / "tokenizer.json").write_text("{}")  # a damaged copy is written again
    assert pickle.loads(sent, buffers=shared).encoder().fingerprint == encoder.fingerprint


def test_a_worker_with_another_version_of_a_library_is_rejected(tiny):
    packed = open_encoder(tiny).packed(is_local=True)
    libraries = packed.identity["libraries"]
    drivers = replace(packed, identity={**packed.identity, "libraries": {**libraries, "tokenizers": "0.0.1"}})
    with pytest.raises(ValueError, match=rf"\.tokenizers \(was 0\.0\.1, is {libraries['tokenizers']}\) .*worker"):
        drivers.encoder()


def test_weights_that_could_run_code_are_rejected(tiny):
    module = Path(tiny.partition(":")[2]) / "module"
    module.mkdir()
    for name in ("pytorch_model.bin", "weights.pkl", "model.pt"):
        (module / name).touch()
        with pytest.raises(ValueError, match=rf"module/{name}"):
            open_encoder(tiny)
        (module / "model.safetensors").touch()  # then that is what a library loads
        assert open_encoder(tiny).width == 4
        for file in module.iterdir():
            file.unlink()


class Hub(BaseHTTPRequestHandler):
    """The Hugging Face hub with the model own/tiny, whose files are below ``folder``."""

    folder, asked = None, []

    def do_GET(self):
        self.asked.append(self.path)
        _, *parts = self.path.partition("?")[0].split("/")
        if parts[:2] != ["api", "models"]:
            name = "/".join(parts[4:])
            self.answer((self.folder / name).read_bytes() if name else b"")
        elif parts[4] == "revision":
            self.answer(json.dumps({"id": "own/tiny", "sha": COMMIT, "siblings": []}).encode())
        else:
            self.answer(
                json.dumps([self.entry(path) for path in sorted(self.folder.rglob("*")) if path.is_file()]).encode()
            )

    def entry(self, path):
        name, size = str(path.relative_to(self.folder)), path.stat().st_size
        return {"type": "file", "path": name, "size": size, "oid": sha256_of(path)[:40]}

    def answer(self, body):
        self.send_response(200)
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(body).hexdigest()}"'}
        for name, value in {**headers, "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_):
        pass

    do_HEAD = do_GET  # noqa: N815 - a name of the library


COMMIT = "c" * 40
OF_THE_HUB = """
import json, os, urllib.request
from pathlib import Path
from paraembed.embedding.output import Embeddings
from paraembed.embedding.search import query_encoder
from paraembed.embedding.settings import Settings
from paraembed.encoders.foreign.files import model_files
from paraembed.loading import open_encoder
from tests.embedding.without_ray import build
first = open_encoder("onnx:own/tiny")
forms = {form: model_files("own/tiny", "own/tiny", form) for form in ("torch", "onnx", "openvino")}
again = open_encoder("onnx:own/tiny")
assert again.fingerprint == first.fingerprint
Path("t.txt").write_text("the cat\\n")
build("onnx:own/tiny", Path("t.txt"), Settings(), Path("out"))
urllib.request.urlopen(os.environ["HF_ENDPOINT"] + "/searching")
Path("out/_reports/encoder.json").write_text(json.dumps({"encoder": "onnx:own/tiny"}))
try:
    query_encoder(Embeddings(Path("out")))
except FileNotFoundError as error:
    refused = str(error)
else:
    raise AssertionError("a model that the output names was opened")
print(json.dumps({"onnx:": again.files.names, "": refused} | {form: files.names for form, files in forms.items()}))
"""


@pytest.mark.slow
def test_each_kind_of_model_fetches_its_own_files_from_the_hub(tmp_path):
    """They share a folder of the cache, so that the files of one kind must not become part of another. A name that an
    output records is not looked up at all.
    """
    save_onnx(tmp_path / "hub")
    others = ("model.safetensors", "onnx/model.onnx", "onnx/model_fp16.onnx", "pytorch_model.bin", "training_args.bin")
    for name in (*others, "openvino/openvino_model.xml", "openvino/openvino_model.bin"):
        (tmp_path / "hub" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "hub" / name).write_text(name)
    handler = type("Handler", (Hub,), {"folder": tmp_path / "hub", "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
        environment["PYTHONPATH"] = str(Path(__file__).parents[3])
        done = ran(sys.executable, "-c", OF_THE_HUB, env=environment, cwd=tmp_path)
        server.shutdown()
    configs = {"1_Pooling/config.json", "modules.json", "tokenizer.json"}
    graphs = {"model.onnx", "onnx/model.onnx"}
    printed = json.loads(done.stdout)
    assert printed.pop("").startswith("out was embedded with onnx:own/tiny, which is not an encoder folder")
    names = {form: set(names) - configs for form, names in printed.items()}
    assert names == {
        "onnx:": graphs,
        "torch": {"model.safetensors", "openvino/openvino_model.xml"},
        "onnx": {"model.safetensors", "openvino/openvino_model.xml", "onnx/model_fp16.onnx", *graphs},
        "openvino": {"model.safetensors", "openvino/openvino_model.xml", "openvino/openvino_model.bin"},
    }
    assert handler.asked[-1] == "/searching"
    assert not any("pytorch_model.bin" in path for path in handler.asked)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_backend_computes_on_the_device_of_the_encoder(device):
    runtime = pytest.importorskip("onnxruntime")
    options = backend_options(Inference(device=device, backend="onnx"))
    assert options["provider"] == {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}[device]
    assert options["session_options"].intra_op_num_threads == 1
    has_gpu = "CUDAExecutionProvider" in runtime.get_available_providers()
    assert (SentenceTransformerEncoder.no_gpu("onnx") == "") is has_gpu
    assert SentenceTransformerEncoder.no_gpu("torch") == ""


@pytest.mark.parametrize(("backend", "package"), [("onnx", "optimum.onnxruntime"), ("openvino", "optimum.intel")])
def test_the_backends_compute_the_vectors_of_torch(backend, package, transformer, tmp_path):
    """In an environment with optimum-onnx or optimum-intel, which need sentence-transformers 5."""
    pytest.importorskip(package)
    library = pytest.importorskip("sentence_transformers")
    shutil.copytree(minilm(), tmp_path / "torch")
    model = library.SentenceTransformer(str(tmp_path / "torch"), device="cpu", backend=backend, local_files_only=True)
    model.save_pretrained(str(tmp_path / "model"))
    encoder = open_encoder(f"st:{tmp_path / 'model'}", Inference(device="cpu", backend=backend))
    result, expected = (one.embed(pa.array(SENTENCES)) for one in (encoder, transformer))
    np.testing.assert_allclose(result.vectors, expected.vectors, rtol=0, atol=1e-6)
    assert result.num_tokens.tolist() == expected.num_tokens.tolist()


def test_a_link_to_a_folder_and_an_adapter_are_rejected(tiny, tmp_path):
    folder = Path(tiny.partition(":")[2])
    (tmp_path / "elsewhere").mkdir()
    (folder / "1_Dense").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="1_Dense is a link to a folder"):
        open_encoder(tiny)
    (folder / "1_Dense").unlink()
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"adapter_config\.json"):
        open_encoder(tiny)


def test_hidden_files_and_cards_are_no_part_of_a_model(tiny):
    before, folder = open_encoder(tiny).fingerprint, Path(tiny.partition(":")[2])
    for path in (folder / ".cache" / "a.metadata", folder / ".gitattributes", folder / "README.md"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("changed\n")
    assert open_encoder(tiny).fingerprint == before
    (folder / "data.md").write_text("weights may have any name\n")
    assert open_encoder(tiny).fingerprint != before


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("m2v", {"prompt": "query: "}),
        ("m2v", {"device": "cuda"}),
        ("m2v", {"precision": "bfloat16"}),
        ("onnx", {"backend": "onnx"}),
        ("onnx", {"trust_remote_code": True}),
        ("st", {"backend": "onnx", "precision": "bfloat16"}),
        ("st", {"pooling": "cls"}),
        ("st", {"backend": "openvino", "device": "cuda"}),
    ],
)
def test_a_setting_that_a_model_does_not_have_is_an_error(tmp_path, kind, settings):
    name = save_tiny(kind, tmp_path / "model")
    with pytest.raises(ValueError, match=r"`(prompt|device|precision|backend|pooling|trust_remote_code)`"):
        open_encoder(name, Inference(**settings))


def test_less_memory_halves_the_batches_of_own_encoders(tiny_encoder_folder, caplog, monkeypatch):
    encoder = open_encoder(str(tiny_encoder_folder), Inference(precision="float16"))
    texts, forward = pa.array(["the cat sat", "a dog", "home .", "the mat", "a cat"]), type(encoder).forward
    expected, sizes = encoder.embed(texts).vectors, []

    def short_of_memory(self, batch):
        if len(batch) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        sizes.append(len(batch))
        return forward(self, batch)

    monkeypatch.setattr(type(encoder), "forward", short_of_memory)
    assert np.allclose(encoder.embed(texts).vectors, expected, atol=1e-3)
    assert (sum(sizes), len(caplog.records)) == (5, 1)


def test_texts_that_model2vec_truncates_are_counted(tmp_path):
    """It truncates to 4 tokens, before that to 4 times the median length of its words, which is 3 characters."""
    name = save_tiny("m2v", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"max_length": 4}))
    library = pytest.importorskip("model2vec").StaticModel.from_pretrained(tmp_path / "model")
    assert (library.max_length, library.median_token_length) == (4, 3)
    texts = ["on", "on on on on", "on on on on on", "the mat      mat", "cat          "]
    result = open_encoder(name).embed(pa.array(texts))
    assert result.num_cut == 2
    assert np.allclose(result.vectors, library.encode(texts), atol=1e-6)
    assert result.num_tokens.tolist() == [1, 4, 5, 3, 1]


def test_the_compiled_tokenizer_of_an_uncased_model_is_the_library(tmp_path):
    library, draw = pytest.importorskip("model2vec"), np.random.default_rng(3)
    tokenizer, vocabulary = uncased_tokenizer()
    vectors = draw.standard_normal((len(vocabulary), 8), dtype=np.float32)
    model = library.StaticModel(vectors, tokenizer, max_length=12)
    model.save_pretrained(tmp_path / "model")
    encoder = open_encoder(f"m2v:{tmp_path / 'model'}")
    pieces = [*RARE, *SPECIAL, "guitar", "unaffable", "don't", "x" * 120, "The"]
    texts = ["", " ", *pieces, *(" ".join(draw.choice(pieces, 9)) for _ in range(300)), *filter(None, SENTENCES)]
    result = encoder.embed(pa.array([*texts, None]))
    assert encoder._tokens._compiled is not None
    assert np.allclose(result.vectors[:-1], model.encode(texts), atol=1e-5)
    encoder._tokens._compiled = None
    expected = encoder.embed(pa.array([*texts, None], pa.large_string()))
    for name in ("vectors", "num_tokens", "num_unknown", "num_cut"):
        assert np.array_equal(getattr(result, name), getattr(expected, name)), name
    assert result.num_cut > 100
    assert open_encoder(save_tiny("m2v", tmp_path / "words"))._tokens._compiled is None


def test_bad_models(tiny, tmp_path):
    kind, _, folder = tiny.partition(":")
    for name in (f"{kind}:", f"{kind}:{folder}/none"):
        with pytest.raises(ValueError, match=rf"{name}(:| names) .*(no model|not a folder)"):
            open_encoder(name)
    for file in Path(folder).glob("*.json"):
        file.unlink()
    with pytest.raises(ValueError, match=f"{kind}:.*(not a model that|/model: .*missing; expected)"):
        open_encoder(tiny)


def test_settings_of_other_libraries_are_not_for_encoder_folders(tiny_encoder_folder):
    with pytest.raises(ValueError, match="`prompt`"):
        open_encoder(str(tiny_encoder_folder), Inference(prompt="query: "))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_no_gpu_here(tiny_encoder_folder):
    encoder = open_encoder(str(tiny_encoder_folder), Inference(device="cuda"))
    assert encoder.identity == {"device": "cuda", "precision": "float32"}
    with pytest.raises(ValueError, match="`device` is cuda"):
        encoder.embed(pa.array(["the cat"]))


def test_a_library_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(ValueError, match=r"m2v:x needs model2vec, .* pip install model2vec"):
        open_encoder("m2v:x")


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, MATRIX[[5, 1]].mean(axis=0)),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, MATRIX[5]),
        ({"pooling_mode": "cls"}, MATRIX[5]),
    ],
)
@pytest.mark.parametrize("normalizes", [False, True])
def test_pooling_of_onnx(tmp_path, pooling, expected, normalizes):
    save_onnx(tmp_path / "model", pooling, ["Normalize"] if normalizes else [])
    vectors = open_encoder(f"onnx:{tmp_path / 'model'}").encode(["the cat", "dog"])
    expected = expected / np.linalg.norm(expected) if normalizes else expected
    assert np.allclose(vectors[0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("pooling", "modules", "setting", "message"),
    [
        (None, [], None, r"onnx:\S+/model: .*each token.* `pooling` mean or cls"),
        ({"pooling_mode_mean_tokens": True}, [], "cls", r"`pooling` is cls, .* is mean"),
        ({"pooling_mode_max_tokens": True}, [], None, "only mean and cls"),
        ({"pooling_mode_mean_tokens": True}, ["Dense"], None, r"onnx:\S+/model: modules.json names Dense, which"),
    ],
)
def test_graphs_with_other_pooling_or_layers_are_rejected(tmp_path, pooling, modules, setting, message):
    save_onnx(tmp_path / "model", pooling, modules)
    with pytest.raises(ValueError, match=message):
        open_encoder(f"onnx:{tmp_path / 'model'}", Inference(pooling=setting))


def test_pooling_of_onnx_that_no_file_states(tmp_path):
    save_onnx(tmp_path / "model", pooling=None)
    mean, first = (open_encoder(f"onnx:{tmp_path / 'model'}", Inference(pooling=name)) for name in ("mean", "cls"))
    assert np.allclose(mean.encode("the cat"), MATRIX[[5, 1]].mean(axis=0))
    assert np.allclose(first.encode("the cat"), MATRIX[5])
    assert (mean.identity["pooling"], first.identity["pooling"]) == ("mean", "cls")
    assert mean.fingerprint != first.fingerprint


class Counting(InBatches):
    """A vector is the text's number of words and its first word. The batches are kept, and the steps with whether the
    lock was held.
    """

    kind, libraries, _num_special, _unknown = "st", ("torch",), 2, 0

    def __init__(self, batch_tokens, most=None):
        self.batches, self.most, self.lock, self.steps = [], most, Lock(), []
        super().__init__(ModelFiles(Path(), ()), Inference(device="cpu", batch_tokens=batch_tokens), 2, 10)

    def note(self, step):
        self.steps.append((step, self.lock.locked()))

    def token_ids(self, texts):
        self.note("ids")
        return ragged([list(map(int, text.split())) for text in texts.to_pylist()])

    def _features(self, batch):
        self.note("features")
        texts = batch.own_texts.to_pylist()
        assert batch.ids.take(batch.rows).ids.tolist() == [int(word) for text in texts for word in text.split()]
        return texts

    def _forward(self, texts):
        self.note("forward")
        size = len(texts) * (min(10, max(len(text.split()) for text in texts)) + 2)
        if self.most is not None and size > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self.batches.append(size)
        return texts

    def _vectors(self, texts):
        self.note("vectors")
        return np.array([[len(text.split()), int(text.split()[0])] for text in texts], np.float32)


numbers = st.lists(st.integers(0, 9), max_size=15).map(lambda row: " ".join(map(str, row)))


@given(st.lists(numbers, max_size=30), st.integers(12, 60))
def test_batches_keep_the_order_and_the_budget(texts, budget):
    encoder = Counting(budget)
    result = encoder.embed(pa.array(texts, pa.string()))
    words = [text.split() for text in texts]
    assert result.vectors.tolist() == [[len(row), int(row[0])] if row else [0, 0] for row in words]
    assert result.num_unknown.tolist() == [row.count("0") for row in words]
    assert result.num_cut == sum(len(row) > 10 for row in words)
    assert all(size <= budget for size in encoder.batches)


@given(
    st.lists(st.lists(st.integers(1, 99), max_size=9), min_size=1, max_size=9),
    st.sampled_from([None, 1, 5]),
    st.sampled_from([([], []), ([101], [102, 103])]),
    st.booleans(),
    st.data(),
)
def test_padded_and_packed_batches_hold_the_tokens_of_their_texts(texts, most, special, is_left, data):
    rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=9)), np.int64)
    before, after = special
    expected = [[*before, *texts[row][:most], *after] for row in rows]
    batch = Batch(pa.array([""] * len(texts)), ragged(texts), rows)
    found = padded(batch, most, before, after, 7, left=is_left)
    assert [ids[mask == 1].tolist() for ids, mask in zip(*list(found.values())[:2], strict=True)] == expected
    assert (found["input_ids"][found["attention_mask"] == 0] == 7).all()
    steps = np.diff(found["attention_mask"], axis=1)
    assert (steps >= 0).all() if is_left else (steps <= 0).all()
    found = packed(batch, most, before, after)
    assert found["input_ids"].tolist() == [list(chain.from_iterable(expected))]
    assert found["position_ids"].tolist() == [[place for row in expected for place in range(len(row))]]
    assert np.diff(found["cu_seq_lens_q"]).tolist() == np.bincount(found["seq_idx"][0], minlength=len(rows)).tolist()
    assert found["max_length_q"] == max(map(len, expected))


@pytest.mark.parametrize("kind", ["Bert", "Roberta"])
def test_packed_batches_have_the_vectors_of_the_library(kind, tmp_path):
    """With a prompt, of one token, truncated; positions of RoBERTa begin behind that of the padding."""
    library = pytest.importorskip("sentence_transformers", minversion="5.5")
    name = save_transformer(subword_tokenizer("bytes"), tmp_path, kind)
    model = library.SentenceTransformer(name.removeprefix("st:"), device="cpu")
    texts = [*TAUGHT, "the cat " * 300, "x"]
    for prompt in ("", "query: "):
        encoder = open_encoder(name, Inference(device="cpu", prompt=prompt))
        encoder.pack(encoder._on_device)
        assert encoder.packs
        expected = model.encode(texts, prompt=prompt)
        assert np.allclose(encoder.encode(texts), expected, atol=1e-6)
        alone = np.concatenate([encoder.encode([text]) for text in texts])
        assert np.allclose(alone, expected, atol=1e-6)


def test_a_model_that_cannot_compute_packed_batches_gets_padded_ones(tmp_path):
    encoder = open_encoder(save_transformer(subword_tokenizer("words"), tmp_path, "MPNet"), Inference(device="cpu"))
    expected = encoder.encode(TAUGHT)
    encoder.pack(encoder._on_device)
    assert not encoder.packs
    assert np.array_equal(encoder.encode(TAUGHT), expected)


def test_bfloat16_is_measured_without_a_change_of_the_model(tmp_path):
    name = save_transformer(subword_tokenizer("cased"), tmp_path)
    encoder = open_encoder(name, Inference(device="cpu"))
    before = encoder.encode(TAUGHT)
    rounded = open_encoder(name, Inference(device="cpu", precision="bfloat16")).encode(list(_TEXTS))
    exact = encoder.encode(list(_TEXTS))
    cosines = (rounded * exact).sum(axis=1) / np.linalg.norm(rounded, axis=1) / np.linalg.norm(exact, axis=1)
    assert abs(cosine_of_bfloat16(encoder._model) - cosines.min()) < 2e-4
    assert np.array_equal(encoder.encode(TAUGHT), before)


def test_on_a_gpu_a_model_computes_in_bfloat16_if_its_vectors_are_nearly_those_of_float32(monkeypatch, tmp_path):
    name = save_transformer(subword_tokenizer("cased"), tmp_path)
    usual, given = (open_encoder(name, Inference(device="cuda", precision=way)) for way in ("auto", "float32"))
    assert (usual.identity["precision"], given.identity["precision"]) == ("bfloat16", "float32")
    assert 0.999 <= usual.least_cosine < 1
    assert next(usual._model.parameters()).dtype == torch.bfloat16
    monkeypatch.setattr(sentence_transformers, "_LEAST_COSINE", 1.1)
    assert open_encoder(name, Inference(device="cuda")).fingerprint == given.fingerprint
    assert open_encoder(name, Inference(device="cpu")).identity["precision"] == "float32"


def test_ids_that_differ_from_the_library_turn_the_compiled_tokenizer_off(caplog):
    tokenizer, _ = uncased_tokenizer()
    tokens = ModelTokens(tokenizer)
    assert tokens._compiled is not None
    expected = tokens(pa.array(TAUGHT)).ids
    tokenizer.add_tokens(["sat on"])  # whose id the compiled loops do not know
    changed = tokens(pa.array(TAUGHT)).ids
    assert tokens._compiled is None
    assert len(caplog.records) == 1
    assert not np.array_equal(changed, expected)
    rows = (tokenizer.encode(text, add_special_tokens=False).ids for text in TAUGHT)
    assert changed.tolist() == list(chain.from_iterable(rows))


def test_vectors_that_the_library_truncates(tmp_path):
    library = pytest.importorskip("sentence_transformers")
    save_tiny("st", tmp_path / "whole")
    library.SentenceTransformer(str(tmp_path / "whole"), truncate_dim=2, device="cpu").save(str(tmp_path / "cut"))
    whole, cut = (open_encoder(f"st:{tmp_path / name}") for name in ("whole", "cut"))
    model = library.SentenceTransformer(str(tmp_path / "cut"), device="cpu")
    assert cut.width == model.encode(["cat"]).shape[1]
    texts = pa.array(["the cat", "", "a dog"])
    assert np.array_equal(cut.embed(texts).vectors, whole.embed(texts).vectors[:, : cut.width])


def test_less_memory_halves_the_batches(caplog):
    encoder, texts = Counting(60, most=20), pa.array(["1 2 3"] * 40)
    assert encoder.embed(texts).vectors[:, 0].tolist() == [3] * 40
    assert encoder.batches == [15] * 13 + [5]
    assert [record.args for record in caplog.records] == [(60,)]
    encoder._halve(8, 60, torch.OutOfMemoryError("no memory"))  # of a thread that began before
    assert encoder._budget == 15
    with pytest.raises(ValueError, match="one text"):
        Counting(60, most=4).embed(texts)


def test_the_next_batch_is_prepared_before_the_device_is_waited_for():
    encoder = Counting(20)
    assert encoder.embed(pa.array(["1 2 3"] * 12), lock=encoder.lock).vectors[:, 0].tolist() == [3] * 12
    expected = "ids features forward features forward vectors features forward vectors vectors"
    assert encoder.steps == [(step, step == "forward") for step in expected.split()]


@pytest.mark.parametrize("kind", ["words", "bytes", "unigram", "cased", "minilm"])
def test_texts_are_tokenized_once_with_the_features_of_the_library(kind, tmp_path):
    """Special tokens, truncation and padding are those of the library, so that it does not tokenize again."""
    name = (
        save_tiny("st", tmp_path / "model") if kind == "words" else save_transformer(subword_tokenizer(kind), tmp_path)
    )
    texts = [*TAUGHT * 3, "the cat " * 100, " A dog\n", "x"]
    for prompt in ("", "query: "):
        encoder = open_encoder(name, Inference(prompt=prompt))
        # Before version 5.4 the library tokenizes prompts by itself and strips texts, whose spaces these two read.
        is_old = not hasattr(encoder._model, "preprocess")
        assert (encoder._constants is None) is (is_old and (bool(prompt) or kind in {"bytes", "unigram"}))
        found = encoder.embed(pa.array(texts))
        encoder._constants = None  # then the library tokenizes each batch
        expected = encoder.embed(pa.array(texts))
        assert np.array_equal(found.vectors, expected.vectors)
        assert np.array_equal(found.num_tokens, expected.num_tokens)


def test_states_of_the_first_texts_after_packing_are_those_of_these_texts(tmp_path):
    pytest.importorskip("sentence_transformers", minversion="5.5", reason="it packs batches since version 5.5")
    name = save_transformer(subword_tokenizer("cased"), tmp_path)
    usual, packing = (open_encoder(name, Inference(device="cpu")) for _ in range(2))
    expected = usual.embed_states(pa.array(TAUGHT))[1]
    packing._sums = []
    packing.pack(packing._on_device)
    assert packing.packs
    assert packing._sums == []
    sums = packing.embed_states(pa.array(TAUGHT))[1]
    assert np.array_equal(sums.tokens, expected.tokens)
    assert np.array_equal(sums.counts, expected.counts)
    assert np.allclose(sums.sums, expected.sums, atol=1e-5)
