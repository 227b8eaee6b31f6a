"""Equal texts are encoded once, and a cache gives back what it was given, in any order and after any damage: the output
is that of texts which are encoded each by itself.
"""

import json
import os
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed import checkpoint
from paraembed.embedding import cache as caching
from paraembed.embedding import repeated as module
from paraembed.embedding.cache import CachedVectors, hashes_of, open_cache, trim
from paraembed.embedding.part import LATER_COUNTS, PartReport
from paraembed.embedding.records import Reports, read_arrow, reports_of
from paraembed.embedding.repeated import DistinctTexts, keys_of
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, LstmConfig
from paraembed.encoders.protocol import NO_LOCK, Embedded, NotFiniteError, no_progress
from paraembed.io.store import open_store
from tests.embedding.without_ray import build
from tests.object_store import RefusedError

WIDTH = 3


class Counting:
    """An encoder whose vectors do not depend on the batch; it counts what it encodes."""

    encodes_once, width, fingerprint, identity, tokenizer = True, WIDTH, "counting", {}, "space"

    def __init__(self):
        self.encoded = []

    def embed(self, texts, batch_size, trees=None, *, on_rows, **_):
        given = [text or "" for text in texts.to_pylist()]
        of_trees = [None] * len(given) if trees is None else trees.to_pylist()
        assert batch_size == len(given)
        self.encoded += zip(given, of_trees, strict=True)
        vectors = np.array([[len(text), hash((text, tree)) % 1000, 1] for text, tree in self.encoded[-len(given) :]])
        if "nan" in given:
            raise NotFiniteError(given.index("nan"))
        tokens = np.array([text.count(" ") for text in given], np.int32)
        on_rows(len(given))
        flags = tokens > 1, np.array([tree is None for tree in of_trees])
        return Embedded(vectors.astype(np.float32), tokens, tokens // 2, *flags)


TEXTS = st.lists(st.sampled_from([None, "", "a", "a b c", "b", "ä", "3:a"]), min_size=1, max_size=9)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.booleans(), st.integers(1, 5))
def test_rows_are_those_of_an_encoder_alone(batches, has_trees, remembered):
    encoder, alone, rows = Counting(), Counting(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MEMORY_BYTES", 4 * WIDTH * remembered)
        distinct = DistinctTexts(encoder)
        for texts in batches:
            trees = pa.array([text[:1] if text else None for text in texts], pa.string()) if has_trees else None
            array = pa.array(texts, pa.string())
            result = distinct.embed(array, trees, NO_LOCK, rows.append)
            expected = alone.embed(array, len(texts), trees, lock=NO_LOCK, on_rows=no_progress)
            for name in ("vectors", "num_tokens", "num_unknown", "is_cut", "lacks_tree"):
                np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
    total = sum(map(len, batches))
    assert sum(rows) == total == len(encoder.encoded) + distinct.num_repeated
    first = len(dict.fromkeys(text or "" for text in batches[0]))
    assert len(encoder.encoded) >= first
    if remembered == 5 and len({text or "" for texts in batches for text in texts}) <= 5 and not has_trees:
        assert len(encoder.encoded) == len(set(encoder.encoded))


def test_keys_of_other_pairs_differ_and_an_error_names_the_row():
    pairs = [("a", "b"), ("a:b", ""), ("a", ":b"), ("", "a:b"), ("1:a", "b"), (None, "b"), ("a", None)]
    keys = keys_of(pa.array([text for text, _ in pairs]), pa.array([tree for _, tree in pairs]))
    assert len(set(keys.to_pylist())) == len(pairs)
    with pytest.raises(NotFiniteError) as raised:
        DistinctTexts(Counting()).embed(pa.array(["a", "a", "b", "nan", "nan"]), None, NO_LOCK, no_progress)
    assert raised.value.text == 3


@pytest.mark.parametrize(("config", "counts"), [(LstmConfig(), (4, 4, 8)), (AvgConfig(), (None, 4, 8))])
def test_an_output_counts_repeated_texts_and_truncated_rows(tiny_words, tmp_path, config, counts):
    """An average encodes every text, and its output keeps its bytes."""
    encoder = tmp_path / "encoder"
    words = Encoder(config, tiny_words, "space", max_tokens=2)
    checkpoint.save(words, encoder, recipe={}, provenance={}, model_card="")
    texts = ["the cat sat", "a dog", "the cat sat", "", "a dog ran", "the cat sat", "", "a dog"]
    (tmp_path / "t.txt").write_text("".join(f"{text}\n" for text in texts))
    out = tmp_path / "out"
    build(encoder, tmp_path / "t.txt", Settings(batch_size=4), out)
    (part,) = (out / "data").iterdir()
    table = pq.read_table(part)
    vectors = table["embedding"].to_pylist()
    assert vectors[0] == vectors[2] == vectors[5] != vectors[4]
    written = json.loads(pq.read_metadata(part).metadata[b"paraembed"])
    assert (written.get("n_repeated"), written["n_cut"], written["rows"]) == counts
    assert json.loads((out / "_manifest.json").read_text()).get("n_repeated") == counts[0]
    assert all(check.ok for check in verify(out, encoder, [str(tmp_path)]))
    assert table["n_tokens"].to_pylist() == [len(text.split()) for text in texts]


@pytest.mark.parametrize("counts", [{}, {"n_cached": 1}, {"n_further_chunks": 2, "n_repeated": 1}])
def test_reports_have_the_later_counts_only_if_they_are_not_zero(tmp_path, counts):
    """As files of earlier versions have none of them."""
    store = open_store(tmp_path)
    report = PartReport("data/part-000-000000.parquet", 3, 2, 1, 0, 0, "ab", 0.5, **counts)
    done = Reports(store, "run")
    done.add(report)
    done.write()
    table, _ = read_arrow(store, "_done/000-000000.arrow")
    assert {*table.column_names} & {*LATER_COUNTS} == counts.keys()
    assert [*reports_of(Reports(store, "run").read())] == [report]


def embedded(encoder, cache, batches, *, writes=True):
    """What a part with these batches of texts gives, and its counts."""
    texts = DistinctTexts(encoder, cache)
    results = [texts.embed(pa.array(batch, pa.string()), None, NO_LOCK, no_progress) for batch in batches]
    if writes:
        texts.cached.write()
    return [np.concatenate(arrays) for arrays in zip(*(result.arrays for result in results), strict=True)], texts


def alone(batch):
    return Counting().embed(pa.array(batch), len(batch), on_rows=no_progress)


WORDS = ["a", "b", "c", "a b", "a b c", "a b c d", "", "dd", "e f g h i j"]
BATCHES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), min_size=1, max_size=3)


@given(st.lists(BATCHES, min_size=1, max_size=4), st.integers(1, 60))
def test_cache_on_is_cache_off(tmp_path_factory, runs, group_bytes):
    """Each run finds all texts of the runs before, and computes only the others."""
    place, before = tmp_path_factory.mktemp("cache"), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caching, "_GROUP_BYTES", group_bytes)
        for batches in runs:
            encoder = Counting()
            arrays, texts = embedded(encoder, open_cache(place, encoder), batches)
            expected = zip(*(alone(batch).arrays for batch in batches), strict=True)
            for array, of_batches in zip(arrays, expected, strict=True):
                np.testing.assert_array_equal(array, np.concatenate(of_batches))
            new = list(dict.fromkeys(text for batch in batches for text in batch))
            assert [text for text, _ in encoder.encoded] == [text for text in new if text not in before]
            assert texts.num_cached == len(before.intersection(new))
            before.update(new)


def test_both_halves_of_a_hash_decide(tmp_path):
    texts, cache = pa.array(["a", "b"]), open_cache(tmp_path, Counting())
    writer = CachedVectors(cache)
    writer.add(hashes_of(texts), alone(texts))
    writer.write()
    own, others = hashes_of(texts), hashes_of(pa.array(["x", "y"]))
    reader = CachedVectors(open_cache(tmp_path, Counting()))
    for first, second, found in ((own, own, True), (others, own, False), (own, others, False)):
        hashes, target = np.stack([first[:, 0], second[:, 1]], 1), Embedded.blank(2, 3)
        assert (reader.find(hashes, target, np.arange(2)) == found).all()


def test_damaged_files_are_computed_again(tmp_path, caplog):
    """Every byte of the hashes, the vectors and the footer; a file that is truncated, empty or removed."""
    batches = [list("abcdef")]
    embedded(Counting(), open_cache(tmp_path, Counting()), batches)
    (path,) = tmp_path.glob("*/*.parquet")
    whole, draw = path.read_bytes(), np.random.default_rng(0)
    expected = alone(batches[0]).vectors
    places = draw.choice(len(whole), 60, replace=False).tolist()
    flipped = (whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :] for place in places)
    for data in (whole[:-1], b"", whole[:4], *flipped):
        caching._index.cache_clear()
        path.write_bytes(data)
        (vectors, *_), _ = embedded(Counting(), open_cache(tmp_path, Counting()), batches, writes=False)
        np.testing.assert_array_equal(vectors, expected)
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    path.write_bytes(whole)
    known = open_cache(tmp_path, Counting())
    path.unlink()
    caplog.clear()
    caching._index.cache_clear()
    assert embedded(Counting(), known, batches)[1].num_cached == 0  # and is written again
    assert path.read_bytes() == whole
    assert not caplog.records


def test_a_damaged_file_does_not_hide_the_new_one(server):
    embedded(Counting(), open_cache(server.uri("cache"), Counting()), [list("abcdef")])
    (key,) = (key for key in server.objects if key.endswith(".parquet"))
    whole = server.objects[key]
    server.objects[key] = whole.replace(b"\0\0\x80\x3f", b"\0\0\x80\x3e")
    assert server.objects[key] != whole
    for expected in (0, 3):
        caching._index.cache_clear()
        _, texts = embedded(Counting(), open_cache(server.uri("cache"), Counting()), [list("abc")])
        assert texts.num_cached == expected
    assert key not in server.objects
    own = re.compile(r"cache/(_cache\.json|[0-9a-f]{32}/\w+\.parquet)")
    assert all(own.fullmatch(key) for key, data in server.objects.items() if data)
    trim(open_cache(server.uri("cache"), Counting(), 1e-9))
    assert [key for key, data in server.objects.items() if data] == ["cache/_cache.json"]


def test_a_file_that_the_network_does_not_give_is_not_removed(server, caplog):
    embedded(Counting(), open_cache(server.uri("cache"), Counting()), [["a"]])
    cache, before = open_cache(server.uri("cache"), Counting()), dict(server.objects)

    def hook(moment, port):
        raise RefusedError

    server.hook = hook
    caching._index.cache_clear()
    assert embedded(Counting(), cache, [["a"]], writes=False)[1].num_cached == 0
    assert "cannot be read" in caplog.text
    assert server.objects == before


def test_other_encoders_and_foreign_folders(tmp_path):
    embedded(Counting(), open_cache(tmp_path / "c", Counting()), [["a"]])
    for name, value in (("fingerprint", "x"), ("tokenizer", "x"), ("identity", {"precision": "float16"}), ("width", 4)):
        other = Counting()
        setattr(other, name, value)
        assert open_cache(tmp_path / "c", other).files == ()
    assert len(open_cache(tmp_path / "c", Counting()).files) == 1
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"thesis\.tex"):
        open_cache(tmp_path / "foreign", Counting())
    assert open_cache(tmp_path / "new", Counting(), reads_only=True).files == ()
    assert not (tmp_path / "new").exists()
    (tmp_path / "c" / "_cache.json").write_text('{"format": "paraembed-vectors-9"}')
    with pytest.raises(ValueError, match="paraembed-vectors-9"):
        open_cache(tmp_path / "c", Counting())
    quick = Counting()
    quick.encodes_once = False
    with pytest.raises(ValueError, match="faster"):
        open_cache(tmp_path / "new", quick)
    with pytest.raises(ValueError, match="`cache_gb` is 0"):
        open_cache(tmp_path / "new", Counting(), 0)


def test_what_was_written_first_is_removed(tmp_path):
    for number, text in enumerate("abcd"):
        embedded(Counting(), open_cache(tmp_path, Counting()), [[text]])
        (new,) = (path for path in tmp_path.glob("*/*.parquet") if path.stat().st_mtime > 1000)
        os.utime(new, (number, number))
    left_over = new.with_name(f".{new.name}.0123abcd.tmp")
    left_over.touch()
    os.utime(left_over, (0, 0))
    writing = new.with_name(f".{new.name}.0123abce.tmp")
    writing.touch()
    trim(open_cache(tmp_path, Counting(), 2.5 * new.stat().st_size / 1e9))
    assert sorted(path.stat().st_mtime for path in tmp_path.glob("*/*.parquet")) == [2, 3]
    assert not left_over.exists()
    assert writing.exists()


def test_what_is_no_file_of_a_cache_is_left_alone(tmp_path, caplog):
    embedded(Counting(), open_cache(tmp_path, Counting()), [["a"]])
    (own,) = tmp_path.glob("*/*.parquet")
    (own.parent / f"{'0' * 32}.parquet").mkdir()
    (own.parent / "notes.parquet").touch()
    os.utime(own.parent / "notes.parquet", (0, 0))
    (own.parent / f".{own.name}.0123abcd.tmp").symlink_to("vanished")
    (tmp_path / ("1" * 32)).touch()
    trim(open_cache(tmp_path, Counting(), 1e-12))
    assert not own.exists()
    assert len([*own.parent.iterdir()]) == 3
    assert not caplog.records
    (own.parent / f".{own.name}.0123abcd.tmp").unlink()
    cache = open_cache(tmp_path, Counting())
    shutil.rmtree(tmp_path)
    tmp_path.touch()  # a file in the place of the folder
    trim(cache)
    embedded(Counting(), cache, [["a"]])
    assert "cannot be trimmed" in caplog.text
    assert "cannot be written" in caplog.text
