"""Bad input to jobs/shard.py and jobs/train.py: one clear line, a status above zero, nothing changed."""

import gzip
import json
import re

import psutil
import pytest

from paraembed.cluster.shard import shard_pairs
from paraembed.pairs.settings import ShardSettings
from tests.jobs import digests, run_job


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run a job that must fail; gives what it said."""

    def call(name, *arguments):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path.parent / 'bad.db'}")
        before = digests(tmp_path, "**/*")
        capsys.readouterr()
        status, said = run_job(name, *arguments), capsys.readouterr().err
        assert status == 2, said
        assert "Traceback" not in said
        assert said.count("error: ") == 1
        assert said.splitlines()[-1].startswith("error: ")
        assert digests(tmp_path, "**/*") == before
        return said

    return call


def put(path, data):
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.ray
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("missing.tsv", None, r"missing\.tsv does not exist; check the path"),
        ("empty.tsv", b"", r"empty\.tsv is empty; expected UTF-8 text"),
        ("binary.tsv", b"\x7fELF\0\0\0", r"binary\.tsv is a binary file; expected UTF-8 text"),
        ("plain.txt", b"no columns at all\n", "neither a PPDB line nor columns"),
        ("three.tsv", b"a\tb\tc\n", "3 columns and no header; name them with --columns"),
        ("cut.gz", gzip.compress(b"a\tb\n" * 9999, mtime=0)[:40], r"cut\.gz is not a complete gzip file"),
        ("fake.gz", b"a\tb\n", r"fake\.gz is not a complete gzip file"),
    ],
)
def test_unusable_pair_files(ray_cluster, call, tmp_path, name, data, message):
    if data is not None:
        put(tmp_path / name, data)
    assert re.search(message, call("shard", "--input", tmp_path / name, "--out", tmp_path / "out"))


@pytest.mark.ray
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[NP] ||| a ||| b\n[NP] ||| c\n", "all 2 rows were rejected: 2 too few fields"),
        (b"\xff\xfe\t\xff\n\xc3(\tx\n", "all 2 rows were rejected: 2 invalid UTF-8"),
        (b"same\tsame\n\tb\n", "all 2 rows were rejected: 1 empty text, 1 equal texts"),
    ],
)
def test_files_without_a_single_pair(ray_cluster, call, tmp_path, data, message):
    path = put(tmp_path.parent / "input", data)
    form = "ppdb" if data.startswith(b"[") else "tsv"
    said = call("shard", "--input", path, "--format", form, "--out", tmp_path / "deep" / "out")
    assert message in said


def test_places_and_settings(call, tmp_path):
    pairs = put(tmp_path / "p.tsv", "a\tb\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    other = put(folder / "other.tsv", "a\tb\n")
    assert "is a folder; expected a file" in call("shard", "--input", folder, "--out", tmp_path / "out")
    assert "did not write: " in call("shard", "--input", pairs, "--out", folder)
    assert "is a file; " in call("shard", "--input", pairs, "--out", other)
    for out in (pairs, tmp_path):
        assert f"inside of the input {pairs}" in call("shard", "--input", pairs, "--out", out)
    assert "--rows-per-shard is 0; allowed" in call(
        "shard", "--input", pairs, "--out", tmp_path / "o", "--rows-per-shard", "0"
    )
    assert "--max-words sets the number of rows to use from --words; add --words FILE" in call(
        "shard", "--input", pairs, "--out", tmp_path / "o", "--max-words", "3"
    )
    assert "--workers is 0; it must be" in call("shard", "--input", pairs, "--out", tmp_path / "o", "--workers", "0")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory, ray_cluster):
    folder = tmp_path_factory.mktemp("pairs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'pairs.db'}")
        shard_pairs([put(folder / "p.tsv", "a b\tc\nd\te f\n")], folder / "pairs", ShardSettings())
    return folder / "pairs"


@pytest.mark.ray
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, r"vectors\.txt does not exist"),
        ("", r"vectors\.txt is empty"),
        ("a 1 2\nb 1\n", r"vectors\.txt, line 2: a word with 1 values; expected .* 2 values"),
        ("a 1 2\nb 1 x\n", r"vectors\.txt, line 2: 'x' is not a finite number"),
        (b"\x80\x02]q\0.", r"vectors\.txt is a binary file"),
    ],
)
def test_unusable_word_vectors(pairs, call, tmp_path, rows, message):
    if rows is not None:
        put(tmp_path / "vectors.txt", rows)
    places = ["--pairs", pairs, "--words", tmp_path / "vectors.txt", "--out", tmp_path / "out"]
    assert re.search(message, call("train", *places, "--batch-size", "2"))


@pytest.mark.ray
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--recipe", "iclr2016/gran"], "unknown recipe 'iclr2016/gran'; allowed: tacl2015/word"),
        (["--encoder", "avg", "--encoder.width", "5"], "encoder 'avg' has no option 'width'; allowed: none"),
        (["--encoder.no-such"], "encoder 'avg' has no option 'such'; allowed: none"),
        (["--encoder", "bert"], "unknown encoder 'bert'; allowed: avg, sum, word, scaled_avg"),
        (["--margin", "-1"], "--margin is -1.0; allowed: 1e-36 to"),
        (["--batch-size", "1"], "--batch-size is 1; allowed: 2 to 1,000,000"),
        (["--tokenizer", "moses"], "unknown tokenizer 'moses'; allowed: ptb-v1, space"),
        (["--workers", "0"], "--workers is 0; it must be at least 1"),
        (["--workers", "2:"], "--workers is '2:'; give a number of at most 9 digits, or MIN:MAX"),
        (["--workers", "3:2"], "--workers is 3:2; MIN of MIN:MAX must be from 1 to MAX"),
        (["--workers", "1:2"], "--workers is 1:2, but their number changes only on a Ray cluster"),
        (["--gpus"], "--gpus is set, but PyTorch finds no GPU"),
        ([], "--batch-size is 100, but there are only 2 pairs to train on; give --batch-size 2 or less, or more pairs"),
        (["--batch-size", "2", "--workers", "9"], "--batch-size is 2 for each of 9 workers, but there are only"),
        (["--checkpoint-minutes", "-1"], "--checkpoint-minutes is -1.0; allowed: at least 0"),
        (["--checkpoint-steps", "0"], "--checkpoint-steps is 0; allowed: 1 to"),
        (["--keep-checkpoints", "0"], "--keep-checkpoints is 0; allowed: 1 to"),
        (["--pairs-memory-gb", "nan"], "--pairs-memory-gb is nan; allowed: finite numbers"),
    ],
)
def test_wrong_settings(pairs, call, tmp_path, flags, message):
    vectors = put(tmp_path / "vectors.txt", "a 1 2\nb 3 4\n")
    assert message in call("train", "--pairs", pairs, "--words", vectors, "--out", tmp_path / "out", *flags)


@pytest.mark.ray
def test_words_that_do_not_fit_in_memory(pairs, call, tmp_path):
    rows = "".join(f"word{number} {'0 ' * 9999}0\n" for number in range(500)).encode()
    member = gzip.compress(rows, 1)
    copies = 2 * psutil.virtual_memory().total // (500 * 40_000) + 1  # of which each makes a matrix of 20 MB
    with (tmp_path / "vectors.txt.gz").open("wb") as file:
        for _ in range(copies):
            file.write(member)
    places = ["--pairs", pairs, "--words", tmp_path / "vectors.txt.gz", "--out", tmp_path / "out"]
    said = call("train", *places, "--batch-size", "2")
    assert re.search(
        r"the training needs about [\d,.]+ GiB of memory, but only [\d,.]+ GiB are available: [\d,]+ words of "
        r"width 10000 take [\d,.]+ GiB, .*; keep fewer words with --max-words",
        said,
    )


@pytest.mark.ray
@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"epochs": "ten"}, "recipe.json: epochs is 'ten'; expected int"),
        ({"encoder": "avg"}, "recipe.json: encoder is 'avg'; expected an object"),
        ({"encoder": {"name": "proj", "width": "x"}}, "proj: width is 'x'; expected int or none"),
        ({"margn": 1}, "recipe.json: a recipe has no field 'margn'"),
        ([1], "expected a JSON object with the fields of a recipe"),
    ],
)
def test_wrong_recipe_files(pairs, call, tmp_path, recipe, message):
    vectors = put(tmp_path / "vectors.txt", "a 1 2\nb 3 4\n")
    path = put(tmp_path / "recipe.json", json.dumps(recipe))
    said = call("train", "--pairs", pairs, "--words", vectors, "--out", tmp_path / "out", "--recipe", path)
    assert message in said


@pytest.mark.parametrize(
    "line",
    [
        "weight --words words.txt --weighting avg",
        "export --encoder small --to word2vec",
        "mine s3://bucket/embeddings",
        "teach --teacher small --texts texts.txt",
    ],
)
def test_outputs_that_are_folders_only(call, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    name, *given = line.split()
    said = call(name, *given, "--out", "s3://key:secret@bucket/out")
    assert re.search(r"--out is a URI \(s3://…\)", said)
    assert "secret" not in said
    assert re.search(r"--out is a URI \(abfs://…\)", call(name, *given, "--out", "abfs://container/out"))
    assert [*tmp_path.iterdir()] == []
