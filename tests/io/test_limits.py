"""What is read of an input at most: rows and texts of every format, and what comes out of compressed files."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from paraembed.embedding.plan import make_plan
from paraembed.embedding.rows import read_part
from paraembed.embedding.settings import Settings
from paraembed.io import parquet
from paraembed.io.inflate import BLOCK_BYTES
from paraembed.io.limits import ReadLimits, TableLimits
from paraembed.io.lines import TOO_LONG
from paraembed.io.parquet import chunks_of, open_parquet, read_batches
from paraembed.pairs.formats import Reading, read_pairs
from tests.embedding.without_ray import list_inputs

ROWS = {
    "tsv": "@\tb",
    "csv": "@,b",
    "ppdb": "[X] ||| @ ||| b ||| ",
    "words": "@ b",
    "jsonl": '{"first": "@", "second": "b"}',
}


def row_of(form, size):
    return ROWS[form].replace("@", "a" * (size - len(ROWS[form]) + 1))


def reasons(path, form, block_bytes=BLOCK_BYTES, **limits):
    reading = Reading(form, limits=ReadLimits(**limits), block_bytes=block_bytes)
    return [why for block in read_pairs(path, reading) for why in block.pairs.refused.to_pylist()]


@pytest.mark.parametrize("form", ["tsv", "ppdb", "words", "jsonl", "parquet", "aligned"])
def test_a_pair_whose_row_has_a_byte_too_many_is_refused(form, tmp_path):
    path, other = tmp_path / f"p.{form}", tmp_path / "other"
    for size, refused in ((100, None), (101, TOO_LONG)):
        texts = ["a" * 50, "a" * size, "a" * 50]
        if form == "parquet":
            pq.write_table(pa.table({"first": ["b", "b", "b"], "second": texts}), path)
        elif form == "aligned":
            path.write_text("b\nb\nb\n")
            other.write_text("\n".join(texts))
        else:
            path.write_text("\n".join(row_of(form, len(text)) for text in texts))
        source = (path, other) if form == "aligned" else path
        assert reasons(source, form, max_line_bytes=100) == [None, refused, None]


LONG_CSV = {
    "a line": "aa" * 5000,
    "characters of two bytes": "\u00e9" * 51,
    "rows behind an open quote": '"' + "\u00e9,\n" * 5000,
    "line feeds": '"' + "\n" * 5000,
    "line ends": '"' + "\r\n" * 50 + "b",
    "commas": "," * 5000,
}


@pytest.mark.parametrize("row", LONG_CSV.values(), ids=LONG_CSV)
def test_a_row_of_csv_that_is_too_long_ends_the_job_before_it_is_held(row, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text(row_of("csv", 100) + "\n", newline="")
    assert reasons(path, "csv", max_line_bytes=100) == [None]
    path.write_text(f"b,b\nb,b\n{row}", newline="")
    message = r"p\.csv, line \d+: a row is longer than `max_line_bytes`, 100 bytes; .* a larger `max_line_bytes`"
    with pytest.raises(ValueError, match=message):
        reasons(path, "csv", max_line_bytes=100)


def plan_and_read(path, limits, column, block_bytes=BLOCK_BYTES):
    """As a resumed run may: its plan was made with other limits on inflation."""
    (source,) = list_inputs([path], replace(limits, max_inflation=1 << 40), block_bytes=block_bytes)
    plan = make_plan((source,), Settings(column))
    for part in plan.parts:
        list(read_part([replace(source, limits=limits)], part, plan.settings))


@pytest.mark.parametrize("form", ["txt", "csv", "jsonl", "parquet"])
def test_a_text_of_a_byte_too_many_is_not_embedded(form, tmp_path):
    path = tmp_path / f"t.{form}"
    column = None if form == "txt" else "body"
    for size in (100, 200):
        if form == "parquet":
            pq.write_table(pa.table({"body": ["b", "a" * size]}), path)
        else:
            head = {"txt": "", "csv": "body,other\n", "jsonl": ""}[form]
            path.write_text(head + {"txt": "@", "csv": "@,b", "jsonl": '{"body": "@"}'}[form].replace("@", "a" * size))
        if size == 100:
            plan_and_read(path, TableLimits(max_line_bytes=150), column)
        else:
            with pytest.raises(ValueError, match=rf"t\.{form}(, line \d)?: a (row|text) .*`max_line_bytes`"):
                plan_and_read(path, TableLimits(max_line_bytes=150), column)


def test_limits_that_cannot_be_are_said():
    for wrong, message in (
        ({"max_line_bytes": 0}, "`max_line_bytes` is 0; allowed: 1 to"),
        ({"max_line_bytes": 1 << 30}, "`max_line_bytes` is 1073741824; allowed"),
        ({"max_inflation": 0}, "`max_inflation` is 0; allowed: at least 1"),
        ({"csv_delimiter": ""}, "`csv_delimiter` is"),
        ({"csv_escape": '"'}, "`csv_escape` is"),
        ({"csv_escape": ","}, "`csv_(delimiter|escape)` is"),
        ({"encoding": "hex"}, "`encoding` is"),
    ):
        with pytest.raises(ValueError, match=message):
            TableLimits(**wrong)


def write_bomb(path, groups, name):
    """Row groups, each with 4 MiB of text that compress a thousand times."""
    schema = pa.schema([(name, pa.string()), ("second", pa.string())])
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for _ in range(groups):
            writer.write_table(pa.table({name: ["a" * (2 << 20)] * 2, "second": ["a", "b"]}))


PLACES = {
    "shard": lambda path, limits, _: list(read_pairs(path, Reading("auto", ("first", "second"), limits=limits))),
    "plan": lambda path, limits, name: make_plan(list_inputs([path], limits), Settings(name)),
    "part": plan_and_read,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "groups", "always", "what"),
    [("first", 1, 3, ": row group 0 has"), ("my.first", 4, 6, r"bomb\.parquet has")],
)
def test_a_parquet_file_that_is_a_bomb_is_refused_by_its_footer(
    place, name, groups, always, what, tmp_path, monkeypatch
):
    monkeypatch.setattr(parquet, "ALWAYS_INFLATED", always << 20)
    write_bomb(tmp_path / "bomb.parquet", groups, name)
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match=what + r" [\d,]+ bytes .* 200 times .*`max_inflation`"):
        PLACES[place](tmp_path / "bomb.parquet", TableLimits(), name)
    assert pa.total_allocated_bytes() - before < 1 << 20
    PLACES[place](tmp_path / "bomb.parquet", TableLimits(max_inflation=1 << 20), name)


def test_values_that_take_no_bytes_in_a_parquet_file_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ALWAYS_INFLATED", 1 << 20)
    pq.write_table(pa.table({"first": [None] * 300_000, "second": [""] * 300_000}), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match="inflates to 4,800,000 in memory, 600,000 values"):
        reasons(tmp_path / "p.parquet", "auto")


class Keys(encryption.KmsClient):
    def __init__(self, _):
        super().__init__()

    def wrap_key(self, key, _):
        return key


@pytest.mark.parametrize("place", PLACES)
def test_a_parquet_file_with_an_encrypted_column_is_an_error_in_words(place, tmp_path):
    """Asking pyarrow 25 for what the footer says of such a column would end the process."""
    config = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["first"]}, plaintext_footer=True, double_wrapping=False
    )
    properties = encryption.CryptoFactory(Keys).file_encryption_properties(encryption.KmsConnectionConfig(), config)
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"first": ["a"], "second": ["b"]}), path, encryption_properties=properties)
    with pytest.raises(ValueError, match=r"p\.parquet is encrypted \(Cannot decrypt"):
        PLACES[place](path, TableLimits(), "first")


def test_texts_of_which_most_are_different_are_read_as_they_are(tmp_path):
    """A writer gives a dictionary up that has 1 MiB."""
    rows, path = 100_000, tmp_path / "p.parquet"
    different = [f"the sentence number {number} is here" for number in range(rows)]
    different[7] = "a" * (1 << 17)
    pq.write_table(pa.table({"first": different, "second": ["equal"] * rows, "score": [1.0] * rows}), path)
    most = 0

    for batch in read_batches(path, ["first", "second"], 65_536, 1 << 20):
        most = max(most, len(batch))
    assert most == (8 << 20) // (1 << 17)
    with open_parquet(path, ("first", "second")) as file:
        chunks = next(chunks_of(file, range(1), ["first", "second"]))
        reading = parquet._reading(file, 0, chunks, ("first", "second"), 65_536, 8 << 20)
    assert reading == (512, ("second",))
