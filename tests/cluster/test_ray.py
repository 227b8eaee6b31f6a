"""Pairs and embeddings in pipelines of Ray Data."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import paraembed
from paraembed.pairs.formats import Reading

PAIRS = [("The cat sat", "a cat sat", 0.9), ("a dog ran", "the dog ran", 0.2), ("one zebra", "a zebra", 0.7)]


@pytest.fixture
def files(tmp_path):
    """Pairs in TSV and in JSON lines, each file with a row that cannot be read."""
    lines = [f"{first}\t{second}\t{score}\n" for first, second, score in PAIRS[:2]]
    (tmp_path / "a.tsv").write_text("first\tsecond\tscore\n" + "".join(lines) + "no second\n")
    (tmp_path / "b.jsonl").write_text('{"first": "one zebra", "second": "a zebra", "score": 0.7}\n[1]\n')
    return [tmp_path / "a.tsv", tmp_path / "b.jsonl"]


def test_pairs_are_read_filtered_embedded_and_written(files, tmp_path, ray_cluster):
    from ray.data.expressions import col  # noqa: PLC0415 - with Ray, 1 s

    from paraembed.ray import Embed, read_pairs  # noqa: PLC0415 - as above

    pairs = read_pairs(files)
    rows = {(row["first"], row["second"], round(row["score"], 3), row["source"]) for row in pairs.take_all()}
    assert rows == {(*pair, "a.tsv" if pair in PAIRS[:2] else "b.jsonl") for pair in PAIRS}
    kept = pairs.filter(expr=col("score") > 0.5)
    options = {"encoder": "small", "column": "second"}
    embedded = kept.map_batches(Embed, fn_constructor_kwargs=options, concurrency=1, batch_format="pyarrow")
    embedded.write_parquet(str(tmp_path / "out"))

    encoder = paraembed.load("small")
    table = pq.read_table(tmp_path / "out").sort_by("second")
    assert table["second"].to_pylist() == ["a cat sat", "a zebra"]
    np.testing.assert_array_equal(np.array(table["embedding"].to_pylist()), encoder.encode(["a cat sat", "a zebra"]))
    assert table.select(["n_tokens", "n_unknown"]).to_pylist() == [
        {"n_tokens": 3, "n_unknown": 0},
        {"n_tokens": 2, "n_unknown": 0},
    ]


def test_a_batch_without_the_column_and_files_that_are_no_pairs_are_errors(files, tmp_path):
    from paraembed.ray import Embed, read_pairs  # noqa: PLC0415 - as above

    embed = Embed("small", "text")
    with pytest.raises(ValueError, match="no column 'text'"):
        embed(pa.table({"first": ["a"]}))
    with pytest.raises(ValueError, match="already 'n_tokens'"):
        embed(pa.table({"text": ["a"], "n_tokens": [1]}))
    with pytest.raises(FileNotFoundError):
        read_pairs(tmp_path / "none.tsv")
    with pytest.raises(ValueError, match="even number of input files"):
        read_pairs(files[:1], Reading("aligned"))
