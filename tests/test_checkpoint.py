"""Encoder folders: what is saved comes back bit by bit, and nothing else is taken for it."""

import json
import os
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
from tests.fuzz import sign, sign_files

OTHERS = {"tokeniser": "space", "encoder": {"name": "proj", "width": 2}, "fingerprint": "0"}
NO_CONFIGS = ["", "{", "[]", "null", '{"format": "other"}', "{}"]
TEXTS = ["The cat sat.", "a dog ran home", "", "zebra", "the the the"]


@pytest.fixture
def folder(tiny_encoder_folder, tmp_path):
    """A copy to spoil."""
    shutil.copytree(tiny_encoder_folder, tmp_path / "encoder")
    return tmp_path / "encoder"


def put(folder, name, content):
    """Replace a file as one would who knows the format: with digests and a fingerprint that fit; of ``config.json``
    some values.
    """
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    elif name == "config.json":
        write_json(folder / name, sign({**read_json(folder / name), **content}))
        return
    else:
        save_file(content, folder / name)
    sign_files(folder)


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
    assert np.array_equal(load(tmp_path / "g").encode(TEXTS), back.encode(TEXTS))


def test_a_folder_holds_what_is_promised(tmp_path, tiny_words):
    encoder, folder = Encoder(AvgConfig(), tiny_words, "ptb-v1"), tmp_path / "e"
    save(encoder, folder, recipe={"epochs": 3}, provenance={"rows": 7}, model_card="# Card\n")
    assert {path.name for path in folder.iterdir()} == {"README.md", "config.json", "model.safetensors", "words.txt"}
    assert (folder / "README.md").read_text() == "# Card\n"
    config = read_config(folder)
    assert config["encoder"] == config_to_dict(encoder.config)
    assert (config["recipe"], config["provenance"]) == ({"epochs": 3}, {"rows": 7})
    assert config["files"]["words.txt"] == sha256_of(folder / "words.txt")


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


def test_saving_replaces_if_asked_and_loading_draws_no_random_number(tmp_path, tiny_words):
    about = {"recipe": {}, "provenance": {}, "model_card": ""}
    save(Encoder(AvgConfig(), tiny_words, "space"), tmp_path / "e", **about)
    save(Encoder(ProjConfig(width=3), tiny_words, "space"), tmp_path / "e", **about, overwrite=True)
    before = torch.get_rng_state()
    assert paraembed.load(str(tmp_path / "e")).width == 3
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ValueError, match="contains an encoder; choose another `out`"):
        save(Encoder(AvgConfig(), tiny_words, "space"), tmp_path / "e", **about)
    assert load(tmp_path / "e").width == 3


@pytest.mark.parametrize("name", ["model.safetensors", "words.txt"])
def test_a_changed_byte_and_a_missing_file_are_found(folder, name):
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(ValueError, match=rf"{name} differs from its digest .*config\.json"):
        load(folder)
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} does not exist"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({key: value}, "does not match its fingerprint") for key, value in OTHERS.items()),
        *((text, r"config\.json (is not JSON|does .*'paraembed-encoder-2')") for text in NO_CONFIGS),
    ],
)
def test_a_changed_or_another_config_is_found(folder, changes, message):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(changes if isinstance(changes, str) else json.dumps(config | changes))
    with pytest.raises(ValueError, match=message):
        load(folder)


def table(dtype=torch.float32, value=1.0):
    """Word vectors, in whose rows 7 and 9 is a value."""
    matrix = torch.ones(12, 4, dtype=dtype)
    matrix[[7, 9], 2] = value
    return matrix


NO_TABLE = r" has no .* of int8 with 'matrix_scale' of float32 \[V\]"
ELSEWHERE = ("../out", "/etc/hostname", "a/b", ".", "./words.txt")
FILES = {"model.safetensors": "0" * 64, "words.txt": "0" * 64}
DAMAGED = {
    "config.json": [
        ({"boundary_tokens": "sideways"}, r": boundary_tokens is 'sideways'; allowed: none, start, end, both"),
        ({"boundary_tokens": 3}, r": boundary_tokens is 3"),
        ({"max_tokens": 0}, r": max_tokens is 0; allowed: 1 to"),
        ({"max_tokens": True}, r": max_tokens is True; expected int"),
        ({"max_tokens": float("nan")}, r": max_tokens is nan; expected int"),
        ({"max_tokens": 10**30}, r": max_tokens is 10{30}; allowed"),
        ({"encoder": {"name": "lstm", "width": 65_536}}, r"weights do not match .*'composition\..* is missing"),
        ({"encoder": []}, r": encoder is \[\]; expected object"),
        ({"provenance": {"training": {"gold": 3}}}, r": provenance\.training\.gold is 3; expected list"),
        ({"provenance": []}, r": provenance is \[\]; expected object"),
        ({"encoder": {"name": "proj", "width": 2}}, r"the weights do not match the encoder in config\.json"),
        ({"tokeniser": "ptb-v9"}, "unknown tokenizer 'ptb-v9'; allowed"),
        ({"encoder": {"name": "gpt"}}, "unknown encoder 'gpt'; allowed"),
        *(
            ({"files": files}, r"must list model\.safetensors and words\.txt with digests")
            for files in (
                {},
                *(FILES | {name: "0" * 64} for name in ("../out", "/etc/hostname", "a/b", ".", "./words.txt")),
            )
        ),
    ],
    "model.safetensors": [
        *(({"matrix": table(value=value)}, ": 'matrix' .*NaN .*in row 7") for value in (np.nan, np.inf, -np.inf)),
        ({"matrix": table(torch.bfloat16)}, r": 'matrix' is \w+ \[12, 4\], a type"),
        *(({"matrix": table(dtype)}, NO_TABLE) for dtype in (torch.float64, torch.int32, torch.bool, torch.int8)),
        ({"matrix": table(), "matrix_scale": torch.ones(12)}, NO_TABLE),
        ({"matrix": table(torch.int8), "matrix_scale": torch.ones(3)}, NO_TABLE),
    ],
    "words.txt": [
        (b"UUUNKKK\nthe\nthe\n", r", line 3: 'the' is already in line 2"),
        (b"UUUNKKK\n\xff\n", r", line 2: not UTF-8"),
        (b"UUUNKKK\nthe", r", line 2: no line feed at the end"),
        (b"UUUNKKK\r\nthe\r\n", r"no row 'UUUNKKK'"),
        (b"UUUNKKK\none\n", r" has 2 words, but the word matrix has a different number"),
    ],
}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [(name, *row) for name, rows in DAMAGED.items() for row in rows],
    ids=lambda value: " ".join(str(value).split())[:50],
)
def test_a_damaged_file_is_rejected_although_its_digest_fits(folder, name, content, message):
    put(folder, name, content)
    with pytest.raises(ValueError, match=(re.escape(name) if message[0] in ":, " else "") + message):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "words.txt", "model.safetensors"])
@pytest.mark.parametrize("kind", ["FIFO", "loop", "folder", "zeros"])
def test_what_is_no_file_is_refused_at_once(folder, name, kind):
    (folder / name).unlink()
    if kind == "FIFO":
        os.mkfifo(folder / name)
    elif kind == "folder":
        (folder / name).mkdir()
    else:
        (folder / name).symlink_to({"loop": folder / name, "zeros": "/dev/zero"}[kind])
    with pytest.raises((ValueError, OSError), match=re.escape(name)):
        load(folder)


def test_what_is_no_encoder_folder_is_named(folder):
    with pytest.raises(FileNotFoundError, match=r"none does not exist; .*encoder folder"):
        load(folder / "none")
    with pytest.raises(NotADirectoryError, match=r"words\.txt is a file; .*encoder folder"):
        load(folder / "words.txt")
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"has no config\.json; expected an encoder folder"):
        load(folder)
