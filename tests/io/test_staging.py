"""Copies of files and folders of an object store: whole, in an order that readers can trust, without credentials."""

import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.commands.paths import staged_places
from paraembed.console import say
from paraembed.io.staging import Mirror, UploadError, download, files_below, staged
from paraembed.signals import RunFailedError
from tests.object_store import RefusedError, serving

NAMES = ("_SUCCESS", "a.parquet", "config.json", "encoder/config.json", "encoder/words.txt", "identity.json", "z")


@pytest.fixture(scope="module")
def server():
    with serving() as store:
        yield store


@pytest.fixture
def empty(server):
    server.objects.clear()
    server.asked.clear()
    server.hook = lambda *_: None
    return server


def write(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def asked(server, method):
    return [line.split()[1] for line in server.asked if line.split()[0] == method and not line.split()[1].endswith("/")]


@given(contents=st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=40), min_size=1))
def test_what_is_uploaded_is_what_is_downloaded(server, tmp_path_factory, contents):
    server.objects.clear()
    folder, uri = tmp_path_factory.mktemp("folder"), server.uri("out")
    write(folder, contents)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    Mirror(folder, uri).push()
    assert files_below(uri) == sorted(contents)
    download(uri, folder / "copy")
    assert files(folder / "copy") == contents
    Mirror(folder, uri).remove()
    assert files_below(uri) == []


def test_marks_of_completeness_are_uploaded_last_and_removed_first(empty, tmp_path):
    mirror = Mirror(write(tmp_path, NAMES), empty.uri("out"))
    mirror.push()
    last = ["out/identity.json", "out/encoder/config.json", "out/config.json", "out/_SUCCESS"]
    uploaded = asked(empty, "PUT")
    assert [key for key in uploaded if key in last] == uploaded[-4:]
    assert uploaded[-1] == "out/_SUCCESS"
    assert uploaded.index("out/encoder/config.json") < uploaded.index("out/config.json")
    mirror.remove()
    assert asked(empty, "DELETE") == uploaded[::-1][:1] + asked(empty, "DELETE")[1:]
    assert set(asked(empty, "DELETE")[:4]) == set(last)


def test_an_update_uploads_what_is_new_and_removes_what_is_gone(empty, tmp_path):
    mirror = Mirror(tmp_path, empty.uri("work"))
    write(tmp_path, ["checkpoints/step-1/state.json", "checkpoints/step-2/state.json", "other"])
    mirror.update("checkpoints")
    (tmp_path / "checkpoints/step-1/state.json").unlink()
    (tmp_path / "checkpoints/step-1").rmdir()
    write(tmp_path, ["checkpoints/step-3/state.json", "checkpoints/step-3/state.safetensors"])
    empty.objects["work/checkpoints/step-3/state.safetensors"] = b"uploaded in part"
    empty.asked.clear()
    mirror.update("checkpoints")
    assert asked(empty, "PUT") == [f"work/checkpoints/step-3/state.{end}" for end in ("safetensors", "json")]
    assert asked(empty, "DELETE") == ["work/checkpoints/step-1/state.json"]
    there = Mirror(tmp_path / "copy", mirror.uri)
    there.pull(["checkpoints", "missing"])
    assert sorted(files(there.folder)) == [
        "checkpoints/step-2/state.json",
        "checkpoints/step-3/state.json",
        "checkpoints/step-3/state.safetensors",
    ]
    assert files(there.folder)["checkpoints/step-3/state.safetensors"] == b"checkpoints/step-3/state.safetensors"


def test_a_folder_without_a_copy_is_left_alone(tmp_path):
    mirror = Mirror(write(tmp_path, NAMES))
    before = files(tmp_path)
    for call in (mirror.push, mirror.pull, mirror.remove, lambda: mirror.update("encoder")):
        call()
    assert files(tmp_path) == before
    assert mirror.place("ray") == (str(tmp_path / "ray"), None)
    assert mirror.records == tmp_path


def test_copies_are_named_by_their_uris_in_errors_and_removed(empty, tmp_path):
    empty.objects["words.txt.gz"] = b"x"
    copies = []

    def fail():
        with staged() as stage:
            copy, out = stage.input(empty.uri("words.txt.gz")), stage.output(empty.uri("encoder"))
            assert (copy.name, copy.read_bytes()) == ("words.txt.gz", b"x")
            assert (out.name, out.exists(), stage.uri(out)) == ("encoder", False, empty.uri("encoder"))
            assert stage.input(tmp_path) == stage.output(tmp_path) == stage.input(f"file://{tmp_path}") == tmp_path
            assert stage.uri(tmp_path) is None
            copies.append(copy)
            raise RunFailedError(f"{copy} is damaged")

    with pytest.raises(RunFailedError, match=r"^s3://bucket/words\.txt\.gz\?.* is damaged$") as caught:
        fail()
    assert "secret" not in str(caught.value)
    assert not copies[0].exists()
    missing = pytest.raises(FileNotFoundError, match=r"s3://bucket/none\?.* does not exist; check the URI")
    with missing, staged() as stage:
        stage.input(empty.uri("none"))


def test_messages_name_copies_by_their_uris(empty, capsys):
    empty.objects["words.txt.gz"] = b"x"
    with staged_places() as stage:
        copy = stage.input(empty.uri("words.txt.gz"))
        say(f"reading {copy}")
    said = capsys.readouterr().err
    assert said.startswith("reading s3://bucket/words.txt.gz")
    assert "secret" not in said
    assert str(copy) not in said


def test_objects_of_a_user_are_named_and_kept(empty, tmp_path):
    empty.objects |= {"work/identity.json": b"{}", "work/notes/a.txt": b"mine"}
    mirror = Mirror(tmp_path, empty.uri("work"))
    with pytest.raises(ValueError, match=r"s3://bucket/work\?.* contains a file .* notes/a\.txt"):
        mirror.check(re.compile(r"identity\.json"), "jobs/train.py")
    assert mirror.check(re.compile(r"identity\.json|notes/.*"), "jobs/train.py") == ["identity.json", "notes/a.txt"]


def test_a_complete_output_is_kept_if_its_upload_fails(empty):
    def refuse(moment, _):
        if moment == "PUT pairs/_SUCCESS":
            raise RefusedError

    empty.hook = refuse

    def run():
        with staged() as stage:
            out = stage.output(empty.uri("pairs"))
            write(out, ["a.parquet", "_SUCCESS"])
            stage.upload(stage.mirror(out))

    with pytest.raises(UploadError, match=r"s3://bucket/pairs\?.* it is kept in /") as caught:
        run()
    kept = Path(str(caught.value).split("it is kept in ")[1].split(":")[0])
    assert sorted(files(kept)) == ["_SUCCESS", "a.parquet"]
    assert "secret" not in str(caught.value)
    shutil.rmtree(kept.parents[1])
