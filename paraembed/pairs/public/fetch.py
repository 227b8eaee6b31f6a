"""Download public originals to a cache, checked and atomically.

``fetched.json`` in the cache holds the SHA-256 of every file: a digest that the table lacks is recorded on first use
and checked from then on. Nothing that is downloaded is loaded or executed.
"""

import logging
import os
from pathlib import Path
from typing import Any, TypedDict

from paraembed.io.atomic import locked, sync_folder, write_json
from paraembed.io.fingerprint import read_json, sha256_of
from paraembed.io.places import without_credentials
from paraembed.pairs.public.archives import is_archive, unpack
from paraembed.pairs.public.download import (
    Patience,
    Progress,
    Report,
    discard,
    download,
    full_disk_in_words,
    require_address,
)
from paraembed.pairs.public.sources import Source

log = logging.getLogger(__name__)

FETCHED = "fetched.json"
_SAY_EVERY = 5.0  # seconds


class _Record(TypedDict):
    sha256: str


def default_cache() -> Path:
    """Return ``$PARAEMBED_CACHE``, or ``~/.cache/paraembed``."""
    named = os.environ.get("PARAEMBED_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "paraembed"


def fetch(source: Source, cache: Path, report: Report = lambda _: None, patience: Patience | None = None) -> Path:
    """Download a source to the cache, or find it there, and check its digest: that of the table or of the first use.

    Args:
        source: what to download.
        cache: folder; created if missing, and locked meanwhile.
        report: called for every received piece, and with a note on other events.
        patience: tries and timeouts.

    Returns:
        The file.

    Raises:
        ValueError: the URL is rejected, the server has no such file or another one, the digest is wrong (the file is
            removed), or another run holds the cache.
        OSError: no connection, or a full disk; received bytes are kept for the next call.
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
                    f"{path} has sha256 {digest}, not {expected}: it was changed; delete it and download it again"
                )
            discard(part)
            known = f"expected {expected}"
            if not source.sha256:
                known = f"its first use recorded {expected}; remove it from {cache / FETCHED} if the file is right"
            raise ValueError(f"{shown} has sha256 {digest}, the download was removed: {known}")
        if not is_there or not record:  # a file that a user put there is recorded, too
            record |= {"url": shown, "bytes": file.stat().st_size, "sha256": digest}
            write_json(cache / FETCHED, records | {source.file: record})
        if not is_there:
            part.replace(path)
            sync_folder(cache)
            discard(part)
        return path


def fetch_unpacked(
    source: Source, cache: Path, report: Report = lambda _: None, patience: Patience | None = None
) -> Path:
    """Download a source; an archive is unpacked, once, to the folder ``CACHE/NAME``.

    Returns:
        The file, or the folder of an archive.

    Raises:
        ValueError, OSError: as ``fetch`` and ``paraembed.pairs.public.archives.unpack``.
    """
    path = fetch(source, cache, report, patience)
    if not is_archive(source.file):
        return path
    folder = cache / source.name
    with locked(cache):
        records = _records(cache)
        record = records[source.file]
        if record.get("unpacked") != record["sha256"] or not folder.is_dir():
            report(Progress(source.name, path.stat().st_size, path.stat().st_size, "unpacking"))
            with full_disk_in_words(folder, "the archive is kept"):
                unpack(path, folder)
            write_json(cache / FETCHED, records | {source.file: record | {"unpacked": record["sha256"]}})
    return folder


def _records(cache: Path) -> dict[str, dict[str, Any]]:
    path = cache / FETCHED
    records: dict[str, dict[str, Any]] = read_json(path, dict[str, _Record]) if path.exists() else {}
    return records
