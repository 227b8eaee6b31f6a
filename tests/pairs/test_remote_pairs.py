"""Pair files on an object store: pyarrow's S3 client against an S3 server on loopback."""

import gzip

import pytest

from paraembed.io.fingerprint import sha256_of
from paraembed.io.places import name_of, require_file, size_of
from paraembed.pairs.formats import read_pairs
from tests.object_store import serving

LINES = "".join(f"[X] ||| one {row} ||| uno {row} ||| PPDB2.0Score={row} ||| 0-0\n" for row in range(20_000))
OBJECTS = {"pairs.gz": gzip.compress(LINES.encode()), "plain": LINES.encode()}


@pytest.fixture
def bucket():
    with serving() as store:
        store.objects.update(OBJECTS)
        yield store


@pytest.mark.parametrize("name", ["pairs.gz", "plain"])
def test_pairs_of_an_object_store(bucket, tmp_path, name):
    uri = bucket.uri(name)
    (tmp_path / name).write_bytes(OBJECTS[name])
    require_file(uri)
    assert name_of(uri) == name
    assert size_of(uri) == (tmp_path / name).stat().st_size
    assert sha256_of(uri) == sha256_of(tmp_path / name)
    blocks = list(read_pairs(uri))
    assert [text for block in blocks for text in block.pairs.first.to_pylist()] == [
        f"one {row}" for row in range(20_000)
    ]
    assert {block.form for block in blocks} == {"ppdb"}


def test_an_object_that_is_not_there(bucket):
    with pytest.raises(FileNotFoundError, match="does not exist; check the path"):
        require_file(bucket.uri("nothing.gz"))
