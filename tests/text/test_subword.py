"""Subwords: any ``tokenizer.json``, in an encoder folder and in other processes."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.io.fingerprint import json_bytes
from paraembed.text import SUBWORD, WORDPIECE
from paraembed.text.subword import Subwords, SubwordTokenizer, contents_of, vocabulary_of, without_ends
from paraembed.text.tokens import TokenIds, tokens_of
from paraembed.text.vocabulary import UNKNOWN, Words, load_vocabulary, save_vocabulary
from paraembed.training.pairs import pairs_to_ids
from tests.encoders.models import subword_tokenizer
from tests.fuzz import sign_files
from tests.text.pieces import library as uncased
from tests.text.pieces import rows_of

KINDS = ("bytes", "unigram", "cased")
HARD = [
    "the cat sat",
    "Katze naïve",
    "",
    " ",
    "a\nb\r\n\tc",
    "<s>the</s> [CLS]<pad>",
    "\U0001f600 漢字 \x00 e\u0301",
    "\\n",
    UNKNOWN,
    "A" * 3000,
]
NOT_UTF8 = pa.array([b"a\xe2"]).view(pa.string())


def of_kind(kind):
    library = subword_tokenizer(kind)
    tokenizer = without_ends(library.to_str().encode())
    return library, tokenizer, vocabulary_of(tokenizer)


def edited(kind, **model):
    """A tokenizer of a kind with other fields of its model, without added tokens."""
    contents = json.loads(subword_tokenizer(kind).to_str())
    contents |= {"added_tokens": [], "model": contents["model"] | model}
    return without_ends(json.dumps(contents).encode())


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_library_in_its_order(kind):
    library, tokenizer, vocabulary = of_kind(kind)
    library.enable_truncation(2)
    library.enable_padding()
    assert without_ends(library.to_str().encode()).contents == tokenizer.contents
    library.no_truncation()
    library.no_padding()
    to_ids = TokenIds(vocabulary, tokenizer)
    texts = [*HARD, *["the cat sat"] * 4096, *HARD]  # two blocks
    expected = [encoding.ids for encoding in library.encode_batch_fast(texts, add_special_tokens=False)]
    for of_type in (pa.string(), pa.large_string()):
        rows = to_ids(pa.array(["x", None, *texts], of_type).slice(1))
        assert rows_of(rows) == [[], *expected]
        assert (rows.ids.dtype, rows.offsets.dtype) == (np.int32, np.int64)
    assert rows_of(to_ids(pa.array([], pa.string()))) == []
    names = tokens_of(pa.array(["the cat 漢"]), tokenizer, vocabulary).flat.to_pylist()
    assert names.count(UNKNOWN) == (kind != "bytes")
    if kind == "bytes":
        assert [library.decode(ids, skip_special_tokens=False) for ids in rows_of(to_ids(pa.array(HARD)))] == HARD


def test_texts_of_pieces_for_a_teacher():
    texts = {}
    for kind in KINDS:
        _, tokenizer, vocabulary = of_kind(kind)
        subwords = Subwords(vocabulary, tokenizer)
        texts[kind] = dict(zip(vocabulary.to_pylist(), subwords.alone(), strict=True))
        assert texts[kind][UNKNOWN] == ""
        assert subwords.keeps_ids
    assert (texts["bytes"]["ĠcafÃ©"], texts["bytes"]["Ã"]) == (" café", "")
    assert texts["unigram"]["e"] == "e"
    assert texts["cased"]["##e"] == "e"


def test_pieces_with_line_feeds_and_backslashes_have_lines(tmp_path):
    library = subword_tokenizer("unigram")
    library.add_tokens(["\n", "\\n", "\\\n", "\r", "\u2028"])
    tokenizer = without_ends(library.to_str().encode())
    vocabulary = vocabulary_of(tokenizer)
    save_vocabulary(vocabulary, tmp_path / "words.txt")
    assert len((tmp_path / "words.txt").read_bytes().split(b"\n")) == len(vocabulary) + 1
    loaded = load_vocabulary(tmp_path / "words.txt")
    assert loaded.equals(vocabulary)
    texts = ["a\nb", "a\\nb", "a\\\nb", "\r\u2028"]
    ids = rows_of(TokenIds(loaded, tokenizer)(pa.array(texts)))
    assert ids == [library.encode(text, add_special_tokens=False).ids for text in texts]
    assert len(set(map(tuple, ids))) == 4


def test_pieces_without_a_row_are_oov_tokens():
    library, tokenizer, vocabulary = of_kind("cased")
    kept = vocabulary.filter(pa.array([word not in {"cat", "[CLS]"} for word in vocabulary.to_pylist()]))
    subwords = Subwords(kept, tokenizer)
    oov = kept.to_pylist().index(UNKNOWN)
    assert kept.take(pa.array(subwords(pa.array(["the cat ☃"])).ids)).to_pylist() == ["the", UNKNOWN, UNKNOWN]
    assert not subwords.keeps_ids
    assert subwords.ids[oov] == library.token_to_id("[UNK]")
    assert [library.id_to_token(number) for row, number in enumerate(subwords.ids) if row != oov] == [
        word for word in kept.to_pylist() if word != UNKNOWN
    ]


def test_ids_with_gaps():
    pieces = {"[UNK]": 7, "the": 2, "##n": 2**31 + 5}
    tokenizer = edited("cased", vocab=pieces)
    vocabulary = vocabulary_of(tokenizer)
    assert vocabulary.to_pylist() == ["the", UNKNOWN, "##n"]
    assert rows_of(TokenIds(vocabulary, tokenizer)(pa.array(["the then cat", "thenn"]))) == [[0, 0, 2, 1], [0, 2, 2]]
    with pytest.raises(ValueError, match="has the piece UUUNKKK"):
        vocabulary_of(edited("cased", vocab=pieces | {UNKNOWN: 3}))


def test_merges_are_not_dropped_at_random():
    tokenizer = edited("bytes", dropout=0.9)
    ids = TokenIds(vocabulary_of(tokenizer), tokenizer)(pa.array(["the cat sat on the mat"] * 50))
    assert len({tuple(row) for row in rows_of(ids)}) == 1
    assert ids.lengths[0] < 10


def encoder_of(kind):
    tokenizer, vocabulary = (WORDPIECE, uncased()[1]) if kind == "wordpiece" else of_kind(kind)[1:]
    matrix = np.random.default_rng(0).standard_normal((len(vocabulary), 4), np.float32)
    return Encoder(AvgConfig(), Words(vocabulary, matrix), tokenizer)


@pytest.mark.parametrize("kind", [*KINDS, "wordpiece"])
def test_an_encoder_is_saved_and_loaded(kind, tmp_path):
    encoder = encoder_of(kind)
    checkpoint.save(encoder, tmp_path / "encoder", recipe={}, provenance={}, model_card="x\n")
    loaded = checkpoint.load(tmp_path / "encoder")
    expected = [
        encoder.matrix.detach().numpy()[row].mean(axis=0) if row else np.zeros(4)
        for row in rows_of(TokenIds(encoder.vocabulary, encoder.tokenizer)(pa.array(HARD)))
    ]
    np.testing.assert_allclose(loaded.encode(HARD), expected, rtol=1e-5, atol=1e-6)
    assert loaded.packed().encoder().encode(HARD).tobytes() == loaded.encode(HARD).tobytes()
    checkpoint.save(loaded, tmp_path / "again", recipe={}, provenance={}, model_card="x\n")
    assert checkpoint.load(tmp_path / "again").fingerprint == loaded.fingerprint
    assert loaded.embed(pa.array(["the ☃ Katze"])).num_unknown.tolist() == [kind != "bytes"]
    table = pa.table({"first": ["the cat", "naïve"], "second": ["Katze", None]})
    pairs = pairs_to_ids([table], loaded.vocabulary, tokenizer=loaded.tokenizer)
    texts = pa.array(["the cat", "Katze", "naïve", None])
    assert rows_of(pairs) == rows_of(TokenIds(loaded.vocabulary, loaded.tokenizer)(texts))


def test_a_changed_file_is_noticed(tmp_path):
    folder = tmp_path / "encoder"
    before = checkpoint.save(encoder_of("cased"), folder, recipe={}, provenance={}, model_card="")
    path = folder / "tokenizer.json"
    contents = json.loads(path.read_text())
    path.write_text(json.dumps({**contents, "normalizer": {"type": "Lowercase"}}))
    with pytest.raises(ValueError, match=r"tokenizer.json differs from its digest"):
        checkpoint.load(folder)
    sign_files(folder)
    changed = checkpoint.load(folder)
    assert changed.fingerprint != before
    assert changed.encode("Katze").tobytes() != encoder_of("cased").encode("Katze").tobytes()
    for damaged, message in (
        (b"{", "not JSON|valid JSON|JSON"),
        (b"[]", "has no object 'model'"),
        (b'{"model": {"type": "Word2Piece"}}', "not one that tokenizers can read"),
        (json.dumps({**contents, "model": {**contents["model"], "vocab": {"[UNK]": 0}}}).encode(), "is not a piece of"),
    ):
        path.write_bytes(damaged)
        sign_files(folder)
        with pytest.raises(ValueError, match=message):
            checkpoint.load(folder)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"tokenizer.json"):
        checkpoint.load(folder)


def test_a_file_that_the_tokenizer_does_not_have_is_an_error(tmp_path, tiny_words):
    checkpoint.save(encoder_of("cased"), tmp_path / "e", recipe={}, provenance={}, model_card="")
    config = json.loads((tmp_path / "e" / "config.json").read_text())
    (tmp_path / "e" / "config.json").write_bytes(json_bytes({**config, "tokeniser": "space"}))
    sign_files(tmp_path / "e")
    with pytest.raises(ValueError, match=r"must list tokenizer\.json .*tokenizer is subword"):
        checkpoint.load(tmp_path / "e")


def test_the_library_is_missing(monkeypatch):
    contents = json.loads(of_kind("cased")[1].contents) | {"normalizer": {"type": "NFC"}}
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match="package tokenizers; run pip install tokenizers"):
        without_ends(json.dumps(contents).encode())


def test_a_text_that_the_tokenizer_cannot_divide():
    tokenizer = edited("cased", vocab={"the": 0})
    for texts, message in ((pa.array(["☃"]), r"tokenizer.json cannot divide a text: .*\[UNK\]"), (NOT_UTF8, "utf-8")):
        with pytest.raises(ValueError, match=message):
            TokenIds(vocabulary_of(tokenizer), tokenizer)(texts)


@pytest.mark.parametrize("form", [list, " ".join])
def test_merges_at_which_the_library_aborts_the_process(form):
    vocabulary = {"a": 0, "é": 1, "aé": 2, "##b": 3, "ab": 4, "##é": 5}
    with pytest.raises(ValueError, match=r"merge .* not begin .*prefix '#'"):
        edited("bytes", vocab=vocabulary, merges=[form(["a", "é"])], continuing_subword_prefix="#")
    merges = [form(["a", "##b"]), form(["a", "##é"])]
    tokenizer = edited("bytes", vocab=vocabulary, merges=merges, continuing_subword_prefix="##")
    assert vocabulary_of(tokenizer).to_pylist()[3] == "##b"


def test_only_the_name_is_not_enough(tiny_words):
    assert contents_of("space") == b""
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        TokenIds(pa.array([UNKNOWN]), SUBWORD)
    with pytest.raises(ValueError, match=r"`oov` is hashed, .*subword has only shared"):
        Encoder(
            AvgConfig(), Words(pa.array([UNKNOWN]), np.zeros((1, 2), np.float32)), SubwordTokenizer(b""), oov="hashed"
        )
