"""Public original files that users of this project need, with address, size, SHA-256 and license.

No address was tried when this table was written. They occur in public code, except those of ``ppdb-1.0-s-all``, the
PPDB files with phrases and ``paragram-sl999``, which are derived from others of the same server. A size or digest is
given only if public sources record it. The servers are old: paraphrase.org (403 since 2025) is reported as gone. The
parameter ``url`` of ``fetch`` is a mirror or a local file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Source:
    """A public file; ``license`` is that of the publisher, ``file`` the name in the cache."""

    name: str
    url: str
    file: str
    license: str
    what: str
    kind: Literal["ppdb", "vectors", "sets"]
    num_bytes: int | None = None  # None: unknown
    sha256: str | None = None  # hexadecimal; None: unknown


def _read_sources(path: Path) -> Iterator[Source]:
    """Yield the rows of ``sources.tsv``, whose columns are the fields of ``Source``."""
    head, *rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    for row in rows:
        fields: dict[str, Any] = dict(zip(head, row, strict=True))
        num_bytes, sha256 = fields.pop("num_bytes"), fields.pop("sha256")
        yield Source(**fields, num_bytes=int(num_bytes) if num_bytes else None, sha256=sha256 or None)


SOURCES = {source.name: source for source in _read_sources(Path(__file__).with_name("sources.tsv"))}


def find_source(name: str) -> Source:
    """Return the source with this name; raise ValueError if the name is unknown."""
    if name not in SOURCES:
        raise ValueError(f"unknown source {name!r}; allowed: {', '.join(SOURCES)}")
    return SOURCES[name]
