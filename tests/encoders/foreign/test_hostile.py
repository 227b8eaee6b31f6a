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

LIMIT = r"allowed: at most"
TRUST = r"`trust_remote_code`"


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


def dense(folder, activation="torch.nn.modules.activation.Tanh", tensors=("linear.weight", "linear.bias")):
    """Add a layer from 32 to 4 numbers."""
    add_module(
        folder, "sentence_transformers.models.Dense", "2_Dense",
        in_features=32, out_features=4, bias=True, activation_function=activation,
    )  # fmt: skip
    weights = {"linear.weight": np.eye(4, 32, dtype=np.float32), "linear.bias": np.zeros(4, np.float32)}
    save_file(
        {name: weights.get(name, np.zeros(4, np.float32)) for name in tensors}, folder / "2_Dense/model.safetensors"
    )


@pytest.mark.parametrize("kind", ["models.Router", "models.Asym", "base.modules.router.Router", "models.Router.Router"])
@pytest.mark.parametrize("config", ["config.json", "router_config.json"])
def test_a_router_does_not_load_what_its_configuration_names(folder, tmp_path, kind, config):
    trace = tmp_path / "trace"
    add_module(folder, f"sentence_transformers.{kind}", "2_Router")
    change(
        folder / "2_Router" / config,
        types={"load": "joblib.numpy_pickle"},
        structure={"query": ["load"]},
        parameters={},
    )
    with (folder / "2_Router" / "load").open("wb") as file:
        pickle.dump(Bomb(trace), file)
    with pytest.raises(ValueError, match=rf"(Router|Asym) .*{TRUST}"):
        open_encoder(f"st:{folder}")
    assert not trace.exists()


@pytest.mark.parametrize(
    "kind",
    [
        *("os.system", "joblib.load", "sentence_transformers", "sentence_transformers.util.import_from_string", ""),
        *("sentence_transformers.models.CLIPModel", "sentence_transformers.models.BoW", "Transformer"),
        *("sentence_transformers.Dense", "sentence_transformers.sparse_encoder.models.Pooling"),
        *("sentence_transformers.models.Dense\n", "sentence_transformers_evil.models.Dense"),
    ],
)
def test_other_modules_need_trust(folder, kind):
    add_module(folder, kind, "2_Other")
    with pytest.raises(ValueError, match=TRUST):
        open_encoder(f"st:{folder}")


@pytest.mark.parametrize("kind", ["models.Dense", "models.Dense.Dense", "base.modules.dense.Dense"])
@pytest.mark.parametrize("activation", ["torch.nn.Identity", "torch.nn.modules.linear.Identity"])
def test_layers_are_loaded_under_the_names_of_every_version(folder, kind, activation):
    before = open_encoder(f"st:{folder}").encode("the cat")
    dense(folder, activation)
    change(folder / "modules.json", 2, type=f"sentence_transformers.{kind}")
    np.testing.assert_allclose(open_encoder(f"st:{folder}").encode("the cat"), before[:4], atol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["os.abort", "os._exit", "torch.nn.Module", "torch.hub.load", "torch.nn.modules.activation.os.abort", "Tanh"],
)
def test_an_activation_function_is_one_of_a_list(folder, name):
    dense(folder, name)
    with pytest.raises(ValueError, match=rf"2_Dense/config\.json: .*{TRUST}"):
        open_encoder(f"st:{folder}")


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (
            "sentence_bert_config.json",
            {"tokenizer_name_or_path": "/elsewhere"},
            "tokenizer_name_or_path|tokenizer outside",
        ),
        ("sentence_roberta_config.json", {"tokenizer_name_or_path": "../other"}, "tokenizer outside"),
        ("sentence_bert_config.json", {"model_args": {"attn_implementation": "own/kernel"}}, TRUST),
        ("sentence_bert_config.json", {"model_kwargs": {"adapter_kwargs": {}}}, TRUST),
        ("sentence_bert_config.json", {"processor_kwargs": {"subfolder": "other"}}, TRUST),
        ("sentence_bert_config.json", {"config_args": {"trust_remote_code": True}}, TRUST),
        ("sentence_bert_config.json", {"transformer_task": "text-generation"}, TRUST),
        (
            "sentence_bert_config.json",
            {"modality_config": {"text": {"method": "save_pretrained", "method_output_name": "last_hidden_state"}}},
            TRUST,
        ),
        ("config.json", {"auto_map": {"AutoModel": "evil.Evil"}}, TRUST),
        ("tokenizer_config.json", {"auto_map": ["evil.Slow", "evil.Fast"]}, TRUST),
        ("config.json", {"auto_map": {"AutoModel": "own/other--evil.Evil"}}, "code of another model"),
        ("config.json", {"quantization_config": {"quant_method": "quark"}}, TRUST),
        ("config.json", {"text_config": {"_attn_implementation": "own/kernel:evil"}}, TRUST),
        ("config.json", {"transformers_weights": "../other.safetensors"}, TRUST),
        ("tokenizer_config.json", {"init_inputs": ["/elsewhere/vocab.txt"]}, TRUST),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["/elsewhere/tokenizer.4.0.json"]}, "not one of"),
        ("config_sentence_transformers.json", {"model_type": "CrossEncoder"}, TRUST),
        ("model.safetensors.index.json", {"weight_map": {"a": "../model.safetensors"}}, "not one of"),
        ("config.json", {"num_hidden_layers": 10**7}, LIMIT),
        ("config.json", {"attribute_map": {"num_hidden_layers": "other"}, "other": 10**7}, TRUST),
        ("config.json", {"num_attention_heads": 10**7}, LIMIT),
        ("config_sentence_transformers.json", {"prompts": {"x": "a" * 10**6}, "default_prompt_name": "x"}, LIMIT),
        ("config.json", {"hidden_size": 10**6}, LIMIT),
        ("config.json", {"intermediate_size": 1 << 20}, LIMIT),
        ("config.json", {"vocab_size": 10**9}, LIMIT),
        ("config.json", {"type_vocab_size": 10**9}, LIMIT),
        ("config.json", {"max_position_embeddings": 10**12}, LIMIT),
        ("config.json", {"other": [{"layers": 10**7}]}, LIMIT),
        ("1_Pooling/config.json", {"embedding_dimension": 10**9}, "1_Pooling"),
        ("1_Pooling/config.json", {"pooling_mode": "eval"}, "1_Pooling"),
        ("sentence_bert_config.json", {"max_seq_length": -1}, "max_seq_length"),
        ("sentence_bert_config.json", {"max_seq_length": 1 << 40}, "max_seq_length"),
    ],
)
def test_configurations_are_checked_before_anything_is_built(folder, file, values, message):
    change(folder / file, **values)
    with pytest.raises(ValueError, match=message):
        open_encoder(f"st:{folder}")


def test_a_copy_of_the_configuration_next_to_a_graph_has_the_same_limits(folder):
    """As in multilingual-e5, whose weights are not in this folder."""
    expected = open_encoder(f"st:{folder}").encode("the cat")
    weights = folder / "model.safetensors"
    save_file({**load_file(weights), "other": np.zeros((5000, 1), np.float32)}, weights, {"format": "pt"})
    change(folder / "onnx/config.json", vocab_size=5000)
    np.testing.assert_array_equal(open_encoder(f"st:{folder}").encode("the cat"), expected)
    change(folder / "onnx/config.json", vocab_size=5001)
    with pytest.raises(ValueError, match=rf"vocab_size is 5001; {LIMIT} 5,000"):
        open_encoder(f"st:{folder}")


def test_an_empty_tensor_is_no_reason_for_large_numbers(folder):
    weights = folder / "model.safetensors"
    save_file({**load_file(weights), "other": np.zeros((10**9, 0), np.float32)}, weights, {"format": "pt"})
    change(folder / "config.json", vocab_size=10**9)
    with pytest.raises(ValueError, match=LIMIT):
        open_encoder(f"st:{folder}")


OLD_POOLING = {
    "word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
    "pooling_mode_weightedmean_tokens": False, "pooling_mode_lasttoken": False, "include_prompt": True,
}  # fmt: skip
MASK = {"content": "[MASK]", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}
REAL = {  # as in published models: fields that change no vector of this one
    "bge": [
        ("config.json", {"_name_or_path": "/elsewhere/bge", "gradient_checkpointing": False, "torch_dtype": "float32",
                         "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "use_cache": True}),
        ("config_sentence_transformers.json", {"__version__": {"sentence_transformers": "2.2.2"}}),
        ("sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": True}),
    ],
    "e5": [
        ("tokenizer_config.json", {"model_max_length": 64, "sp_model_kwargs": {}, "vocab_file": None,
                                   "tokenizer_file": None, "name_or_path": "e5", "mask_token": "[MASK]"}),
        ("special_tokens_map.json", {"mask_token": MASK}),
    ],
    "gte": [
        ("sentence_bert_config.json", {"unpad_inputs": None, "model_args": {"torch_dtype": "float16"},
                                       "tokenizer_args": {"padding_side": "right"}}),
        ("config.json", {"layer_norm_type": "layer_norm", "rope_scaling": {"factor": 2.0, "type": "ntk"},
                         "rope_theta": 500000, "unpad_inputs": False, "logn_attention_scale": False,
                         "_attn_implementation": "flash_attention_2", "text_config": {"hidden_size": 32}}),
    ],
    "mpnet": [
        ("config.json", {"relative_attention_num_buckets": 32, "transformers_version": "4.8.2"}),
        ("data_config.json", [{"name": "reddit", "lines": 10**9, "weight": 10**15}]),
    ],
    "static-retrieval-mrl": [
        ("config_sentence_transformers.json", {"prompts": None, "model_type": None, "default_prompt_name": None,
                                               "similarity_fn_name": "cosine", "truncate_dim": None}),
    ],
    "paraphrase-multilingual": [
        ("tokenizer_config.json", {"max_length": int(1e30), "stride": 0, "truncation_side": "right", "unk_id": 3,
                                   "truncation_strategy": "longest_first", "pad_to_multiple_of": None,
                                   "tokenizer_class": "PreTrainedTokenizerFast"}),
    ],
    "LaBSE": [
        ("config.json", {"directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
                         "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token"}),
        ("tokenizer_config.json", {"full_tokenizer_file": None, "never_split": None, "do_basic_tokenize": True,
                                   "special_tokens_map_file": "/elsewhere/special_tokens_map.json"}),
    ],
    "arctic": [
        ("config_sentence_transformers.json", {"prompts": {"query": "query: ", "document": ""},
                                               "model_type": "SentenceTransformer"}),
        ("tokenizer_config.json", {"max_length": 10**30, "added_tokens_decoder": {"0": MASK | {"content": "[PAD]"}}}),
        ("onnx/config.json", {"vocab_size": 320}),
    ],
    "mixedbread": [
        ("config_sentence_transformers.json", {"prompts": {"query": "Represent: ", "passage": None}}),
        ("1_Pooling/config.json", OLD_POOLING | {"pooling_mode": "mean"}),
    ],
    "qwen": [
        ("generation_config.json", {"max_new_tokens": 2048, "eos_token_id": 151643, "temperature": 1e-6}),
        ("tokenizer_config.json", {"chat_template": "{% for message in messages %}{% endfor %}",
                                   "extra_special_tokens": {}}),
    ],
    "version 6": [
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"padding": True, "truncation": "longest_first"},
                                                             "chat_template": {"add_generation_prompt": True}},
                                       "model_kwargs": {"dtype": "bfloat16"}}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["tokenizer.json"]}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("files", REAL.values(), ids=REAL)
def test_harmless_settings_of_published_models_are_allowed(folder, files):
    if {"unpad_inputs", "processing_kwargs"} & dict(files).get("sentence_bert_config.json", {}).keys():
        pytest.importorskip("sentence_transformers", minversion="5.4", reason="it reads these two since version 5.4")
    expected = open_encoder(f"st:{folder}").encode(["the cat", "a dog on the mat"])
    for file, values in files:
        if isinstance(values, list):
            (folder / file).write_text(json.dumps(values))
        else:
            change(folder / file, **values)
    encoder = open_encoder(f"st:{folder}")
    assert encoder._model.dtype == torch.float32
    np.testing.assert_array_equal(encoder.encode(["the cat", "a dog on the mat"]), expected)


def test_old_names_of_a_pooling_are_read(folder):
    (folder / "1_Pooling/config.json").write_text(json.dumps(OLD_POOLING))
    dense(folder, "torch.nn.modules.activation.Tanh")
    assert open_encoder(f"st:{folder}").width == 4


@pytest.mark.parametrize("options", [{"text": {"tokenizer": "x"}}, {"common": {"max_length": -1}}, {"image": {}}])
def test_options_of_calls_are_checked(folder, options):
    change(folder / "sentence_bert_config.json", processing_kwargs=options)
    with pytest.raises(ValueError, match=rf"processing_kwargs.*{TRUST}"):
        open_encoder(f"st:{folder}")


def test_a_tokenizer_for_a_version_is_checked_too(folder):
    shutil.copy(folder / "tokenizer.json", folder / "tokenizer.4.0.json")
    change(folder / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.json", "tokenizer.json"])
    assert open_encoder(f"st:{folder}").width == 32
    change(folder / "tokenizer.4.0.json", "model", "vocab", the=2**31)
    with pytest.raises(ValueError, match=rf"tokenizer\.4\.0\.json has the number {2**31:,}; {LIMIT}"):
        open_encoder(f"st:{folder}")


@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
def test_texts_are_checked_before_the_library_gets_them(kind, tmp_path):
    encoder = open_encoder(save_tiny(kind, tmp_path / "model"))
    np.testing.assert_array_equal(encoder.embed(["the cat", None]).vectors, encoder.encode(["the cat", ""]))
    with pytest.raises(TypeError, match="of type int at position 1"):
        encoder.embed(["the cat", 5])


def test_too_little_memory_is_no_fault_of_a_model():
    with pytest.raises(MemoryError), errors_of_libraries("the model cannot be loaded"):
        raise MemoryError


def test_the_code_of_a_trusted_model_is_kept_in_one_folder(folder):
    files = model_files(str(folder), "st", "torch")
    with files.snapshot() as first, files.snapshot() as second:
        assert first.folder.name == second.folder.name
        assert first.folder != second.folder


def test_a_model_has_few_modules(folder):
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:1] * 300 + modules))
    with pytest.raises(ValueError, match=f"302 modules; {LIMIT}"):
        open_encoder(f"st:{folder}")


def test_a_layer_is_not_larger_than_its_weights(folder):
    dense(folder)
    save_file({"linear.weight": np.ones((1, 60_000), np.float32)}, folder / "2_Dense/model.safetensors")
    change(folder / "2_Dense/config.json", in_features=60_000, out_features=60_000)
    with pytest.raises(ValueError, match="3,600,000,000 weights"):
        open_encoder(f"st:{folder}")


@pytest.mark.parametrize("path", [".hidden", "1_Pooling/../.hidden", "../other", "/tmp"])
def test_a_module_is_in_a_visible_folder_of_the_model(folder, path):
    shutil.copytree(folder / "1_Pooling", folder / ".hidden")
    change(folder / "modules.json", 1, path=path)
    with pytest.raises(ValueError, match="visible folders"):
        open_encoder(f"st:{folder}")


def renamed(old, new):
    return lambda tensors: {new if name == old else name: tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (
            renamed("embeddings.word_embeddings.weight", "embeddings.words"),
            "missing: embeddings.word_embeddings.weight",
        ),
        (renamed("encoder.layer.0.output.dense.bias", ""), "missing: encoder.layer.0.output.dense.bias"),
        (lambda tensors: {"x": tensors["embeddings.word_embeddings.weight"]}, "missing: .* and .* more"),
        (
            lambda tensors: tensors | {"embeddings.LayerNorm.weight": np.ones(31, np.float32)},
            "of another shape: embeddings.LayerNorm.weight",
        ),
    ],
)
@pytest.mark.parametrize("has_modules", [True, False])
def test_a_transformer_without_all_its_weights_is_refused(folder, edit, named, has_modules):
    if not has_modules:
        (folder / "modules.json").unlink()
    weights = folder / "model.safetensors"
    save_file(edit(load_file(weights)), weights, {"format": "pt"})
    with pytest.raises(ValueError, match=named):
        open_encoder(f"st:{folder}")


def test_positions_and_a_pooler_that_is_not_used_may_be_missing(folder):
    weights, expected = folder / "model.safetensors", open_encoder(f"st:{folder}").encode("the cat")
    tensors = {name: tensor for name, tensor in load_file(weights).items() if "pooler" not in name}
    assert len(tensors) < len(load_file(weights))
    save_file(tensors, weights, {"format": "pt"})
    np.testing.assert_array_equal(open_encoder(f"st:{folder}").encode("the cat"), expected)
    (folder / "modules.json").unlink()  # then the library adds the mean by itself
    np.testing.assert_array_equal(open_encoder(f"st:{folder}").encode("the cat"), expected)


@pytest.mark.parametrize("tensors", [["linear.weight"], ["linear.weight", "linear.bias2"], ["weight", "linear.bias"]])
def test_a_layer_without_all_its_weights_is_refused(folder, tensors):
    dense(folder, tensors=tensors)
    with pytest.raises(ValueError, match=r"linear\.(bias|weight)"):
        open_encoder(f"st:{folder}")


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
    with pytest.raises(ValueError, match=r"Could not find|No such file"):
        open_encoder(f"st:{folder}")
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


def save_table(folder, config=None, **tensors):
    """Save a model of model2vec with tensors of any shape."""
    save_tiny("m2v", folder)
    save_file({"embeddings": MATRIX, **tensors}, folder / "model.safetensors")
    change(folder / "config.json", **(config or {}))
    return f"m2v:{folder}"


@pytest.mark.parametrize(
    "tensors",
    [
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
    ],
)
def test_tables_of_model2vec_are_checked(tensors, tmp_path):
    with pytest.raises(ValueError, match="m2v:"):
        open_encoder(save_table(tmp_path / "model", **tensors)).encode("the cat on the mat")


@pytest.mark.parametrize("max_length", [0, -1, 1 << 70, "4", True])
def test_numbers_of_model2vec_are_checked(max_length, tmp_path):
    with pytest.raises(ValueError, match="max_length"):
        open_encoder(save_table(tmp_path / "model", {"max_length": max_length}))


@pytest.mark.parametrize("kind", ["st", "m2v"])
@pytest.mark.parametrize("number", [6, 2**24])
def test_ids_beyond_a_table_of_vectors_are_refused(kind, number, tmp_path):
    name = save_tiny(kind, tmp_path / "model")
    change(tmp_path / "model/tokenizer.json", "model", "vocab", the=number)
    if kind == "m2v":
        save_file({"embeddings": MATRIX, "mapping": np.arange(6)}, tmp_path / "model/model.safetensors")
    with pytest.raises(ValueError, match=f"id {number:,}, .* 6 vectors"):
        open_encoder(name)


@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
@pytest.mark.parametrize("number", [2**24 + 1, 2**31, 2**32 - 1])
def test_ids_that_no_tokenizer_has_are_refused_before_it_is_built(kind, number, tmp_path):
    """The library copies a tokenizer by trying every id up to the largest."""
    name = save_tiny(kind, tmp_path / "model")
    change(tmp_path / "model/tokenizer.json", "model", "vocab", the=number)
    with pytest.raises(ValueError, match=rf"tokenizer\.json has the number {number:,}; {LIMIT}"):
        open_encoder(name)


def test_an_id_beyond_the_vectors_of_a_transformer_is_refused(folder):
    """Some good models have more tokens than vectors, so only a text with such a token is."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    change(folder / "tokenizer.json", "model", "vocab", cat=len(vocabulary) + 5)
    encoder = open_encoder(f"st:{folder}")
    assert np.isfinite(encoder.encode("the dog")).all()
    with pytest.raises(ValueError, match=f"id {len(vocabulary) + 5:,}, but"):
        encoder.encode("the cat")


@pytest.mark.parametrize("rows", [0, 5])
def test_a_static_table_with_too_few_rows_is_refused(rows, tmp_path):
    name = save_tiny("st", tmp_path / "model")
    save_file({"embedding.weight": MATRIX[:rows]}, tmp_path / "model/model.safetensors")
    with pytest.raises(ValueError, match=f"id 5, .* {rows} vectors"):
        open_encoder(name)


@pytest.mark.parametrize("width", [0, 1 << 17])
def test_a_static_table_of_a_wrong_width_is_refused(width, tmp_path):
    name = save_tiny("st", tmp_path / "model")
    save_file({"embedding.weight": np.zeros((6, width), np.float32)}, tmp_path / "model/model.safetensors")
    with pytest.raises(ValueError, match=f"{width} numbers; allowed: 1 to 65,536"):
        open_encoder(name)


PANICS = {
    "normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAP////8="},
    "pre_tokenizer": {"type": "FixedLength", "length": 0},
    "post_processor": {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X", "type_id": 0}}], "pair": [],
        "special_tokens": {},
    },
    "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 5},
    "model": {"type": "BPE", "continuing_subword_prefix": "##", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
@pytest.mark.parametrize("part", PANICS)
def test_a_panic_of_the_tokenizer_is_an_error(kind, part, tmp_path):
    name = save_tiny(kind, tmp_path / "model")
    change(tmp_path / "model/tokenizer.json", **{part: PANICS[part]})
    if (part == "truncation" and kind != "st") or (part == "post_processor" and kind != "onnx"):  # which is not used
        assert np.isfinite(open_encoder(name).encode(["a cat on the mat"])).all()
        return
    with pytest.raises(ValueError, match=f"{kind}:"):
        open_encoder(name).embed(pa.array(["a cat on the mat"]))


@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
def test_a_tokenizer_at_which_its_library_aborts_the_process_is_refused(kind, tmp_path):
    name = save_tiny(kind, tmp_path / "model")
    vocabulary = {"a": 0, "é": 1, "aé": 2}
    model = {"type": "BPE", "continuing_subword_prefix": "#", "vocab": vocabulary, "merges": ["a é"]}
    change(tmp_path / "model/tokenizer.json", model=model)
    with pytest.raises(ValueError, match=r"merge 'a é' .* prefix '#'"):
        open_encoder(name)


def save_graph(folder, nodes, shape, constants=(), name="sentence_embedding"):
    """Save a graph of these nodes whose output has the shape."""
    onnx = pytest.importorskip("onnx")
    save_onnx(folder)
    helper, kinds = onnx.helper, onnx.TensorProto
    ids = [helper.make_tensor_value_info(key, kinds.INT64, ["n", "l"]) for key in ("input_ids", "attention_mask")]
    output = helper.make_tensor_value_info(name, kinds.FLOAT, shape)
    values = [onnx.numpy_helper.from_array(np.asarray(value), key) for key, value in dict(constants).items()]
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "graph", ids, [output], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    return f"onnx:{folder}"


LOOKUP = ("Gather", ["table", "input_ids"], ["states"])
FLOAT = np.ones((1, 4), np.float32)


ONE = [("Identity", ["one"], ["sentence_embedding"])]
GRAPHS = {  # nodes, declared shape, constants
    "one vector": (ONE, [1, 4], {"one": FLOAT}),
    "one vector, declared as n": (ONE, ["n", 4], {"one": FLOAT}),
    "a number": (ONE, [], {"one": np.float32(1)}),
    "no texts": (ONE, [4], {"one": FLOAT[0]}),
    "four dimensions": (
        [LOOKUP, ("Unsqueeze", ["states", "axis"], ["sentence_embedding"])],
        None,
        {"table": MATRIX, "axis": np.array([0])},
    ),
    "transposed": ([LOOKUP, ("Transpose", ["states"], ["sentence_embedding"])], None, {"table": MATRIX}),
    "4 GB": (
        [("Expand", ["one", "size"], ["sentence_embedding"])],
        ["n", "h"],
        {"one": FLOAT[:, :1], "size": [1, 10**9]},
    ),
    "no numbers": (
        [("Gather", ["table", "input_ids"], ["sentence_embedding"])],
        ["n", "l", 0],
        {"table": MATRIX[:, :0]},
    ),
}


@pytest.mark.parametrize(("nodes", "shape", "constants"), GRAPHS.values(), ids=GRAPHS)
def test_a_graph_returns_a_vector_for_each_text(nodes, shape, constants, tmp_path):
    name = save_graph(tmp_path / "model", nodes, shape, constants)
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
        with pytest.raises(ValueError, match=r"model\.onnx reads .*not one of"):
            open_encoder(f"onnx:{tmp_path / 'model'}")
    entry.value = "numbers"
    content = model.SerializeToString()
    for plain, other in (
        (b"\x6a\x13\x0a\x08location\x12\x07numbers", b"\x6a\x14" + padded),
        (b"\x6a\x13\x0a\x08location\x12\x07numbers", b"\x6a\x16\x0a\x08location\x12\x07numbers\x12\x01x"),
    ):
        assert plain in content
        graph.write_bytes(content.replace(plain, other))  # read alike by a parser, which takes the last of two values
        with pytest.raises(ValueError, match=r"model\.onnx reads"):
            open_encoder(f"onnx:{tmp_path / 'model'}")


@pytest.mark.parametrize("kind", ["st", "m2v", "onnx"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
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
    with pytest.raises(ValueError, match=rf"{name}: .*did not answer .*network"):
        open_encoder(name)


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
    weights = folder / "model.safetensors"
    save_file({"x": load_file(weights)["embeddings.LayerNorm.weight"]}, weights, {"format": "pt"})
    with pytest.raises(ValueError, match="missing: "):
        open_encoder(f"st:{folder}", Inference(trust_remote_code=True))
