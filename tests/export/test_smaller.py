"""Smaller encoders: average, pruning, principal components and int8, against NumPy and by hand."""

import gzip

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed import checkpoint
from paraembed.encoders import Encoder, config_from_dict
from paraembed.encoders.configs import AvgConfig
from paraembed.encoders.tables import from_int8, principal_axes, to_int8
from paraembed.export.concat import write_concat
from paraembed.export.folder import write_folder
from paraembed.export.smaller import averaged, pruned, reduced, token_counts, write_smaller
from paraembed.settings import Smaller
from paraembed.text import WORDPIECE
from paraembed.text.tokens import TokenIds
from paraembed.text.vocabulary import END, START, UNKNOWN, Words
from tests.jobs import digests

WORDS = [START, "the", "cat", "dog", UNKNOWN, "sat", "ran", "home", END]
TEXTS = [
    *("the cat sat", "the dog ran home", "", "a zebra ran", "home the the", "dog", "cat cat dog sat the mat"),
    *("sat home", "the ran", "dog cat", "zebra", "ran sat home home"),
]
PIECES = [
    *(UNKNOWN, "[CLS]", "[SEP]", "play", "##ing", "##ed", "walk", "stay", "the", "##s", ".", "playing"),
    *("p", "l", "a", "y", "w", "s", "t", "h", "e", "k", "i", "n", "g", "d"),
    *("##l", "##a", "##y", "##k", "##t", "##h", "##e", "##d", "##i", "##n", "##g"),  # no ##w
]
PIECE_TEXTS = ["playing the stay", "walked plays.", "stayed staying, the the", "[CLS] plays", "Playing", "waw"]


def encoder_of(words=WORDS, width=4, seed=0, tokenizer="ptb-v1", name="avg", **options):
    matrix = np.random.default_rng(seed).standard_normal((len(words), width), np.float32)
    config = config_from_dict({"name": name})
    return Encoder(config, Words(pa.array(words), matrix), tokenizer, **options).requires_grad_(False).eval()


def saved(folder, *, provenance=None, **options):
    encoder = encoder_of(**options)
    checkpoint.save(encoder, folder, recipe={}, provenance=provenance or {}, model_card=f"# {folder.name}\n")
    return folder


def reading(texts):
    return lambda: iter([pa.array(texts[:5]), pa.array(texts[5:])])


def products(encoder, texts=TEXTS):
    vectors = encoder.encode(texts).astype(np.float64)
    return vectors @ vectors.T


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt.gz"
    with gzip.open(path, "wt") as file:
        file.write("".join(f"{text}\n" for text in TEXTS))
    return path


def test_the_axes_are_those_of_a_singular_value_decomposition():
    X = np.random.default_rng(3).standard_normal((40, 6)) * [5, 1, 3, 2, 0.5, 4]
    axes = principal_axes(X.T @ X, 4)
    _, values, rows = np.linalg.svd(X, full_matrices=False)
    np.testing.assert_allclose(np.abs(np.sum(axes * rows[:4].T, axis=0)), 1, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(X @ axes, axis=0), values[:4], rtol=1e-9)
    assert (axes[np.abs(axes).argmax(axis=0), range(4)] > 0).all()


@pytest.mark.parametrize("options", [{}, {"bos_eos_tokens": "both", "max_tokens": 3}, {"oov": "drop"}])
def test_all_components_keep_the_products_and_fewer_those_that_numpy_keeps(options):
    encoder = encoder_of(**options)
    whole, explained = reduced(encoder, reading(TEXTS), 4)
    np.testing.assert_allclose(products(whole), products(encoder), rtol=0, atol=1e-5)
    assert explained == pytest.approx(1)
    few, explained = reduced(encoder, reading(TEXTS), 2)
    X = encoder.encode(TEXTS).astype(np.float64)
    left, values, _ = np.linalg.svd(X, full_matrices=False)
    best = (left[:, :2] * values[:2] ** 2) @ left[:, :2].T
    np.testing.assert_allclose(products(few), best, rtol=0, atol=1e-5)
    assert explained == pytest.approx((values[:2] ** 2).sum() / (values**2).sum())
    assert (few.width, few.oov, few.max_tokens) == (2, encoder.oov, encoder.max_tokens)


def test_hashed_vectors_keep_their_length_relative_to_the_words():
    encoder = encoder_of(oov="hashed")
    row = WORDS.index(UNKNOWN)

    def relative(table):
        lengths = np.linalg.norm(table, axis=1)
        return lengths[row] / np.sqrt(np.mean(np.delete(lengths, row) ** 2))

    known = ["the cat", "dog home", "ran"]
    whole, _ = reduced(encoder, reading(TEXTS), 4)
    np.testing.assert_allclose(products(whole, known), products(encoder, known), rtol=0, atol=1e-5)
    other = encoder_of(seed=1, oov="hashed")
    other.matrix[row] *= 3
    mean = averaged([encoder, other], ["a", "b"])
    few, _ = reduced(encoder, reading(TEXTS), 2)
    before = relative(encoder.matrix.numpy())
    assert relative(whole.matrix.numpy()) == pytest.approx(before)
    assert relative(few.matrix.numpy()) == pytest.approx(before, rel=1e-5)
    expected = (before + relative(other.matrix.numpy())) / 2
    assert relative(mean.matrix.numpy()) == pytest.approx(expected, rel=1e-5)
    assert encoder.oov == "hashed"


def test_the_average_of_two_by_hand():
    first, second = encoder_of(["a", UNKNOWN], 2), encoder_of(["a", UNKNOWN], 2)
    first.matrix.copy_(first.matrix.new_tensor([[6, 8], [0, 10]]))  # of mean length 10
    second.matrix.copy_(first.matrix.new_tensor([[0, 1], [3, 0]]))  # of mean length 2
    mean = averaged([first, second], ["a", "b"])
    np.testing.assert_allclose(mean.matrix.numpy(), [[0.3, 0.65], [0.75, 0.5]], rtol=1e-6)
    assert averaged([first], ["a"]) is first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokenizer": "space"}, r"b differs from a in the tokenizer \(space, not ptb-v1\); average encoders of one"),
        ({"bos_eos_tokens": "end"}, r"the BOS/EOS tokens \(end, not none\)"),
        ({"max_tokens": 9}, r"max_tokens \(9, not None\)"),
        ({"oov": "drop"}, r"the vectors of OOV tokens \(drop, not shared\)"),
        ({"width": 3}, r"the width \(3, not 4\)"),
        ({"words": [*WORDS, "x"]}, r"the number of words \(10, not 9\)"),
        ({"words": [*WORDS[:2], "CAT", *WORDS[3:]]}, r"word 3 of the vocabulary \('CAT', not 'cat'\)"),
    ],
)
def test_only_encoders_of_the_same_words_are_averaged(options, message):
    with pytest.raises(ValueError, match=message):
        averaged([encoder_of(), encoder_of(**options)], ["a", "b"])


def test_the_most_frequent_words_stay_in_their_order():
    encoder = encoder_of()
    counts = token_counts(encoder, reading(TEXTS))
    assert counts.tolist() == [0, 6, 4, 4, 4, 4, 4, 5, 0]
    few = pruned(encoder, counts, 3)  # of the four words with 4 tokens, the first
    kept = [START, "the", "cat", UNKNOWN, "home", END]
    assert few.vocabulary.to_pylist() == kept
    np.testing.assert_array_equal(few.matrix.numpy(), encoder.matrix.numpy()[[WORDS.index(word) for word in kept]])
    np.testing.assert_array_equal(few.encode("the home cat"), encoder.encode("the home cat"))
    assert pruned(encoder, counts, 99).vocabulary == encoder.vocabulary


def test_word_pieces_are_divided_into_those_that_are_kept():
    encoder = encoder_of(PIECES, tokenizer=WORDPIECE)
    counts = token_counts(encoder, reading(PIECE_TEXTS))
    few = pruned(encoder, counts, 2)
    kept = few.vocabulary.to_pylist()
    single = [piece for piece in PIECES if len(piece.removeprefix("##")) == 1]
    assert kept == [piece for piece in PIECES if piece in {UNKNOWN, "[CLS]", "[SEP]", "stay", "the", *single}]
    assert len(kept) < len(PIECES) - 4
    ids = TokenIds(few.vocabulary, WORDPIECE)(pa.array(PIECE_TEXTS))
    divided = ["[CLS]", "p", "##l", "##a", "##y", "##s", "p", "##l", "##a", "##y", "##i", "##n", "##g"]
    assert [kept[row] for row in ids.slice(3, 5).ids] == divided
    lengths = np.maximum(ids.lengths, 1)[:, None]
    rows = [few.matrix.numpy()[ids.ids[ids.offsets[text] : ids.offsets[text + 1]]].sum(0) for text in range(len(ids))]
    np.testing.assert_allclose(few.encode(PIECE_TEXTS), np.array(rows) / lengths, rtol=0, atol=1e-6)
    # Only the comma and waw, for which there is no single character, are out of vocabulary, as before.
    before = TokenIds(encoder.vocabulary, WORDPIECE)(pa.array(PIECE_TEXTS))
    assert [int((found.ids == 0).sum()) for found in (before, ids)] == [2, 2]


def test_all_steps_together_are_written_with_how_they_were_made(tmp_path, texts):
    gold = [{"task": "t", "data_set": name, "seed": 0} for name in ("sick", "sts")]
    trained = [{"training": {"pairs": "9", "gold": [labels]}, "selected": None} for labels in gold]
    folders = [saved(tmp_path / name, seed=seed, provenance=trained[seed]) for seed, name in enumerate("ab")]
    out = tmp_path / "out"
    made, measures = write_smaller(folders, out, Smaller(3, 2, "int8"), texts)
    loaded = checkpoint.load(out)
    expected = averaged([checkpoint.load(folder) for folder in folders], ["a", "b"])
    expected = pruned(expected, token_counts(expected, reading(TEXTS)), 3)
    expected, explained = reduced(expected, reading(TEXTS), 2)
    rounded = from_int8(*to_int8(expected.matrix.numpy()))
    assert loaded.vocabulary == expected.vocabulary
    np.testing.assert_allclose(loaded.matrix.numpy(), rounded, rtol=0, atol=2e-2)
    assert measures == {"oov_before": 4 / 31, "oov": 16 / 31, "more_tokens": 0, "explained": pytest.approx(explained)}
    config = checkpoint.read_config(out)
    assert config["provenance"]["training"] == {"pairs": "9", "gold": gold}
    record = config["provenance"]["made_smaller"]
    sources = [checkpoint.read_config(folder)["fingerprint"] for folder in folders]
    assert (record["sources"], record["dim"], record["max_words"], record["dtype"]) == (sources, 2, 3, "int8")
    assert len(record["texts_sha256"]) == 64
    assert made.fingerprint == config["fingerprint"]
    lines = ("# Average of a, b", "* Words: 6 of 9", "* Dimensions: 2 of 4", "int8", "51.61%, before 12.90%", "# b")
    card = (out / "README.md").read_text()
    assert [line for line in lines if line not in card] == []
    write_smaller(folders, tmp_path / "again", Smaller(3, 2, "int8"), texts)
    assert digests(tmp_path / "again") == digests(out) != {}


@pytest.fixture
def words_and_pieces(tmp_path):
    """Folders of an encoder of words with hashed vectors of OOV tokens, and of one of word pieces."""
    pieces = ["zeb", "##ra", UNKNOWN, "m", "##a", "##t"]
    return [saved(tmp_path / "words", oov="hashed"), saved(tmp_path / "of-pieces", words=pieces, tokenizer=WORDPIECE)]


def test_oov_tokens_get_vectors_of_pieces(tmp_path, words_and_pieces, texts):
    words, pieces = words_and_pieces
    before, parts = checkpoint.load(words), checkpoint.load(pieces).matrix.numpy()
    for name, more in (("out", {}), ("again", {}), ("all", {"dim": 4}), ("few", {"dim": 2, "dtype": "int8"})):
        write_smaller(
            [words], tmp_path / name, Smaller(**more, oov_pieces=str(pieces)), texts if "dim" in more else None
        )
    made = checkpoint.load(tmp_path / "out")
    length, mean = np.linalg.norm(before.matrix[WORDS.index(UNKNOWN)]), parts[:2].mean(axis=0)
    np.testing.assert_allclose(made.encode("zebra"), mean / np.linalg.norm(mean) * length, rtol=1e-5)
    assert made.encode("the cat").tobytes() == before.encode("the cat").tobytes()
    files = digests(tmp_path / "out", "**/*")
    assert files == digests(tmp_path / "again", "**/*")
    assert "pieces/words.txt" in files
    np.testing.assert_allclose(products(checkpoint.load(tmp_path / "all")), products(made), rtol=0, atol=1e-5)
    few = checkpoint.load(tmp_path / "few")
    X = made.encode(TEXTS).astype(np.float64)
    left, values, _ = np.linalg.svd(X, full_matrices=False)
    known = [row for row, count in enumerate(few.embed(pa.array(TEXTS)).num_unknown) if not count]
    best = ((left[:, :2] * values[:2] ** 2) @ left[:, :2].T)[np.ix_(known, known)]
    np.testing.assert_allclose(products(few)[np.ix_(known, known)], best, rtol=0, atol=5e-2)
    vectors = few.encode("zebra"), few.pieces.encode("zebra")
    assert vectors[0] @ vectors[1] == pytest.approx(np.linalg.norm(vectors[0]) * np.linalg.norm(vectors[1]))
    assert (few.width, few.pieces.width, few.oov) == (2, 2, "pieces")
    write_smaller([tmp_path / "out"], tmp_path / "twice", Smaller(oov_pieces=str(pieces)))
    assert checkpoint.load(tmp_path / "twice").encode("zebra").tobytes() == made.encode("zebra").tobytes()
    concat = write_concat([tmp_path / "out", words], tmp_path / "both")
    assert checkpoint.load_any(tmp_path / "both").encode(TEXTS).tobytes() == concat.encode(TEXTS).tobytes()
    with pytest.raises(ValueError, match="no other library can compute; export"):
        write_folder(made, "onnx", tmp_path / "onnx")


@pytest.mark.parametrize(("tokenizer", "oov"), [("ptb-v1", "hashed"), (WORDPIECE, "drop")])
def test_scales_of_words_are_folded_into_the_table(tokenizer, oov, tmp_path):
    labeled = {"training": {"gold": [{"task": "t", "data_set": "sts", "seed": 0}]}}
    scaled = encoder_of(name="scaled_avg", tokenizer=tokenizer, oov=oov, bos_eos_tokens="both", max_tokens=4)
    scaled.composition.scale.data = torch.linspace(0.1, 3, len(WORDS))
    checkpoint.save(scaled, tmp_path / "scaled", recipe={}, provenance=labeled, model_card="")
    write_smaller([tmp_path / "scaled"], tmp_path / "plain", Smaller(dtype="float32"))
    plain = checkpoint.load(tmp_path / "plain")
    assert (plain.config, plain.max_tokens, plain.oov) == (AvgConfig(), 4, oov)
    np.testing.assert_allclose(plain.encode(TEXTS), scaled.encode(TEXTS), rtol=1e-5, atol=1e-6)
    config = checkpoint.read_config(tmp_path / "plain")
    assert checkpoint.gold_of(config["provenance"]) == [{"task": "t", "data_set": "sts", "seed": 0}]
    assert config["provenance"]["made_smaller"]["sources"] == [checkpoint.load(tmp_path / "scaled").fingerprint]
    plain, _ = write_smaller([tmp_path / "scaled", tmp_path / "plain"], tmp_path / "out", Smaller())
    found, expected = products(plain), products(scaled)
    np.testing.assert_allclose(found / found[0, 0], expected / expected[0, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sum", "the text vector of sum is a sum; an avg encoder of the same word vectors has the same cosines"),
        ("word", "the text vector of word is that of the first token"),
    ],
)
def test_other_encoders_say_why_they_cannot(name, message, tmp_path):
    folder = saved(tmp_path / "encoder", name=name)
    with pytest.raises(ValueError, match=message):
        write_smaller([folder], tmp_path / "out", Smaller(dtype="int8"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["encoder"]


@pytest.mark.parametrize(
    ("settings", "lines", "message"),
    [
        ({"dim": 2}, "the cat\n\n", "`dim` is 2, but `texts` has 1 texts with a vector; give at least 2"),
        ({"max_words": 2}, "\n \n", "no line of .*texts has a token"),
        ({"max_words": 2}, b"the\n\xff\n", "texts, line 2: not UTF-8"),
        ({"dim": 2}, "", "texts is empty"),
        ({"max_words": 2}, None, "`max_words` needs `texts`"),
        ({"max_words": 0}, None, "`max_words` is 0"),
        ({"dtype": "int4"}, None, "`dtype` is 'int4'"),
    ],
)
def test_bad_input_writes_nothing(settings, lines, message, tmp_path):
    folder = saved(tmp_path / "encoder")
    texts = None
    if lines is not None:
        texts = tmp_path / "texts"
        texts.write_bytes(lines if isinstance(lines, bytes) else lines.encode())
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=message):
        write_smaller([folder], tmp_path / "out", Smaller(**settings), texts)
    assert sorted(tmp_path.iterdir()) == before
