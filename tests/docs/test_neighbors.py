"""The sections of docs/neighbors.md compile; where packages and servers are available, they find the nearest texts."""

import os
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.export.folder import write_folder
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.docs.pages import blocks, text_of

PAGE = "docs/neighbors.md"
WIDTH = 300
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
SERVERS = {"pgvector": "DATABASE", "Weaviate": "WEAVIATE", "Elasticsearch": "ELASTICSEARCH"}
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text_of(PAGE), re.M | re.S))


def python(section):
    """The Python of a section."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.M | re.S))


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """The working folder: an encoder, its embeddings, and its form for sentence-transformers."""
    monkeypatch.chdir(tmp_path)
    vocabulary = [UNKNOWN, *sorted({word for text in TEXTS for word in text.split()} | {"how", "do"})]
    matrix = np.random.default_rng(0).standard_normal((len(vocabulary), WIDTH), np.float32)
    encoder = Encoder(AvgConfig(), Words(pa.array(vocabulary), matrix), "ptb-v1").eval()
    checkpoint.save(encoder, tmp_path / "encoder", recipe={}, provenance={}, model_card="tiny\n")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(encoder.encode(TEXTS).ravel()), WIDTH)
    (tmp_path / "embeddings").mkdir()
    columns = {"row": pa.array(range(len(TEXTS)), pa.int64()), "text": TEXTS, "embedding": vectors}
    table = pa.table(columns)
    pq.write_table(table[:4], tmp_path / "embeddings" / "part-00000-of-00002.parquet")
    pq.write_table(table[4:], tmp_path / "embeddings" / "part-00001-of-00002.parquet")
    return encoder


def test_every_section_is_tested_and_compiles():
    assert [*SECTIONS] == [*PACKAGES]
    for name, section in SECTIONS.items():
        assert compile(python(section), name, "exec").co_names


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
    if name in SERVERS and SERVERS[name] not in os.environ:
        pytest.skip(f"set {SERVERS[name]} as docs/neighbors.md describes")
    if name in {"LangChain", "LlamaIndex"}:
        pytest.importorskip("sentence_transformers")
        write_folder(encoder, "sentence-transformers", tmp_path / "model")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    names = {"__name__": "__main__"}  # as in a script: what it defines is sent to workers
    preamble = re.sub("batch_size=1_000", "batch_size=3", blocks(PAGE, "python")[0])  # slices of row groups, too
    exec(preamble + python(SECTIONS[name]), names)
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
