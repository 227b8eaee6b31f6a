"""No job writes to a device, into an input or into the output of another job, however the path is spelled."""

import os
import shutil
import socket
import stat
from dataclasses import fields

import numpy as np
import pytest

from paraembed.commands import embed, evaluate, export, finetune, mine, search, shard, teach, train, tune, weight
from paraembed.commands.fetch import Fetch
from paraembed.io.fingerprint import sha256_of
from tests.embedding.output_of import encoder_of, output_of

FLAGS = {  # of each job, up to the flag that names what it writes
    "embed": "--encoder encoder --input texts.txt --out",
    "embed cache": "--encoder encoder --input texts.txt --out new --cache",
    "evaluate": "--encoder encoder --pairs pairs.tsv --out",
    "export": "--encoder encoder --to model2vec --out",
    "finetune": "--task sentiment --data data --out",
    "mine": "emb --out",
    "search": "emb --query w1 --results",
    "shard": "--input pairs.tsv --out",
    "shard fetch": "ppdb-2.0-s-phrasal --cache",
    "teach": "--teacher encoder --texts texts.txt --out",
    "teach work": "--teacher encoder --texts texts.txt --out new --work",
    "train": "--pairs pairs --words words.txt --out",
    "tune": "acl2017/avg --pairs pairs --words words.txt --data data --out",
    "weight": "--words words.txt --weighting avg --out",
    "word2vec": "--encoder encoder --to word2vec --out",
}
ONE_FILE = ("search", "word2vec")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An encoder and an output of it; the working folder of the job."""
    encoder_of(np.eye(4, dtype=np.float32) + 0.1, tmp_path / "encoder")
    output_of(tmp_path / "encoder", [0, 1, 2, 1, None], tmp_path / "emb", keep=("text",))
    (tmp_path / "texts.txt").write_text("w0\nw1\n")
    (tmp_path / "pairs.tsv").write_text("1\tw0\tw1\n")
    (tmp_path / "words.txt").write_text("w0 1\n")
    (tmp_path / "other").mkdir()
    return tmp_path


def content(folder):
    """What is in a folder: the digest of each file, the kind of all else."""
    paths = {path.relative_to(folder): path for path in folder.rglob("*") if path.name != "mlruns"}
    modes = {name: path.lstat().st_mode for name, path in paths.items()}
    return {name: sha256_of(paths[name]) if stat.S_ISREG(mode) else mode for name, mode in modes.items()}


@pytest.fixture
def refused(place, run_job, capsys):
    """Return a function that runs a job, which must fail in words and change nothing; it returns what was printed."""

    def run(job, target):
        before = content(place)
        name, _, more = ("export" if job == "word2vec" else job).partition(" ")
        capsys.readouterr()
        assert run_job(name, f"{'fetch ' * (more == 'fetch')}{FLAGS[job]} {target}") == 2
        assert content(place) == before
        err = capsys.readouterr().err
        assert "Traceback" not in err
        return err

    return run


def test_every_flag_that_names_an_output_is_in_the_table():
    jobs = (embed.Embed, evaluate.Evaluate, export.Export, finetune.Finetune, mine.Mine, search.Search, shard.Shard)
    jobs += (Fetch, teach.Teach, train.Train, tune.Tune, weight.Weight)
    names = [(job.__name__.lower(), own.name) for job in jobs for own in fields(job)]
    written = {(job, name) for job, name in names if name in {"out", "results", "cache", "work"}}
    table = {(job.split()[-1], flags.rpartition("--")[2]) for job, flags in FLAGS.items()}
    jobs_of = {"work": "teach", "cache": "embed", "word2vec": "export"}
    table = {(jobs_of.get(job, job), name) for job, name in table}
    assert written == table


@pytest.mark.parametrize("job", FLAGS)
def test_no_job_writes_into_an_output(job, place, refused):
    (place / "link").symlink_to("emb")
    for target in ("link/new", "other/../encoder/new"):
        assert "inside of" in refused(job, target)


@pytest.mark.parametrize("job", ONE_FILE)
def test_only_a_regular_file_is_replaced(job, place, refused):
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(place / "socket"))
    (place / "stdout").symlink_to("/dev/stdout")
    (place / "dangling").symlink_to("nowhere")
    (place / "linked").symlink_to(next((place / "emb").glob("data/part-*")))
    kinds = ["fifo", "socket", "stdout", "dangling", "linked", "/dev/stdout", "/dev/fd/1"]
    if os.geteuid() == 0:
        os.mknod(place / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        kinds.append("null")
    for target in kinds:
        assert "is not replaced; give the path of a file" in refused(job, target)
        mode = (place / target).lstat().st_mode
        assert not stat.S_ISREG(mode)
    assert "is a folder; give the path of a file" in refused(job, "other")


def test_no_part_and_no_query_is_replaced_by_results(place, refused):
    part = next((place / "emb").glob("data/part-*"))
    for target in (part, f"other/../emb/{part.name}", "texts.txt --queries texts.txt"):
        assert "input" in refused("search", target)


def test_files_that_may_be_written_are(place, run_job):
    (place / "old.jsonl").write_text("old\n")
    os.link(place / "old.jsonl", place / "backup.jsonl")
    assert run_job("search", "emb --encoder encoder --query w1 --results old.jsonl") == 0
    assert '"query_text": "w1"' in (place / "old.jsonl").read_text()
    assert (place / "backup.jsonl").read_text() == "old\n"


def test_a_folder_of_somebody_else_is_not_replaced(place, run_job, capsys):
    line = "--encoder encoder --to model2vec --out model --overwrite"
    assert run_job("export", line) == 0
    assert run_job("export", line) == 0
    (place / "model" / "paraembed.json").unlink()  # then it could be anybody's model2vec model
    before = content(place)
    assert run_job("export", line) == 2
    assert "has no paraembed.json" in capsys.readouterr().err

    shutil.copytree(place / "other", place / "scores")
    (place / "scores" / "report.html").write_text("mine")
    before = content(place)
    assert run_job("evaluate", "--encoder encoder --pairs pairs.tsv --out scores --resamples 0") == 2
    assert "contains report.html, but no scores.json" in capsys.readouterr().err
    assert content(place) == before


def test_the_work_of_teach_is_not_its_output(place, refused):
    for target in ("new", "./new/", "other/../new", "new/work"):
        assert "--work" in refused("teach work", target)
