"""A cache gives back what it was given, in any order and after any damage, and is bounded."""

import os
import re
import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.embedding import cache as module
from paraembed.embedding.cache import CachedVectors, hashes_of, open_cache, trim
from paraembed.embedding.repeated import DistinctTexts
from paraembed.encoders.protocol import NO_LOCK, Embedded, no_progress
from tests.embedding.test_repeated import Counting
from tests.object_store import RefusedError


def embedded(encoder, cache, batches, *, writes=True):
    """What a part with these batches of texts gives, and its counts."""
    texts = DistinctTexts(encoder, cache)
    results = [texts.embed(pa.array(batch, pa.string()), None, NO_LOCK, no_progress) for batch in batches]
    if writes:
        texts.cached.write()
    return [np.concatenate(arrays) for arrays in zip(*(result.arrays for result in results), strict=True)], texts


def alone(batch):
    """What an encoder gives without a cache."""
    return Counting().embed(pa.array(batch), len(batch), on_rows=no_progress)


TEXTS = ["a", "b", "c", "a b", "a b c", "a b c d", "", "dd", "e f g h i j"]
BATCHES = st.lists(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8), min_size=1, max_size=3)


@given(st.lists(BATCHES, min_size=1, max_size=4), st.integers(1, 60))
def test_cache_on_is_cache_off(tmp_path_factory, runs, group_bytes):
    """Each run finds all texts of the runs before, and computes only the others."""
    place, before = tmp_path_factory.mktemp("cache"), set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_GROUP_BYTES", group_bytes)
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
        module._index.cache_clear()
        path.write_bytes(data)
        (vectors, *_), _ = embedded(Counting(), open_cache(tmp_path, Counting()), batches, writes=False)
        np.testing.assert_array_equal(vectors, expected)
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    path.write_bytes(whole)
    known = open_cache(tmp_path, Counting())
    path.unlink()
    caplog.clear()
    module._index.cache_clear()
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
        module._index.cache_clear()
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
    module._index.cache_clear()
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
