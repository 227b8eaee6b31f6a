"""Other tools read the parts of an output, by folder and by glob: the rows, a vector, and the nearest rows by cosine.

The tools are those of the extra ``consumers``: ``make test-consumers``.
"""

import os
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from paraembed.cluster.embed import embed
from paraembed.embedding.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROWS, QUERY = 300, 5


@pytest.fixture(scope="module", params=["float32", "float16", "int8"])
def output(request, tmp_path_factory):
    """The number type of an output of three parts, and its folder of parts."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "t.txt").write_text("".join(f"the cat sat on mat number {row}\n" for row in range(ROWS)))
    settings = Settings(keep=("text",), dtype=request.param, part_rows=100, dim=64)
    return request.param, embed("small", [folder / "t.txt"], folder / "out", settings, engine="local").table


def by_cosine(vectors):
    """The number of rows, the query's vector and the two nearest rows of a tool that computes no cosine."""
    matrix = np.asarray(vectors, np.float32)
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    return len(matrix), matrix[QUERY], np.argsort(-unit @ unit[QUERY], kind="stable")[:2]


def read_by_pandas(place):
    return by_cosine(np.stack(pytest.importorskip("pandas").read_parquet(place).sort_values("row")["embedding"]))


def read_by_arrow(place):
    return by_cosine(ds.dataset(place).to_table().sort_by("row")["embedding"].to_pylist())


def read_by_polars(place):
    return by_cosine(pytest.importorskip("polars").scan_parquet(place).sort("row").collect()["embedding"].to_numpy())


def read_by_duckdb(place):
    parts = place if place.endswith(".parquet") else f"{place}/*.parquet"
    query = f"(SELECT embedding::FLOAT[64] FROM '{parts}' WHERE row = {QUERY})"
    order = f"ORDER BY array_cosine_distance(embedding::FLOAT[64], {query}), row LIMIT 2"
    sql = pytest.importorskip("duckdb").sql
    (count,) = sql(f"SELECT count(*) FROM '{parts}'").fetchall()
    nearest = sql(f"SELECT row, embedding FROM '{parts}' {order}").fetchall()
    return count[0], nearest[0][1], [row for row, _ in nearest]


def read_by_datasets(place):
    load = pytest.importorskip("datasets").load_dataset
    where = {"data_files": place} if place.endswith(".parquet") else {"data_dir": place}
    return by_cosine(load("parquet", split="train", **where).sort("row")["embedding"][:])


def read_by_lance(place):
    table = pytest.importorskip("lancedb").connect(f"{place.removesuffix('/*.parquet')}-lance").create_table(
        "texts", pq.read_table(place.removesuffix("/*.parquet")), mode="overwrite"
    )  # fmt: skip
    vectors = table.to_arrow().sort_by("row")["embedding"].to_pylist()
    if table.schema.field("embedding").type.value_type == pa.int8():  # LanceDB takes int8 for bits of a hash
        return by_cosine(vectors)
    nearest = table.search(vectors[QUERY]).distance_type("cosine").limit(2).to_list()
    return table.count_rows(), vectors[QUERY], [row["row"] for row in nearest]


def read_by_faiss(place):
    faiss = pytest.importorskip("faiss")
    vectors = np.stack(ds.dataset(place).to_table().sort_by("row")["embedding"].to_numpy()).astype(np.float32)
    unit = vectors.copy()
    faiss.normalize_L2(unit)
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    return index.ntotal, vectors[QUERY], index.search(unit[QUERY : QUERY + 1], 2)[1][0]


def read_by_ray(place):
    return by_cosine(pytest.importorskip("ray").data.read_parquet(place).sort("row").to_pandas()["embedding"].to_list())


def read_by_dask(place):
    frame = pytest.importorskip("dask.dataframe").read_parquet(place).compute().sort_values("row")
    return by_cosine(np.stack(frame["embedding"]))


def read_by_daft(place):
    return by_cosine(pytest.importorskip("daft").read_parquet(place).sort("row").to_pydict()["embedding"])


def read_by_clickhouse(place):
    query = pytest.importorskip("chdb").query
    parts = f"file('{place if place.endswith('.parquet') else place + '/*.parquet'}', Parquet)"
    nearest = query(
        f"WITH (SELECT embedding FROM {parts} WHERE row = {QUERY}) AS query "
        f"SELECT row, embedding FROM {parts} ORDER BY cosineDistance(embedding, query), row LIMIT 2", "ArrowTable"
    )  # fmt: skip
    count = query(f"SELECT count() AS count FROM {parts}", "ArrowTable")
    return count["count"][0].as_py(), nearest["embedding"][0].as_py(), nearest["row"].to_pylist()


def read_by_spark(place):
    spark = pytest.importorskip("pyspark.sql").SparkSession.builder.master("local[1]")
    for name, value in {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
                        "spark.driver.host": "127.0.0.1"}.items():  # fmt: skip
        spark = spark.config(name, value)
    frame = spark.getOrCreate().read.parquet(place).orderBy("row")
    return by_cosine([row["embedding"] for row in frame.select("embedding").collect()])


def read_by_pgvector(place):
    psycopg, types = (pytest.importorskip(name) for name in ("psycopg", "pgvector.psycopg"))
    with psycopg.connect(os.environ["DATABASE"]) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        types.register_vector(connection)
        connection.execute("CREATE TEMPORARY TABLE texts (row bigint, embedding vector(64))")
        with connection.cursor().copy("COPY texts FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int8", "vector"])
            for row in ds.dataset(place).to_table(["row", "embedding"]).to_pylist():
                copy.write_row((row["row"], np.array(row["embedding"], np.float32)))
        query = f"(SELECT embedding FROM texts WHERE row = {QUERY})"
        order = f"ORDER BY embedding <=> {query}, row LIMIT 2"
        nearest = connection.execute(f"SELECT row, embedding::real[] FROM texts {order}").fetchall()
        (count,) = connection.execute("SELECT count(*) FROM texts").fetchone()
    return count, nearest[0][1], [row for row, _ in nearest]


READERS = [read_by_pandas, read_by_arrow, read_by_polars, read_by_duckdb, read_by_datasets, read_by_lance,
           read_by_faiss, pytest.param(read_by_ray, marks=pytest.mark.ray), read_by_dask, read_by_daft,
           read_by_clickhouse, read_by_spark, read_by_pgvector]  # fmt: skip
WITHOUT_GLOBS = [read_by_pandas, read_by_arrow, read_by_faiss, read_by_ray, read_by_pgvector]
# Spark has no such type; daft reads it from 0.7 on, which needs an older tqdm than constraints.txt has.
WITHOUT_FLOAT16 = [read_by_spark, *([read_by_daft] if find_spec("daft") and version("daft") < "0.7" else [])]


@pytest.mark.parametrize("read", READERS)
def test_a_tool_reads_the_parts(read, output, request, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("DAFT_RUNNER", "native")  # else it connects to the session's Ray
    if read is read_by_ray:
        request.getfixturevalue("ray_cluster")
    if read is read_by_pgvector:
        monkeypatch.setenv("DATABASE", request.getfixturevalue("postgres"))
    dtype, folder = output
    if dtype == "float16" and read in WITHOUT_FLOAT16:
        with pytest.raises(Exception, match=r"(?i)parquet"):
            read(folder)
        return
    table = pq.read_table(folder)
    expected = by_cosine(table["embedding"].to_pylist())
    for place in [folder] if read in WITHOUT_GLOBS else [folder, f"{folder}/*.parquet"]:
        count, vector, nearest = read(place)
        assert count == ROWS
        np.testing.assert_allclose(np.asarray(vector, np.float32), expected[1], rtol=1e-6)
        assert nearest[0] == QUERY
        assert {*nearest} <= {QUERY, *expected[2]} or dtype != "float32"
