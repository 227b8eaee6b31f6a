"""Files: opened plain or gzipped, put into place whole or not at all."""

import bz2
import errno
import fcntl
import gzip
import io
import os
import re
import socket
import stat
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed.io.atomic import any_content, locked, new_folder, replace_folder, work_folder, write_file, write_json
from paraembed.io.fingerprint import differences, read_json, sha256_of
from paraembed.io.inflate import cut_at_lines, is_compressed, read_blocks, read_span
from paraembed.io.places import open_regular, require_file
from tests.fuzz import mutated, run

TEXT = b"one\ntwo\n" * 1_000


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def broken(data, at):
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


ZIPPED = gzip.compress(TEXT, mtime=0)


def test_what_fails_leaves_what_was_there(tmp_path):
    def write(file):
        file.write(b"half")
        raise KeyboardInterrupt

    def fill(path):
        with new_folder(path, any_content) as new:
            (new / "half").touch()
            raise KeyboardInterrupt

    (tmp_path / "there").write_bytes(b"old")
    for content in ("first", "old"):
        with new_folder(tmp_path / "folder", any_content) as new:
            (new / content).touch()
    for fails, names_of in ((lambda path: write_file(path, write), ("there", "new")), (fill, ("folder", "new"))):
        for name in names_of:
            with pytest.raises(KeyboardInterrupt):
                fails(tmp_path / name)
    assert names(tmp_path) == ["folder", "there"]
    assert (tmp_path / "there").read_bytes() == b"old"
    assert names(tmp_path / "folder") == ["old"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


@given(value=st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=6))
def test_json_comes_back(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value)
    assert read_json(path) == value
    assert differences(read_json(path), value) == ""


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"\x80\x04K\x01."])
def test_what_is_not_json_is_named(tmp_path, data):
    (tmp_path / "value.json").write_bytes(data)
    with pytest.raises(ValueError, match=r"value\.json is not JSON: "):
        read_json(tmp_path / "value.json")


def test_files_and_folders_have_the_modes_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "file", lambda file: file.write(b"x"))
        with new_folder(tmp_path / "folder") as folder:
            (folder / "a").write_text("b")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o750


def filled_folder(path):
    path.mkdir()
    (path / "theirs").touch()


@pytest.mark.parametrize("other", [filled_folder, Path.touch, lambda path: path.symlink_to("theirs"), os.mkfifo])
def test_what_another_program_wrote_meanwhile_is_not_replaced(tmp_path, other):
    def fill(path):
        with new_folder(path) as new:
            (new / "ours").touch()
            other(path)

    for name, work in (("a", fill), ("b", lambda path: write_file(path, lambda _: other(path), overwrite=False))):
        with pytest.raises((ValueError, FileExistsError, IsADirectoryError)):
            work(tmp_path / name)
        assert names(tmp_path) == ["a"] + ["b"] * (name == "b")
        assert not (tmp_path / name / "ours").exists()


def test_a_file_that_another_program_wrote_meanwhile_may_be_replaced(tmp_path):
    def fill(file):
        (tmp_path / "a").write_text("theirs")
        file.write(b"ours")

    write_file(tmp_path / "a", fill)
    assert (tmp_path / "a").read_text() == "ours"


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a": 1, "b": {"c": [1, 2]}}, {"b": {"c": (1, 2)}, "a": 1}, ""),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b (was 1, is 2)"),
        ({"a": 1}, {}, "a (was 1, is not set)"),
        ({"a": [1, 2], "c": 0}, {"a": [1, 3], "c": 1}, "a[1] (was 2, is 3); c (was 0, is 1)"),
        ({"a": [1]}, {"a": [1, 3]}, "a (was 1 values, is 2 values); a[1] (was not set, is 3)"),
        ({"a": "0" * 64}, {"a": "1" * 64}, "a (was 000000000000…, is 111111111111…)"),
    ],
)
def test_differences_are_named(before, now, expected):
    assert differences(before, now) == expected
    text = differences({str(number): "x" for number in range(5000)}, {})
    assert len(text) < 1000
    assert text.endswith("and 4,980 more")
    assert len(differences({"a": "x" * 5000}, {})) < 200


def endless_files(folder):
    """A FIFO that nobody writes to, a link to it, a socket, a device that never ends, and its URI."""
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    return [folder / "fifo", folder / "link", folder / "socket", Path("/dev/zero"), "file:///dev/zero"]


@pytest.mark.timeout(20)
def test_files_that_never_end_are_not_opened(tmp_path):
    readers = [
        require_file,
        sha256_of,
        lambda place: next(read_blocks(place, 10)),
        is_compressed,
        lambda place: cut_at_lines(place, 10),
        lambda place: next(read_span(place, (0, 5), 10)),
    ]
    local = [read_json]
    for place in endless_files(tmp_path):
        for reader in readers + (local if isinstance(place, Path) else []):
            with pytest.raises(ValueError, match=re.escape(str(place).removeprefix("file://"))):
                reader(place)


@pytest.mark.timeout(20)
def test_a_file_that_becomes_a_fifo_is_not_waited_for(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr("paraembed.io.places.require_file", lambda _: None)  # it looked a moment earlier
    with pytest.raises(ValueError, match="fifo"):
        open_regular(tmp_path / "fifo")


def skipped(data):
    """A frame of zst that readers skip."""
    return struct.pack("<II", 0x184D2A5E, len(data)) + data


ZST = bytes(pa.compress(TEXT, "zstd", asbytes=True))
TEXTS_THAT_BEGIN_SO = [b"BZh is no word\n", b"BZh9 is none\n", b"BZh91AY&S", b"BZ", b""]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        *((text, text) for text in [*TEXTS_THAT_BEGIN_SO, skipped(b"text after it\n") + b"no frame"]),
        (bz2.compress(TEXT), TEXT),
        (bz2.compress(b""), b""),
        (bz2.compress(TEXT, 1) + bz2.compress(TEXT), TEXT * 2),
        (ZIPPED + b"\0" * 600 + ZIPPED, TEXT * 2),
        (gzip.compress(b"") * 3000 + ZIPPED, TEXT),
        (skipped(b"pzst") + ZST, TEXT),
        (skipped(b"") + skipped(b"x" * 99) + ZST + skipped(b"x") + ZST, TEXT * 2),
        *((ZIPPED + garbage, TEXT) for garbage in (b"garbage", b"\0\0garbage", b"\x1f\0")),
    ],
    ids=range(16),
)
def test_what_is_compressed_is_told_by_its_bytes(tmp_path, caplog, data, expected):
    (tmp_path / "file").write_bytes(data)
    assert is_compressed(tmp_path / "file") == (data != expected)
    assert b"".join(read_blocks(tmp_path / "file", 1 << 16)) == expected
    said = ["bytes after its gzip data" in message for message in caplog.messages]
    assert said == [True] * data.endswith((b"garbage", b"\x1f\0"))


@pytest.mark.parametrize(
    "data",
    [TEXT, ZIPPED[:-5], ZIPPED[:30], broken(ZIPPED, 20), broken(ZIPPED, -6)]
    + [ZIPPED + end for end in (ZIPPED[:12], broken(ZIPPED, 20), b"\x1f", ZIPPED[:-1])],
    ids=range(9),
)
def test_a_broken_gzip_file_is_named(tmp_path, data):
    (tmp_path / "text.gz").write_bytes(data)
    with pytest.raises(ValueError, match=r"text\.gz is not a complete gzip file"):
        list(read_blocks(tmp_path / "text.gz", 1 << 16))


@pytest.mark.fuzz
def test_fuzzed_compressed_files(tmp_path):
    """Python's gzip and bz2 modules, and zstd, read the same bytes or refuse the file, too."""
    path = tmp_path / "file"

    def zst(data):
        return bytes(pa.compress(data, "zstd", asbytes=True))

    def oracle(kind, data):
        try:
            if kind == "zst":
                return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())
            return gzip.decompress(data) if kind == "gzip" else bz2.BZ2File(io.BytesIO(data)).read()
        except (OSError, EOFError, zlib.error, ValueError):
            return None

    def case(draw):
        kind, pack = draw.choice((("gzip", gzip.compress), ("bz2", bz2.compress), ("zst", zst)))
        parts = [draw.randbytes(draw.choice((0, 5, 300))) * draw.choice((1, 20)) for _ in range(draw.randint(1, 4))]
        gap = {"gzip": b"\0" * draw.choice((0, 600)), "bz2": b"", "zst": skipped(b"x" * draw.choice((0, 9)))}[kind]
        whole = gap.join(pack(part) for part in parts)
        data = mutated(whole, draw, (b"\x1f\x8b", b"\0" * 9, gap)) if draw.random() < 0.6 else whole
        path.write_bytes(data)
        if not is_compressed(path):
            return "plain"
        pieces = b"".join(read_blocks(path, draw.choice((7, 1000, 1 << 20))))
        if data == whole:
            assert pieces == b"".join(parts)
        expected = oracle(kind, data)
        if expected is None:  # gzip ignores bytes after its members, Python's module does not
            assert kind == "gzip"
            assert gzip.decompress(data[: len(data) - len(_after_members(data))]) == pieces
            return "garbage after it"
        assert pieces == expected
        return "read"

    ends = run(case)
    assert min(ends["read"], ends["refused"]) > 0, ends


def _after_members(data):
    while data.startswith(b"\x1f\x8b"):
        member = zlib.decompressobj(31)
        member.decompress(data)
        data = member.unused_data.lstrip(b"\0")
    return data


HOLD = """
import os, sys, time
from pathlib import Path
from paraembed.io.atomic import work_folder
work, until = Path(sys.argv[1]), time.time() + float(sys.argv[2])
while time.time() < until:
    try:
        with work_folder(work):
            flag = os.open(work.parent / "at work", os.O_CREAT | os.O_EXCL)  # fails where another is at work
            (work / "file").touch()
            (work / "file").unlink()
            os.close(flag)
            os.unlink(work.parent / "at work")
        print("worked")
    except ValueError as error:
        assert "another run is writing to" in str(error)
"""


def test_processes_that_begin_at_once_work_one_at_a_time(tmp_path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD, tmp_path / ".out.partial", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    for process in processes:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err.decode()
        assert out.count(b"worked") > 0
    assert names(tmp_path) == []


def refused(lock, folder, message):
    with pytest.raises(ValueError, match=message), lock(folder):
        pass


def test_a_work_folder_and_its_lock(tmp_path):
    work, lock = tmp_path / ".out.partial", tmp_path / ".out.partial.lock"
    with work_folder(work):
        (work / "half").touch()
        refused(work_folder, work, r"another run is writing to .*\.out\.partial")
        refused(locked, work, "another run is writing to")  # as earlier versions do
    assert names(tmp_path) == [".out.partial"]  # kept, for it is not empty
    lock.touch()  # of a run that was killed
    with work_folder(work):
        assert names(work) == ["half"]
    assert names(tmp_path) == [".out.partial"]
    for make in (lock.mkdir, lambda: lock.symlink_to(tmp_path / "mine"), lambda: lock.write_text("dear")):
        make()
        refused(work_folder, work, r"\.lock is not an empty file")
        lock.rmdir() if lock.is_dir() else lock.unlink() if lock.is_symlink() else None
    assert lock.read_text() == "dear"
    (tmp_path / "file").touch()
    (tmp_path / ".link.partial").symlink_to(tmp_path / "nowhere")
    for name in ("file", ".link.partial"):
        refused(work_folder, tmp_path / name, rf"{name} is a file or .*link")


def test_a_lock_is_of_the_folder_that_is_there(tmp_path):
    folder = tmp_path / "folder"
    with pytest.raises(FileNotFoundError), locked(folder):
        pass
    with locked(folder, make=True):
        folder.rename(tmp_path / "moved")
        for name in ("folder", "moved"):
            refused(lambda folder: locked(folder, make=True), tmp_path / name, "another run")
    assert names(tmp_path) == ["folder", "moved"]


@pytest.mark.parametrize("lock", [work_folder, locked])
def test_a_lock_excludes_other_machines_of_an_nfs(tmp_path, monkeypatch, lock):
    """As Linux does on NFS: a lock on a folder is this machine's own, and one on a file needs it open for writing."""
    really = fcntl.flock

    def flock(handle, operation):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            return
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "not open for writing")
        really(handle, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / "out").mkdir()
    with lock(tmp_path / "out"):
        refused(lock, tmp_path / "out", "another run is writing to")


def test_folders_of_users_are_left_alone(tmp_path):
    for name in (".folder.tmp", ".folder.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "chapter").write_text("dear")
    (tmp_path / ".folder.0123abcd.tmp").mkdir()  # of a process that was killed
    for _ in range(2):
        with new_folder(tmp_path / "folder", any_content) as new:
            (new / "file").touch()
    assert names(tmp_path) == [".folder.old", ".folder.tmp", "folder"]
    assert all((tmp_path / name / "chapter").read_text() == "dear" for name in (".folder.tmp", ".folder.old"))
    (tmp_path / "next").mkdir()
    with pytest.raises(OSError, match="not empty"):
        replace_folder(tmp_path / "next", tmp_path / "folder", tmp_path / ".folder.old", any_content)
    assert names(tmp_path / "folder") == ["file"]
