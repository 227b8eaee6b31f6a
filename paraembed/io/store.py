"""Store of an output: a folder on a disk, or a prefix of an object store. Every file is written atomically.

On a disk, a file is written under a temporary name, flushed and renamed. An object store has neither renaming nor
locks. There, a file is first written to the local disk (``TMPDIR``, one part per worker) and then uploaded: by one PUT
up to 10 MB, above that by a multipart upload, which becomes visible with its last piece. A killed upload leaves pieces
that no reader sees; a lifecycle rule of the bucket (``AbortIncompleteMultipartUpload``) removes them.
"""

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from hashlib import file_digest
from io import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs

from paraembed.io.atomic import SUCCESS, locked, sync_folder, write_file
from paraembed.io.fingerprint import json_bytes, sha256_of
from paraembed.io.places import Place, name_of, require_file, resolve, without_credentials
from paraembed.options import MOST_BYTES, json_value

SUPPORTED = "s3://… or gs://…"
# Not Azure (abfs): an upload begins with an empty file. Not HDFS: a file grows under its name, and a rename cannot
# replace a file.
_UPLOADS_ARE_ATOMIC = {"s3", "gcs"}
_REJECTED = ("hdfs://", "viewfs://")  # by name: without Hadoop's libraries pyarrow cannot resolve them
_DIGEST_BYTES = 8 << 20  # a request each


class Folder:
    """A folder on a disk or NFS. Names are relative to it, with ``/`` between folder and file; ``str`` is for messages.

    Attributes:
        place: path, absolute; the argument for ``open_store``.
        name: last part of the path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place, self.name = str(path.absolute()), path.name

    def __str__(self) -> str:
        return str(self.path)

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> str:
        """Write a file atomically; return its SHA-256, hexadecimal."""
        return write_file(self.path / name, write)

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Open a file for random access; raise FileNotFoundError if it does not exist."""
        require_file(self.path / name)
        file: AbstractContextManager[Any] = pa.OSFile(str(self.path / name))
        return file

    def names(self, folder: str = "") -> list[str]:
        """Return the files and folders in a folder, none if it is missing; raise NotADirectoryError if it is a file."""
        path = self.path / folder
        return sorted(os.listdir(path)) if path.exists() else []  # noqa: PTH208 - a Path for each takes longer

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        (self.path / name).unlink(missing_ok=True)
        sync_folder(self.path)

    def delete_folder(self, name: str) -> None:
        """Remove a folder and its files, if it exists."""
        if (self.path / name).exists():
            shutil.rmtree(self.path / name)

    def sha256(self, name: str) -> str:
        """Read a file and return its SHA-256, hexadecimal."""
        return sha256_of(self.path / name)

    def stamp(self, name: str) -> str:
        """Return size, modification and status time (ns), and inode; raise FileNotFoundError if a file is missing."""
        return _stamp(os.stat(self.path / name))  # noqa: PTH116 - a Path takes three times as long

    def stamps(self, folder: str) -> Iterator[tuple[str, str]]:
        """Yield path below this one and stamp of all files in a folder, "" of folders; none if it is missing."""
        path = self.path / folder
        if not path.exists():
            return
        with os.scandir(path) as entries:
            for entry in entries:
                try:  # ``suppress`` takes as long as ``stat``
                    stamp = _stamp(entry.stat()) if entry.is_file() else ""
                except FileNotFoundError:  # another writer's temporary file
                    continue
                yield f"{folder}{entry.name}", stamp

    def size(self, name: str) -> int:
        """Return the size of a file in bytes; raise FileNotFoundError if it does not exist."""
        return (self.path / name).stat().st_size

    def make_folder(self, name: str) -> None:
        """Create a folder."""
        (self.path / name).mkdir(exist_ok=True)

    def move(self, name: str, new_name: str) -> None:
        """Move a file within the folder, atomically; replace a file of the new name."""
        target = self.path / new_name
        os.replace(self.path / name, target)  # noqa: PTH105 - a Path takes three times as long
        sync_folder(target.parent)

    def below(self, name: str) -> "Folder":
        """Return the store of a folder in this one, which may be missing."""
        return Folder(self.path / name)

    def held(self) -> AbstractContextManager[None]:
        """Lock the folder for the length of a block, and create it if it is missing; raise ValueError if another run
        holds the lock.
        """
        return locked(self.path, make=True)


class Remote:
    """Prefix of an object store, with the methods of ``Folder``. It has no locks, but two runs of the same command
    write the same bytes.

    Attributes:
        place: URI, with its credentials; the argument for ``open_store``.
        name: last part of the URI.
    """

    def __init__(self, filesystem: pa.fs.FileSystem, path: str, place: str) -> None:
        self.filesystem, self.path, self.place, self.name = filesystem, path.rstrip("/"), place, name_of(place)

    def __str__(self) -> str:
        return without_credentials(self.place)

    def write(self, name: str, write: Callable[[BinaryIO], object]) -> str:
        """Upload a file; return its SHA-256, hexadecimal.

        pyarrow's streams complete an upload when they are closed, which ``with`` and the garbage collector also do
        after an error, so a partial file would become visible. Therefore the file is completed locally before the
        upload begins. The upload runs in a thread, where no signal can raise an exception between its first and last
        call.
        """
        with tempfile.TemporaryFile() as file:
            write(file)
            file.flush()
            file.seek(0)
            digest = file_digest(file, "sha256").hexdigest()
            is_empty = not file.seek(0, SEEK_END)
            content = pa.py_buffer(b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            with ThreadPoolExecutor(1) as thread:
                thread.submit(self._upload, f"{self.path}/{name}", content).result()
        return digest

    def _upload(self, path: str, content: pa.Buffer) -> None:
        stream = self.filesystem.open_output_stream(path, compression=None)
        stream.write(content)
        stream.close()

    def open(self, name: str) -> AbstractContextManager[Any]:
        """Open a file for random access; raise FileNotFoundError if it does not exist."""
        file: AbstractContextManager[Any] = self.filesystem.open_input_file(f"{self.path}/{name}")
        return file

    def names(self, folder: str = "") -> list[str]:
        """Return the files and folders in a folder, none if it is missing; raise NotADirectoryError if it is a file."""
        path = f"{self.path}/{folder}".rstrip("/")
        if self.filesystem.get_file_info(path).type == pa.fs.FileType.File:
            raise NotADirectoryError(f"{self}{(f'/{folder}' if folder else '')} is a file; expected a folder")
        entries = self.filesystem.get_file_info(pa.fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in entries)

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        path = f"{self.path}/{name}"
        if self.filesystem.get_file_info(path).type == pa.fs.FileType.File:
            self.filesystem.delete_file(path)

    def delete_folder(self, name: str) -> None:
        """Remove the files below a name, 1,000 in a request; an empty object with that name may remain."""
        self.filesystem.delete_dir_contents(f"{self.path}/{name}", missing_dir_ok=True)

    def sha256(self, name: str) -> str:
        """Read a file and return its SHA-256, hexadecimal."""
        with self.open(name) as file:
            return file_digest(pa.BufferedInputStream(file, _DIGEST_BYTES), "sha256").hexdigest()

    def stamp(self, name: str) -> str:
        """Return size and time of a file, which change with every upload; FileNotFoundError if it does not exist."""
        info = self.filesystem.get_file_info(f"{self.path}/{name}")
        if info.type != pa.fs.FileType.File:
            raise FileNotFoundError(f"{self}/{name} does not exist")
        return f"{info.size} {info.mtime_ns}"

    def stamps(self, folder: str) -> Iterator[tuple[str, str]]:
        """Yield path and stamp of all files in a folder, as a ``Folder`` does: a request for each 1,000."""
        selector = pa.fs.FileSelector(f"{self.path}/{folder}", allow_not_found=True)
        infos, is_file = self.filesystem.get_file_info(selector), pa.fs.FileType.File
        while infos:
            info = infos.pop()  # each takes 0.2 KB
            yield f"{folder}{info.base_name}", f"{info.size} {info.mtime_ns}" if info.type == is_file else ""

    def size(self, name: str) -> int:
        """Return the size of a file in bytes; raise FileNotFoundError if it does not exist."""
        with self.open(name) as file:
            return int(file.size())

    def make_folder(self, name: str) -> None:
        """Do nothing, because an object store has no folders."""

    def move(self, name: str, new_name: str) -> None:
        """Copy a file within the store, and then remove it."""
        self.filesystem.copy_file(f"{self.path}/{name}", f"{self.path}/{new_name}")
        self.filesystem.delete_file(f"{self.path}/{name}")

    def below(self, name: str) -> "Remote":
        """Return the store of a prefix below this one."""
        uri = urlsplit(self.place)
        place = uri._replace(path=f"{uri.path.rstrip('/')}/{name}").geturl()
        return Remote(self.filesystem, f"{self.path}/{name}", place)

    def held(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing, because an object store has no locks."""
        return nullcontext()


def _stamp(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


Store = Folder | Remote
"""Store of an output."""


def open_store(place: Place) -> Store:
    """Return the store of a path or URI; raise ValueError if it is not supported, or cannot write files atomically."""
    if isinstance(place, Path):
        if uri := next((part for part in place.parts if part in {"s3:", "gs:", "gcs:", "hdfs:", "file:"}), ""):
            raise ValueError(f"{place} is a Path; give the URI {uri}//… as a string")
        return Folder(place)
    rejected = ValueError(
        f"{without_credentials(place)}: this store cannot write files atomically; give a folder, {SUPPORTED}"
    )
    if place.startswith(_REJECTED):
        raise rejected
    filesystem, path = _resolve_for_writing(place)
    if isinstance(filesystem, pa.fs.LocalFileSystem):
        return Folder(Path(path))
    if filesystem.type_name not in _UPLOADS_ARE_ATOMIC:
        raise rejected
    return Remote(filesystem, path, place)


def _resolve_for_writing(uri: str) -> tuple[pa.fs.FileSystem, str]:
    """Resolve a URI; if pyarrow has the option, small objects of S3 are written with one request instead of three."""
    if uri.startswith("s3://") and "allow_delayed_open" not in uri:
        try:
            return resolve(f"{uri}{'&' if '?' in uri else '?'}allow_delayed_open=true")
        except ValueError:
            pass
    return resolve(uri)


def is_there(store: Store, name: str) -> bool:
    """Return whether a store has a regular file of this name."""
    try:
        with store.open(name):
            return True
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return False


def read_bytes(store: Store, name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return a small file, or the first ``most_bytes`` + 1 bytes of a larger one."""
    with store.open(name) as file:
        return bytes(file.read(most_bytes + 1))


def write_json(store: Store, name: str, value: Any) -> str:
    """Write a value as indented JSON, atomically; return the SHA-256 of the file, hexadecimal."""
    return store.write(name, lambda file: file.write(json_bytes(value)))


def commit_manifest(store: Store, name: str, manifest: Any) -> None:
    """Complete an output: write its manifest, then ``_SUCCESS`` with the SHA-256 of the manifest."""
    digest = write_json(store, name, manifest)
    store.write(SUCCESS, lambda file: file.write(f"{digest}\n".encode()))


def is_committed(store: Store, name: str) -> bool:
    """Return whether ``_SUCCESS`` holds the SHA-256 of the manifest with this name."""
    try:
        return read_bytes(store, SUCCESS).decode().strip() == store.sha256(name)
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return False


def read_json(store: Store, name: str, kind: Any = Any, most_bytes: int = MOST_BYTES) -> Any:
    """Read a JSON file; see ``paraembed.io.fingerprint.read_json`` for the arguments and the errors."""
    try:
        return json_value(read_bytes(store, name, most_bytes), f"{store}/{name}", kind, most_bytes)
    except FileNotFoundError:
        raise FileNotFoundError(f"{store}/{name} does not exist; check the path") from None
