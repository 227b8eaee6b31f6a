"""Encoder folders: what is saved comes back bit by bit, and nothing else is taken for it."""

import json
import os
import pickle
import re
import shutil

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import save_file

import paraembed
from paraembed.checkpoint import load, read_config, save
from paraembed.encoders import Encoder, config_to_dict
from paraembed.encoders.configs import AvgConfig, ProjConfig
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import read_json, sha256_of
from paraembed.text.vocabulary import Words
from tests.fuzz import Bomb, sign, sign_files

TEXTS = ["The cat sat.", "a dog ran home", "", "zebra", "the the the"]


@pytest.fixture
def folder(tiny_encoder_folder, tmp_path):
    """A copy to spoil."""
    shutil.copytree(tiny_encoder_folder, tmp_path / "encoder")
    return tmp_path / "encoder"


def rewrite(folder, change):
    """Change ``config.json`` as one would who knows the format: with a fingerprint that fits."""
    config = read_json(folder / "config.json")
    change(config)
    write_json(folder / "config.json", sign(config))


def replace_file(folder, name, content):
    """Replace a file as one would who knows the format: with a digest that fits."""
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        save_file(content, folder / name)
    sign_files(folder)


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("config", [AvgConfig(), ProjConfig(width=7)], ids=["avg", "proj 7"])
def test_an_int8_table_has_a_scale_for_each_row(tmp_path, tiny_words, config):
    matrix = tiny_words.matrix * np.logspace(-3, 3, len(tiny_words.matrix), dtype=np.float32)[:, None]
    matrix[2] = 0
    encoder = Encoder(config, Words(tiny_words.vocabulary, matrix), "ptb-v1")
    save(encoder, tmp_path / "e", recipe={}, provenance={}, model_card="", dtype="int8")
    back = load(tmp_path / "e")
    scale = np.abs(matrix).max(axis=1, keepdims=True) / np.float32(127)
    steps = np.rint(np.divide(matrix, scale, out=np.zeros_like(matrix), where=scale > 0))
    assert np.array_equal(back.matrix.numpy(), steps.astype(np.float32) * scale)
    assert back.matrix.dtype == torch.float32
    assert back.fingerprint != save(encoder, tmp_path / "f", recipe={}, provenance={}, model_card="")
    save(back, tmp_path / "g", recipe={}, provenance={}, model_card="", dtype="int8")
    for name in ("model.safetensors", "words.txt"):
        assert (tmp_path / "g" / name).read_bytes() == (tmp_path / "e" / name).read_bytes()
    again = load(tmp_path / "e")
    assert np.array_equal(again.encode(TEXTS), back.encode(TEXTS))


@pytest.mark.parametrize("config", [AvgConfig(), ProjConfig(), ProjConfig(width=7)], ids=["avg", "proj", "proj 7"])
@pytest.mark.parametrize("tokenizer", ["ptb-v1", "space"])
def test_an_encoder_comes_back_bit_by_bit(tmp_path, tiny_words, config, tokenizer):
    encoder = Encoder(config, tiny_words, tokenizer, seed=5)
    fingerprint = save(encoder, tmp_path / "e", recipe={"epochs": 3}, provenance={"rows": 7}, model_card="# Card\n")
    back = load(tmp_path / "e")
    assert back.config == config
    assert back.tokenizer == tokenizer
    assert back.fingerprint == fingerprint
    assert back.vocabulary.equals(encoder.vocabulary)
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)
    np.testing.assert_array_equal(back.encode(TEXTS), encoder.encode(TEXTS))
    assert not back.training
    assert not any(parameter.requires_grad for parameter in back.parameters())


def test_a_folder_holds_what_is_promised(tmp_path, tiny_words):
    encoder = Encoder(AvgConfig(), tiny_words, "ptb-v1")
    save(encoder, tmp_path / "e", recipe={"epochs": 3}, provenance={"rows": 7}, model_card="# Card\n")
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == [
        "README.md", "config.json", "model.safetensors", "words.txt",
    ]  # fmt: skip
    assert (tmp_path / "e" / "README.md").read_text() == "# Card\n"
    config = read_config(tmp_path / "e")
    assert config["encoder"] == config_to_dict(encoder.config)
    assert (config["recipe"], config["provenance"]) == ({"epochs": 3}, {"rows": 7})
    assert config["files"]["words.txt"] == sha256_of(tmp_path / "e" / "words.txt")


def test_the_fingerprint_follows_what_decides_a_vector(tmp_path, tiny_words):
    def fingerprint(words, config, tokenizer="ptb-v1", **record):
        encoder = Encoder(config, words, tokenizer)
        about = {"recipe": {}, "provenance": {}, "model_card": "", "overwrite": True}
        return save(encoder, tmp_path / "e", **about | record)

    first = fingerprint(tiny_words, AvgConfig())
    assert (
        fingerprint(tiny_words, AvgConfig(), recipe={"epochs": 1}, provenance={"when": "now"}, model_card="x") == first
    )
    other_matrix = tiny_words.matrix.copy()
    other_matrix[3, 1] += 1e-6
    renamed = pa.array([word.replace("cat", "cow") for word in tiny_words.vocabulary.to_pylist()])
    others = [
        fingerprint(tiny_words, ProjConfig()),
        fingerprint(tiny_words, AvgConfig(), "space"),
        fingerprint(Words(tiny_words.vocabulary, other_matrix), AvgConfig()),
        fingerprint(Words(renamed, tiny_words.matrix), AvgConfig()),
    ]
    assert len({first, *others}) == 5


def test_saving_replaces_and_loading_takes_a_string(tmp_path, tiny_words):
    for config in (AvgConfig(), ProjConfig(width=3)):
        about = {"recipe": {}, "provenance": {}, "model_card": "", "overwrite": isinstance(config, ProjConfig)}
        save(Encoder(config, tiny_words, "space"), tmp_path / "e", **about)
    assert paraembed.load(str(tmp_path / "e")).width == 3
    with pytest.raises(ValueError, match="contains an encoder; choose another `out`"):
        save(Encoder(AvgConfig(), tiny_words, "space"), tmp_path / "e", **about | {"overwrite": False})
    assert load(tmp_path / "e").width == 3


def test_loading_draws_no_random_number(tmp_path, tiny_words):
    save(Encoder(ProjConfig(), tiny_words, "space"), tmp_path / "e", recipe={}, provenance={}, model_card="")
    before = torch.get_rng_state()
    load(tmp_path / "e")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["model.safetensors", "words.txt"])
def test_a_changed_byte_and_a_missing_file_are_found(folder, name):
    flip_a_byte(folder / name)
    with pytest.raises(ValueError, match=rf"{name} differs from its digest .*config\.json"):
        load(folder)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} does not exist"):
        load(folder)


@pytest.mark.parametrize("key", ["tokeniser", "encoder", "fingerprint"])
def test_a_changed_setting_is_found(folder, key):
    config = json.loads((folder / "config.json").read_text())
    config[key] = {"tokeniser": "space", "encoder": {"name": "proj", "width": 2}, "fingerprint": "0"}[key]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="does not match its fingerprint"):
        load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "other"}', "{}"])
def test_another_config_is_refused(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json (is not JSON|does .*'paraembed-encoder-2')"):
        load(folder)


@pytest.mark.parametrize(
    "files", [{}, *({name: "0" * 64} for name in ("../out", "/etc/hostname", "a/b", ".", "./words.txt"))]
)
def test_other_files_than_those_of_the_format_are_refused(folder, files):
    (folder.parent / "out").write_text("x")
    rewrite(folder, lambda config: config.update(files={**config["files"], **files} if files else {}))
    with pytest.raises(ValueError, match=r"must list model\.safetensors and words\.txt with digests"):
        load(folder)


@pytest.mark.parametrize("dump", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_a_pickle_is_not_opened(folder, tmp_path, dump):
    with (folder / "model.safetensors").open("wb") as file:
        dump({"matrix": Bomb(tmp_path / "trace")}, file)
    with pytest.raises(ValueError, match="differs from its digest"):
        load(folder)
    replace_file(folder, "model.safetensors", (folder / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"model\.safetensors is not a safetensors file"):
        load(folder)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"boundary_tokens": "sideways"},
            r"config\.json: boundary_tokens is 'sideways'; allowed: none, start, end, both",
        ),
        ({"boundary_tokens": 3}, r"config\.json: boundary_tokens is 3"),
        ({"max_tokens": 0}, r"config\.json: max_tokens is 0; allowed: 1 to"),
        ({"max_tokens": True}, r"config\.json: max_tokens is True; expected int"),
        ({"max_tokens": float("nan")}, r"config\.json: max_tokens is nan; expected int"),
        ({"max_tokens": 10**30}, r"config\.json: max_tokens is 10{30}; allowed"),
        ({"encoder": {"name": "lstm", "width": 65_536}}, r"weights do not match .*'composition\..* is missing"),
        ({"encoder": []}, r"config\.json: encoder is \[\]; expected object"),
        ({"provenance": {"training": {"gold": 3}}}, r"config\.json: provenance\.training\.gold is 3; expected list"),
        ({"provenance": []}, r"config\.json: provenance is \[\]; expected object"),
        ({"encoder": {"name": "proj", "width": 2}}, r"the weights do not match the encoder in config\.json"),
        ({"tokeniser": "ptb-v9"}, "unknown tokenizer 'ptb-v9'; allowed"),
        ({"encoder": {"name": "gpt"}}, "unknown encoder 'gpt'; allowed"),
    ],
    ids=str,
)
def test_a_setting_that_no_encoder_has_is_refused(folder, changes, message):
    rewrite(folder, lambda config: config.update(changes))
    with pytest.raises(ValueError, match=message):
        load(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, tiny_words, value):
    matrix = tiny_words.matrix.copy()
    matrix[[7, 9], 2] = value
    encoder = Encoder(AvgConfig(), Words(tiny_words.vocabulary, matrix), "space")
    save(encoder, tmp_path / "e", recipe={}, provenance={}, model_card="")
    with pytest.raises(ValueError, match=r"model\.safetensors: 'matrix' .*NaN .*in row 7"):
        load(tmp_path / "e")


@pytest.mark.parametrize(
    ("dtype", "scales"),
    [
        *((dtype, 0) for dtype in (torch.float64, torch.bfloat16, torch.int32, torch.bool, torch.int8)),
        (torch.float32, 12),
        (torch.int8, 3),
    ],
    ids=str,
)
def test_weights_of_another_type_are_refused(folder, dtype, scales):
    scale = {"matrix_scale": torch.ones(scales)} if scales else {}
    replace_file(folder, "model.safetensors", {"matrix": torch.ones(12, 4, dtype=dtype), **scale})
    has = r"( has no .* of int8 with 'matrix_scale' of float32 \[V\]|: 'matrix' is \w+ \[12, 4\], a type)"
    with pytest.raises(ValueError, match=rf"model\.safetensors{has}"):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "words.txt", "model.safetensors"])
@pytest.mark.parametrize("kind", ["FIFO", "loop", "folder", "zeros"])
def test_what_is_no_file_is_refused_at_once(folder, name, kind):
    (folder / name).unlink()
    match kind:
        case "FIFO":
            os.mkfifo(folder / name)
        case "loop":
            (folder / name).symlink_to(folder / name)
        case "folder":
            (folder / name).mkdir()
        case _:
            (folder / name).symlink_to("/dev/zero")
    with pytest.raises((ValueError, OSError), match=re.escape(name)):
        load(folder)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"UUUNKKK\nthe\nthe\n", r"words\.txt, line 3: 'the' is already in line 2"),
        (b"UUUNKKK\n\xff\n", r"words\.txt, line 2: not UTF-8"),
        (b"UUUNKKK\nthe", r"words\.txt, line 2: no line feed at the end"),
        (b"UUUNKKK\r\nthe\r\n", r"no row 'UUUNKKK'"),
        (b"UUUNKKK\none\n", r"words\.txt has 2 words, but the word matrix has a different number"),
    ],
)
def test_a_damaged_vocabulary_is_refused_with_its_line(folder, data, message):
    replace_file(folder, "words.txt", data)
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_what_is_no_encoder_folder_is_named(folder):
    with pytest.raises(FileNotFoundError, match=r"none does not exist; .*encoder folder"):
        load(folder / "none")
    with pytest.raises(NotADirectoryError, match=r"words\.txt is a file; .*encoder folder"):
        load(folder / "words.txt")
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"has no config\.json; expected an encoder folder"):
        load(folder)
