"""The sections of docs/neighbors.md compile; where packages and servers are available, they find the nearest texts."""

import os
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import paraembed
from paraembed.export.folder import write_folder
from tests.docs.pages import blocks, text_of

PAGE = "docs/neighbors.md"
TEXTS = ["a cat sat on the mat", "how can i sleep better at night", "one text", "the better cat", "i sleep"]
PACKAGES = {
    "DuckDB": ["duckdb"],
    "FAISS": ["faiss"],
    "LanceDB": ["lancedb"],
    "pgvector": ["psycopg", "pgvector"],
    "Qdrant": ["qdrant_client"],
    "Milvus": ["pymilvus", "milvus_lite"],
    "Weaviate": ["weaviate"],
    "Elasticsearch": ["elasticsearch"],
    "LangChain": ["langchain_core", "langchain_huggingface"],
    "LlamaIndex": ["llama_index.core"],
    "Ray Data": ["ray"],
    "Spark": ["pyspark"],
}
SERVERS = {"Weaviate": "WEAVIATE", "Elasticsearch": "ELASTICSEARCH"}
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text_of(PAGE), re.M | re.S))


def python(section):
    """The Python of a section."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.M | re.S))


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """The encoder ``small``; in the working folder its embeddings and its form for sentence-transformers."""
    monkeypatch.chdir(tmp_path)
    encoder = paraembed.load("small")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(encoder.encode(TEXTS).ravel()), 256)
    (tmp_path / "embeddings" / "data").mkdir(parents=True)
    columns = {"row": pa.array(range(len(TEXTS)), pa.int64()), "text": TEXTS, "embedding": vectors}
    pq.write_table(pa.table(columns), tmp_path / "embeddings" / "data/part-000-000000.parquet", row_group_size=4)
    return encoder


def test_every_section_is_tested_and_compiles():
    assert [*SECTIONS] == [*PACKAGES]
    assert all(compile(python(section), name, "exec").co_names for name, section in SECTIONS.items())


@pytest.mark.ray
@pytest.mark.filterwarnings("default")  # of other libraries
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "Ray Data" else ()) for name in PACKAGES]
)
def test_a_section_finds_the_nearest_texts(name, encoder, tmp_path, monkeypatch, request):
    for package in PACKAGES[name]:
        pytest.importorskip(package)
    if name == "Ray Data":
        request.getfixturevalue("ray_cluster")  # not one that it would start for itself
    if name == "pgvector":
        monkeypatch.setenv("DATABASE", request.getfixturevalue("postgres"))
    if name in SERVERS and SERVERS[name] not in os.environ:
        pytest.skip(f"set {SERVERS[name]} as docs/neighbors.md describes")
    if name in {"LangChain", "LlamaIndex"}:
        pytest.importorskip("sentence_transformers")
        write_folder(encoder, "sentence-transformers", tmp_path / "model")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    names = {"__name__": "__main__"}  # as in a script: what it defines is sent to workers
    exec(blocks(PAGE, "python")[0].replace("1_000", "3") + python(SECTIONS[name]), names)  # batches are slices
    vectors = encoder.encode(TEXTS)
    if "hits" not in names:
        embedded = {row["text"]: np.array(row["embedding"], np.float32) for row in names["rows"]}
        assert embedded.keys() == {*TEXTS}
        np.testing.assert_array_equal([embedded[text] for text in TEXTS], vectors)
        return
    query = encoder.encode("how do i sleep better")
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    nearest = np.argsort(-cosines)[:3]
    assert [text for text, _ in names["hits"]] == [TEXTS[row] for row in nearest]
    np.testing.assert_allclose([score for _, score in names["hits"]], cosines[nearest], rtol=0, atol=1e-5)
