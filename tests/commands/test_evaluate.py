"""jobs/evaluate.py as a user runs it: the table, the files, the MLflow run, one clear line for every mistake."""

import contextlib
import csv
import io
import json
import os
import shutil

import pytest
import ray
from mlflow.tracking import MlflowClient

from paraembed.pairs.sample import ppdb_lines
from tests.jobs import run_job

PAIRS = "score\tsentence1\tsentence2\n5\tthe cat\tthe cat\n1\ta dog\ton mat\n3\ta cat\tthe zebra\n"
SENTENCES = "5\tthe secret cat\tthe cat\n1\ta secret dog\ton mat\n3\ta cat on\tthe mat\n"
VECTORS = "UUUNKKK 1 0 0\nthe 0 1 0\ncat 0 0 1\na 1 1 0\ndog -1 2 1\non 3 1 -1\nmat 0 -1 2\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory, empty_store):
    """One MLflow database for these tests."""
    return f"sqlite:///{shutil.copy(empty_store, tmp_path_factory.mktemp('mlflow'))}"


@pytest.fixture
def folder(tmp_path, tiny_encoder_folder, store, monkeypatch):
    """The working folder: an encoder, word vectors, scored pairs, an STS suite."""
    shutil.copytree(tiny_encoder_folder, tmp_path / "encoder")
    (tmp_path / "vectors.txt").write_text(VECTORS)
    (tmp_path / "test-pairs.tsv").write_text(PAIRS)
    (tmp_path / "sts" / "2013").mkdir(parents=True)
    (tmp_path / "sts" / "2013" / "headlines.tsv").write_text(PAIRS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    return tmp_path


def evaluate(line):
    """Run the job on a command line; return its exit status."""
    return run_job("evaluate", *line.split())


def test_encoder_words_and_baseline_on_a_suite_and_a_file(folder, store, capsys):
    line = "--encoder encoder --words vectors.txt --baseline ppdb-heuristics --suite sts --data . "
    line += "--pairs test-pairs.tsv --resamples 50 --out deep/scores"
    before = ray.is_initialized()  # by other tests
    assert evaluate(line) == 0
    assert ray.is_initialized() == before
    out, err = capsys.readouterr()
    table, other = (part.splitlines() for part in out.split("\n\n")[:2])
    assert [row.split("  ")[0] for row in table[3:7]] == [
        "2013 headlines", "2013 mean of 1 set", "2013 pooled", "mean of 1 year",
    ]  # fmt: skip
    assert any(line.startswith("  STS 2013 is without FNWN, OnWN, SMT") for line in table)
    assert f"such as report.html, to {folder}/deep/scores; next: python jobs/embed.py --encoder encoder" in err

    saved = json.loads((folder / "deep" / "scores" / "scores.json").read_text())
    trained, untrained, overlap, _ = (column["scores"] for column in saved["encoders"])
    assert trained["sts/2013/headlines"]["pearson"] == trained["pairs/test-pairs"]["pearson"]
    assert overlap["pairs/test-pairs"]["pearson"] == pytest.approx(0.75**0.5)  # of 1, 0, 0 with 5, 1, 3
    shown = f"{100 * trained['pairs/test-pairs']['pearson']:.1f}"
    assert f"{shown}=" in other[3].split()  # three pairs do not separate encoders
    assert shown in (folder / "deep" / "scores" / "scores.md").read_text()

    client = MlflowClient(store)
    logged = client.search_runs(["1"])[0]
    assert logged.info.status == "FINISHED"
    assert logged.data.metrics["sts/mean"] == trained["sts/mean"]["pearson"]
    assert logged.data.metrics["untrained/sts/mean"] == untrained["sts/mean"]["pearson"]
    artifacts = {file.path for file in client.list_artifacts(logged.info.run_id)}
    assert artifacts == {path.name for path in (folder / "deep" / "scores").iterdir()}


def test_word_overlap_needs_no_encoder_and_earlier_files_do_not_stay(folder):
    out = folder / "out"
    out.mkdir()
    for name in ("scores.json", "margin.png", "disagreement-sts.csv", "mine.csv", "report.html"):
        (out / name).write_text('{"encoders": [], "published": []}')
    assert evaluate("--baseline ppdb-heuristics --suite sts --data . --resamples 0 --no-analyses --out out") == 0
    assert sorted(path.name for path in out.iterdir()) == ["mine.csv", "scores.csv", "scores.json", "scores.md"]
    saved = json.loads((out / "scores.json").read_text())
    assert [column["label"] for column in saved["encoders"]] == ["overlap", "lemma overlap"]


@pytest.mark.slow
def test_ppdb_scores_its_pairs_and_rated_pairs_train_a_regression(folder, store):
    lines = "".join(ppdb_lines("2.0", 60, seed=1)).splitlines()
    (folder / "ppdb").write_text("\n".join(lines) + "\n")
    pairs = {frozenset(line.split(" ||| ")[1:3]): line.split(" ||| ")[1:3] for line in lines}
    rows = [f"{len(first)}\t{first}\t{second}\n" for first, second in pairs.values()]
    for name, part in (("rated.tsv", rows[:20]), ("test.tsv", rows[20:])):
        (folder / name).write_text("".join(part))
    line = "--ppdb ppdb --rated rated.tsv --pairs test.tsv --resamples 0 --no-analyses --out out"
    assert evaluate(line) == 0
    columns = json.loads((folder / "out" / "scores.json").read_text())["encoders"]
    assert [column["label"] for column in columns] == ["PPDB", "PPDB + SVR"]
    assert all(column["scores"]["pairs/test"]["pearson"] for column in columns)
    assert evaluate(line.replace("rated.tsv", "test.tsv")) == 2


def test_texts_are_written_where_they_were_asked_for_alone(folder):
    (folder / "mine.tsv").write_text(SENTENCES)
    line = "--encoder encoder --words vectors.txt --pairs mine.tsv --resamples 0"

    def written(out):
        return "".join(path.read_text() for path in out.iterdir() if path.suffix != ".png")

    assert evaluate(f"{line} --out without") == 0
    assert "the secret cat" not in written(folder / "without")
    assert (folder / "without" / "disagreement-pairs-mine.csv").read_text().startswith("set,row,encoder,")
    assert evaluate(f"{line} --out with --show-texts") == 0
    assert "the secret cat" in written(folder / "with")


def test_names_from_outside_do_nothing_in_the_files_that_are_opened(folder, capsys):
    label = "=1+1 <b>[x](e.test) `c`"
    (folder / "encoder").rename(folder / label)
    sets = [b"<script>alert(1).tsv", b"a|b\nc.tsv", b"caf\xe9.tsv", b"n" * 230 + b".tsv"]
    for name in sets:
        (folder / os.fsdecode(name)).write_text(SENTENCES)
    flags = ["--encoder", label, "--words", "vectors.txt", "--resamples", "0", "--out", "out"]
    assert run_job("evaluate", *flags, "--pairs", *map(os.fsdecode, sets)) == 0
    assert "goes on without" not in capsys.readouterr().err
    out = folder / "out"
    document, page = (out / "scores.md").read_text(), (out / "report.html").read_text()
    for text in (document, page):
        assert "<script" not in text
        assert "<b>" not in text
        assert "&lt;script&gt;alert(1)" in text
    assert "\\[x\\](e.test" in document
    assert "a\\|b\ufffdc" in document
    assert "caf\ufffd" in document
    rows = [
        row for path in out.glob("*.csv") for row in csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
    ]
    cells = {cell for row in rows for cell in row}
    assert f"'{label}" in cells
    assert not any(cell.startswith("=") for cell in cells)
    assert len(list(out.glob("disagreement-*.csv"))) == len(sets)


def test_where_the_scores_go_unless_told(folder):
    assert evaluate("--encoder encoder --pairs test-pairs.tsv --no-analyses") == 0
    assert (folder / "encoder-scores" / "scores.json").is_file()
    shutil.rmtree(folder / "encoder-scores")
    with contextlib.chdir("encoder"):
        assert evaluate("--encoder . --pairs ../test-pairs.tsv --no-analyses") == 0
    assert (folder / "encoder-scores" / "scores.json").is_file()
    assert not [path for path in folder.rglob("*") if path.name.endswith(".tmp")]


def test_a_relative_path_in_a_submitted_job_is_refused(folder, monkeypatch, capsys):
    (folder / "runtime_resources").mkdir()
    monkeypatch.chdir(folder / "runtime_resources")
    assert evaluate(f"--words {folder}/vectors.txt --pairs {folder}/test-pairs.tsv") == 2
    assert "--out is 'scores', but a submitted job runs in a temporary copy" in capsys.readouterr().err
    assert evaluate(f"--words vectors.txt --pairs {folder}/test-pairs.tsv --out {folder}/out") == 2
    assert "--words is 'vectors.txt', but a submitted job" in capsys.readouterr().err
