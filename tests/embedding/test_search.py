"""Search of a finished output, against an oracle that compares each row by itself."""

import json
import shutil

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed import checkpoint
from paraembed.embedding import search as searching
from paraembed.embedding.output import Embeddings
from paraembed.embedding.search import embed_queries, query_encoder, search, table_of
from paraembed.embedding.settings import Settings
from tests.embedding.output_of import InMemory, cosine, encoder_of, output_of
from tests.embedding.test_ids import shuffled
from tests.embedding.without_ray import build

INTEGERS = st.integers(-2, 2)


def oracle(queries, vectors, top, ids=None):
    """``(query, row, cosine)`` of the nearest rows; of equal cosines the smallest id, then the first row."""
    hits, ids = [], ids or [0] * len(vectors)
    for number, query in enumerate(queries):
        cosines = [(cosine(query, row), ids[index], index) for index, row in enumerate(vectors)]
        scored = sorted((-score, name, index) for score, name, index in cosines if score is not None)
        hits += [(number, index, -score) for score, _, index in scored[:top]]
    return hits


def found_by(embeddings, queries, top, num_tasks=1):
    hits = search(embeddings, np.asarray(queries, np.float32), top, shuffled, num_tasks)
    return list(zip(hits.query.tolist(), hits.row.tolist(), hits.cosine, strict=True))


@st.composite
def cases(draw):
    width = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(INTEGERS, min_size=width, max_size=width), min_size=1, max_size=40))
    queries = draw(st.lists(st.lists(INTEGERS, min_size=width, max_size=width), min_size=1, max_size=3))
    name = draw(st.sampled_from([st.none(), st.integers(-5, 5), st.text("aZ\uffff\U0001f600", max_size=2)]))
    ids = draw(st.lists(name, min_size=len(rows), max_size=len(rows)))
    return np.array(rows, np.float32), np.array(queries, np.float32), None if ids[0] is None else ids


@given(cases(), st.integers(1, 6), st.integers(1, 50), st.integers(1, 30), st.integers(1, 15))
def test_the_nearest_rows_and_their_ties_are_those_of_the_oracle(case, top, group_rows, tile, num_tasks):
    """Small integers make many rows equal or parallel, so that cosines tie; ids repeat; tasks end in any order."""
    rows, queries, ids = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "_TILE_VALUES", tile)
        patch.setattr(searching, "_DENSE", 1)
        patch.setattr(searching, "_TIES", tile)
        found = found_by(InMemory(rows, group_rows, ids), queries, top, num_tasks)
    assert found == oracle(queries, rows, top, ids)


@pytest.mark.parametrize(("scale", "top"), [(1.0, 1), (1e-30, 7), (1e30, 100)])
def test_close_cosines_of_any_length_are_ranked_exactly(scale, top):
    """Rows around one direction differ by less than a product in float32 can resolve."""
    draw = np.random.default_rng(0)
    rows = (1 + 1e-4 * draw.standard_normal((500, 24))) * draw.uniform(0.5, 2, (500, 1)) * scale
    rows[::50] = 0
    rows[1::50] = rows[1]
    queries = np.ones((2, 24), np.float32)
    assert found_by(InMemory(rows, 64), queries, top) == oracle(queries, rows.astype(np.float32), top)


@pytest.fixture(scope="module")
def words():
    draw = np.random.default_rng(1)
    vectors = draw.standard_normal((12, 6), dtype=np.float32)
    vectors[5] = 2 * vectors[4]
    return vectors


@pytest.fixture(scope="module")
def encoder(words, tmp_path_factory):
    return encoder_of(words, tmp_path_factory.mktemp("encoders") / "words")


ROWS = [0, 1, 4, 5, 4, None, 7, 8, 9, 1, 10, 4, 11, None, 2, 3, 0]


def stored(out):
    table = duckdb.sql(f"SELECT * FROM '{out}/data/*.parquet' ORDER BY row").to_arrow_table()
    vectors = np.array(table["embedding"].to_pylist(), np.float64)
    return vectors * np.array(table["scale"])[:, None] if "scale" in table.column_names else vectors


@pytest.mark.parametrize(
    ("dtype", "more"),
    [("float32", {}), ("float32", {"normalize": True}), ("float16", {"dim": 4, "normalize": True}), ("int8", {})],
)
def test_any_dtype_length_and_number_of_dimensions(encoder, words, tmp_path, dtype, more):
    out = output_of(encoder, ROWS, tmp_path / "out", dtype=dtype, **more)
    embeddings = Embeddings(out)
    queries = embed_queries(query_encoder(embeddings, str(encoder)), ["w4", "w0 w1", "w11"], embeddings)
    assert queries.vectors.shape == (3, more.get("dim", 6))
    table = table_of(embeddings, queries, search(embeddings, queries.vectors, 4))
    assert table.column_names == ["query", "query_text", "rank", "cosine", "row", "text", "number"]
    rows = table.to_pylist()
    cut = slice(0, more.get("dim", 6))
    asked = [words[4][cut], ((words[0] + words[1]) / 2)[cut], words[11][cut]]
    expected = oracle(asked, stored(out), 4)
    assert [(hit["query"], hit["row"]) for hit in rows] == [(query, row) for query, row, _ in expected]
    assert np.allclose([hit["cosine"] for hit in rows], [score for _, _, score in expected], atol=1e-6)
    assert [hit["rank"] for hit in rows] == [1, 2, 3, 4] * 3
    assert all(hit["text"] == f"w{ROWS[hit['row']]}" and hit["number"] == hit["row"] for hit in rows)
    if dtype == "float32" and "dim" not in more:
        assert [hit["row"] for hit in rows[:4]] == [2, 3, 4, 11]  # w4 and its double, in input order


def test_ids_of_the_input_and_columns_whose_names_are_taken(encoder, tmp_path):
    columns = {"key": ["a", "b"], "text": ["w1", "w2"], "rank": [8, 9], "output_rank": [6, 7], "query": ["x", "y"]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    build(encoder, tmp_path / "t.parquet", Settings("text", "key", ("rank", "output_rank", "query")), tmp_path / "out")
    embeddings = Embeddings(tmp_path / "out")
    queries = embed_queries(query_encoder(embeddings, str(encoder)), ["w2"], embeddings)
    (hit, _) = table_of(embeddings, queries, search(embeddings, queries.vectors, 9)).to_pylist()
    names = ["query", "query_text", "rank", "cosine", "key", "output_output_rank", "output_rank", "output_query"]
    assert [*hit.items()] == [*zip(names, (0, "w2", 1, 1.0, "b", 9, 7, "y"), strict=True)]


def test_zero_and_out_of_vocabulary_queries(encoder, tmp_path):
    embeddings = Embeddings(output_of(encoder, ROWS, tmp_path / "out"))
    loaded = query_encoder(embeddings, str(encoder))
    queries = embed_queries(loaded, ["", "zebra", "w1", "\t"], embeddings)
    assert (queries.without_tokens, queries.out_of_vocabulary) == ([0, 3], [1])
    assert set(search(embeddings, queries.vectors, 2).query.tolist()) == {1, 2}
    for texts in (["", " "], []):
        with pytest.raises(ValueError, match="no query has a token"):
            embed_queries(loaded, texts, embeddings)
    with pytest.raises(ValueError, match="`top` is 0"):
        search(embeddings, queries.vectors, 0)


def fetched_by_a_stranger(name, folder):
    raise AssertionError(f"the output decided that {name} was downloaded to {folder}")


def test_the_recorded_encoder_is_used_and_another_one_is_rejected(encoder, words, tmp_path):
    embeddings = Embeddings(output_of(encoder, ROWS, tmp_path / "out"))
    with pytest.raises(ValueError, match=r"where encoder \w{12} is; .*`encoder`"):
        query_encoder(embeddings)
    record = tmp_path / "out" / "_reports" / "encoder.json"
    record.write_text(json.dumps({"encoder": str(encoder)}))
    assert query_encoder(embeddings).fingerprint == embeddings.encoder
    other = encoder_of(words + 1, tmp_path / "other")
    with pytest.raises(ValueError, match=r"other is not the encoder .*: fingerprint"):
        query_encoder(embeddings, str(other))
    record.write_text(json.dumps({"encoder": str(tmp_path / "moved")}))
    with pytest.raises(FileNotFoundError, match=r"embedded with .*/moved, which"):
        query_encoder(embeddings)
    for name in ("models:/phrases@production", "0" * 32):
        record.write_text(json.dumps({"encoder": name}))
        with pytest.raises(FileNotFoundError, match=f"with {name}, which is not an"):
            query_encoder(embeddings, fetch=fetched_by_a_stranger)
    record.write_text("[]")
    with pytest.raises(ValueError, match="does not record"):
        query_encoder(embeddings)


def test_what_is_no_finished_output_is_rejected(encoder, tmp_path):
    out = output_of(encoder, ROWS, tmp_path / "out")

    def damaged(name, change):
        folder = tmp_path / name
        shutil.copytree(out, folder)
        change(folder)
        return folder

    first, third = "data/part-000-000000.parquet", "data/part-000-000002.parquet"
    for name, change, error, message in (
        ("open", lambda folder: (folder / "_SUCCESS").unlink(), ValueError, "is not finished; run the same"),
        ("first", lambda folder: (folder / first).unlink(), FileNotFoundError, f"{first} is missing; run the"),
        ("bad", lambda folder: (folder / first).write_bytes(b"PAR1"), ValueError, "cannot be read .*; run the"),
        ("swap", lambda folder: shutil.copy(folder / third, folder / first), ValueError, "has 5 rows or other columns"),
    ):
        with pytest.raises(error, match=message):
            Embeddings(damaged(name, change))
    with pytest.raises(FileNotFoundError, match="none does not exist or is empty"):
        Embeddings(tmp_path / "none")
    embeddings = Embeddings(damaged("last", lambda folder: (folder / third).unlink()))
    vectors = embed_queries(query_encoder(embeddings, str(encoder)), ["w1"], embeddings).vectors
    with pytest.raises(FileNotFoundError, match=r"part-000-000002\.parquet is missing"):
        search(embeddings, vectors, 1)


def test_rows_by_number(encoder, tmp_path):
    embeddings = Embeddings(output_of(encoder, ROWS, tmp_path / "out"))
    numbers = np.array([16, 0, 7, 7, 3])
    assert embeddings.take(numbers, ["number", "text"]).to_pylist() == [
        {"number": number, "text": f"w{ROWS[number]}"} for number in numbers
    ]
    assert embeddings.take(numbers[:0], ["text"]).num_rows == 0
    for start, stop in ((0, 17), (5, 6), (6, 15)):
        blocks = list(embeddings.blocks(start, stop))
        vectors = np.concatenate([block.vectors for block in blocks])
        assert np.array_equal(vectors, stored(embeddings.store.path)[start:stop])
        ends = np.cumsum([start, *(len(block.vectors) for block in blocks)])
        assert [block.first for block in blocks] == ends[:-1].tolist()
    assert checkpoint.load(encoder).width == embeddings.width
