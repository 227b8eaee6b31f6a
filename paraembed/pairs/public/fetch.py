"""Download public originals to a cache with pooch, check their SHA-256, and unpack zip archives.

A file appears in the cache when it is complete and its digest is right. A broken download is not resumed. Downloaded
content is never loaded or executed.
"""

import logging
import os
import shutil
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pooch
import requests

from paraembed.io.atomic import any_content, new_folder
from paraembed.io.inflate import check_inflation
from paraembed.io.places import without_credentials
from paraembed.pairs.public.sources import Source
from paraembed.process import quiet_pooch

log = logging.getLogger(__name__)


def default_cache() -> Path:
    """Return ``$PARAEMBED_CACHE``, or ``~/.cache/paraembed``."""
    named = os.environ.get("PARAEMBED_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "paraembed"


def fetch(source: Source, cache: Path) -> Path:
    """Download a source to the cache unless the cache holds it; unpack an archive to the folder ``CACHE/NAME``.

    Return the file, or the folder of an archive. A cached file with another digest than the known one is downloaded
    again. Raise ValueError if the digest of the download is wrong, the server returns a web page, or the archive
    cannot be unpacked; OSError if the download fails.
    """
    quiet_pooch()
    downloader: Any = _copy
    if not source.url.startswith("file:"):
        how = {"headers": {"Accept-Encoding": "identity"}, "hooks": {"response": _check_response}}
        downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 20, **how)
    known = source.sha256 and f"sha256:{source.sha256}"
    try:
        path = Path(pooch.retrieve(source.url, known, fname=source.file, path=cache, downloader=downloader))
    except requests.RequestException as error:
        shown, reason = without_credentials(source.url), without_credentials(str(error))
        raise OSError(f"{shown} cannot be downloaded ({reason}); give a mirror or a local file with `url`") from None
    if known is None:
        log.info("%s: sha256 %s; the right one is not known", path, pooch.file_hash(str(path)))
    if path.suffix != ".zip":
        return path
    folder = cache / source.name
    if not folder.is_dir() or folder.stat().st_mtime < path.stat().st_mtime:
        unpack(path, folder)
    return folder


def _copy(url: str, output_file: str, _: object) -> None:
    shutil.copyfile(url2pathname(urlsplit(url).path), output_file)


def _check_response(response: requests.Response, **_: Any) -> None:
    response.raw.headers.pop("Content-Encoding", None)  # with which requests would decompress a .gz file
    shown, target = without_credentials(response.url), response.headers.get("Location", "")
    if response.url.startswith("https:") and response.is_redirect and target.lower().startswith("http:"):
        raise ValueError(f"{shown} redirects to an address without encryption; give another address with `url`")
    if response.status_code == requests.codes.ok and response.headers.get("Content-Type", "").startswith("text/html"):
        raise ValueError(f"{shown} returns a web page instead of the file; open it in a browser to see why")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip archive to a folder, which appears or is replaced only when it is complete.

    No member is written outside of the folder, and no link or device is made. Raise ValueError if the archive is
    damaged or encrypted, or fails ``check_inflation``.
    """
    try:
        with new_folder(folder, any_content) as new, zipfile.ZipFile(archive) as zipped:
            check_inflation(archive, sum(info.file_size for info in zipped.infolist()))
            zipped.extractall(new)  # whose members are regular files, without their leading / and ..
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise ValueError(f"{archive} cannot be unpacked ({error}); delete it and download it again") from None
