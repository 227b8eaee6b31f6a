"""Fetch public originals to the cache: checked, and whole under their names or not there at all.

``fetched.json`` in the cache holds the SHA-256 of every file: one that the table does not know is recorded on first
use and asked for from then on. Nothing that was fetched is loaded or run.
"""

import logging
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Annotated, Any, TypedDict

import tyro

from paraembed.io.files import (
    locked,
    read_json,
    sha256_of,
    sync_folder,
    without_credentials,
    write_json,
    write_stream,
)
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
from paraembed.pairs.public.sources import SOURCES, Source, find_source

log = logging.getLogger(__name__)

FETCHED = "fetched.json"
_SAY_EVERY = 5.0  # seconds


class _Record(TypedDict):
    sha256: str


@dataclass(frozen=True)
class Fetch:
    """Download public originals (PPDB, SimpWiki, word vectors) to a cache folder, and unpack archives there.

    An interrupted download resumes. A file in the cache is checked, not downloaded again.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Sources to download, e.g. ppdb-2.0-xxl-phrasal."""
    cache: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the files. Default: $PARAEMBED_CACHE, else ~/.cache/paraembed."""
    url: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Address of the one NAME instead of its own: a mirror, or file:///… for a copy on this machine."""
    show: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Print the names with size, license and address."""


def default_cache() -> Path:
    """``$PARAEMBED_CACHE``, or ``~/.cache/paraembed``."""
    named = os.environ.get("PARAEMBED_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "paraembed"


def run_fetch(flags: Fetch) -> None:
    """Fetch what the flags name, and say what comes next.

    Raises:
        ValueError, OSError: as ``fetch``; a name that is not in the table.
    """
    if flags.show:
        write_stream(sys.stdout, _table())
        return
    if not flags.names:
        raise ValueError("name what to fetch, e.g. ppdb-2.0-xxl-phrasal; fetch --list shows the names")
    if flags.url is not None and len(flags.names) > 1:
        raise ValueError(f"--url is the address of one file; {len(flags.names)} names are given")
    sources = [find_source(name) for name in flags.names]
    cache = (default_cache() if flags.cache is None else flags.cache.expanduser()).absolute()
    for source in sources:
        path = fetch_unpacked(source if flags.url is None else replace(source, url=flags.url), cache, _reporter())
        log.info("fetched %s to %s; next: %s", source.name, path, next_command(source, path))


def next_command(source: Source, path: Path) -> str:
    """The command that reads what ``fetch_unpacked`` gave for a source."""
    if source.kind == "binary":
        return "make a text file of it (one word and its vector a line), which jobs/train.py --words reads"
    if source.kind == "vectors":
        texts = sorted(path.rglob("*.txt"), key=lambda file: file.stat().st_size)  # the widest vectors come last
        return f"python jobs/train.py --pairs PAIRS --words {join([str(file) for file in texts[-1:]])} --out ENCODER"
    inputs = [path]
    if source.kind == "aligned":
        inputs = sorted(path.rglob("*.aligned"))  # normal before simple
    if source.kind == "pairs":
        inputs = sorted(file for file in path.rglob("*.txt") if "ppdb" in file.name.lower())
    form = " --format aligned --training-set acl2017/simpwiki" if source.kind == "aligned" else ""
    given, out = join(map(str, inputs or [path])), join([f"pairs/{source.name}"])
    return f"python jobs/shard.py --input {given}{form} --out {out}"


def fetch(source: Source, cache: Path, report: Report = lambda _: None, patience: Patience | None = None) -> Path:
    """Download a source to the cache, or find it there; either way it has the digest of the table or of first use.

    Args:
        source: what to fetch.
        cache: folder; made where it is missing, held alone for as long as this takes.
        report: called for every piece that came, and with a note when something happened.
        patience: tries and timeouts.

    Returns:
        The file.

    Raises:
        ValueError: a refused address; the server has no such file or another one; a wrong digest (what came is
            removed); another run holds the cache.
        OSError: no connection, or no room on the disk; what came is kept for the next call.
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
                    f"{path} has sha256 {digest}, not {expected}: it was changed; delete it and fetch it again"
                )
            discard(part)
            known = f"{expected} is expected"
            if not source.sha256:
                known = f"its first use recorded {expected}; take it out of {cache / FETCHED} if that no longer holds"
            raise ValueError(f"{shown} has sha256 {digest}, what came was removed: {known}")
        if not is_there or not record:  # a file that was put there by hand is recorded, too
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
    """Fetch a source; an archive is unpacked, once, to the folder ``CACHE/NAME``.

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


def _reporter() -> Report:
    """Notes at once, progress every few seconds, as lines of the log."""
    said, before = time.monotonic(), -1

    def report(progress: Progress) -> None:
        nonlocal said, before
        now = time.monotonic()
        if progress.note:
            log.info("  %s: %s", progress.name, progress.note)
        elif now - said >= _SAY_EVERY:
            rate = f", {(progress.received - before) / (now - said) / 1e6:.1f} MB/s" if before >= 0 else ""
            of = "" if progress.total is None else f" of {progress.total / 1e6:,.0f}"
            log.info("  %s: %s%s MB%s", progress.name, f"{progress.received / 1e6:,.0f}", of, rate)
            said, before = now, progress.received

    return report


def _table() -> str:
    """The sources, one a line; those with ``?`` have an address that was seen nowhere."""
    lines = []
    for source in SOURCES.values():
        size = "" if source.num_bytes is None else f"{source.num_bytes / 1e6:,.0f} MB"
        mark = " " if source.evidence == "seen" else "?"
        lines.append(f"{source.name:<22} {size:>8}  {mark} {source.url}  [{source.licence}] {source.what}\n")
    return "".join(lines) + "? follows the pattern of its neighbours; no address was tried when this was written\n"
