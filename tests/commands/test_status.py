"""What ``status`` reads from outputs in every state, on a disk and on an object store."""

import json
import subprocess
import sys

import pytest

from paraembed.embedding import status as module
from paraembed.embedding.commit import uncommit
from paraembed.embedding.local import embed_here
from paraembed.embedding.manifest import EmbeddingRun, begun_run
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.embedding.status import ERROR, error_kept, status_of
from paraembed.io.atomic import is_locked, locked
from paraembed.io.store import open_store, write_json
from paraembed.loading import open_encoder
from tests.embedding.without_ray import build, list_inputs

SETTINGS = Settings(part_rows=3)


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("the cat sat\na dog ran home\nthe mat .\n" * 4)
    return path


def begun(encoder, texts, out, parts):
    """Embed some parts, and call ``uncommit`` as a run does; the lock is held until the generator is closed."""
    encoder, store = open_encoder(str(encoder)), open_store(out)
    plan = make_plan(list_inputs([texts]), SETTINGS)
    run = EmbeddingRun(encoder.fingerprint, encoder.tokenizer, plan, encoder.identity)
    with begun_run(store, run) as known:
        uncommit(store, "small")
        for done in embed_here(encoder, run, plan.parts[:parts], store):
            known.add(done.report)
        yield store


def counts(place):
    status = status_of(place)
    return status.state, status.rows_done, status.rows, status.parts_done, status.parts, status.generation


def test_a_run_that_is_active_stops_ends_and_is_damaged(texts, tiny_encoder_folder, tmp_path):
    out = tmp_path / "out"
    (store,) = begun(tiny_encoder_folder, texts, out, 2)
    assert counts(out) == ("stopped", 6, 12, 2, 4, 0)
    assert status_of(out).seconds_left is None
    running = begun(tiny_encoder_folder, texts, out, 1)
    next(running)
    status = status_of(out)
    assert counts(out) == ("running", 6, 12, 2, 4, 0)
    assert status.seconds_left == 6 / status.rate
    assert (status.encoder, status.inputs, status.bad_files, status.error) == ("small", 1, 0, None)
    assert 0 <= status.last_part < 60
    running.close()
    with pytest.raises(ConnectionError), error_kept(store):
        raise ConnectionError("s3://key:secret@bucket/x is gone")
    assert status_of(out).error["message"] == "s3://bucket/x is gone"
    build(tiny_encoder_folder, texts, SETTINGS, out)
    assert counts(out) == ("finished", 12, 12, 4, 4, 0)
    assert status_of(out).error is None  # a run that was killed after its commit leaves the file
    (out / "data" / "part-000-000001.parquet").unlink()
    assert counts(out) == ("damaged", 9, 12, 3, 4, 0)


def test_an_error_stays_until_a_run_ends_well(tmp_path):
    store = open_store(tmp_path)
    store.make_folder("_reports")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), error_kept(store):
            raise KeyboardInterrupt
    assert json.loads((tmp_path / ERROR).read_text())["message"] == "KeyboardInterrupt"
    with error_kept(store):
        pass
    assert not (tmp_path / ERROR).exists()


def test_the_rate_is_that_of_the_last_run():
    """Not of the time between two runs; of the last parts, not of slow ones before."""
    second, done = 10**9, [(1, 50), (2, 50), *((number, 7) for number in range(1000, 1004))]
    finished = [(moment * second, rows) for moment, rows in done]
    assert module._rate(finished, 999 * second) == 7
    assert module._rate(finished, 1001 * second) == 7
    assert module._rate(finished, 1003 * second) == 0
    assert module._rate([(n * second, 1 if n < 50 else 3) for n in range(1, 200)], 0) == 3


def test_on_an_object_store(texts, tiny_encoder_folder, server):
    (store,) = begun(tiny_encoder_folder, texts, server.uri("out"), 2)
    before = dict(server.objects)
    assert counts(server.uri("out")) == ("unfinished", 6, 12, 2, 4, 0)
    build(tiny_encoder_folder, texts, SETTINGS, server.uri("out"))
    assert counts(server.uri("out")) == ("finished", 12, 12, 4, 4, 0)
    assert before.keys() <= server.objects.keys()
    with pytest.raises(FileNotFoundError):
        status_of(server.uri("nothing"))
    assert store.place == server.uri("out")


def test_places_without_an_output_and_damaged_plans(texts, tiny_encoder_folder, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "missing"):
        with pytest.raises(FileNotFoundError, match="does not exist or is empty"):
            status_of(tmp_path / name)
    with pytest.raises(NotADirectoryError):
        status_of(texts)
    with pytest.raises(FileNotFoundError, match="no output of embed"):
        status_of(tmp_path)
    build(tiny_encoder_folder, texts, SETTINGS, tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    for name in ("parts", "inputs"):
        path = tmp_path / "out" / "_plan" / f"{name}-000.arrow"
        path.write_bytes(before[path][:-5])
        with pytest.raises(ValueError, match="damaged"):
            status_of(tmp_path / "out")
        path.write_bytes(before[path])
    write_json(open_store(tmp_path / "out"), ERROR, ["damaged"])
    (tmp_path / "out" / "_SUCCESS").unlink()
    assert status_of(tmp_path / "out").error is None


def test_whether_another_process_holds_the_lock(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    assert is_locked(folder) is False
    program = f"import sys, pathlib; from paraembed.io.atomic import locked\nwith locked(pathlib.Path('{folder}')): "
    command = [sys.executable, "-c", f"{program}print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert is_locked(folder) is True
        (tmp_path / ".out.lock").unlink()  # as if its parent were read-only
        assert is_locked(folder) is True
        other.kill()
    assert is_locked(folder) is False
    assert not list(folder.iterdir())
    with locked(folder):
        pass


def test_the_job_shows_an_unfinished_output_and_its_error(run_job, texts, tiny_encoder_folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert run_job("embed", f"--encoder {tiny_encoder_folder} --input {texts} --out out --part-rows 3") == 0
    (out / "_SUCCESS").unlink()
    write_json(open_store(out), ERROR, {"message": "disk is full", "time": 0, "host": "h1"})
    capsys.readouterr()
    assert run_job("status", "out --json") == 0
    printed = capsys.readouterr()
    *table, line = printed.out.splitlines()
    shown = dict(row.split(maxsplit=1) for row in table[2:] if not row.startswith(("last", "time")))
    assert (shown["rows"], shown["parts"], shown["generation"]) == ("12 of 12 (100%)", "4 of 4", "0")
    values = json.loads(line)
    assert (values["state"], values["rows_done"], values["error"]["host"]) == ("stopped", 12, "h1")
    assert "last error, 1970-01-01 00:00 UTC on h1: disk is full" in printed.err
