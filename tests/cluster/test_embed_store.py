"""Embedding to an object store by the job: killed where it hurts, the same bytes in the end."""

import io
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from paraembed.cluster.embed import embed
from paraembed.embedding.plan import part_name
from paraembed.embedding.records import ENTRIES, INPUTS, PIECES
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from tests.embedding.without_ray import build
from tests.jobs import contents, job_command
from tests.object_store import GoneError, kill_client

pytestmark = pytest.mark.usefixtures("in_store")

SETTINGS = Settings(part_rows=100)
OF_A_RUN = {"_reports", "_done"}  # with times
OF_WORKERS = [f"PUT out/data/{{}}{when}" for when in ("", " done")]
FILES = PIECES, INPUTS, "_done/000-000000.arrow", ENTRIES, "_manifest.json", "_SUCCESS"
OF_DRIVER = [f"PUT out/{name}{when}" for name in FILES for when in ("", " done")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "t.txt"
    path.write_text("the cat sat on a zebra\nhome , dog\n\n" * 400)
    return path


@pytest.mark.slow
def test_killed_around_every_request_that_writes(corpus, tiny_encoder_folder, tmp_path, server):
    """Workers and driver die before a file is there, and when it is but they do not know; parts are read at once."""
    moments = {*OF_DRIVER, *(moment.format(Path(part_name(3 * at)).name) for at, moment in enumerate(OF_WORKERS))}
    unreadable = []

    def hook(moment, port):
        key = moment.split()[1]
        if moment.endswith("parquet done"):
            try:
                pq.read_table(io.BytesIO(server.objects[key]))
            except Exception as error:  # noqa: BLE001 - whatever it is, a reader must not see it
                unreadable.append((key, error))
        if moment in moments:
            moments.remove(moment)
            kill_client(port)
            if not moment.endswith(" done"):
                raise GoneError

    server.hook = hook
    given = "--encoder", tiny_encoder_folder, "--input", corpus, "--out", server.uri("out"), "--part-rows", 100
    given += "--engine", "ray"
    command = job_command("embed", *given)
    while moments:  # the driver embeds the first part that is missing, so it can die at a moment of a worker
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=200)
        assert done.returncode == -signal.SIGKILL, done.stderr
    server.hook = lambda *_: None
    assert "secret" not in done.stderr
    assert "s3://bucket/out" in done.stderr
    embed(tiny_encoder_folder, [corpus], server.uri("out"), SETTINGS)
    assert (moments, unreadable) == (set(), [])
    build(tiny_encoder_folder, corpus, SETTINGS, tmp_path / "unbroken")
    unbroken = contents(tmp_path / "unbroken")
    assert {
        key[4:]: data for key, data in server.objects.items() if key.split("/")[1] not in OF_A_RUN and data
    } == unbroken
    assert all(check.ok for check in verify(server.uri("out"), tiny_encoder_folder, [str(corpus)]))


@pytest.mark.slow
def test_two_runs_at_once_write_the_same_bytes(corpus, tiny_encoder_folder, tmp_path, server):
    given = "--encoder", tiny_encoder_folder, "--input", corpus, "--out", server.uri("out"), "--part-rows", 100
    given += "--engine", "ray"
    how = {"stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    jobs = [subprocess.Popen(job_command("embed", *given), **how) for _ in range(2)]
    said = [job.communicate(timeout=200)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    build(tiny_encoder_folder, corpus, SETTINGS, tmp_path / "unbroken")
    unbroken = contents(tmp_path / "unbroken")
    assert {
        key[4:]: data for key, data in server.objects.items() if key.split("/")[1] not in OF_A_RUN and data
    } == unbroken


def test_what_cannot_be_done_there_is_said_before_anything_is_written(corpus, tiny_encoder_folder, server):
    build(tiny_encoder_folder, corpus, SETTINGS, server.uri("out"))
    before = dict(server.objects)
    server.objects["texts/a.txt"] = b"the cat\n"
    for inputs, out, more, message in (
        ([corpus], "out", {"overwrite": True}, r"`overwrite` needs a folder, but s3://bucket/out"),
        ([server.uri("texts")], "texts/out", {}, r"is inside of the input s3://bucket/texts"),
        ([server.uri("texts/**/*.txt")], "texts/out", {}, r"is inside of the input s3://bucket/texts"),
        ([server.uri("texts/a.txt")], "texts", {}, r"contains a file .*: a\.txt"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            embed(tiny_encoder_folder, inputs, server.uri(out), SETTINGS, **more)
        assert "secret" not in str(caught.value)
    del server.objects["texts/a.txt"]
    assert server.objects == before
    assert embed(tiny_encoder_folder, [corpus], server.uri("out"), SETTINGS).was_finished
    assert all(check.ok for check in verify(server.uri("out")))
