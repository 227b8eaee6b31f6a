"""Command ``shard.py fetch``: download the public originals of the papers."""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Annotated

import tyro

from paraembed.console import doing, show
from paraembed.io.resume import check_destination
from paraembed.pairs.public.download import DownloadProgress, OnProgress
from paraembed.pairs.public.fetch import default_cache, fetch_unpacked
from paraembed.pairs.public.sources import SOURCES, Source, find_source

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fetch:
    """Download public originals (PPDB, SimpWiki, word vectors) to a cache folder, and unpack archives there.

    An interrupted download is resumed. The digest of a file in the cache is checked, and the file is not downloaded
    again.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")] = ()
    """Sources to download, for example ppdb-2.0-xxl-phrasal; --list shows all names."""
    cache: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder for the files; default: $PARAEMBED_CACHE, or ~/.cache/paraembed."""
    url: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """URL of a mirror or of a local copy (file:///…) to use instead; only with a single NAME."""
    show: Annotated[bool, tyro.conf.arg(name="list")] = False
    """Print the names with size, license and URL, and exit."""


def run_fetch(flags: Fetch) -> None:
    """Download the named sources, and print the next command."""
    if flags.show:
        show(*_table())
        return
    if not flags.names:
        raise ValueError("no source was named, for example ppdb-2.0-xxl-phrasal; fetch --list shows the names")
    if flags.url is not None and len(flags.names) > 1:
        raise ValueError(
            f"--url is the URL of a single file, but {len(flags.names)} names are given; download them one at a time"
        )
    sources = [find_source(name) for name in flags.names]
    cache = (default_cache() if flags.cache is None else flags.cache.expanduser()).absolute()
    check_destination(cache, name="cache")
    for source in sources:
        path = fetch_unpacked(source if flags.url is None else replace(source, url=flags.url), cache, _reporter())
        log.info("fetched %s to %s; next: %s", source.name, path, next_command(source, path))


def next_command(source: Source, path: Path) -> str:
    """Return the command that reads the downloaded files of a source."""
    if source.kind in {"vectors", "binary"}:
        texts = sorted(path.rglob("*.txt"), key=lambda file: file.stat().st_size)  # the widest vectors come last
        return f"python jobs/train.py --pairs PAIRS --words {join([str((texts or [path])[-1])])} --out ENCODER"
    inputs = [path]
    if source.kind == "aligned":
        inputs = sorted(path.rglob("*.aligned"))  # normal before simple
    if source.kind == "pairs":
        inputs = sorted(file for file in path.rglob("*.txt") if "ppdb" in file.name.lower())
    form = " --format aligned --training-set acl2017/simpwiki" if source.kind == "aligned" else ""
    given, out = join(map(str, inputs or [path])), join([f"pairs/{source.name}"])
    return f"python jobs/shard.py --input {given}{form} --out {out}"


def _reporter() -> OnProgress:
    """Return a function that logs notes, and shows the progress since the last note in the status line."""
    started, before = 0.0, -1

    def report(progress: DownloadProgress) -> None:
        nonlocal started, before
        if progress.note:
            log.info("  %s: %s", progress.name, progress.note)
            before = -1
            return
        now = time.monotonic()
        if before < 0:
            started, before = now, progress.received
        rate = f", {(progress.received - before) / (now - started) / 1e6:.1f} MB/s" if now > started else ""
        of = "" if progress.total is None else f" of {progress.total / 1e6:,.0f}"
        doing(f"{progress.name}: {progress.received / 1e6:,.0f}{of} MB{rate}")

    return report


def _table() -> list[str]:
    """Return the sources, one per line; ``?`` marks a URL that was not seen anywhere."""
    lines = []
    for source in SOURCES.values():
        size = "" if source.num_bytes is None else f"{source.num_bytes / 1e6:,.0f} MB"
        mark = " " if source.evidence == "seen" else "?"
        lines.append(f"{source.name:<22} {size:>8}  {mark} {source.url}  [{source.license}] {source.what}")
    return [*lines, "? URL derived from those of similar sources, not tested"]
