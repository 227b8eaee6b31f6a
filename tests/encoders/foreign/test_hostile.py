"""Models of strangers that could run code, read foreign memory, or give other vectors than their files say."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import load_file, save_file

from paraembed.embedding.manifest import read_manifest
from paraembed.embedding.output import Embeddings
from paraembed.embedding.search import query_encoder
from paraembed.embedding.settings import Settings
from paraembed.embedding.spot_check import compare_sample
from paraembed.encoders.foreign.base import errors_of_libraries
from paraembed.encoders.foreign.files import model_files
from paraembed.loading import open_encoder
from paraembed.settings import Inference
from tests.embedding.without_ray import build
from tests.encoders.models import MATRIX, save_onnx, save_tiny, save_transformer, subword_tokenizer, word_tokenizer
from tests.fuzz import Bomb

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries

HERE = Path(__file__).parent
ATTACKS = [json.loads(line) for line in (HERE / "hostile.jsonl").read_text().splitlines()]
"""Values of a JSON file of a transformer, and what the error says."""
PUBLISHED = json.loads((HERE / "published.json").read_text())
"""Files of published models, with fields that change no vector of this one."""
EVIL = "from pathlib import Path\nPath({!r}).touch()\nclass Evil: pass\n"
LIMIT = r"allowed: at most"
TRUST = r"`trust_remote_code`"
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A small transformer as sentence-transformers saves it."""
    return Path(save_transformer(subword_tokenizer("cased"), tmp_path_factory.mktemp("pristine")).removeprefix("st:"))


@pytest.fixture
def folder(pristine, tmp_path):
    return Path(shutil.copytree(pristine, tmp_path / "model"))


def change(file, *keys, **values):
    """Set values of a JSON file, in an object below ``keys``."""
    content = json.loads(file.read_text()) if file.exists() else {}
    inner = content
    for key in keys:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
    inner.update(values)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content))


def add_module(folder, kind, path, **config):
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": len(modules), "name": str(len(modules)), "path": path, "type": kind})
    (folder / "modules.json").write_text(json.dumps(modules))
    if config:
        change(folder / path / "config.json", **config)


def dense(folder, names=("weight", "bias")):
    """Add a layer from 32 to 4 numbers, with tensors of these names."""
    sizes = {"in_features": 32, "out_features": 4, "bias": True, "activation_function": "torch.nn.Identity"}
    add_module(folder, "sentence_transformers.models.Dense", "2_Dense", **sizes)
    own = {"weight": np.eye(4, 32, dtype=np.float32), "bias": np.zeros(4, np.float32)}
    tensors = {f"linear.{name}": own.get(name, own["bias"]) for name in names}
    save_file(tensors, folder / "2_Dense" / WEIGHTS)


def edit_weights(folder, edit):
    """Replace the weights of a model by a function of them."""
    save_file(edit(load_file(folder / WEIGHTS)), folder / WEIGHTS, {"format": "pt"})


def opened(name, text=None, **settings):
    """Open an encoder, and use it for a text if there is one."""
    encoder = open_encoder(name, Inference(**settings))
    return encoder.encode(text) if text else encoder


def assert_rejected(name, message, text=None, **settings):
    """Check that an encoder cannot be opened, or not be used for a text."""
    with pytest.raises(ValueError, match=message):
        opened(name, text, **settings)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack['place']} {attack['values']}"[:90])
def test_configurations_are_checked_before_anything_is_built(folder, tmp_path, attack):
    (folder / "evil.py").write_text(EVIL.format(str(tmp_path / "trace")))
    file, *keys = attack["place"]
    if file.startswith("2_Dense"):
        dense(folder)
    change(folder / file, *keys, **attack["values"])
    assert_rejected(f"st:{folder}", attack["message"])
    assert not (tmp_path / "trace").exists()


def test_long_prompts_and_many_modules_are_rejected(folder):
    change(folder / "config_sentence_transformers.json", prompts={"x": "a" * 10**6}, default_prompt_name="x")
    assert_rejected(f"st:{folder}", LIMIT)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:1] * 300 + modules))
    assert_rejected(f"st:{folder}", f"302 modules; {LIMIT}")


@pytest.mark.parametrize("kind", ["models.Router", "models.Asym", "base.modules.router.Router", "models.Router.Router"])
def test_a_router_does_not_load_what_its_configuration_names(folder, tmp_path, kind):
    add_module(folder, f"sentence_transformers.{kind}", "2_Router")
    routes = {"types": {"load": "joblib.numpy_pickle"}, "structure": {"query": ["load"]}, "parameters": {}}
    for config in ("config.json", "router_config.json"):
        change(folder / "2_Router" / config, **routes)
    with (folder / "2_Router" / "load").open("wb") as file:
        pickle.dump(Bomb(tmp_path / "trace"), file)
    assert_rejected(f"st:{folder}", rf"(Router|Asym) .*{TRUST}")
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("kind", "activation"),
    [
        ("models.Dense", "torch.nn.Identity"),
        ("models.Dense.Dense", "torch.nn.modules.linear.Identity"),
        ("base.modules.dense.Dense", "torch.nn.modules.linear.Identity"),
    ],
)
def test_layers_are_loaded_under_the_names_of_every_version(folder, kind, activation):
    before = open_encoder(f"st:{folder}").encode("the cat")
    dense(folder)
    change(folder / "2_Dense/config.json", activation_function=activation)
    change(folder / "modules.json", 2, type=f"sentence_transformers.{kind}")
    np.testing.assert_allclose(open_encoder(f"st:{folder}").encode("the cat"), before[:4], atol=1e-6)


def test_a_copy_of_the_configuration_next_to_a_graph_has_the_same_limits(folder):
    """As in multilingual-e5, whose weights are not in this folder."""
    expected = open_encoder(f"st:{folder}").encode("the cat")
    edit_weights(folder, lambda tensors: {**tensors, "other": np.zeros((5000, 1), np.float32)})
    change(folder / "onnx/config.json", vocab_size=5000)
    np.testing.assert_array_equal(open_encoder(f"st:{folder}").encode("the cat"), expected)
    change(folder / "onnx/config.json", vocab_size=5001)
    assert_rejected(f"st:{folder}", rf"vocab_size is 5001; {LIMIT} 5,000")


def test_an_empty_tensor_is_no_reason_for_large_numbers(folder):
    edit_weights(folder, lambda tensors: {**tensors, "other": np.zeros((10**9, 0), np.float32)})
    change(folder / "config.json", vocab_size=10**9)
    assert_rejected(f"st:{folder}", LIMIT)


@pytest.mark.parametrize("files", PUBLISHED.values(), ids=PUBLISHED)
def test_harmless_settings_of_published_models_are_allowed(folder, files):
    if {"unpad_inputs", "processing_kwargs"} & files.get("sentence_bert_config.json", {}).keys():
        pytest.importorskip("sentence_transformers", minversion="5.4", reason="it reads these two since version 5.4")
    expected = open_encoder(f"st:{folder}").encode(["the cat", "a dog on the mat"])
    for file, values in files.items():
        if isinstance(values, list):
            (folder / file).write_text(json.dumps(values))
        else:
            change(folder / file, **values)
    encoder = open_encoder(f"st:{folder}")
    assert encoder._model.dtype == torch.float32
    np.testing.assert_array_equal(encoder.encode(["the cat", "a dog on the mat"]), expected)


def test_old_names_of_a_pooling_are_read(folder):
    (folder / "1_Pooling/config.json").write_text(json.dumps(PUBLISHED["mixedbread"]["1_Pooling/config.json"]))
    change(folder / "1_Pooling/config.json", pooling_mode="mean")
    dense(folder)
    assert open_encoder(f"st:{folder}").width == 4


def test_a_tokenizer_for_a_version_is_checked_too(folder):
    shutil.copy(folder / "tokenizer.json", folder / "tokenizer.4.0.json")
    change(folder / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.json", "tokenizer.json"])
    assert open_encoder(f"st:{folder}").width == 32
    change(folder / "tokenizer.4.0.json", "model", "vocab", the=2**31)
    assert_rejected(f"st:{folder}", rf"tokenizer\.4\.0\.json has the number {2**31:,}; {LIMIT}")


def test_too_little_memory_is_no_fault_of_a_model():
    with pytest.raises(MemoryError), errors_of_libraries("the model cannot be loaded"):
        raise MemoryError


def test_the_code_of_a_trusted_model_is_kept_in_one_folder(folder):
    files = model_files(str(folder), "st", "torch")
    with files.snapshot() as first, files.snapshot() as second:
        assert first.folder.name == second.folder.name
        assert first.folder != second.folder


def renamed(old, new):
    return lambda tensors: {new if name == old else name: tensor for name, tensor in tensors.items()}


WORDS, BIAS = "embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.bias"


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (renamed(WORDS, "embeddings.words"), f"missing: {WORDS}"),
        (renamed(BIAS, ""), f"missing: {BIAS}"),
        (lambda tensors: {"x": tensors[WORDS]}, "missing: .* and .* more"),
        (
            lambda tensors: tensors | {"embeddings.LayerNorm.weight": np.ones(31, np.float32)},
            "of another shape: embeddings.LayerNorm.weight",
        ),
    ],
)
@pytest.mark.parametrize("has_modules", [True, False])
def test_a_transformer_without_all_its_weights_is_rejected(folder, edit, named, has_modules):
    if not has_modules:
        (folder / "modules.json").unlink()
    edit_weights(folder, edit)
    assert_rejected(f"st:{folder}", named)


def test_positions_and_a_pooler_that_is_not_used_may_be_missing(folder):
    expected, before = open_encoder(f"st:{folder}").encode("the cat"), load_file(folder / WEIGHTS)
    edit_weights(folder, lambda tensors: {key: value for key, value in tensors.items() if "pooler" not in key})
    assert load_file(folder / WEIGHTS).keys() < before.keys()
    np.testing.assert_array_equal(open_encoder(f"st:{folder}").encode("the cat"), expected)
    (folder / "modules.json").unlink()  # then the library adds the mean by itself
    np.testing.assert_array_equal(open_encoder(f"st:{folder}").encode("the cat"), expected)


@pytest.mark.parametrize("names", [["weight"], ["weight", "bias2"], ["weight2", "bias"]])
def test_a_layer_without_all_its_weights_is_rejected(folder, names):
    dense(folder, names)
    assert_rejected(f"st:{folder}", r"linear\.(bias|weight)")


def test_a_tokenizer_of_another_place_is_not_read(folder, tmp_path):
    expected = open_encoder(f"st:{folder}").token_ids(pa.array(["the cat"])).ids.tolist()
    word_tokenizer().save(str(tmp_path / "other.json"))
    elsewhere = dict.fromkeys(["tokenizer_file", "vocab_file", "vocab"], str(tmp_path / "other.json"))
    change(folder / "tokenizer_config.json", **elsewhere)
    assert open_encoder(f"st:{folder}").token_ids(pa.array(["the cat"])).ids.tolist() == expected


def test_weights_that_are_no_safetensors_are_not_loaded(tmp_path):
    """A layer has one file: beside an index, the library would read the other format."""
    folder, trace = Path(save_tiny("st", tmp_path / "model").removeprefix("st:")), tmp_path / "trace"
    shutil.move(folder / "model.safetensors", folder / "model-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"embedding.weight": "model-00001.safetensors"}}'
    )
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump(Bomb(trace), file)
    assert_rejected(f"st:{folder}", r"Could not find|No such file")
    assert not trace.exists()


@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
def test_files_that_change_while_they_are_loaded_are_noticed(kind, tmp_path):
    folder = Path(save_tiny(kind, tmp_path / "model").partition(":")[2])
    path = next(iter([*folder.glob("*.safetensors"), *folder.glob("*.onnx")]))
    before = path.stat()
    files = model_files(str(folder), kind, "onnx:" if kind == "onnx" else "torch")

    def load():
        with files.snapshot() as snapshot:
            assert snapshot.digests == files.digests
            path.write_bytes(path.read_bytes())
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as if nothing had happened

    with pytest.raises(ValueError, match="changed while"):
        load()
    encoder = open_encoder(f"{kind}:{folder}")
    (folder / "tokenizer.json").touch()
    with pytest.raises(ValueError, match="changed while"):
        encoder.fingerprint  # noqa: B018 - of other files than those of the model in memory


def tables(kind, message, *changes):
    return [(kind, tensors, {}, message) for tensors in changes]


@pytest.mark.parametrize(
    ("kind", "tensors", "config", "message"),
    [
        *tables(
            "m2v",
            "m2v:",
            {"mapping": np.array([0, 1, 2, 3, 4, 6], np.int64)},
            {"mapping": np.array([0, 1, 2, 3, 4, 2**40], np.int64)},
            {"mapping": np.array([0, 1, 2, 3, 4, -7], np.int64)},
            {"mapping": np.array([0, 1, 2, 3, -1, -1], np.int64)},
            {"mapping": np.arange(5)},
            {"mapping": np.arange(6, dtype=np.float32)},
            {"mapping": np.arange(6)[:, None]},
            {"weights": np.ones(1, np.float32)},
            {"weights": np.ones(7, np.float32)},
            {"weights": np.ones((6, 4), np.float32)},
            {"embeddings": MATRIX[:0], "mapping": np.zeros(6, np.int64)},
            {"embeddings": np.zeros((6, 0), np.float32)},
            {"embeddings": np.zeros((6, 1 << 17), np.float32)},
            {"embeddings": MATRIX[None], "mapping": np.zeros(6, np.int64)},
            {"embeddings": MATRIX[0]},
            {"embeddings": MATRIX[:5]},
        ),
        *(("m2v", {}, {"max_length": length}, "max_length") for length in (0, -1, 1 << 70, "4", True)),
        *tables("st", "id 5, .* 0 vectors", {"embedding.weight": MATRIX[:0]}),
        *tables("st", "id 5, .* 5 vectors", {"embedding.weight": MATRIX[:5]}),
        *tables("st", "0 numbers; allowed: 1 to 65,536", {"embedding.weight": MATRIX[:, :0]}),
        *tables("st", "131072 numbers; allowed", {"embedding.weight": np.zeros((6, 1 << 17), np.float32)}),
    ],
)
def test_tables_of_static_models_are_checked(kind, tensors, config, message, tmp_path):
    name = save_tiny(kind, tmp_path / "model")
    own = {"embeddings": MATRIX} if kind == "m2v" else {}
    save_file({**own, **tensors}, tmp_path / "model" / WEIGHTS)
    change(tmp_path / "model/config.json", **config)
    assert_rejected(name, message, "the cat on the mat" if message == "m2v:" else None)


UNHEARD_OF = rf"tokenizer\.json has the number {{:,}}; {LIMIT}"


@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
@pytest.mark.parametrize(
    ("number", "message"),
    [*((number, "id {:,}, .* 6 vectors") for number in (6, 2**24)), *((2**24 + n, UNHEARD_OF) for n in (1, 2**31))],
)
def test_ids_beyond_a_table_of_vectors_are_rejected(kind, number, message, tmp_path):
    """Those that no tokenizer has before it is built: the library copies one by trying every id up to the largest."""
    name = save_tiny(kind, tmp_path / "model")
    change(tmp_path / "model/tokenizer.json", "model", "vocab", the=number)
    if kind == "m2v":
        save_file({"embeddings": MATRIX, "mapping": np.arange(6)}, tmp_path / "model" / WEIGHTS)
    if kind == "onnx" and message != UNHEARD_OF:  # the graph alone knows its table
        assert_rejected(name, "onnx:", "the cat")
    else:
        assert_rejected(name, message.format(number))


def test_an_id_beyond_the_vectors_of_a_transformer_is_an_error(folder):
    """Some good models have more tokens than vectors, so only a text with such a token is."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    change(folder / "tokenizer.json", "model", "vocab", cat=len(vocabulary) + 5)
    encoder = open_encoder(f"st:{folder}")
    assert np.isfinite(encoder.encode("the dog")).all()
    with pytest.raises(ValueError, match=f"id {len(vocabulary) + 5:,}, but"):
        encoder.encode("the cat")


PANICS = json.loads((HERE / "panics.json").read_text())
"""Parts of a tokenizer.json for which the library panics or aborts."""


@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
@pytest.mark.parametrize("part", PANICS)
def test_a_panic_or_an_abort_of_the_tokenizer_is_an_error(kind, part, tmp_path):
    name = save_tiny(kind, tmp_path / "model")
    change(tmp_path / "model/tokenizer.json", **{part.replace("abort", "model"): PANICS[part]})
    if (part == "truncation" and kind != "st") or (part == "post_processor" and kind != "onnx"):  # which is not used
        assert np.isfinite(open_encoder(name).encode(["a cat on the mat"])).all()
    else:
        message, text = (r"merge 'a é' .* prefix '#'", None) if part == "abort" else (f"{kind}:", "a cat on the mat")
        assert_rejected(name, message, text)


STATES, OUTPUT = ("Gather", ["table", "input_ids"], ["states"]), ["sentence_embedding"]
FLOAT = np.ones((1, 4), np.float32)
ONE = [("Identity", ["one"], OUTPUT)]
GRAPHS = {  # nodes, declared shape, constants
    "one vector": (ONE, [1, 4], {"one": FLOAT}),
    "one vector, declared as n": (ONE, ["n", 4], {"one": FLOAT}),
    "a number": (ONE, [], {"one": np.array(1, np.float32)}),
    "no texts": (ONE, [4], {"one": FLOAT[0]}),
    "four dimensions": ([STATES, ("Unsqueeze", ["states", "axis"], OUTPUT)], None, {"axis": np.array([0])}),
    "transposed": ([STATES, ("Transpose", ["states"], OUTPUT)], None, {}),
    "4 GB": ([("Expand", ["one", "size"], OUTPUT)], ["n", "h"], {"one": FLOAT[:, :1], "size": np.array([1, 10**9])}),
    "no numbers": ([("Gather", ["table", "input_ids"], OUTPUT)], ["n", "l", 0], {"table": MATRIX[:, :0]}),
}


@pytest.mark.parametrize(("nodes", "shape", "constants"), GRAPHS.values(), ids=GRAPHS)
def test_a_graph_returns_a_vector_for_each_text(nodes, shape, constants, tmp_path):
    name = save_onnx(tmp_path / "model", nodes=nodes, shape=shape, **constants)
    with pytest.raises(ValueError, match="onnx:"):
        open_encoder(name).embed(pa.array(["the cat", "a dog on the mat", "cat"]))


def test_numbers_of_a_graph_come_from_its_own_files(tmp_path):
    onnx = pytest.importorskip("onnx")
    save_onnx(tmp_path / "model")
    graph, expected = tmp_path / "model/model.onnx", open_encoder(f"onnx:{tmp_path / 'model'}").encode("the cat")
    onnx.save(onnx.load(graph), graph, save_as_external_data=True, location="numbers", size_threshold=0)
    encoder = open_encoder(f"onnx:{tmp_path / 'model'}")
    np.testing.assert_array_equal(encoder.encode("the cat"), expected)
    assert "numbers" in encoder.files.digests
    model, padded = onnx.load(graph, load_external_data=False), b"\x0a\x88\x00location\x12\x07numbers"
    for place in (".numbers", "../numbers", "/numbers", "a" * 200):
        (entry,) = (entry for entry in model.graph.initializer[0].external_data if entry.key == "location")
        entry.value = place
        onnx.save(model, graph)
        assert_rejected(f"onnx:{tmp_path / 'model'}", r"model\.onnx reads .*not one of")
    entry.value = "numbers"
    content = model.SerializeToString()
    for plain, other in (
        (b"\x6a\x13\x0a\x08location\x12\x07numbers", b"\x6a\x14" + padded),
        (b"\x6a\x13\x0a\x08location\x12\x07numbers", b"\x6a\x16\x0a\x08location\x12\x07numbers\x12\x01x"),
    ):
        assert plain in content
        graph.write_bytes(content.replace(plain, other))  # read alike by a parser, which takes the last of two values
        assert_rejected(f"onnx:{tmp_path / 'model'}", r"model\.onnx reads")


@pytest.mark.parametrize(("kind", "number"), [("st", np.nan), ("m2v", np.inf), ("onnx", np.nan), ("onnx", -np.inf)])
def test_vectors_that_are_not_finite_are_an_error(kind, number, tmp_path):
    matrix = MATRIX.copy()
    matrix[1, 2] = number  # of "cat"
    name = save_tiny(kind, tmp_path / "model")
    if kind == "onnx":
        onnx = pytest.importorskip("onnx")
        model = onnx.load(tmp_path / "model/model.onnx")
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(matrix, "table"))
        onnx.save(model, tmp_path / "model/model.onnx")
    else:
        key = "embeddings" if kind == "m2v" else "embedding.weight"
        save_file({key: matrix}, tmp_path / "model/model.safetensors")
    encoder = open_encoder(name)
    assert np.isfinite(encoder.encode(["the dog", ""])).all()
    with pytest.raises(ValueError, match=r"text 2: .*NaN or infinity"):
        encoder.encode(["dog", "the cat"])
    (tmp_path / "t.txt").write_text("the dog\ndog\ncat\n")
    with pytest.raises(ValueError, match=r"t\.txt, row 3: .*NaN or infinity"):
        build(name, tmp_path / "t.txt", Settings(), tmp_path / "out")


def test_an_output_does_not_choose_a_model_of_another_library(tmp_path, monkeypatch):
    name, out = save_tiny("st", tmp_path / "model"), tmp_path / "out"
    (tmp_path / "t.txt").write_text("the cat\na dog\n")
    build(name, tmp_path / "t.txt", Settings(), out)
    shutil.copytree(tmp_path / "model", out / "_model")
    embeddings, record = Embeddings(out), out / "_reports/encoder.json"
    for recorded in (name, f"st:{out / '_model'}", "m2v:own/tiny", f"onnx:{out}"):
        record.write_text(json.dumps({"encoder": recorded}))
        with pytest.raises(FileNotFoundError, match="not an encoder folder"):
            query_encoder(embeddings)
    (tmp_path / "st:evil").mkdir()
    shutil.copytree(tmp_path / "model", tmp_path / "st:evil/model")
    monkeypatch.chdir(tmp_path)  # where a folder has the name of the model
    record.write_text(json.dumps({"encoder": "st:evil/model"}))
    with pytest.raises(FileNotFoundError, match=r"not an encoder folder .*`encoder`"):
        query_encoder(embeddings)
    record.write_text(json.dumps({"encoder": str(out / "_model")}))
    with pytest.raises((OSError, ValueError), match="_model"):
        query_encoder(embeddings)
    (tmp_path / "link").symlink_to(out / "_model")
    parts = [(part["name"], part["rows"]) for part in read_manifest(embeddings.store)["parts"]]
    for inside in (f"st:{out / '_model'}", f"st:{tmp_path / 'link'}", f"st:{out}/../out/_model"):
        with pytest.raises(ValueError, match="folder of the output"):
            query_encoder(embeddings, inside)
        with pytest.raises(ValueError, match="folder of the output"):
            compare_sample(embeddings.store, inside, [str(tmp_path)], parts)
    assert query_encoder(embeddings, name).fingerprint == embeddings.encoder


@pytest.mark.parametrize("name", ["st:own/none", "m2v:own/none", "onnx:own/none"])
def test_a_hub_that_does_not_answer_is_said(name, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert_rejected(name, rf"{name}: .*did not answer .*network")


def test_a_trusted_model_may_name_its_own_code(folder, tmp_path):
    (folder / "own.py").write_text(
        "from torch import nn\n"
        "class Same(nn.Module):\n"
        "    def forward(self, features):\n"
        "        return features\n"
        "    def save(self, path, *_, **__): pass\n"
        "    @staticmethod\n"
        "    def load(path): return Same()\n"
    )
    expected = open_encoder(f"st:{folder}").encode("the cat")
    add_module(folder, "own.Same", "")
    encoder = open_encoder(f"st:{folder}", Inference(trust_remote_code=True))
    np.testing.assert_allclose(encoder.encode("the cat"), expected, atol=1e-6)
    edit_weights(folder, lambda tensors: {"x": tensors["embeddings.LayerNorm.weight"]})
    assert_rejected(f"st:{folder}", "missing: ", trust_remote_code=True)
