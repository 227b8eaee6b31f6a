"""Columns of Parquet inputs of every type, and inputs whose types differ."""

import json
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.embedding.output import Embeddings
from paraembed.embedding.plan import make_plan
from paraembed.embedding.rows import read_part
from paraembed.embedding.search import search
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from tests.embedding.without_ray import build, list_inputs
from tests.jobs import digests

TEXTS = ["the cat sat", "a dog", "the cat sat on the mat"]


def embedded(encoder, tables, settings, out):
    """The rows of the output of these tables, a file each, and their types."""
    out.with_name("in").mkdir()
    for name, table in tables.items():
        pq.write_table(pa.table(table), out.with_name("in") / f"{name}.parquet")
    build(encoder, out.with_name("in"), settings, out)
    assert all(check.ok for check in verify(out, encoder, [str(out.with_name("in"))]))
    before = digests(out)
    assert build(encoder, out.with_name("in"), settings, out) == {}
    assert digests(out) == before
    return pq.read_table(out / "data")


CATEGORIES = [
    pa.array(["x", "y"]).dictionary_encode().cast(pa.dictionary(kind, pa.string())) for kind in (pa.int8(), pa.uint32())
]
# Of a column in both files, and its type in the output.
COMMON = [
    (pa.array([1, 2], pa.int32()), pa.array([3, 4]), pa.int64()),
    (pa.array(["x", "y"]), pa.array(["x", None], pa.large_string()), pa.large_string()),
    (pa.array(["x", "y"]), pa.array(["x", "y"], pa.string_view()), pa.string()),
    (pa.array(["x", "y"]), pa.nulls(2), pa.string()),
    (pa.array(["x", "y"]), None, pa.string()),
    (*CATEGORIES, pa.string()),
    (CATEGORIES[0], pa.array(["x", "y"]), pa.string()),
    (CATEGORIES[0], CATEGORIES[0], CATEGORIES[0].type),
    (pa.array([1, 2]), pa.array([1.5, None]), pa.float64()),
    (pa.array([[1], []]), pa.array([None, [2]], pa.large_list(pa.int16())), pa.large_list(pa.int64())),
]


def test_columns_that_differ_between_files_get_their_common_type(tiny_encoder_folder, tmp_path, capsys):
    a, b = {"text": TEXTS[:2]}, {"text": pa.array(TEXTS[1:], pa.large_string())}
    for number, (first, second, _) in enumerate(COMMON):
        a |= {f"k{number}": first}
        b |= {} if second is None else {f"k{number}": second}
    settings = Settings("text", keep=("all",), id_kind="file-row")
    table = embedded(tiny_encoder_folder, {"a": a, "b": b}, settings, tmp_path / "out")
    assert table["text"].to_pylist() == TEXTS[:2] + TEXTS[1:]
    assert table["id"].to_pylist() == ["a.parquet:0", "a.parquet:1", "b.parquet:0", "b.parquet:1"]
    assert not table.schema.field("id").nullable
    said = capsys.readouterr().err
    for number, (first, second, kind) in enumerate(COMMON):
        assert table.schema.field(f"k{number}").type == kind
        expected = [*first.to_pylist(), *([None, None] if second is None else second.to_pylist())]
        assert table[f"k{number}"].to_pylist() == expected
        is_other = second is None or (first.type != second.type and not pa.types.is_string_view(second.type))
        assert (f"k{number} is" in said) == is_other


# pyarrow writes lists of fixed size with a null, but cannot read them
FIXED = pa.array([[1.0, 2.0], [3.0, 4.0], None], pa.list_(pa.float32(), 2))


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        (([1, 2, 3], TEXTS), {"keep": ("kept",)}, r"b\.parquet: .*'kept' is string, but int64 .*a\.parquet"),
        (([1, 2, 2**60 + 1], [0.5, 1, 2]), {"keep": ("kept",)}, r"a\.parquet: .*'kept' is int64 .* double"),
        (([1.0, 2.5, 3.0],), {"id_column": "kept"}, r"a\.parquet, row 2: 'kept' is 2\.5"),
        ((FIXED,), {"keep": ("kept",)}, r"a\.parquet: column 'kept' .*Expected all lists"),
        ((TEXTS, TEXTS), {"keep": ("txet",)}, r"a\.parquet has no column 'txet'; `keep` can"),
    ],
)
def test_columns_that_are_refused_are_named_with_their_file(tiny_encoder_folder, tmp_path, columns, settings, message):
    tables = {name: {"text": TEXTS, "kept": column} for name, column in zip("ab", columns, strict=False)}
    with pytest.raises(ValueError, match=message):
        embedded(tiny_encoder_folder, tables, Settings("text", **settings), tmp_path / "out")


IDS = [
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID(int=3).bytes, UUID(int=1).bytes] * 2, pa.binary(16))),
    pa.array([b"0123", b"0000"] * 2, pa.binary(4)),
    pa.array(["b", "a"] * 2).dictionary_encode(),
    pa.array([datetime(2026, 1, 2), datetime(2025, 1, 2)] * 2),
    pa.array([date(2026, 1, 2), date(2025, 1, 2)] * 2),
    pa.array([Decimal(2), Decimal(1)] * 2, pa.decimal128(38, 0)),
    pa.array([2.0, 1.0] * 2),
    pa.array([2**64 - 1, 2**53 + 1] * 2, pa.uint64()),
    pa.array(["b", "a"] * 2, pa.string_view()),
]


@pytest.mark.parametrize("ids", IDS, ids=lambda ids: str(ids.type))
def test_ids_keep_their_type_and_equal_ones_are_counted(tiny_encoder_folder, tmp_path, ids):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": [TEXTS[0]] * 4, "key": ids}), tmp_path / "in" / "a.parquet")
    build(tiny_encoder_folder, tmp_path / "in", Settings("text", "key"), tmp_path / "out", "keep")
    table = pq.read_table(tmp_path / "out" / "data")
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    assert table.schema.field("key").type == (pa.string() if pa.types.is_string_view(kind) else kind)
    assert table["key"].to_pylist() == ids.to_pylist()
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text())["n_duplicate_ids"] == 2
    hits = search(Embeddings(tmp_path / "out"), checkpoint.load(tiny_encoder_folder).encode(TEXTS[:1]), 4)
    assert hits.row.tolist() == [1, 3, 0, 2], "ties are ordered by id"


def test_texts_in_structs_lists_and_bytes(tmp_path):
    texts = [*TEXTS, None]
    split = [None if text is None else text.split(" ", 1) for text in texts]
    split[1] = ["a", None, "dog"]
    columns = {
        "octets": pa.array([None if text is None else text.encode() for text in texts]),
        "views": pa.array(texts, pa.string_view()),
        "doc": [{"body": {"text": text}, "lang": "en"} for text in texts],
        "doc.title": texts,
        "parts": split,
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    for column in ("octets", "views", "doc.body.text", "doc.title", "parts"):
        plan = make_plan(list_inputs([tmp_path / "t.parquet"]), Settings(column, keep=("doc.lang",)))
        (block,) = read_part(plan.inputs, plan.parts[0], plan.settings)
        assert [text and text.replace("  ", " ") for text in block.texts.to_pylist()] == texts
        assert block.carried[1].to_pylist() == ["en"] * 4


@pytest.mark.parametrize(("kind", "octets"), [(pa.list_, pa.large_binary()), (pa.large_list, pa.string())])
def test_lists_are_texts_in_every_slice_and_their_bytes_need_not_be_utf8(tiny_encoder_folder, tmp_path, kind, octets):
    words = [[b"the", b"cat"], None, [b"a", b"d\xffg", b"\xff"], [], [b"dog"]]
    items = pa.array(words, kind(pa.binary() if octets == pa.string() else octets))
    lists = type(items).from_arrays(items.offsets, items.values.view(octets), type=kind(octets), mask=items.is_null())
    settings, out = Settings("text", keep=("number",), batch_size=2, part_rows=3), tmp_path / "out"
    made = embedded(tiny_encoder_folder, {"a": {"text": lists, "number": range(5)}}, settings, out)
    texts = ["the cat", "", "a d\ufffdg \ufffd", "", "dog"]
    np.testing.assert_array_equal(
        np.stack(made["embedding"].to_numpy()), checkpoint.load(tiny_encoder_folder).encode(texts)
    )
    assert json.loads((out / "_manifest.json").read_text())["n_replaced"] == 1
