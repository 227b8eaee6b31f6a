"""Repeated ids are counted as a ``Counter`` counts them, whatever their type, the parts and the ranges of hashes."""

import random
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed.embedding.ids import Parts, comparable, count_duplicates, file_of, hashes_name, hashes_of
from paraembed.io.store import Folder
from paraembed.text.oov import GOLDEN

KINDS = {
    "string": (pa.string(), "id {}".format),
    "large strings": (pa.large_string(), "{}\u2028é".format),
    "integers": (pa.int64(), lambda number: -number),
    "large integers": (pa.uint64(), lambda number: 2**64 - 1 - number),
    "floats": (pa.float64(), float),
    "decimals": (pa.decimal128(9, 2), lambda number: Decimal(number) / 4),
    "bytes": (pa.binary(2), lambda number: bytes([number, 0])),
    "UUIDs": (pa.uuid(), lambda number: UUID(int=number).bytes),
    "seconds": (pa.timestamp("s", "UTC"), int),  # this and the next two change their type in a Parquet file
    "days": (pa.date64(), lambda number: 86_400_000 * number),
    "times": (pa.time32("s"), int),
}


def shuffled(function, arguments):
    """Run tasks in another order, as processes may end them."""
    arguments = [*arguments]
    random.Random(len(arguments)).shuffle(arguments)
    return map(function, arguments)


def write(folder, parts):
    names = [f"part-000-{number:06d}.parquet" for number in range(len(parts))]
    for name, ids in zip(names, parts, strict=True):
        pq.write_table(pa.table({"key": ids}), folder / name, row_group_size=3)
    return names


@settings(max_examples=25, deadline=None)
@given(
    parts=st.lists(st.lists(st.none() | st.integers(0, 30), max_size=9), min_size=1, max_size=7),
    kind=st.sampled_from(sorted(KINDS)),
    max_hashes=st.sampled_from([1, 5, 1 << 24]),
    max_ids=st.sampled_from([1, 3, 1 << 20]),
    written=st.integers(0, 7),
)
def test_equal_ids_are_counted(parts, kind, max_hashes, max_ids, written):
    """The workers wrote the hashes of the first parts before they were Parquet; those of the others are missing."""
    dtype, make = KINDS[kind]
    arrays = [
        pa.array([None if number is None else make(number) for number in part], getattr(dtype, "storage_type", dtype))
        for part in parts
    ]
    arrays = [
        array.cast(dtype) if kind != "UUIDs" else pa.ExtensionArray.from_storage(dtype, array) for array in arrays
    ]
    counts = Counter(number for part in parts for number in part if number is not None)
    with tempfile.TemporaryDirectory() as folder:
        store, rows = Folder(Path(folder)), sum(map(len, parts))
        names = write(Path(folder), arrays)
        store.make_folder("_ids")
        for name, array in zip(names[:written], arrays, strict=False):
            (store.path / hashes_name(name, "")).write_bytes(file_of([hashes_of(array[:4]), hashes_of(array[4:])]))
        limits = {"max_hashes": max_hashes, "max_ids": max_ids}
        of_parts = Parts(store, "key", dict.fromkeys(names, ""), store)
        duplicates, repeated = count_duplicates(of_parts, rows, shuffled, **limits)
        assert len(store.names("_ids")) == len(names)
        expected = next((number for part in parts for number in part if counts[number] > 1), None)
        assert duplicates == counts.total() - len(counts)
        assert (repeated is None) == (expected is None)
        stored = [value for name in names for value in read(store.path / name)]
        assert repeated is None or stored.count(repeated) > 1
        if max_ids == 1 << 20:  # all are compared at a time: the first one
            assert repeated == (None if expected is None else stored[stored.index(repeated)])


def read(path):
    return comparable(pq.read_table(path)["key"].combine_chunks()).to_pylist()


def test_ids_with_equal_hashes_are_compared():
    """The sum of the hashed words is equal if two words change places, and their steps with them."""
    step, words = int(GOLDEN), (3, 5)
    other = (words[1] + step) % 2**64, (words[0] - step) % 2**64
    ids = pa.array([b"".join(word.to_bytes(8, "little") for word in pair) for pair in (words, other)], pa.binary(16))
    assert len({*hashes_of(ids).tolist()}) == 1
    with tempfile.TemporaryDirectory() as folder:
        store = Folder(Path(folder))
        for repeats, expected in ((0, 0), (1, 1)):
            names = write(store.path, [ids[:1], ids[1:], *[ids[1:]] * repeats])
            store.delete_folder("_ids")
            duplicates, repeated = count_duplicates(Parts(store, "key", dict.fromkeys(names, ""), store), 3)
            assert (duplicates, repeated) == (expected, ids[1].as_py() if repeats else None)
