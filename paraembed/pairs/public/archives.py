"""Zip and tar archives to a folder: only plain files and folders, only inside it, all of them or nothing."""

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
    *(EOFError, zlib.error, LZMAError, NotImplementedError),  # the last: a compression zipfile has no reader for
)
_ZIP, _TAR = (".zip",), (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_archive(file: str) -> bool:
    """Whether a file of this name is unpacked."""
    return file.endswith(_ZIP + _TAR)


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack an archive to a folder, which appears (and replaces what stood there) only when all of it is written.

    Rights, owners and times of the members are not taken over. Nothing of the contents is loaded or run.

    Returns:
        The files written, sorted.

    Raises:
        FileNotFoundError, IsADirectoryError: no such archive.
        ValueError: broken or encrypted archive; a member that has an absolute path or ``..`` in it, is a link or a
            device, or stands twice in it. The member is named. Also one that is inflated beyond ``check_inflation``.
    """
    require_file(archive)
    try:
        with new_folder(folder) as new:
            _write_members(archive, new)
    except _BROKEN as error:
        raise ValueError(f"{archive} cannot be unpacked ({error}); fetch it again") from None
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
            raise _refusal(archive, name, "stands in it twice") from None


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Name and contents of each member; of a folder None."""
    if archive.name.endswith(_ZIP):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                    raise _refusal(archive, info.filename, "is a link or a device")
                if info.flag_bits & 1:
                    raise _refusal(archive, info.filename, "is encrypted")
                yield info.filename, None if info.is_dir() else zipped.open(info)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                raise _refusal(archive, member.name, "is a link or a device")
            yield member.name, tar.extractfile(member)


def _inside(name: str, archive: Path) -> tuple[str, ...]:
    """The parts of a member's path."""
    path = PurePosixPath(name)
    if path.is_absolute() or PureWindowsPath(name).anchor:
        raise _refusal(archive, name, "has an absolute path")
    if ".." in PureWindowsPath(name).parts:  # it takes / and the backslash for separators
        raise _refusal(archive, name, "has '..' in its path")
    return path.parts


def _refusal(archive: Path, name: str, why: str) -> ValueError:
    return ValueError(f"{archive}: the member {name!r} {why}; the archive is refused, nothing of it was written")
