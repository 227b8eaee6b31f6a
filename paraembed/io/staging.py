"""Copies of files and folders of an object store on this machine, for code that needs paths.

Inputs are downloaded before they are read. An output is written to a folder here and uploaded when it is complete; the
files that mark it as complete are uploaded last, so that readers never take a part of it for the whole.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp

import pyarrow.fs

from paraembed.io.places import Place, name_of, resolve, shown
from paraembed.io.resume import check_names
from paraembed.io.store import Remote, open_store

_LAST = ("manifest.json", "state.json", "identity.json", "config.json", "sweep.json", "_SUCCESS")
"""Names of files that mark a folder as complete, in the order in which they are uploaded."""
_COPY_BYTES = 8 << 20


def child(uri: str, name: str) -> str:
    """Return the URI of a file or folder below a URI, whose options are kept."""
    place, mark, options = uri.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{options}" if name else uri


def sibling(uri: str, suffix: str) -> str:
    """Return the URI with a suffix of its name: ``s3://bucket/encoder?…`` → ``s3://bucket/encoder.training?…``."""
    place, mark, options = uri.partition("?")
    return f"{place.rstrip('/')}{suffix}{mark}{options}"


def files_below(uri: str) -> list[str]:
    """Return the names of the files below a URI, relative to it, sorted; none if nothing is there."""
    filesystem, path = resolve(uri)
    infos = filesystem.get_file_info(pyarrow.fs.FileSelector(path, allow_not_found=True, recursive=True))
    names = (info.path[len(path.rstrip("/")) + 1 :] for info in infos if info.type == pyarrow.fs.FileType.File)
    return sorted(filter(None, names))


def download(uri: str, to: Path) -> None:
    """Copy a file, or all files below a prefix, to a path; raise FileNotFoundError if nothing is there."""
    filesystem, path = resolve(uri)
    is_file = filesystem.get_file_info(path).type == pyarrow.fs.FileType.File
    paths = [to] if is_file else [to / name for name in files_below(uri)]
    if not paths:
        raise FileNotFoundError(f"{shown(uri)} does not exist; check the URI")
    for folder in {path.parent for path in paths}:  # GCS lists no folders, which copy_files would create
        folder.mkdir(parents=True, exist_ok=True)
    local = pyarrow.fs.LocalFileSystem()
    pyarrow.fs.copy_files(path, str(to), filesystem, local, chunk_size=_COPY_BYTES)


@dataclass(frozen=True)
class Mirror:
    """A folder on this machine, and its copy on an object store."""

    folder: Path
    # URI of the copy, which may contain a key; None: the folder has no copy, and all methods do nothing.
    uri: str | None = field(default=None, repr=False)

    def names(self) -> list[str]:
        """Return the names of the files of the copy."""
        return [] if self.uri is None else files_below(self.uri)

    @property
    def records(self) -> Path:
        """Path next to which a job's records for MLflow wait: the folder, or its name in the working folder."""
        return self.folder if self.uri is None else Path.cwd() / self.folder.name

    def place(self, name: str) -> tuple[str, pyarrow.fs.FileSystem | None]:
        """Return the path of a subfolder that all machines can reach, and its file system; None: the local one."""
        if self.uri is None:
            return str(self.folder / name), None
        filesystem, path = resolve(child(self.uri, name))
        return path, filesystem

    def pull(self, names: Sequence[str] | None = None) -> None:
        """Download files or subfolders of the copy that exist; None: all of it."""
        if self.uri is None:
            return
        existing = self.names()
        for name in existing if names is None else names:
            if any(other == name or other.startswith(f"{name}/") for other in existing):
                download(child(self.uri, name), self.folder / name)

    def push(self, name: str = "") -> None:
        """Upload the folder, or a file or subfolder of it; files that mark it as complete come last."""
        if self.uri is None:
            return
        path, store = self.folder / name, open_store(self.uri)
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        names = {file: file.relative_to(self.folder).as_posix() for file in files}
        for file in sorted(files, key=lambda file: _turn(names[file])):
            with file.open("rb") as content:
                store.write(names[file], lambda copy: shutil.copyfileobj(content, copy, _COPY_BYTES))

    def update(self, name: str) -> None:
        """Upload the folders in a subfolder that the copy does not have complete, then remove those no longer here."""
        files = [other.split("/") for other in self.names() if other.startswith(f"{name}/")]
        complete = {parts[1] for parts in files if parts[-1] in _LAST}
        here = {path.name for path in (self.folder / name).iterdir() if path.is_dir()}
        for folder in sorted(here - complete):
            self.push(f"{name}/{folder}")
        for folder in sorted({parts[1] for parts in files} - here):
            self.remove(f"{name}/{folder}")

    def check(self, files: re.Pattern[str], job: str) -> list[str]:
        """Return the names of the files of the copy; raise ValueError if one is not among the job's ``files``."""
        names = self.names()
        check_names(shown(self.uri or ""), names, files, job)
        return names

    def remove(self, name: str = "") -> None:
        """Remove the copy, or a subfolder of it; files that mark it as complete go first."""
        if self.uri is None:
            return
        store = open_store(self.uri)
        below = [other for other in self.names() if not name or other == name or other.startswith(f"{name}/")]
        for other in sorted(below, key=_turn, reverse=True):
            store.delete(other)


def _turn(name: str) -> tuple[int, int, str]:
    """Return the turn of a file in an upload: marks last, those of a folder after those of its subfolders."""
    mark = _LAST.index(base) + 1 if (base := name.rpartition("/")[2]) in _LAST else 0
    return (1, -name.count("/"), f"{mark}") if mark else (0, 0, name)


class UploadError(OSError):
    """Error of the upload of a complete output, whose copy on this machine is kept."""


class Staging:
    """Copies of the inputs and the output of a job in a folder; ``staged`` removes them at its end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._uris: dict[Path, str] = {}

    def input(self, place: Place) -> Path:
        """Return the path of an input; a file or folder of an object store is downloaded."""
        if isinstance(place, Path):
            return place
        filesystem, path = resolve(place)
        if isinstance(filesystem, pyarrow.fs.LocalFileSystem):
            return Path(path)
        copy = self._new(place)
        download(place, copy)
        return copy

    def output(self, place: Place) -> Path:
        """Return the path of an output, which ``mirror`` uploads if it is a URI; errors as in ``open_store``."""
        if isinstance(place, Path):
            return place
        store = open_store(place)
        return self._new(place) if isinstance(store, Remote) else Path(store.place)

    def uri(self, path: Path | None) -> str | None:
        """Return the URI of a copy; None for any other path."""
        return None if path is None else self._uris.get(path)

    def mirror(self, out: Path) -> Mirror:
        """Return an output with its copy on the object store, if it has one."""
        return Mirror(out, self.uri(out))

    def upload(self, home: Mirror) -> None:
        """Upload a complete output; if the store fails, raise UploadError: ``staged`` then keeps the copy."""
        try:
            home.push()
        except OSError as error:
            assert home.uri is not None
            raise UploadError(
                f"the output is complete, but its upload to {shown(home.uri)} failed ({error}); it is kept in "
                f"{home.folder}: copy it to the store, then delete it"
            ) from error

    def in_uris(self, text: str) -> str:
        """Return a message with URIs in the place of the paths of their copies."""
        for copy, uri in self._uris.items():
            text = text.replace(str(copy), shown(uri))
        return text

    def _new(self, uri: str) -> Path:
        folder = self._folder / str(len(self._uris))
        folder.mkdir()
        copy = folder / name_of(uri)
        self._uris[copy] = uri
        return copy


@contextmanager
def staged() -> Iterator[Staging]:
    """Yield the copies of a job; they are removed at the end of the block."""
    folder = Path(mkdtemp(prefix="paraembed-"))
    stage, is_kept = Staging(folder), False
    try:
        yield stage
    except UploadError:
        is_kept = True
        raise
    except (ValueError, OSError) as error:
        text = stage.in_uris(str(error))
        if text == str(error) or isinstance(error, UnicodeError):
            raise
        raise type(error)(text) from error
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
