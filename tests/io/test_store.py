"""Outputs on an object store: pyarrow's S3 client, in processes of its own, against a store on loopback."""

import gc
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.embedding.manifest import EmbeddingRun, begun_run, keep_finished
from paraembed.embedding.part import embed_part
from paraembed.embedding.plan import make_plan, part_name
from paraembed.embedding.records import INPUTS, Reports, listing
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.io.store import Folder, open_store, read_bytes
from tests.embedding.arrow_files import change_plan, read
from tests.embedding.without_ray import build, list_inputs
from tests.object_store import RefusedError, serving

SETTINGS = Settings(part_rows=3)
PARTS = [f"data/part-000-00000{number}.parquet" for number in range(3)]
DONE = "_done/000-000000.arrow"
BIG = 25 << 20  # three pieces of an upload
PROGRAM = f"""
import signal, sys
from paraembed.io.store import open_store
signal.signal(signal.SIGTERM, signal.default_int_handler)
open_store(sys.argv[1]).write("big", lambda file: file.write(b"x" * {BIG}))
"""


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("the cat sat\na dog ran home\nthe mat .\n" * 3)
    return path


def test_what_is_written_is_there_whole(server):
    store = open_store(server.uri("out/deep"))
    assert (store.names(), str(store).startswith("s3://bucket/out/deep?"), store.name) == ([], True, "deep")
    digest = store.write("_reports/a.json", lambda file: file.write(b"{}"))
    assert server.objects == {"out/deep/_reports/a.json": b"{}"}
    assert [line for line in server.asked if not line.startswith(("GET", "HEAD"))] == ["PUT out/deep/_reports/a.json"]
    assert (store.sha256("_reports/a.json"), read_bytes(store, "_reports/a.json")) == (digest, b"{}")
    assert (store.names(), store.names("_reports")) == (["_reports"], ["a.json"])
    before = store.stamp("_reports/a.json")
    store.write("_reports/a.json", lambda file: file.write(b"[]"))
    assert store.stamp("_reports/a.json") != before
    with pytest.raises(NotADirectoryError):
        open_store(server.uri("out/deep/_reports/a.json")).names()
    store.delete("_reports/a.json")
    store.delete("_reports/a.json")
    assert not [key for key, data in server.objects.items() if data]
    with pytest.raises(FileNotFoundError):
        store.sha256("_reports/a.json")


def test_hashes_of_ids_are_computed_if_they_are_missing(tiny_encoder_folder, tmp_path, server):
    """Or those of a part with other contents; they stay, for rows that are added later."""
    path, settings, out = tmp_path / "t.parquet", Settings("body", "key", part_rows=3), server.uri("out")
    pq.write_table(pa.table({"key": [*range(8), 2], "body": ["the cat"] * 9}), path)
    with pytest.raises(ValueError, match=r"1 rows repeat .*2;"):
        build(tiny_encoder_folder, path, settings, out)
    hashes = {key: data for key, data in server.objects.items() if "/_ids/" in key and data}
    digests = [sha256(server.objects[f"out/{part_name(number)}"]).hexdigest()[:16] for number in range(3)]
    assert [*hashes] == [f"out/_ids/part-000-00000{number}.{digests[number]}.hashes" for number in range(3)]
    server.objects[min(hashes).replace(digests[0], "0" * 16)] = server.objects.pop(min(hashes))
    assert build(tiny_encoder_folder, path, settings, out, "keep") == {}
    assert {key: server.objects[key] for key in hashes} == hashes
    assert all(check.ok for check in verify(out))


@pytest.mark.parametrize("how", ["break", "refused part", "refused end"])
def test_no_half_of_a_file_appears_if_its_writing_fails(server, how):
    """pyarrow's own ``with`` would commit what was written until an error."""
    seen = []

    def hook(moment, port):
        seen.append(moment)
        if (how, moment) == ("refused end", "COMPLETE out/big") or (how, len(seen)) == ("refused part", 2):
            raise RefusedError

    def write(file):
        file.write(b"x" * BIG)
        if how == "break":
            raise OSError("in the middle")

    server.hook = hook
    with pytest.raises(OSError, match="in the middle" if how == "break" else "efused"):
        open_store(server.uri("out")).write("big", write)
    gc.collect()
    assert "out/big" not in server.objects
    assert (not seen) == (how == "break")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_half_of_a_file_appears_if_its_process_is_stopped(server, number):
    seen = []

    def hook(moment, port):
        seen.append(moment)
        if len(seen) == 2:
            process.send_signal(number)

    server.hook = hook
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, server.uri("out")], stderr=subprocess.PIPE, text=True)
    said = process.communicate(timeout=60)[1]
    assert process.returncode, said
    if number == signal.SIGTERM:  # what had begun is finished, and then the signal counts
        assert server.objects == {"out/big": b"x" * BIG}
        assert "KeyboardInterrupt" in said
    else:
        assert "out/big" not in server.objects


def test_an_output_there_is_byte_for_byte_that_of_a_folder(server, texts, tiny_encoder_folder, tmp_path):
    build(tiny_encoder_folder, texts, SETTINGS, tmp_path / "out")
    uri = server.uri("out")
    assert len(build(tiny_encoder_folder, texts, SETTINGS, uri)) == 3
    there = {key.removeprefix("out/"): data for key, data in server.objects.items()}
    local = {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in (tmp_path / "out").rglob("*.*")}
    assert local.keys() | {"_SUCCESS"} == there.keys()
    assert {name for name in local if local[name] != there[name]} == {DONE}
    assert all(check.ok for check in verify(uri, tiny_encoder_folder, [str(texts)]))
    filesystem, path = pa.fs.FileSystem.from_uri(uri)
    assert pq.read_table(path, filesystem=filesystem).num_rows == 9  # the other files are no parts
    assert not any(b"secret" in data for data in server.objects.values())
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/nothing\?.* does not exist or is empty") as caught:
        verify(server.uri("nothing"))
    assert "secret" not in str(caught.value)


def test_what_was_changed_is_found_and_going_on_asks_for_every_part_and_reads_none(server, texts, tiny_encoder_folder):
    uri = server.uri("out")
    build(tiny_encoder_folder, texts, SETTINGS, uri)
    before = dict(server.objects)
    del server.objects["out/_SUCCESS"], server.objects[f"out/{PARTS[0]}"]
    server.objects[f"out/{PARTS[1]}"] = before[f"out/{PARTS[1]}"][:-1] + b"?"
    assert {check.name for check in verify(uri) if not check.ok} >= {"_SUCCESS", "parts", "sha256"}
    server.asked.clear()
    assert list(build(tiny_encoder_folder, texts, SETTINGS, uri)) == PARTS[:2]
    assert f"GET out/{PARTS[2]}" not in server.asked
    assert {key: data for key, data in server.objects.items() if "_done" not in key} == {
        key: data for key, data in before.items() if "_done" not in key
    }
    for key in [key for key in server.objects if "_done" in key]:
        del server.objects[key]
    assert build(tiny_encoder_folder, texts, SETTINGS, uri) == {}  # read again, and found to be the same


def test_verify_asks_no_server_that_a_plan_names(server, texts, tiny_encoder_folder, tmp_path, monkeypatch):
    """Keys of the user, server of whoever wrote the plan."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "victim")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server.objects["in/t.txt"] = texts.read_bytes()
    build(tiny_encoder_folder, [server.uri("in/t.txt")], SETTINGS, tmp_path / "out")
    port = f"127.0.0.1:{server.server_port}"
    assert port in read(tmp_path / "out" / INPUTS)[0][0]["path"]
    server.asked.clear()
    for named in ((), (str(tmp_path),), ("s3://bucket/other",), ("s3://bucket/in/t",)):
        assert not verify(tmp_path / "out", tiny_encoder_folder, named)[-1].ok
    assert not server.asked
    for named in (server.uri("in"), server.uri("in/t.txt"), server.uri()):
        assert verify(tmp_path / "out", tiny_encoder_folder, [named])[-1].detail.startswith("9 rows")

    def replace_in_path(old, new):
        path = read(tmp_path / "out" / INPUTS)[0][0]["path"]
        change_plan(tmp_path / "out", inputs=lambda rows, _: rows[0].update(path=path.replace(old, new)))

    with serving() as stranger:
        replace_in_path(port, f"127.0.0.1:{stranger.server_port}")
        assert verify(tmp_path / "out", tiny_encoder_folder, [server.uri("in")])[-1].ok  # options are the user's
        replace_in_path("/in/t.txt", "/in/%2e%2e/secret/t.txt")
        assert not verify(tmp_path / "out", tiny_encoder_folder, [server.uri("in")])[-1].ok
        assert not stranger.asked
    assert not any("secret" in asked for asked in server.asked)


def test_another_run_that_began_in_the_same_place_is_noticed(server, texts, tiny_encoder_folder, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("the cat\n" * 9)
    build(tiny_encoder_folder, other, SETTINGS, server.uri("other"))
    build(tiny_encoder_folder, texts, SETTINGS, server.uri("out"))

    def hook(moment, port):  # the other's plan goes over ours, which has just been written
        if moment == f"PUT out/{INPUTS} done":
            server.objects[f"out/{INPUTS}"] = server.objects[f"other/{INPUTS}"]

    for key in [key for key in server.objects if key.startswith("out/")]:
        del server.objects[key]
    server.hook = hook
    with pytest.raises(ValueError, match=r"another run, with .* writing to s3://bucket/out"):
        build(tiny_encoder_folder, texts, SETTINGS, server.uri("out"))
    assert "out/_SUCCESS" not in server.objects


def test_a_run_that_had_looked_before_another_began_takes_none_of_its_parts(server, texts, tiny_words, tmp_path):
    """Two encoders in one place: the second plans before the first has written its plan."""
    encoders = []
    for tokenizer in ("ptb-v1", "space"):
        folder = tmp_path / tokenizer
        checkpoint.save(Encoder(AvgConfig(), tiny_words, tokenizer), folder, recipe={}, provenance={}, model_card="")
        encoders.append(checkpoint.load(folder))
    uri, plan = server.uri("out"), make_plan(list_inputs([texts]), SETTINGS)
    first, second = (EmbeddingRun(encoder.fingerprint, encoder.tokenizer, plan) for encoder in encoders)
    with begun_run(open_store(uri), first):
        embed_part(encoders[0], plan.inputs, plan.parts[0], SETTINGS, open_store(uri))
    with pytest.raises(ValueError, match=r"another tokenizer \(was ptb.* writing to s3://bucket/out"):
        begun_run(open_store(uri), second).__enter__()
    listed = listing(open_store(uri).stamps("data/"))
    for run, names in ((first, PARTS[:1]), (second, [])):
        reports = Reports(open_store(uri), run.tokenizer)
        keep_finished(open_store(uri), run, reports, listed)
        assert [report.name for report in reports] == names


def test_places(tmp_path):
    assert isinstance(store := open_store((tmp_path / "a b").as_uri()), Folder)
    assert store.path == tmp_path / "a b"
    for place, message in (
        (Path("s3://bucket/out"), "give the URI s3://… as a string"),
        ("http://key:secret@host/out", "http://host/out is not a supported URI"),
        ("abfs://container@account.dfs.core.windows.net/out", "cannot write files atomically"),
        ("hdfs://host:8020/out", "hdfs://host:8020/out: this store cannot write files atomically"),
    ):
        with pytest.raises(ValueError, match=message):
            open_store(place)


def test_a_part_that_something_else_wrote_meanwhile_is_not_committed(server, texts, tiny_encoder_folder):
    uri, whole = server.uri("out"), {}

    def hook(moment, port):  # of the same size, when the last part has been written
        if moment == f"PUT out/{PARTS[2]} done":
            whole.update(server.objects)
            server.objects[f"out/{PARTS[1]}"] = whole[f"out/{PARTS[1]}"][:-1] + b"?"

    server.hook = hook
    with pytest.raises(ValueError, match=rf"{PARTS[1]} in s3://bucket/out\S+ was removed or changed"):
        build(tiny_encoder_folder, texts, SETTINGS, uri)
    assert "out/_SUCCESS" not in server.objects
    server.hook = lambda *_: None
    assert list(build(tiny_encoder_folder, texts, SETTINGS, uri)) == [PARTS[1]]
    assert whole[f"out/{PARTS[1]}"] == server.objects[f"out/{PARTS[1]}"]
    assert all(check.ok for check in verify(uri))
