import gzip
import json
import os
import re
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paraembed.cluster.embed_plan import Planning
from paraembed.embedding import plan, rows
from paraembed.embedding.columns import complete_settings
from paraembed.embedding.identity import changed_inputs, is_same_file
from paraembed.embedding.plan import Planner, make_plan
from paraembed.embedding.settings import Limits, Settings
from paraembed.settings import MineSettings
from tests.embedding.without_ray import assert_is_read_again, list_inputs

EXAMPLES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def texts_of(the_plan):
    """The texts of every part, read as the workers do."""
    blocks_of_parts = (
        rows.read_part(source, part, the_plan.settings, data)
        for source, part, data in rows.stream_parts(the_plan, the_plan.parts)
    )
    return [[text for block in blocks for text in block.texts.to_pylist()] for blocks in blocks_of_parts]


def test_small_files_share_a_part(tmp_path, monkeypatch):
    """Whole files, while they have no more rows and bytes than a part; ids are those of their file."""
    monkeypatch.setattr("paraembed.embedding.plan.MAX_PART_BYTES", 40)
    for name, text in {
        "a": "x\ny\n",
        "b": "z\n",
        "c": "1\n2\n3\n4\n5\n",
        "d": "k\n",
        "e": "long " * 8,
        "f": "m",
    }.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"u\nv\n"))
    found = make_plan(list_inputs([tmp_path]), Settings(part_rows=4, id_kind="file-row"))
    names = [[found.inputs[piece.file].name for piece in one.pieces] for one in found.parts]
    assert names == [["a.txt", "a.txt.gz"], ["b.txt"], ["c.txt"], ["c.txt"], ["d.txt"], ["e.txt"], ["f.txt"]]
    assert [one.rows for one in found.parts] == [4, 1, 4, 1, 1, 1, 1]
    assert [*chain.from_iterable(texts_of(found))] == ["x", "y", "u", "v", "z", *"12345", "k", "long " * 8, "m"]
    (block, *_) = rows.read_part(found.sources(found.parts[0]), found.parts[0], found.settings)
    assert block.carried[0].to_pylist() == ["a.txt:0", "a.txt:1"]
    assert_is_read_again(found)


@EXAMPLES
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=40),
    span=st.integers(1, 60),
    part_rows=st.integers(1, 9),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_a_large_file_is_planned_in_spans(lengths, span, part_rows, ending, tmp_path):
    """Every row is in one part, in order; the plan does not depend on which span is read first."""
    path = tmp_path / "t.txt"
    path.write_bytes("".join(f"{number}{'x' * length}{ending}" for number, length in enumerate(lengths)).encode())
    expected = [f"{number}{'x' * length}" for number, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paraembed.embedding.identity.SPAN_BYTES", span)
        patch.setattr("paraembed.embedding.identity._LINE_BYTES", 7)
        made = make_plan(list_inputs([path]), Settings(part_rows=part_rows))
        backwards = make_plan(list_inputs([path]), made.settings, lambda call, spans: map(call, spans[::-1]))
        assert changed_inputs(made.inputs) == []
        os.utime(path, ns=(0, 0))
        assert is_same_file(made.inputs[0], list_inputs([path])[0])  # by the digests of the spans
    assert [*chain.from_iterable(texts_of(made))] == expected
    assert all(one.rows <= part_rows for one in made.parts)
    assert ([*backwards.parts], backwards.inputs[0].sha256) == ([*made.parts], made.inputs[0].sha256)
    assert ("-" in made.inputs[0].sha256) == (path.stat().st_size > span)


@EXAMPLES
@given(
    rows_of_files=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    span=st.integers(4, 90),
    part_rows=st.integers(1, 9),
)
def test_the_parts_of_the_first_files_are_known_before_all_are_read(rows_of_files, span, part_rows, tmp_path):
    """Their beginning is that of the plan, whichever spans have been read; at most the last small files may change."""
    paths = [tmp_path / f"{number}.txt" for number in range(len(rows_of_files))]
    for path, count in zip(paths, rows_of_files, strict=True):
        path.write_text("".join(f"row {row}\n" for row in range(count)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paraembed.embedding.identity.SPAN_BYTES", span)
        planner, begun = Planner(list_inputs(paths), Settings(part_rows=part_rows)), []

        def watched(call, spans):
            for one in spans:
                begun.append(planner.plan_so_far())
                yield call(one)

        made = planner.make(watched)
    files = sorted({part.file for part in made.parts})
    for some in [*begun, planner.plan_so_far()]:
        assert [*some.parts] == [*made.parts][: len(some.parts)]
        assert [some.sources(part) for part in some.parts] == [made.sources(part) for part in some.parts]
    assert not begun[0].parts
    assert len(planner.plan_so_far().parts) == len(made.parts)
    late = {part.file for part in made.parts[len(begun[-1].parts) :]}
    assert all(rows_of_files[file] <= part_rows for file in late - {files[-1]})


def test_a_planner_that_is_stopped_reads_no_further_files(tmp_path, monkeypatch):
    paths, read = [tmp_path / f"{number}.txt" for number in range(200)], []
    for path in paths:
        path.write_text("the cat\n")

    def slowly(*arguments):
        read.append(arguments)
        time.sleep(0.01)
        return cuts(*arguments)

    cuts = plan._cuts
    monkeypatch.setattr(plan, "_cuts", slowly)
    planning = Planning(Planner(list_inputs(paths), Settings()), None)
    while not planning.plan_so_far():
        time.sleep(0.001)
    planning.close()
    assert len(read) < len(paths) / 2
    with pytest.raises(CancelledError):
        planning.plan()


def write_parquet(path, groups, first=0):
    with pq.ParquetWriter(path, pa.schema([("key", pa.string()), ("body", pa.large_string())])) as writer:
        for count in groups:
            rows = range(first, first + count)
            columns = {"key": [f"k{row}" for row in rows], "body": [f"the cat {row}" for row in rows]}
            writer.write_table(pa.table(columns, schema=writer.schema))
            first += count


@EXAMPLES
@given(
    kind=st.sampled_from(["parquet", "arrow", "feather"]),
    groups=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    part_rows=st.integers(1, 20),
)
def test_tables_are_cut_between_row_groups_and_inside_of_large_ones(kind, groups, part_rows, tmp_path):
    write_parquet(tmp_path / "t.parquet", groups)
    path = tmp_path / f"t.{kind}"
    if kind != "parquet":
        with pq.ParquetFile(tmp_path / "t.parquet") as file:
            options = pa.ipc.IpcWriteOptions(compression="lz4" if kind == "feather" else None)
            opened = pa.ipc.new_file if kind == "feather" else pa.ipc.new_stream
            with opened(path, file.schema_arrow, options=options) as writer:
                for group in range(len(groups)):
                    writer.write_table(file.read_row_group(group))
    made = make_plan(list_inputs([path]), Settings("body", "key", part_rows=part_rows))
    assert [text for some in texts_of(made) for text in some] == [f"the cat {row}" for row in range(sum(groups))]
    assert texts_of(replace(made, parts=made.parts[::-1])) == texts_of(made)[::-1]
    assert all(one.rows <= part_rows for one in made.parts)
    for a, b in pairwise(made.parts):
        next_group, last_group = groups[b.pieces[0].start], groups[a.pieces[0].stop - 1]
        assert a.rows + next_group > part_rows or last_group > part_rows
    assert_is_read_again(made)


WRONG = [json.loads(line) for line in Path(__file__).with_name("settings.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("kind", "values", "message"), WRONG)
def test_settings_that_are_not_allowed(kind, values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        {"Limits": Limits, "Settings": Settings, "MineSettings": MineSettings}[kind](**values)


def test_settings_that_do_not_fit(tmp_path):
    text, table = tmp_path / "t.txt", tmp_path / "t.parquet"
    text.write_text("x\n")
    write_parquet(table, [2])
    other = tmp_path / "u.parquet"
    pq.write_table(pa.table({"key": [1], "body": ["x"]}), other)
    for inputs, chosen, message in (
        ([text], Settings(text_column="body"), r"`text_column` is 'body', but .* is text"),
        ([text], Settings(id_column="key"), r"`id_column` is 'key', but .* is text"),
        ([text], Settings(tree_column="tree"), r"`tree_column` is 'tree', but .* is text"),
        ([table], Settings("body", tree_column="key2"), r"no column 'key2'; `tree_column` can be: key, body"),
        ([other], Settings("body", tree_column="key"), r"`tree_column` 'key' is int64; it can be: body"),
        ([text], Settings(keep=("body",)), r"`keep` is body, .*t.txt is text; .*: text$"),
        ([table], Settings("body", "key", id_kind="file-row"), r"`id_kind` is file-row and `id_column` is 'key'"),
        ([table], Settings("body", keep=("scale",), dtype="int8"), r"'scale' would appear twice"),
        ([table], Settings(), r"needs `text_column`; allowed: key, body"),
        ([table], Settings("nobody"), r"no column 'nobody'; `text_column` can be: key, body"),
        ([table], Settings("body", "nokey"), r"no column 'nokey'; `id_column` can be: key, body"),
        ([other], Settings("key"), r"`text_column` 'key' is int64; it can be: body"),
        ([table], Settings("body", keep=("key", "key")), r"'key' would appear twice"),
        ([table], Settings("body", keep=("n_tokens",)), r"'n_tokens' would appear twice"),
        ([table, other], Settings("body", "key"), r"u\.parquet: column 'key' is int64, but string in .*t\.parquet"),
    ):
        with pytest.raises(ValueError, match=message):
            make_plan(list_inputs(inputs), chosen)


def test_a_column_named_tree_is_used_where_the_encoder_reads_trees(tmp_path):
    columns, large = {"body": ["a"], "tree": ["a"], "parse": ["a"]}, pa.array(["a"], pa.large_string())
    others = {"numbers": {**columns, "tree": [1]}, "large": {"body": ["a"], "tree": large}}
    files = {}
    for name, table in {"with": columns, "without": {"body": ["a"]}, **others}.items():
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
        (files[name],) = list_inputs([tmp_path / f"{name}.parquet"])
    (tmp_path / "t.txt").write_text("a\n")
    (files["text"],) = list_inputs([tmp_path / "t.txt"])
    asked, named = Settings("body"), Settings("body", tree_column="parse")
    meant = Settings("body", tree_column="tree")
    for names, settings_, expected in (
        (["with"], asked, meant),
        (["large"], asked, meant),
        (["without"], asked, asked),
        (["without", "with"], asked, meant),
        (["numbers"], asked, asked),
        (["text"], Settings(), Settings()),
        (["with"], named, named),
        (["with"], Settings("tree"), Settings("tree")),  # the texts themselves
    ):
        inputs = [files[name] for name in names]
        assert complete_settings(settings_, inputs, reads_trees=True) == expected
        assert settings_.tree_column or complete_settings(settings_, inputs, reads_trees=False) is settings_
    with pytest.raises(ValueError, match=r"`tree_column` is 'parse', .*does not read trees"):
        complete_settings(named, [files["with"]], reads_trees=False)
    with pytest.raises(ValueError, match=r"without\.parquet .*'tree'; `tree_column` can be: body"):
        make_plan((files["with"], files["without"]), meant)


def test_a_part_ends_early_when_its_text_is_long(tmp_path, monkeypatch):
    monkeypatch.setattr("paraembed.embedding.plan.MAX_PART_BYTES", 10)
    (tmp_path / "t.txt").write_text("four\n" * 6)
    made = make_plan(list_inputs([tmp_path / "t.txt"]), Settings(part_rows=100))
    assert [one.rows for one in made.parts] == [2, 2, 2]
