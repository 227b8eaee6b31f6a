"""What is read of an input at most: rows and texts of every format, and what comes out of compressed files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.data import limits as module
from paraembed.data import tables
from paraembed.data.limits import ReadLimits
from paraembed.data.lines import TOO_LONG
from paraembed.data.pairs import Reading, read_pairs
from paraembed.embedding.inputs import list_inputs
from paraembed.embedding.plan import make_plan
from paraembed.embedding.rows import read_part
from paraembed.embedding.settings import Settings

ROWS = {
    "tsv": "@\tb",
    "csv": "@,b",
    "ppdb": "[X] ||| @ ||| b ||| ",
    "words": "@ b",
    "jsonl": '{"first": "@", "second": "b"}',
}


def row_of(form: str, size: int) -> str:
    """A row of a pair that has so many bytes."""
    return ROWS[form].replace("@", "a" * (size - len(ROWS[form]) + 1))


def reasons(path: Path | tuple[Path, Path], form: str, **limits: int) -> list[str | None]:
    reading = Reading(form, limits=ReadLimits(**limits))  # type: ignore[arg-type]
    return [why for block in read_pairs(path, reading) for why in block.pairs.refused.to_pylist()]


@pytest.mark.parametrize("form", ["tsv", "ppdb", "words", "jsonl", "parquet", "aligned"])
def test_a_pair_whose_row_has_a_byte_too_many_is_refused(form: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("row", ["aa", '"\u00e9,\n', '"b"\n"'], ids=["a line", "an open quote", "rows"])
def test_a_row_of_csv_that_is_too_long_ends_the_job_before_it_is_held(row: str, tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(row_of("csv", 100) + "\n")
    assert reasons(path, "csv", max_line_bytes=100) == [None]
    path.write_text(f"b,b\nb,b\n{row * 5000}")
    with pytest.raises(ValueError, match=r"p\.csv, line \d+: (the row is longer than --max-line-bytes|wrong quoting)"):
        reasons(path, "csv", max_line_bytes=100)


def plan_and_read(path: Path, limits: ReadLimits, column: str | None) -> None:
    """As a run that goes on where it may: its plan was made with other limits on inflation."""
    (source,) = list_inputs([path], replace(limits, max_inflation=1 << 40))
    plan = make_plan((source,), Settings(column))
    for part in plan.parts:
        list(read_part(replace(source, limits=limits), part, plan.settings))


@pytest.mark.parametrize("form", ["txt", "csv", "jsonl", "parquet"])
def test_a_text_of_a_byte_too_many_is_not_embedded(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{form}"
    column = None if form == "txt" else "body"
    for size in (100, 200):
        if form == "parquet":
            pq.write_table(pa.table({"body": ["b", "a" * size]}), path)
        else:
            head = {"txt": "", "csv": "body,other\n", "jsonl": ""}[form]
            path.write_text(head + {"txt": "@", "csv": "@,b", "jsonl": '{"body": "@"}'}[form].replace("@", "a" * size))
        if size == 100:
            plan_and_read(path, ReadLimits(max_line_bytes=150), column)
        else:
            with pytest.raises(ValueError, match=rf"t\.{form}: a (row|text) .*--max-line-bytes"):
                plan_and_read(path, ReadLimits(max_line_bytes=150), column)


def test_limits_that_cannot_be_are_said() -> None:
    for wrong, message in (
        ({"max_line_bytes": 0}, "--max-line-bytes is 0; allowed: 1 to 536,870,912"),
        ({"max_line_bytes": 1 << 30}, "--max-line-bytes is 1073741824; allowed"),
        ({"max_inflation": 0}, "--max-inflation is 0; it must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            ReadLimits(**wrong)


def write_bomb(path: Path, groups: int) -> None:
    """Row groups, each with 4 MiB of text that compress a thousand times."""
    schema = pa.schema([("first", pa.string()), ("second", pa.string())])
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for _ in range(groups):
            writer.write_table(pa.table({"first": ["a" * (2 << 20)] * 2, "second": ["a", "b"]}))


PLACES: dict[str, Callable[[Path, ReadLimits], object]] = {
    "shard": lambda path, limits: list(read_pairs(path, Reading(limits=limits))),
    "plan": lambda path, limits: make_plan(list_inputs([path], limits), Settings("first")),
    "part": lambda path, limits: plan_and_read(path, limits, "first"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("groups", "always", "what"), [(1, 3, ": row group 0 has"), (4, 6, r"bomb\.parquet has")])
def test_a_parquet_file_that_is_a_bomb_is_refused_by_its_footer(
    place: str, groups: int, always: int, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ALWAYS_INFLATED", always << 20)
    write_bomb(tmp_path / "bomb.parquet", groups)
    before = pa.total_allocated_bytes()
    with pytest.raises(
        ValueError, match=what + r" [\d,]+ bytes and inflates to .* 200 times .* larger --max-inflation"
    ):
        PLACES[place](tmp_path / "bomb.parquet", ReadLimits())
    assert pa.total_allocated_bytes() - before < 1 << 20
    PLACES[place](tmp_path / "bomb.parquet", ReadLimits(max_inflation=1 << 20))


def test_equal_texts_of_pairs_that_parquet_holds_once_are_written_out_a_slice_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_BLOCK_BYTES", 1 << 18)
    long, short = "a" * (1 << 16), "b"
    path, rows = tmp_path / "p.parquet", [long, short, None, short] * 100
    pq.write_table(pa.table({"first": rows, "second": rows}), path, row_group_size=150)
    assert path.stat().st_size < 1 << 18
    before, most = pa.total_allocated_bytes(), 0
    refused = []
    for block in read_pairs(path, Reading(limits=ReadLimits(max_line_bytes=1000))):
        most = max(most, pa.total_allocated_bytes() - before)
        refused += block.pairs.refused.to_pylist()
    assert refused == [TOO_LONG, None, "too few fields", None] * 100
    assert most < 4 << 20, "12 MiB written out"
