"""Resolve and open paths and URIs of files, and show them without credentials."""

import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from paraembed.settings import is_peer, is_run, is_shipped

if TYPE_CHECKING:
    import pyarrow.fs

_FLAGS = ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # a FIFO would wait; the last is of Windows, the others are not
_READ = sum(getattr(os, flag, 0) for flag in _FLAGS) | os.O_RDONLY
Place = Path | str
"""Path of a file, or its URI for ``pyarrow.fs`` (``s3://…``, ``gs://…``, ``hdfs://…``, ``file:///…``)."""
# User and password, or the keys of an object store, in a URI; with a colon, up to an @ behind slashes, too, unless it
# begins a port.
_PORT = r"[^/?\s:@]*:\d{1,5}/"
_USER = re.compile(r"(?<=://)[^/?\s]+@")
_CREDENTIALS = re.compile(
    rf"(?<=://)(?!(?:(?<=http://)|(?<=https://)|(?<=hdfs://)|(?<=viewfs://)){_PORT})[^/?\s:@]*:(?:(?!://)\S)*@"
)
# An option of a URI, behind a ? or #, or a semicolon as in JDBC addresses, with the name of a secret. The secret may
# have any character except & and blanks; odbc_connect is a whole address with its password, percent-encoded.
_NAMES = (
    "pass|pwd|secret|token|sig|cred|auth(?!ors?=)|key|jwt|sess|cookie|bearer|policy|accessid|private|hmac|ticket|"
    "assertion|saml|odbc_connect|(?:pw|tok|sas|code|pin|otp|(?<=[?#;&])pat)(?==)"
)
_SECRET = re.compile(rf"([?#;&][^?#;&=\s]{{0,60}}(?:{_NAMES})[^?#;&=\s]{{0,60}}=)[^&\s]+", re.IGNORECASE)

# An S3 URI whose path needs no other parser: user and bucket, key, options.
_S3 = re.compile(r"s3://([^/?#]+)/((?:[\w.~/=+-]|%[0-9A-Fa-f]{2})*)((?:\?[^#]*)?)", re.ASCII)
_CONNECTIONS = 32  # as many as there are threads that look at inputs
_clients: "dict[tuple[object, ...], pyarrow.fs.FileSystem]" = {}  # of S3, by bucket, options and environment


def path_exists(path: Path) -> bool:
    """Return whether a path exists; False if the system cannot use it, for example because it is too long."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises the error


def require_file(place: Place) -> None:
    """Raise FileNotFoundError, IsADirectoryError or ValueError unless ``place`` is a regular file.

    A FIFO, socket or device is rejected: reading it may wait forever or never end.
    """
    if isinstance(place, Path):
        is_folder, exists, is_regular = place.is_dir(), place.exists(), place.is_file()
    else:
        filesystem, path = resolve(place)
        kind = filesystem.get_file_info(path).type
        kinds = _file_systems().FileType
        is_folder, exists, is_regular = kind == kinds.Directory, kind != kinds.NotFound, kind == kinds.File
    if is_folder:
        raise IsADirectoryError(f"{shown(place)} is a folder; expected a file")
    if not exists:
        raise FileNotFoundError(f"{shown(place)} does not exist; check the path")
    if not is_regular:
        raise _not_regular(place)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular local file for reading; the errors are those of ``require_file``."""
    require_file(path)
    handle = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular(path)
    return os.fdopen(handle, "rb")


def _not_regular(place: Place) -> ValueError:
    return ValueError(f"{shown(place)} is a FIFO, socket or device; copy the data to a regular file first")


def to_place(text: str) -> Place:
    """Parse a text as a path or a URI; raise ValueError if it is empty, which as a path would be the working folder."""
    if not text.strip():
        raise ValueError("an empty path was given; give the path or the URI of a file")
    return text if "://" in text else Path(text)


def absolute_name(name: str, absolute: Callable[[str], Path]) -> str:
    """Return an encoder's name with an absolute path, also behind ``st:``, ``m2v:`` or ``onnx:``, so that the record of
    a run names it from everywhere. The name ``small``, names on the hub and MLflow runs stay as they are.
    """
    kind, colon, path = name.partition(":") if is_peer(name) else ("", "", name)
    if is_run(name) or is_shipped(name) or (colon and not (path and path_exists(Path(path)))):
        return name
    return f"{kind}{colon}{absolute(path)}"


def in_submitted_job() -> bool:
    """Return whether this process runs in the temporary copy of the working folder that ``ray job submit`` creates."""
    return "runtime_resources" in Path.cwd().parts


def name_of(place: Place) -> str:
    """Return the file name, without folders and without the options of a URI."""
    return place.name if isinstance(place, Path) else place.partition("?")[0].rstrip("/").rpartition("/")[2]


def without_credentials(text: str) -> str:
    """Return a text, path or URI without the credentials in its URIs: users, passwords, keys, tokens, signatures.

    Use it for messages, logs and records only, since a file cannot be opened without its credentials.
    """
    return _CREDENTIALS.sub("", _SECRET.sub(r"\1***", _USER.sub("", text)))


def shown(place: Place) -> str:
    """Return a path or URI for messages, without credentials."""
    return without_credentials(str(place))


def size_of(place: Place) -> int:
    """Return the size of a file in bytes.

    Raise FileNotFoundError if it does not exist; for a URI, also the other errors of ``require_file``. A local folder,
    FIFO or device is not rejected.
    """
    if isinstance(place, Path):
        return place.stat().st_size
    filesystem, path = resolve(place)
    info = filesystem.get_file_info(path)
    if info.type != _file_systems().FileType.File:
        require_file(place)
    return int(info.size)


def _connect() -> None:
    """Let clients of S3 have 32 connections, which is the number of Arrow's threads or 25."""
    import pyarrow as pa  # noqa: PLC0415 - as below

    pa.set_io_thread_count(max(_CONNECTIONS, pa.io_thread_count()))


def _file_systems() -> Any:
    """Import ``pyarrow.fs`` on first use: it takes 0.2 s, which help and flag errors do not need."""
    import pyarrow.fs  # noqa: PLC0415

    return pyarrow.fs


def resolve(uri: str) -> "tuple[pyarrow.fs.FileSystem, str]":
    """Return the file system of a URI and the path within it; raise ValueError if the URI is invalid or unsupported.

    A bucket has one client of S3 as long as the environment is the same, because a new one waits for the requests of
    all others: with 32 threads, 20 ms an object.
    """
    match, client = _S3.fullmatch(uri), None
    try:
        if match is not None:
            environment = (item for item in os.environ.items() if item[0].startswith("AWS_"))
            client = (match[1], match[3], *environment)
            if client in _clients:
                return _clients[client], f"{match[1].rpartition('@')[2]}/{unquote(match[2], errors='strict')}".rstrip(
                    "/"
                )
            _connect()
        filesystem, path = _file_systems().FileSystem.from_uri(uri)
    except (ValueError, NotImplementedError) as error:  # what Arrow's own errors are
        raise ValueError(
            f"{shown(uri)} is not a supported URI ({without_credentials(str(error))}); give a path, s3://…, gs://… "
            "or file:///…"
        ) from None
    return filesystem if client is None else _clients.setdefault(client, filesystem), path


def locate(text: str) -> "tuple[pyarrow.fs.FileSystem, str]":
    """Return the file system of a URI or local path, and the path within it."""
    return resolve(text) if "://" in text else (_file_systems().LocalFileSystem(), str(Path(text).absolute()))


@contextmanager
def open_place(place: Place) -> Iterator[IO[bytes]]:
    """Open a file for reading, without decompression."""
    filesystem, path = (None, str(place)) if isinstance(place, Path) else resolve(place)
    if filesystem is None or isinstance(filesystem, _file_systems().LocalFileSystem):
        with open_regular(Path(path)) as file:
            yield file
    else:
        with filesystem.open_input_file(path) as stream:
            yield stream
