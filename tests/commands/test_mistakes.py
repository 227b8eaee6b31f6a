"""A mistake on a command line, or a bad input: one clear line, a status above zero, and nothing is changed."""

import gzip
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import psutil
import pytest

from paraembed.text.vocabulary import UNKNOWN
from tests.docs.pages import write_shards
from tests.embedding.output_of import encoder_of, output_of
from tests.export.test_smaller import saved
from tests.jobs import digests, run_job

MISTAKES = [json.loads(line) for line in Path(__file__).with_name("mistakes.jsonl").read_text("utf-8").splitlines()]

FILES = {
    "unfinished/_plan.json": b"{}",
    "mine/thesis.tex": b"",
    "file": b"",
    "texts.txt": b"the cat\n",
    "pairs.tsv": b"score\tsentence1\tsentence2\n5\tthe cat\tthe cat\n1\ta dog\ton mat\n3\ta cat\tthe zebra\n",
    "vectors.txt": b"UUUNKKK 1 0 0\nthe 0 1 0\ncat 0 0 1\n",
    "words.txt": b"a 1 2\nb 3 4\n",
    "bad/empty.tsv": b"",
    "bad/binary.tsv": b"\x7fELF\0\0\0",
    "bad/plain.txt": b"no columns at all\n",
    "bad/three.tsv": b"a\tb\tc\n",
    "bad/fake.gz": b"a\tb\n",
    "bad/short.txt": b"a 1 2\nb 1\n",
    "bad/letter.txt": b"a 1 2\nb 1 x\n",
    "bad/pickle.txt": b"\x80\x02]q\0.",
    "bad/1.json": b'{"epochs": "ten"}',
    "bad/2.json": b'{"encoder": "avg"}',
    "bad/3.json": b'{"encoder": {"name": "proj", "width": "x"}}',
    "bad/4.json": b'{"margn": 1}',
    "bad/5.json": b"[1]",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, empty_store, tiny_encoder_folder):
    """The working folder: encoders, whole and damaged, an output of one, texts, pairs, word vectors, other files."""
    folder = tmp_path_factory.mktemp("mistakes")
    shutil.copytree(tiny_encoder_folder, folder / "encoder")
    for name, options in {
        "a": {},
        "b": {"width": 3},
        "lstm": {"name": "lstm"},
        "sum": {"name": "sum"},
        "phrases": {"words": ["new york", UNKNOWN]},
    }.items():
        saved(folder / name, **options)
    shutil.copytree(folder / "a", folder / "damaged")
    (folder / "damaged" / "words.txt").write_text("the\n")
    encoder_of(np.eye(4, dtype=np.float32) + 0.1, folder / "eye")
    output = output_of(folder / "eye", [0, 1, 2, 1, None], folder / "emb", keep=("text",))
    (output / "_reports" / "encoder.json").write_text(json.dumps({"encoder": str(folder / "eye")}))
    for name, data in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    write_shards(folder / "shards", {"first": ["a b", "d"], "second": ["c", "e f"]})
    (folder / "empty").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        store = shutil.copy(empty_store, tmp_path_factory.mktemp("store"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{store}")
        yield folder


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake["line"])
def test_a_mistake_is_one_clear_line(folder, capsys, mistake):
    before = digests(folder, "**/*"), sorted(os.walk(folder))
    assert run_job(*shlex.split(mistake["line"])) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = [line for line in err.splitlines() if not re.search(r" \(\d+ s\)$", line)]  # of a busy machine
    assert line.startswith("error: ")
    assert mistake["message"] in line
    assert "secret" not in err
    assert (digests(folder, "**/*"), sorted(os.walk(folder))) == before


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
        (b"a\tb\nc\xe9\td\n\xe9\tf\n", "tsv", "invalid UTF-8; give its --encoding"),
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
