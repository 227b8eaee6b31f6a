"""Bad input to jobs/shard.py and jobs/train.py: one clear line, a status above zero, nothing changed."""

import gzip
import re
import shutil

import psutil
import pytest

from tests.docs.pages import write_shards
from tests.jobs import digests, run_job


@pytest.fixture
def call(monkeypatch, capsys, tmp_path, empty_store):
    """Run a job that must fail; gives what it said."""

    def call(name, *arguments, code=2):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, tmp_path.parent / 'bad.db')}")
        before = digests(tmp_path, "**/*")
        capsys.readouterr()
        status, said = run_job(name, *arguments), capsys.readouterr().err
        assert status == code, said
        assert "Traceback" not in said
        assert said.count("error: ") == 1
        assert said.splitlines()[-1].startswith("error: ")
        assert digests(tmp_path, "**/*") == before
        return said

    return call


@pytest.mark.parametrize(
    ("data", "form", "message"),
    [
        (gzip.compress(b"a\tb\n" * 9999, mtime=0)[:40], "auto", "input.gz is not a complete gzip file"),
        (b"[NP] ||| a ||| b\n[NP] ||| c\n", "ppdb", "all 2 rows were rejected: 2 too few fields"),
        (b"\xff\xfe\t\xff\n\xc3(\tx\n", "tsv", "all 2 rows were rejected: 2 invalid UTF-8"),
        (b"same\tsame\n\tb\n", "tsv", "all 2 rows were rejected: 1 empty text, 1 equal texts"),
        (b"a\tb\nc\nd\n\n", "tsv", "--max-rejected-share is 0.5; most often (2): too few fields"),
    ],
)
def test_files_with_too_few_pairs(call, tmp_path, data, form, message):
    path = tmp_path.parent / ("input.gz" if form == "auto" else "input")
    path.write_bytes(data)
    flags = ["--input", path, "--format", form, "--out", tmp_path / "deep" / "out", "--engine", "local"]
    assert message in call("shard", *flags, code=2 if path.suffix else 1)


def test_words_that_do_not_fit_in_memory(call, tmp_path):
    rows = "".join(f"word{number} {'0 ' * 9999}0\n" for number in range(500)).encode()
    member = gzip.compress(rows, 1)
    copies = 2 * psutil.virtual_memory().total // (500 * 40_000) + 1  # of which each makes a matrix of 20 MB
    with (tmp_path / "vectors.txt.gz").open("wb") as file:
        for _ in range(copies):
            file.write(member)
    write_shards(tmp_path / "pairs", {"first": ["a b", "d"], "second": ["c", "e f"]})
    places = ["--pairs", tmp_path / "pairs", "--words", tmp_path / "vectors.txt.gz", "--out", tmp_path / "out"]
    said = call("train", *places, "--batch-size", "2")
    assert re.search(
        r"the training needs about [\d,.]+ GiB of memory, but only [\d,.]+ GiB are available: [\d,]+ words of "
        r"width 10000 take [\d,.]+ GiB, .*; keep fewer words with --max-words",
        said,
    )
