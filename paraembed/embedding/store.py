"""Where an output lies: a folder on a disk, or below an address of an object store. A file appears whole or not at all.

On a disk a file is written under a temporary name, flushed and renamed. An object store has neither renaming nor locks:
there a file is made on the local disk (``TMPDIR``, the size of one part a worker) and uploaded when it is complete, by
one PUT up to 10 MB and above that in pieces that the store puts together when the last one is there. What a killed
upload leaves are pieces that no reader sees; a rule of the bucket (``AbortIncompleteMultipartUpload``) removes them.
"""

import mmap
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.fs

from paraembed.io.atomic import locked, sync_folder, write_file
from paraembed.io.fingerprint import json_bytes, sha256_of
from paraembed.io.places import Place, name_of, require_file, resolve, without_credentials
from paraembed.options import MOST_BYTES, json_value

SUPPORTED = "s3://… or gs://…"
# Not Azure's (abfs): an empty file is there as soon as an upload begins. Not HDFS: a file grows under its name, and a
# name that is taken cannot be renamed to.
_UPLOADS_APPEAR_WHOLE = {"s3", "gcs"}
_REFUSED = ("hdfs://", "viewfs://")  # by name, for without Hadoop's libraries pyarrow cannot say what they are
_DIGEST_BYTES = 8 << 20  # a request each


class Store(Protocol):
    """Where an output lies. Names are relative to it, with ``/`` between folder and file; ``str`` is for messages."""

    place: str
    """Path or URI, with credentials if it has any: what ``open_store`` takes."""
    name: str
    """The last part of it."""

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> str:
        """Write a file, whole or not at all; returns its SHA-256, hexadecimal."""

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Open a file for reading anywhere in it. FileNotFoundError where it is not there."""

    def names(self, folder: str = "") -> list[str]:
        """Files and folders in a folder; none where it is missing. NotADirectoryError where it is a file."""

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""

    def sha256(self, name: str) -> str:
        """SHA-256 of a file, hexadecimal, by reading it."""

    def stamp(self, name: str) -> str:
        """What changes when a file is written again, and costs no reading; empty where the store has no such thing."""

    def size(self, name: str) -> int:
        """Bytes of a file. FileNotFoundError where it is not there."""

    def make_folder(self, name: str) -> None:
        """Make a folder where there are such things."""

    def held(self) -> AbstractContextManager[None]:
        """Hold it alone, where that can be had, for the length of a block. ValueError: another run holds it."""


def open_store(place: Place) -> Store:
    """The folder, or the part of an object store, that a path or URI names.

    Raises:
        ValueError: no path, and no address of a store that can be written to safely.
    """
    if isinstance(place, Path):
        if uri := next((part for part in place.parts if part in {"s3:", "gs:", "gcs:", "hdfs:", "file:"}), ""):
            raise ValueError(f"{place} is a path; give the address {uri}//… as text")
        return Folder(place)
    refused = ValueError(
        f"{without_credentials(place)}: files do not appear there whole or not at all; give a folder, {SUPPORTED}"
    )
    if place.startswith(_REFUSED):
        raise refused
    filesystem, path = _resolve_for_writing(place)
    if isinstance(filesystem, pa.fs.LocalFileSystem):
        return Folder(Path(path))
    if filesystem.type_name not in _UPLOADS_APPEAR_WHOLE:
        raise refused
    return Remote(filesystem, path, place)


def _resolve_for_writing(uri: str) -> tuple[pa.fs.FileSystem, str]:
    """As ``resolve``; small objects of S3 take one request, not three, where pyarrow knows the option."""
    if uri.startswith("s3://") and "allow_delayed_open" not in uri:
        try:
            return resolve(f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true")
        except ValueError:
            pass
    return resolve(uri)


class Folder:
    """A folder on a disk or NFS."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place, self.name = str(path.absolute()), path.name

    def __str__(self) -> str:
        return str(self.path)

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> str:
        """See ``Store``."""
        return write_file(self.path / name, write)

    def open(self, name: str) -> AbstractContextManager[Any]:
        """See ``Store``."""
        require_file(self.path / name)
        file: AbstractContextManager[Any] = pa.OSFile(str(self.path / name))
        return file

    def names(self, folder: str = "") -> list[str]:
        """See ``Store``."""
        path = self.path / folder
        return sorted(entry.name for entry in path.iterdir()) if path.exists() else []

    def delete(self, name: str) -> None:
        """See ``Store``."""
        (self.path / name).unlink(missing_ok=True)
        sync_folder(self.path)

    def sha256(self, name: str) -> str:
        """See ``Store``."""
        return sha256_of(self.path / name)

    def stamp(self, name: str) -> str:  # noqa: ARG002
        """None: what a disk holds can change beneath its times."""
        return ""

    def size(self, name: str) -> int:
        """See ``Store``."""
        require_file(self.path / name)
        return (self.path / name).stat().st_size

    def make_folder(self, name: str) -> None:
        """See ``Store``."""
        (self.path / name).mkdir(exist_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """See ``Store``; the folder is made where it is missing."""
        with locked(self.path, make=True):
            yield


class Remote:
    """A part of an object store. There is no lock; two runs of one command write the same bytes."""

    def __init__(self, filesystem: pa.fs.FileSystem, path: str, place: str) -> None:
        self.filesystem, self.path, self.place, self.name = filesystem, path.rstrip("/"), place, name_of(place)

    def __str__(self) -> str:
        return without_credentials(self.place)

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> str:
        """See ``Store``.

        pyarrow's streams end an upload well when they are closed, and they are closed by ``with`` whatever was raised
        in it, and by the collector: half a file would appear. So the file is complete before the upload begins, and
        that runs in a thread of its own, in which no signal raises anything between its first and its last call.
        """
        with tempfile.TemporaryFile() as file:
            write(file)
            file.flush()
            file.seek(0)
            digest = file_digest(file, "sha256").hexdigest()
            content = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))  # not read: that may fail
            with ThreadPoolExecutor(1) as thread:
                thread.submit(self._upload, f"{self.path}/{name}", content).result()
        return digest

    def _upload(self, path: str, content: pa.Buffer) -> None:
        stream = self.filesystem.open_output_stream(path, compression=None)
        stream.write(content)
        stream.close()

    def open(self, name: str) -> AbstractContextManager[Any]:
        """See ``Store``."""
        file: AbstractContextManager[Any] = self.filesystem.open_input_file(f"{self.path}/{name}")
        return file

    def names(self, folder: str = "") -> list[str]:
        """See ``Store``."""
        path = f"{self.path}/{folder}".rstrip("/")
        if self.filesystem.get_file_info(path).type == pa.fs.FileType.File:
            raise NotADirectoryError(f"{self}{f'/{folder}' if folder else ''} is a file")
        found = self.filesystem.get_file_info(pa.fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found)

    def delete(self, name: str) -> None:
        """See ``Store``."""
        path = f"{self.path}/{name}"
        if self.filesystem.get_file_info(path).type == pa.fs.FileType.File:
            self.filesystem.delete_file(path)

    def sha256(self, name: str) -> str:
        """See ``Store``."""
        digest = sha256()
        with self.open(name) as file:
            while piece := file.read(_DIGEST_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    def stamp(self, name: str) -> str:
        """Size and ETag, by one request: a store gives an object a new ETag when its bytes change."""
        with self.open(name) as file:
            known = {str(key).lower(): value for key, value in (file.metadata() or {}).items()}
            etag = known.get("etag", b"").decode()
            return f"{file.size()} {etag}" if etag else ""

    def size(self, name: str) -> int:
        """See ``Store``."""
        with self.open(name) as file:
            return int(file.size())

    def make_folder(self, name: str) -> None:
        """Folders come with what is in them."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """See ``Store``; nothing is held."""
        yield


def is_there(store: Store, name: str) -> bool:
    """Whether a store has a file; a FIFO, socket or device is none."""
    try:
        with store.open(name):
            return True
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return False


def read_bytes(store: Store, name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """A small file, or the first bytes of a larger one: one more than ``most_bytes``."""
    with store.open(name) as file:
        return bytes(file.read(most_bytes + 1))


def write_json(store: Store, name: str, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all."""
    store.write(name, lambda file: file.write(json_bytes(value)))


def read_json(store: Store, name: str, kind: Any = Any, most_bytes: int = MOST_BYTES) -> Any:
    """Read a JSON file; arguments as of ``paraembed.io.fingerprint.read_json``.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: not JSON, or a value that does not have the type.
    """
    try:
        return json_value(read_bytes(store, name, most_bytes), f"{store}/{name}", kind, most_bytes)
    except FileNotFoundError:
        raise FileNotFoundError(f"{store}/{name} does not exist; check the path") from None
