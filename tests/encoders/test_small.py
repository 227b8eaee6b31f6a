"""The encoder in the package: its size, its vectors, its name, and the script that makes it."""

import gzip

import numpy as np
import pytest

import paraembed
from infra import small, teach_data
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


@pytest.fixture
def write(tmp_path):
    """Write a compressed file of lines below train/."""

    def write(name, *lines):
        path = tmp_path / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))

    return write


def test_its_texts(tmp_path, write):
    for number, name in enumerate(small.QUESTIONS):
        write(f"sentpairs/{name}", "source,target", f'"who, {number}?",which {number}?')
    for name in small.WIKIPEDIA:
        write(f"sentpairs/{name}", "a whole\tHe was n't at home . <::::> Too short . <::::> It 's `` good '' there .")
    write(f"text/{small.NOVELS}", *(f"It was day {day}." for day in range(25)), "Short.")
    found = list(small.texts(tmp_path))
    assert found[:4] == ["who, 0?", "which 0?", "who, 1?", "which 1?"]
    assert found[8:10] == ["He wasn't at home .", 'It\'s " good " there .']
    assert found[-3:] == ["It was day 0.", "It was day 12.", "It was day 24."]
    assert len(found) == 8 + 6 + 3


def test_the_texts_and_pairs_of_larger_students(tmp_path, write):
    long = " ".join(["long"] * 41)
    for name in teach_data.PAIRS:
        write(f"sentpairs/{name}.tsv.gz", f"He 's {name}\tit  is n't", f"It is n't\the 's {name}", f"a\t{long}", "x\tX")
    for name in small.QUESTIONS:
        write(f"sentpairs/{name}", "source,target", f'"who, {name}?",which?')
    for name in small.WIKIPEDIA:
        write(f"sentpairs/{name}", f"a whole {name} .\tFirst half of it . <::::> It 's second .")
    write(f"sentpairs/{teach_data.SIMPLIFIED}", "normal\tsimple\tsimpler")
    write(f"text/{small.NOVELS}", "It was a day.")
    teach_data.main(tmp_path, tmp_path / "work")
    pairs = [line.split("\t") for line in (tmp_path / "work" / "pairs.tsv").read_text().splitlines()]
    names = teach_data.PAIRS
    expected = [["He's " + names[0], "it isn't"], ["a", long], *(["He's " + name, "it isn't"] for name in names[1:])]
    expected += [[f"a whole {name} .", "First half of it . It's second ."] for name in small.WIKIPEDIA]
    expected += [[f"who, {name}?", "which?"] for name in small.QUESTIONS]
    assert pairs == [*expected, ["normal", "simple"], ["normal", "simpler"]]
    texts = (tmp_path / "work" / "texts.txt").read_text().splitlines()
    assert set(texts) == {*small.texts(tmp_path), *(text for pair in pairs for text in pair)} - {long}
    assert len(texts) == len(set(texts))
