"""Paraphrase pairs of outputs, against an oracle that compares every pair by itself."""

from dataclasses import asdict

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.embedding import search as searching
from paraembed.embedding.mine import (
    PAIR,
    Comparison,
    keep_pairs,
    last_of_top,
    load,
    neighbors,
    save,
    write_groups,
    write_part,
)
from paraembed.embedding.output import Embeddings
from paraembed.embedding.settings import Settings
from paraembed.pairs.formats import read_pairs
from paraembed.settings import MineSettings
from tests.docs.pages import blocks
from tests.embedding.output_of import InMemory, cosine, encoder_of, output_of
from tests.embedding.without_ray import build


def oracle(firsts, seconds, threshold, top):
    """``(first, second, cosine)`` of the pairs; within one output ``seconds`` is None."""
    within = seconds is None
    seconds = firsts if within else seconds
    scored = {}
    for first, left in enumerate(firsts):
        for second, right in enumerate(seconds):
            score = cosine(left, right)
            if score is not None and score >= np.float32(threshold) and not (within and first >= second):
                scored[first, second] = score

    def nearest(side, others):
        of_rows = {}
        for pair, score in scored.items():
            of_rows.setdefault(pair[side], []).append((-score, pair[others], pair))
            if within:
                of_rows.setdefault(pair[others], []).append((-score, pair[side], pair))
        return {pair for entries in of_rows.values() for _, _, pair in sorted(entries)[:top]}

    kept = nearest(0, 1) | (set() if within else nearest(1, 0))
    return [
        (first, second, scored[first, second])
        for first, second in sorted(kept, key=lambda pair: (pair[0], -scored[pair], pair[1]))
    ]


def mined(comparison, folder, **sizes):
    number = len(comparison.blocks)
    found, kept = ([folder / f"{name}-{block}.npy" for block in range(number)] for name in ("pairs", "kept"))
    for block in range(number):
        neighbors(comparison, block, found[block], **sizes)
    lasts = []
    for name, output in (("first", comparison.output), ("second", comparison.seconds)):
        spans = comparison.blocks_of(output)
        of_spans = [last_of_top(comparison, span, are_seconds=name == "second", paths=found) for span in spans]
        lasts.append(folder / f"last-{name}.npy")
        save(lasts[-1], np.concatenate(of_spans))
    for block in range(number):
        keep_pairs(found, *lasts, block, kept[block])
    return kept


def pairs_of(paths):
    return [tuple(pair) for path in paths for pair in load(path).tolist()]


@st.composite
def cases(draw):
    width = draw(st.integers(1, 3))
    vectors = st.lists(st.lists(st.integers(-2, 2), min_size=width, max_size=width), min_size=1, max_size=24)
    return np.array(draw(vectors), np.float32), np.array(draw(vectors), np.float32)


@given(
    cases(),
    st.booleans(),
    st.integers(1, 5),
    st.sampled_from([-1.0, 0.0, 0.8, 1.0]),
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(1, 9),
)
def test_the_pairs_and_their_ties_are_those_of_the_oracle(
    tmp_path_factory, case, within, top, threshold, block, group, tile
):
    firsts, seconds = case
    comparison = Comparison(
        InMemory(firsts, group),
        None if within else InMemory(seconds, group),
        MineSettings(threshold, top, block_rows=block),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "_DENSE", 1)
        pairs = pairs_of(mined(comparison, tmp_path_factory.mktemp("mined"), tile_rows=tile))
    assert pairs == oracle(firsts, None if within else seconds, threshold, top)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    vectors = np.random.default_rng(1).standard_normal((12, 3), dtype=np.float32)
    return encoder_of(vectors, tmp_path_factory.mktemp("encoders") / "words")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_part_has_texts_scores_and_ids_that_shard_reads(encoder, tmp_path, dtype):
    words = [0, 1, 2, 3, None, 4, 5, 1, 2, 6, 7, 8]
    output = Embeddings(output_of(encoder, words, tmp_path / "a", dtype=dtype))
    other = Embeddings(output_of(encoder, [9, 1, 2], tmp_path / "b", dtype=dtype, id_column="number", keep=("text",)))
    comparison = Comparison(output, other, MineSettings(0.99, 1))
    comparison.check()
    kept = mined(comparison, tmp_path)
    entry = write_part(comparison, kept, (0, 99), tmp_path / "part.parquet")
    table = pq.read_table(tmp_path / "part.parquet")
    assert entry["rows"] == table.num_rows
    rows = [(row["first"], row["second"], row["first_id"], row["second_id"]) for row in table.to_pylist()]
    assert {("w1", "w1", 1, 1), ("w1", "w1", 7, 1), ("w2", "w2", 2, 2), ("w2", "w2", 8, 2)} <= set(rows)
    assert table["score"].to_pylist()[rows.index(("w1", "w1", 1, 1))] == 1.0
    (block,) = read_pairs(tmp_path / "part.parquet")
    assert block.pairs.first.to_pylist() == table["first"].to_pylist()
    assert block.pairs.score.equals(table["score"].combine_chunks())
    pieces = [write_part(comparison, kept, span, tmp_path / "piece.parquet")["rows"] for span in ((0, 1), (1, 99))]
    assert pieces == [1, len(rows) - 1]


NODES = 12
edges = st.lists(st.integers(0, NODES - 1), min_size=2, max_size=2, unique=True).map(sorted).map(tuple)


@given(st.lists(edges, unique=True, max_size=16), st.integers(0, 16))
def test_the_groups_are_those_of_a_union_find(tmp_path_factory, pairs, cut):
    folder, ids = tmp_path_factory.mktemp("groups"), [f"id {NODES - row}" for row in range(NODES)]
    paths = [folder / "0.npy", folder / "1.npy"]
    for path, piece in zip(paths, (pairs[:cut], pairs[cut:]), strict=True):
        save(path, np.array([(*pair, 1) for pair in piece], PAIR))
    comparison = Comparison(InMemory(np.ones((NODES, 1)), ids=ids), None, MineSettings(groups=True))
    entry = write_groups(comparison, paths, folder / "part.parquet")
    head = list(range(NODES))
    for pair in pairs:
        low, high = sorted(head[row] for row in pair)
        head = [low if row == high else row for row in head]
    rows = sorted({row for pair in pairs for row in pair}, key=lambda row: (head[row], row))
    assert pq.read_table(folder / "part.parquet").to_pylist() == [
        {"id": ids[row], "group_id": ids[head[row]], "keep": head[row] == row} for row in rows
    ]
    sizes = [sum(head[row] == first for row in rows) for first in rows if head[first] == first]
    assert [entry[key] for key in ("name", "rows", "groups", "largest")] == [
        *("_groups/part.parquet", len(rows), len(sizes), max(sizes, default=0))
    ]


def test_equal_texts_are_left_out_and_the_page_removes_the_rest(encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ["w1 w2", "w3", "w2 w1", "w1 w2", "w1  w2", "w5", "", "w5", ""]  # words in any order: the same vector
    columns = {"text": texts, "title": ["a", "c", "a", None, None, "b", "d", "b", "d"]}
    pq.write_table(pa.table(columns), "corpus.parquet")
    build(encoder, tmp_path / "corpus.parquet", Settings("text", keep=("text", "title")), tmp_path / "embeddings")
    same = [(0, 2), (0, 3), (0, 4), (2, 3), (2, 4), (3, 4), (5, 7)]
    (tmp_path / "mined" / "_groups").mkdir(parents=True)
    for column, equal in (("title", {(0, 2), (5, 7)}), ("text", {(0, 3), (5, 7)})):
        settings = MineSettings(0.9999, text_column=column, distinct=True, groups=True)
        comparison = Comparison(Embeddings(tmp_path / "embeddings"), None, settings)
        comparison.check()
        kept = mined(comparison, tmp_path)
        entry = write_part(comparison, kept, (0, 99), tmp_path / "mined" / "part-00000-of-00001.parquet")
        pairs = duckdb.sql("SELECT first_id, second_id FROM 'mined/*.parquet'").fetchall()
        assert pairs == [pair for pair in same if pair not in equal]
        assert entry["rows"] == len(pairs)
    write_groups(comparison, kept, tmp_path / "mined" / "_groups" / "part-00000-of-00001.parquet")
    (tmp_path / "more-embeddings").symlink_to("embeddings")
    (tmp_path / "mined-between").symlink_to("mined")
    removal, distinct, look, between = (duckdb.sql(query).fetchall() for query in blocks("docs/duplicates.md", "sql"))
    assert removal == [(5,)]
    assert distinct == [(6,)]
    assert pq.read_table("distinct.parquet")["row"].to_pylist() == [0, 1, 2, 4, 5, 6]
    assert pq.read_table("unique.parquet")["row"].to_pylist() == [0, 1, 5, 6, 8]
    assert len(look) == len(pairs)
    assert sorted(row for row, *_ in between) == [0, 1, 5, 6, 7, 8]


def test_options_that_are_off_are_not_in_the_manifest():
    """So that outputs of earlier versions are still finished, with the same bytes."""
    assert asdict(MineSettings()).keys() - MineSettings().to_json().keys() == {"distinct", "groups"}
    assert MineSettings(distinct=True).to_json()["distinct"] is True


def test_outputs_that_cannot_be_compared(encoder, tmp_path):
    (tmp_path / "c.csv").write_text('text,number\n"a"b,1\n')  # a stray quote: the row is rejected
    build(encoder, tmp_path / "c.csv", Settings("text", keep=("text",)), tmp_path / "c")
    output = Embeddings(output_of(encoder, [1, 2], tmp_path / "a"))
    narrow = Embeddings(output_of(encoder, [1, 2], tmp_path / "b", dim=2))
    pq.write_table(pa.table({"text": ["w1", "w2", "w3"], "key": ["x", "x", None]}), tmp_path / "d.parquet")
    repeated = Settings("text", keep=("text",), id_column="key")
    build(encoder, tmp_path / "d.parquet", repeated, tmp_path / "d", on_duplicate_id="keep")
    for first, second, settings, message in (
        (output, None, MineSettings(text_column="body"), r"no column 'body' .*`text_column` can be: text"),
        (output, None, MineSettings(text_column="number"), "has no column 'number' of texts"),
        (output, narrow, MineSettings(), r"width 3, but .* width 2;"),
        (Embeddings(tmp_path / "c"), None, MineSettings(), r"/c has no rows"),
        (output, output, MineSettings(groups=True), r"within one output, but `other` is .*/a;"),
        (Embeddings(tmp_path / "d"), None, MineSettings(groups=True), "/d has 2 rows with a null or"),
    ):
        with pytest.raises(ValueError, match=message):
            Comparison(first, second, settings).check()
