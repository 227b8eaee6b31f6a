"""Unpack zip and tar archives safely: only plain files and folders, only inside of the target folder, atomically."""

import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from paraembed.io.atomic import new_folder
from paraembed.io.inflate import check_inflation
from paraembed.io.places import require_file

_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile),
    *(EOFError, zlib.error, LZMAError, NotImplementedError),  # the last: an unknown compression of a zip file
)
_ZIP, _TAR = (".zip",), (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_archive(file: str) -> bool:
    """Return whether a file of this name is an archive."""
    return file.endswith(_ZIP + _TAR)


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack an archive to a folder, which appears, and replaces an existing one, only when it is complete.

    Permissions, owners and times of the members are not restored. Nothing of the content is loaded or executed.

    Returns:
        The files written, sorted.

    Raises:
        FileNotFoundError, IsADirectoryError: the archive is missing or a folder.
        ValueError: the archive is damaged or encrypted, fails ``check_inflation``, or has a member with an absolute
            path or ``..``, a link, a device, or a repeated member; the message names the member.
    """
    require_file(archive)
    try:
        with new_folder(folder) as new:
            _write_members(archive, new)
    except _BROKEN as error:
        raise ValueError(f"{archive} cannot be unpacked ({error}); download it again") from None
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _write_members(archive: Path, folder: Path) -> None:
    inflated = 0
    for name, body in _members(archive):
        target = folder.joinpath(*_inside(name, archive))
        if body is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with body as source, target.open("xb") as file:
                while piece := source.read(1 << 20):
                    inflated += len(piece)
                    check_inflation(archive, inflated)
                    file.write(piece)
        except (FileExistsError, NotADirectoryError):
            raise _rejection(archive, name, "is in it twice") from None


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yield name and content of each member; the content of a folder is None."""
    if archive.name.endswith(_ZIP):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                    raise _rejection(archive, info.filename, "is a link or a device")
                if info.flag_bits & 1:
                    raise _rejection(archive, info.filename, "is encrypted")
                yield info.filename, None if info.is_dir() else zipped.open(info)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                raise _rejection(archive, member.name, "is a link or a device")
            yield member.name, tar.extractfile(member)


def _inside(name: str, archive: Path) -> tuple[str, ...]:
    """Return the parts of a member's path; raise ValueError if it leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or PureWindowsPath(name).anchor:
        raise _rejection(archive, name, "has an absolute path")
    if ".." in PureWindowsPath(name).parts:  # whose separators are the slash and the backslash
        raise _rejection(archive, name, "has '..' in its path")
    return path.parts


def _rejection(archive: Path, name: str, why: str) -> ValueError:
    return ValueError(f"{archive}: the member {name!r} {why}; the archive is rejected, and nothing was written")
