"""``shard.py fetch``: download the public originals of the papers."""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Annotated

import tyro

from paraembed.console import show
from paraembed.pairs.public.download import Progress, Report
from paraembed.pairs.public.fetch import default_cache, fetch_unpacked
from paraembed.pairs.public.sources import SOURCES, Source, find_source

log = logging.getLogger(__name__)

_SAY_EVERY = 5.0  # seconds


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


def run_fetch(flags: Fetch) -> None:
    """Fetch what the flags name, and say what comes next.

    Raises:
        ValueError, OSError: as ``fetch``; a name that is not in the table.
    """
    if flags.show:
        show(*_table())
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


def _reporter() -> Report:
    """Notes at once, progress every few seconds, as lines of the log."""
    reported, before = time.monotonic(), -1

    def report(progress: Progress) -> None:
        nonlocal reported, before
        now = time.monotonic()
        if progress.note:
            log.info("  %s: %s", progress.name, progress.note)
        elif now - reported >= _SAY_EVERY:
            rate = f", {(progress.received - before) / (now - reported) / 1e6:.1f} MB/s" if before >= 0 else ""
            of = "" if progress.total is None else f" of {progress.total / 1e6:,.0f}"
            log.info("  %s: %s%s MB%s", progress.name, f"{progress.received / 1e6:,.0f}", of, rate)
            reported, before = now, progress.received

    return report


def _table() -> list[str]:
    """The sources, one a line; those with ``?`` have an address that was seen nowhere."""
    lines = []
    for source in SOURCES.values():
        size = "" if source.num_bytes is None else f"{source.num_bytes / 1e6:,.0f} MB"
        mark = " " if source.evidence == "seen" else "?"
        lines.append(f"{source.name:<22} {size:>8}  {mark} {source.url}  [{source.license}] {source.what}")
    return [*lines, "? address derived from those of similar sources, and not tried"]
