"""Download public originals to a cache atomically, check their digests, and unpack archives.

``fetched.json`` in the cache holds the SHA-256 of every file. If the table has no digest of a file, it is recorded at
the first download and checked from then on. Downloaded content is never loaded or executed.
"""

import gzip
import logging
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, TypedDict

from paraembed.io.atomic import any_content, locked, new_folder, sync_folder, write_json
from paraembed.io.fingerprint import read_json, sha256_of
from paraembed.io.inflate import check_inflation
from paraembed.io.places import require_file, without_credentials
from paraembed.pairs.public.download import (
    DownloadProgress,
    OnProgress,
    Patience,
    discard,
    download,
    full_disk_in_words,
    require_address,
)
from paraembed.pairs.public.sources import Source

log = logging.getLogger(__name__)

FETCHED = "fetched.json"


class _Record(TypedDict):
    sha256: str


def default_cache() -> Path:
    """Return ``$PARAEMBED_CACHE``, or ``~/.cache/paraembed``."""
    named = os.environ.get("PARAEMBED_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "paraembed"


def fetch(source: Source, cache: Path, report: OnProgress = lambda _: None, patience: Patience | None = None) -> Path:
    """Download a source to the cache unless the cache holds it, and check its digest (from the table or the first
    download); return the file.

    The folder of the cache is created if it is missing, and locked during the call. Every received piece, and other
    events with a note, are reported. Raise ValueError if the URL is rejected, the server does not have the file or has
    a different one, the digest is wrong (the file is removed), or another run has locked the cache; OSError if there is
    no connection, or the disk is full: received bytes are kept for the next call.
    """
    require_address(source.url)
    with locked(cache, make=True):
        path = cache / source.file
        part = path.with_name(f"{path.name}.part")
        records, is_there = _records(cache), path.exists()
        record = records.get(source.file, {})
        expected = source.sha256 or record.get("sha256")
        if not is_there:
            download(source, part, report, patience or Patience(), digest_known=expected is not None)
        file = path if is_there else part
        digest, shown = sha256_of(file), without_credentials(source.url)
        if expected not in {None, digest}:
            if is_there:
                raise ValueError(
                    f"{path} has sha256 {digest}, but {expected} is expected, so it was changed; delete it and "
                    "download it again"
                )
            discard(part)
            known = f"expected {expected}"
            if not source.sha256:
                known = (
                    f"the first download had {expected}; if the new file is valid, remove its entry from "
                    f"{cache / FETCHED}"
                )
            raise ValueError(f"{shown} has sha256 {digest}, so the download was removed; {known}")
        if not is_there or not record:  # a file that a user put there is recorded, too
            record |= {"url": shown, "bytes": file.stat().st_size, "sha256": digest}
            write_json(cache / FETCHED, records | {source.file: record})
        if not is_there:
            part.replace(path)
            sync_folder(cache)
            discard(part)
        return path


def fetch_unpacked(
    source: Source, cache: Path, report: OnProgress = lambda _: None, patience: Patience | None = None
) -> Path:
    """Download a source, with the errors of ``fetch``; an archive is also unpacked, once, to the folder ``CACHE/NAME``.

    Return the file, or the folder of an archive.
    """
    path = fetch(source, cache, report, patience)
    if not source.file.endswith(_ZIP + _TAR):
        return path
    folder = cache / source.name
    with locked(cache):
        records = _records(cache)
        record = records[source.file]
        if record.get("unpacked") != record["sha256"] or not folder.is_dir():
            report(DownloadProgress(source.name, path.stat().st_size, path.stat().st_size, "unpacking"))
            with full_disk_in_words(folder, "the archive is kept"):
                unpack(path, folder)
            write_json(cache / FETCHED, records | {source.file: record | {"unpacked": record["sha256"]}})
    return folder


def _records(cache: Path) -> dict[str, dict[str, Any]]:
    path = cache / FETCHED
    records: dict[str, dict[str, Any]] = read_json(path, dict[str, _Record]) if path.exists() else {}
    return records


_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile),
    *(EOFError, zlib.error, LZMAError, NotImplementedError),  # the last: an unknown compression of a zip file
)
_ZIP, _TAR = (".zip",), (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack an archive to a folder, which appears or is replaced only when it is complete; return the files written.

    Permissions, owners and times of the members are not restored. No content is loaded or executed. Raise ValueError,
    with the name of the member, if the archive is damaged or encrypted, fails ``check_inflation``, or has a member with
    an absolute path or ``..``, a link, a device, or a repeated member.
    """
    require_file(archive)
    try:
        with new_folder(folder, any_content) as new:
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
            raise _rejection(archive, name, "occurs twice") from None


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
    """Return the components of a member's path; raise ValueError if the path leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or PureWindowsPath(name).anchor:
        raise _rejection(archive, name, "has an absolute path")
    if ".." in PureWindowsPath(name).parts:  # whose separators are the slash and the backslash
        raise _rejection(archive, name, "has '..' in its path")
    return path.parts


def _rejection(archive: Path, name: str, why: str) -> ValueError:
    return ValueError(
        f"{archive}: the member {name!r} {why}, so the archive is rejected and nothing was written; use another archive"
    )
