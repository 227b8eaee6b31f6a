"""Command ``shard.py fetch``: download the public originals of the papers."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Annotated

import tyro

from paraembed.console import show
from paraembed.io.resume import check_destination
from paraembed.pairs.public.fetch import default_cache, fetch
from paraembed.pairs.public.sources import SOURCES, Source, find_source

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fetch:
    """Download public originals (PPDB, word vectors, evaluation sets) to a cache folder, and unpack archives there.

    A file in the cache is not downloaded again, unless its SHA-256 differs from the known one. An interrupted download
    starts over.
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
        for source in SOURCES.values():
            size = "size unknown" if source.num_bytes is None else f"{source.num_bytes / 1e6:,.0f} MB"
            show(f"{source.name:<20} {size:>12}  {source.url}  [{source.license}] {source.what}")
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
        path = fetch(source if flags.url is None else replace(source, url=flags.url), cache)
        log.info("fetched %s to %s; next: %s", source.name, path, next_command(source, path))


def next_command(source: Source, path: Path) -> str:
    """Return the command that reads the downloaded files of a source."""
    if source.kind == "sets":
        return "python jobs/evaluate.py --list, which names the place of each file below --data"
    if source.kind == "vectors":
        widest = max(filter(Path.is_file, path.rglob("*")), key=lambda file: file.stat().st_size, default=path)
        return f"python jobs/train.py --pairs PAIRS --words {join([str(widest)])} --out ENCODER"
    return f"python jobs/shard.py --input {join([str(path)])} --out {join([f'pairs/{source.name}'])}"
