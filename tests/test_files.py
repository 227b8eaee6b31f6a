"""Files: opened plain or gzipped, put into place whole or not at all."""

import bz2
import gzip
import hashlib
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paraembed.files import (
    cut_at_lines,
    differences,
    digest_of,
    is_compressed,
    new_folder,
    open_binary,
    open_regular,
    read_blocks,
    read_json,
    read_span,
    require_file,
    sha256_of,
    write_file,
    write_json,
)

TEXT = b"one\ntwo\n" * 1_000


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_only_a_file_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    require_file(tmp_path / "file")
    with pytest.raises(IsADirectoryError, match="is a folder; a file is expected"):
        require_file(tmp_path)
    with pytest.raises(FileNotFoundError, match="none does not exist; check the path"):
        require_file(tmp_path / "none")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="dangling does not exist"):
        require_file(tmp_path / "dangling")


def test_gzip_is_opened_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(TEXT)
    (tmp_path / "zipped.gz").write_bytes(gzip.compress(TEXT[:8]) + gzip.compress(TEXT[8:]))  # two members, as cat makes
    for name in ("plain", "zipped.gz"):
        with open_binary(tmp_path / name) as file:
            assert file.read() == TEXT


def test_a_text_that_begins_as_bz2_files_do_is_a_text(tmp_path: Path) -> None:
    texts = [b"BZh is no word\n", b"BZh9 is none\n", b"BZh91AY&S", b"BZ", b""]
    packed = [bz2.compress(TEXT), bz2.compress(b""), bz2.compress(TEXT, 1) + bz2.compress(TEXT)]
    for data, expected in [(text, text) for text in texts] + list(zip(packed, [TEXT, b"", TEXT * 2], strict=True)):
        (tmp_path / "a.txt").write_bytes(data)
        assert is_compressed(tmp_path / "a.txt") == (data in packed)
        assert b"".join(read_blocks(tmp_path / "a.txt", 1 << 16)) == expected


def broken(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


ZIPPED = gzip.compress(TEXT, mtime=0)


@pytest.mark.parametrize(
    "data", [TEXT, ZIPPED[:-5], ZIPPED[:30], broken(ZIPPED, 20), broken(ZIPPED, -6)],
    ids=["not gzip", "cut in the trailer", "cut in the data", "changed data", "changed checksum"],
)  # fmt: skip
def test_a_broken_gzip_file_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "text.gz").write_bytes(data)
    with pytest.raises(ValueError, match=r"text\.gz is not a whole gzip file .*; fetch or make it again"):  # noqa: SIM117
        with open_binary(tmp_path / "text.gz") as file:
            file.read()


def test_digests(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(TEXT)
    assert sha256_of(tmp_path / "file") == hashlib.sha256(TEXT).hexdigest()
    assert digest_of({"a": 1, "b": [2.5, None]}) == digest_of({"b": [2.5, None], "a": 1})
    assert len({digest_of(value) for value in ({"a": 1}, {"a": 2}, {"b": 1}, {"a": "1"}, [], None)}) == 6


def test_a_written_file_has_its_content_and_no_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"first", b"second, longer", b""):
        assert (
            write_file(path, lambda file, content=content: file.write(content)) == hashlib.sha256(content).hexdigest()
        )
        assert path.read_bytes() == content
        assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise error

    (tmp_path / "there").write_bytes(b"old")
    for name in ("there", "new"):
        with pytest.raises(error):
            write_file(tmp_path / name, write)
    assert names(tmp_path) == ["there"]
    assert (tmp_path / "there").read_bytes() == b"old"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


@settings(deadline=None, max_examples=50)
@given(value=st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=6))
def test_json_comes_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"
    write_json(path, value)
    assert read_json(path) == value
    assert differences(read_json(path), value) == ""


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"\x80\x04K\x01."])
def test_what_is_not_json_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "value.json").write_bytes(data)
    with pytest.raises(ValueError, match=r"value\.json is not JSON: "):
        read_json(tmp_path / "value.json")


def test_a_folder_appears_when_the_block_ends_well(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    for content in ("first", "second"):
        with new_folder(path) as new:
            (new / content).write_text(content)
            assert not (path / content).exists()
        assert names(path) == [content]
        assert names(path.parent) == ["folder"]


def test_a_folder_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()

    def fill() -> None:
        with new_folder(path) as new:
            (new / "half").touch()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fill()
    assert names(tmp_path) == ["folder"]
    assert names(path) == ["old"]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"a": 1, "b": {"c": [1, 2]}}, {"b": {"c": (1, 2)}, "a": 1}, ""),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "a.b (was 1, is 2)"),
        ({"a": 1}, {}, "a (was 1, is None)"),
        ({"a": [1, 2], "c": 0}, {"a": [1, 3], "c": 1}, "a[1] (was 2, is 3); c (was 0, is 1)"),
        ({"a": [1]}, {"a": [1, 3]}, "a (was 1 values, is 2 values); a[1] (was None, is 3)"),
        ({"a": "0" * 64}, {"a": "1" * 64}, "a (was 000000000000…, is 111111111111…)"),
    ],
)
def test_differences_are_named(before: Any, now: Any, expected: str) -> None:
    assert differences(before, now) == expected


def endless_files(folder: Path) -> list[Path | str]:
    """A FIFO that nobody writes to, a link to it, a socket, a device that never ends, and its URI."""
    os.mkfifo(folder / "fifo")
    (folder / "link").symlink_to(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
    return [folder / "fifo", folder / "link", folder / "socket", Path("/dev/zero"), "file:///dev/zero"]


@pytest.mark.timeout(20)
def test_files_that_never_end_are_not_opened(tmp_path: Path) -> None:
    readers: list[Callable[[Any], object]] = [
        require_file,
        sha256_of,
        lambda place: next(read_blocks(place, 10)),
        is_compressed,
        lambda place: cut_at_lines(place, 10),
        lambda place: next(read_span(place, (0, 5), 10)),
    ]
    local: list[Callable[[Any], object]] = [read_json, lambda path: open_binary(path).__enter__().read(1)]
    for place in endless_files(tmp_path):
        for reader in readers + (local if isinstance(place, Path) else []):
            with pytest.raises(ValueError, match=re.escape(str(place).removeprefix("file://"))):
                reader(place)


@pytest.mark.timeout(20)
def test_a_file_that_becomes_a_fifo_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr("paraembed.files.require_file", lambda _: None)  # it looked a moment earlier
    with pytest.raises(ValueError, match="fifo"):
        open_regular(tmp_path / "fifo")
