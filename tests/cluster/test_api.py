"""The Python API gives what the commands give, byte for byte; pairs and embeddings in pipelines of Ray Data."""

from dataclasses import replace
from inspect import signature

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import paraembed
from paraembed.commands import embed, evaluate, search, train
from paraembed.embedding.settings import Settings
from paraembed.pairs.formats import Reading
from paraembed.papers import find_recipe
from paraembed.settings import Selection
from tests.jobs import digests

pytestmark = pytest.mark.usefixtures("in_store")

SETTINGS = {"tokenizer": "space", "epochs": 1, "batch_size": 50}


@pytest.mark.slow
def test_each_function_does_what_its_command_does(sample, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs, words = sample / "pairs", sample / "sample" / "vectors.txt.gz"
    scored, texts = sample / "sample" / "test-pairs.tsv", sample / "sample" / "sentences.txt"
    recipe = replace(find_recipe("iclr2016/avg"), **SETTINGS)
    train.main(train.Train(str(pairs), str(words), "command", settings=recipe))
    encoder = paraembed.train(pairs, words, "api", **SETTINGS)
    assert encoder.fingerprint == paraembed.load("command").fingerprint

    settings = Settings(keep=("text",), part_rows=4)
    embed.main(embed.Embed("command", (str(texts),), "rows", settings, workers=1))
    done = paraembed.embed("command", texts, "api-rows", keep=("text",), part_rows=4, workers=1)
    assert (done.rows, done.parts) == (10, 3)
    again = paraembed.embed("command", texts, "api-rows", keep=("text",), part_rows=4, identity="sha256")
    assert again.was_finished
    assert signature(paraembed.embed).parameters["workers"].default == embed.Embed.workers
    assert digests(tmp_path / "api-rows", "data/*.parquet") == digests(tmp_path / "rows", "data/*.parquet") != {}

    evaluate.main(evaluate.Evaluate(("command",), pairs=(str(scored),), resamples=50, out="scores"))
    report = paraembed.evaluate("command", pairs=[scored], resamples=50, out="api-scores")
    assert digests(tmp_path / "api-scores", "scores.*") == digests(tmp_path / "scores", "scores.*") != {}
    assert paraembed.evaluate("command", pairs=str(scored), resamples=50).json() == report.json()

    query = "the policeman inspected the big phone"
    search.main(search.Search("rows", (query,), top=3, results=tmp_path / "hits.parquet"))
    assert paraembed.search("rows", query, top=3).equals(pq.read_table(tmp_path / "hits.parquet"))


def test_bad_input_names_the_parameter(sample, tmp_path):
    with pytest.raises(ValueError, match=r"unknown setting 'epoch' of recipe; allowed: .*epochs"):
        paraembed.train("pairs", "words.txt", tmp_path / "out", epoch=1)
    with pytest.raises(ValueError, match="`suites` and `data` must be given together"):
        paraembed.train("pairs", "words.txt", tmp_path / "out", suites=["sts"])
    with pytest.raises(ValueError, match="`selection` has no effect without `suites`"):
        paraembed.train("pairs", "words.txt", tmp_path / "out", selection=Selection(patience=3))
    with pytest.raises(ValueError, match="unknown setting 'column' of embed; allowed: text_column"):
        paraembed.embed("encoder", "a.txt", tmp_path / "out", column="a")
    with pytest.raises(ValueError, match=r"no data .* `pairs`, or `held_out`"):
        paraembed.evaluate("encoder")
    with pytest.raises(ValueError, match=r"`top` is 0;.* at least 1"):
        paraembed.search("embeddings", "cat", top=0)
    with pytest.raises(FileNotFoundError, match=r"a\.txt does not exist"):
        paraembed.embed(tmp_path / "encoder", tmp_path / "a.txt", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match="encoder does not exist"):
        paraembed.embed(tmp_path / "encoder", sample / "sample" / "sentences.txt", tmp_path / "out")
    assert not [*tmp_path.iterdir()]


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
