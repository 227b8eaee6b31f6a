import gzip
import logging
from dataclasses import replace

import numpy as np
import psutil
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder, config_from_dict
from paraembed.encoders.configs import AvgConfig, DanConfig, RecursiveConfig
from paraembed.recipe import Recipe
from paraembed.settings import MIN_COVERAGE
from paraembed.text.vocabulary import END, START, UNKNOWN, Words
from paraembed.training.initial import (
    Memory,
    available_memory,
    check_coverage,
    check_memory,
    encoder_for,
    estimate,
    untrained_encoder,
    words_digest,
)
from paraembed.training.pairs import pairs_to_ids

PLAIN = Recipe()


@pytest.mark.parametrize("has_ends", [True, False])
def test_boundary_words_take_the_files_vectors_or_random_ones(tmp_path, has_ends):
    block = pa.table({"first": ["a b"], "second": ["b"]})
    ends = "<s> 7 8\n</S> 9 10\n" if has_ends else ""
    (tmp_path / "words.txt").write_text(f"a 1 2\n{ends}b 3 4\n")
    recipe = Recipe(bos_eos_tokens="both", max_tokens=9)
    encoder, _ = untrained_encoder(tmp_path / "words.txt", [block], recipe)
    assert (encoder.bos_eos_tokens, encoder.max_tokens) == ("both", 9)
    rows = {word: encoder.matrix[row].tolist() for row, word in enumerate(encoder.vocabulary.to_pylist())}
    assert ([rows[START], rows[END]] == [[7, 8], [9, 10]]) == has_ends
    a, both = encoder.encode(["a"])[0], np.array([rows[START], [1, 2], rows[END]])
    np.testing.assert_allclose(a, both.mean(axis=0), rtol=1e-6)


def test_word_vectors_get_mean_length_1_if_the_recipe_says_so(tmp_path, capsys):
    (tmp_path / "words.txt").write_text("a 3 4\nb 0 0\nc 0 10\n")
    counts = pa.StructArray.from_arrays([pa.array(["a", "c"]), pa.array([1, 1])], ["values", "counts"])
    plain, _ = encoder_for(tmp_path / "words.txt", counts, PLAIN)
    assert capsys.readouterr().err == ""
    unit, _ = encoder_for(tmp_path / "words.txt", counts, replace(PLAIN, word_scale="unit"))
    lengths = plain.matrix.detach().norm(dim=1)
    factor = 1 / lengths[lengths > 0].mean().item()
    np.testing.assert_allclose(unit.matrix.detach(), factor * plain.matrix.detach(), rtol=1e-6)
    assert f"words.txt are multiplied by {factor:.3g}; their mean length is 1" in capsys.readouterr().err
    assert "word_scale" not in PLAIN.to_dict()


PIECES = [UNKNOWN, "a", "b", "##b", "##c"]


def encoder_at(folder, config, words, tokenizer, **more):
    matrix = np.random.default_rng(7).standard_normal((len(words), 3), np.float32)
    encoder = Encoder(config, Words(pa.array(words), matrix), tokenizer, **more)
    checkpoint.save(encoder, folder, recipe={}, provenance={}, model_card="")
    return encoder


@pytest.mark.parametrize(
    ("config", "words", "tokenizer", "oov", "ids"),
    [
        (AvgConfig(), PIECES, "wordpiece", "shared", [[1, 3, 4, 2], [0, 1]]),
        (DanConfig(), PIECES, "wordpiece", "drop", [[1, 3, 4, 2], [0, 1]]),
        (AvgConfig(), [UNKNOWN, "b", "abc"], "ptb-v1", "hashed", [[2, 1], [0, 0]]),
        (RecursiveConfig(), [UNKNOWN, "b", "abc"], "space", "hashed", [[2, 1], [0, 0]]),
    ],
)
def test_words_of_an_encoder_bring_its_tokenizer(tmp_path, config, words, tokenizer, oov, ids):
    block = pa.table({"first": ["abc b"], "second": ["zebra a"]})
    source = encoder_at(tmp_path / "encoder", AvgConfig(), words, tokenizer, oov=oov)
    encoder, found = untrained_encoder(tmp_path / "encoder", [block], Recipe(encoder=config))
    assert (encoder.config, encoder.tokenizer) == (config, tokenizer)
    assert encoder.oov == ("shared" if encoder.composition.reads_trees else oov)
    assert encoder.matrix.tolist() == source.matrix.tolist()
    flat = [row for text in ids for row in text]
    assert found.covered == 1 - flat.count(0) / len(flat)
    pairs = pairs_to_ids([block], encoder.vocabulary, tokenizer=tokenizer)
    assert [pairs.slice(at, at + 1).ids.tolist() for at in range(2)] == ids
    assert words_digest(tmp_path / "encoder") == checkpoint.load(tmp_path / "encoder").fingerprint
    assert estimate(tmp_path / "encoder", PLAIN, 0, 0, 1).num_words == len(words)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gran", {}, r"gran is an encoder 'gran'; .* an encoder 'avg'"),
        ("avg", {"max_words": 2}, "`max_words` is 2, which is for files"),
        ("avg", {"max_tokens": 5}, r"`max_tokens` is 5, but None in .*avg"),
        ("avg", {"encoder": RecursiveConfig()}, r"'recursive' reads parse trees of words, but .*avg has word pieces"),
    ],
)
def test_encoders_that_do_not_fit_the_recipe_are_errors(tmp_path, name, changes, message):
    counts = pa.StructArray.from_arrays([pa.array(["a"]), pa.array([1])], ["values", "counts"])
    encoder_at(tmp_path / name, config_from_dict({"name": name}), PIECES, "wordpiece")
    with pytest.raises(ValueError, match=message):
        encoder_for(tmp_path / name, counts, replace(PLAIN, **changes))
    with pytest.raises(FileNotFoundError, match=r"none\.txt"):
        words_digest(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="an encoder folder"):
        words_digest(tmp_path)


def coverage(folder, counts, recipe=PLAIN):
    """Coverage of counted words by a file that has vectors for "a" and "b"."""
    (folder / "words.txt").write_text("a 1 2\nb 3 4\n")
    arrays = [pa.array(counts), pa.array(counts.values())]
    return encoder_for(folder / "words.txt", pa.StructArray.from_arrays(arrays, ["values", "counts"]), recipe)[1]


@pytest.mark.parametrize(
    ("counts", "least", "ends"),
    [
        ({"a": 50, "x": 50}, MIN_COVERAGE, "trains"),
        ({"a": 49, "x": 51}, MIN_COVERAGE, "warns"),
        ({"a": 20, "x": 80}, MIN_COVERAGE, "warns"),
        ({"a": 19, "x": 81}, MIN_COVERAGE, "stops"),
        ({"x": 9}, MIN_COVERAGE, "stops"),
        ({"x": 9}, 0.0, "warns"),
        ({"a": 99, "x": 1}, 1.0, "stops"),
        ({"A": 99, "x": 1}, MIN_COVERAGE, "stops"),
    ],
)
def test_words_that_cover_too_little_warn_or_stop(tmp_path, caplog, counts, least, ends):
    found = coverage(tmp_path, counts)
    with caplog.at_level(logging.WARNING):
        if ends == "stops":
            with pytest.raises(ValueError, match=r"'x'.*`min_coverage`"):
                check_coverage(found, least, "words.txt", "the pairs")
        else:
            check_coverage(found, least, "words.txt", "the pairs")
    assert ("'x' (" in caplog.text) == (ends == "warns")


def test_ten_missing_words_are_named_the_most_frequent_first(tmp_path):
    found = coverage(tmp_path, {"b": 5, **{f"x{number:02}": number for number in range(1, 31)}, "y" * 99: 1000})
    assert found.missing == (("y" * 99, 1000), *((f"x{number}", number) for number in range(30, 21, -1)))
    with pytest.raises(ValueError, match=f"'{'y' * 30}' \\(1,000\\)"):
        check_coverage(found, MIN_COVERAGE, "words.txt", "the pairs")


def test_random_vectors_that_the_user_asked_for_count_but_are_warned_of(tmp_path, caplog):
    counts, recipe = {"x": 90, "y": 4}, Recipe(new_words="random")
    found = coverage(tmp_path, counts, recipe)
    assert (found.covered, found.with_vector, found.num_random) == (0, 90 / 94, 1)
    check_coverage(found, MIN_COVERAGE, "words.txt", "the pairs")
    assert "1 words got a random vector" in caplog.text
    rare = coverage(tmp_path, counts, replace(recipe, new_words_min_count=91))
    with pytest.raises(ValueError, match="`min_coverage`"):
        check_coverage(rare, MIN_COVERAGE, "words.txt", "the pairs")


def vectors(path, rows, width, header=False):
    values = [" ".join(row) for row in np.random.default_rng(0).standard_normal((100, width)).round(4).astype(str)]
    text = "".join(f"word{number} {values[number % 100]}\n" for number in range(rows))
    text = f"{rows} {width}\n{text}" if header else text
    path.write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz", "v.bin"])
@pytest.mark.parametrize("rows", [40_000, 70])
def test_rows_are_estimated_from_the_beginning_of_a_file(tmp_path, name, rows):
    path = tmp_path / name
    if name == "v.bin":  # it states them
        path.write_bytes(b"%d 25\n" % rows + b"".join(b"word%d " % number + b"\n" * 100 for number in range(70)))
    else:
        vectors(path, rows, 25, header=True)
    memory = estimate(path, Recipe(), 0, 0, 1)
    assert memory.width == 25
    assert memory.num_words == pytest.approx(rows, rel=0 if name == "v.bin" else 0.1)
    assert memory.words >= 4 * memory.num_words * 25


@pytest.mark.parametrize(
    ("recipe", "matrices"),
    [
        (Recipe(), 2),
        (Recipe(optimizer="adagrad", word_l2=0.1), 2),
        (Recipe(optimizer="sgd"), 0),
        (Recipe(update="dense"), 6),
        (Recipe(update="dense", train_words=False), 0),
    ],
)
def test_copies_are_those_of_the_recipe(tmp_path, recipe, matrices):
    memory = estimate(vectors(tmp_path / "v.txt", 100, 10), recipe, 50, 10, 3)
    assert memory.copies == matrices * 4 * 100 * 10
    assert memory.pairs == 4 * 50 + 16 * 10
    assert estimate(tmp_path / "v.txt", Recipe(max_words=7), 50, 10, 1).num_words == 7
    files = 4 * 50 + 16 * 10
    workers, worker, windows = (
        estimate(tmp_path / "v.txt", recipe, 50, 10, world, most) for world, most in ((3, files), (1, files), (3, 99))
    )
    assert (windows.pairs, windows.mapped) == (99, 0)
    assert (workers.pairs, workers.mapped) == (8 * 10, files)  # an order for each worker, and files for all
    assert workers.needed - workers.of_workers(2, 3).needed == worker.needed - files


def test_files_that_are_no_vectors_are_left_to_their_reader(tmp_path):
    for number, data in enumerate([b"", b"\x00\xff", b"\x1f\x8bbroken", gzip.compress(b"a 1\n")[:12]]):
        (tmp_path / f"{number}.gz").write_bytes(data)
        (tmp_path / f"{number}.txt").write_bytes(data)
        for suffix in ("gz", "txt"):
            memory = estimate(tmp_path / f"{number}.{suffix}", Recipe(), 0, 0, 1)
            check_memory(memory, 2**40)
            assert memory.words <= 2**20  # nothing much is made of a few bytes


def test_what_does_not_fit_is_said_in_numbers():
    memory = Memory(num_words=10**6, width=300, words=2**30, copies=3 * 2**30, pairs=2**29, workers=2)
    check_memory(memory, memory.needed)
    with pytest.raises(ValueError, match=r"10\.2 GiB .*8\.0 GiB .*1,000,000 words"):
        check_memory(memory, 2**33)
    assert 0 < available_memory() <= psutil.virtual_memory().total
