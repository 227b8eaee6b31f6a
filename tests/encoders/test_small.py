"""The encoder in the package: its size, its vectors, its name, and the script that makes it."""

import numpy as np
import pytest

import paraembed
from infra import small
from paraembed import checkpoint
from paraembed.commands.paths import named_encoder
from paraembed.io.fingerprint import read_json

FOLDER = small.ROOT / "paraembed" / "small"
TEXTS = ["a man plays a guitar", "someone is playing an instrument", "the parliament votes on the budget"]


def test_it_takes_less_than_8_mb_and_knows_what_means_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 8_000_000
    encoder = paraembed.load("small")
    vectors = encoder.encode(TEXTS)
    assert (vectors.shape, encoder.tokenizer, len(encoder.vocabulary)) == ((3, 256), "wordpiece", 29_191)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T
    assert cosines[0, 1] > 0.5 > cosines[0, 2] + 0.3
    assert not encoder.encode("").any()


def test_a_folder_of_that_name_comes_first(tmp_path, tiny_encoder_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert named_encoder("small", "--encoder") == "small"
    (tmp_path / "small").symlink_to(tiny_encoder_folder)
    assert named_encoder("small", "--encoder") == str(tmp_path / "small")
    assert paraembed.load("small").width == 4
    with pytest.raises(FileNotFoundError, match="large does not exist"):
        paraembed.load("large")


def test_its_card_and_settings_are_those_of_the_script():
    taught = read_json(FOLDER / "config.json")["provenance"]["taught"]
    expected = small.CARD.format(**taught, scores=small.SCORES)
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == expected
    flags = dict(zip(small.SETTINGS[::2], small.SETTINGS[1::2], strict=True))
    assert {name: str(taught["settings"][name.removeprefix("--")]) for name in flags} == flags
    assert checkpoint.load(FOLDER).oov == "shared"
