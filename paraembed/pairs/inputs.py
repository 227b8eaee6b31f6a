"""Input files of pair shards: their names, their first rows, and the parts in which they are parsed."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paraembed.io.escape import listed
from paraembed.io.fingerprint import sha256_of
from paraembed.io.places import Place, name_of, size_of, without_credentials
from paraembed.pairs.formats import Reading, Source, read_pairs, sources_of, spans_of
from paraembed.pairs.parts import Part

_SHOWN_PAIRS, _SHOWN_CHARACTERS = 3, 60


@dataclass(frozen=True)
class InputSource:
    """A source of pairs and what its first rows show.

    Attributes:
        source: pair file, or two aligned ones.
        name: name for messages and for the column ``source``.
        form: format of the file.
        columns: (role, name of the column), in order.
        pairs: the first pairs, up to three.
    """

    source: Source
    name: str
    form: str
    columns: tuple[tuple[str, str], ...]
    pairs: list[tuple[str, str]]


def read_heads(inputs: Sequence[Place], reading: Reading) -> list[InputSource]:
    """Read the first rows of every source, so that an unusable one fails at once.

    Raises:
        FileNotFoundError, IsADirectoryError: an input is missing or a folder.
        ValueError: an input is given twice, is unusable, or has no rows.
    """
    names, sources = input_names(inputs), sources_of(inputs, reading.form)
    names_of_sources = names[:: len(inputs) // len(sources)]
    return [_read_head(source, name, reading) for source, name in zip(sources, names_of_sources, strict=True)]


def input_names(inputs: Sequence[Place]) -> list[str]:
    """Return the file names of inputs, each with its number in front if two inputs have the same name."""
    counts = Counter(os.path.realpath(place) if isinstance(place, Path) else place for place in inputs)
    repeated = [without_credentials(str(place)) for place, count in counts.items() if count > 1]
    if repeated:
        raise ValueError(f"an input is given twice: {listed(repeated)}; name each input once")
    names = [name_of(place) for place in inputs]
    return names if len(set(names)) == len(names) else [f"{number}/{name}" for number, name in enumerate(names)]


def _read_head(source: Source, name: str, reading: Reading) -> InputSource:
    for block in read_pairs(source, reading):
        pairs = block.pairs
        rows = np.flatnonzero(pairs.refused.is_null())[:_SHOWN_PAIRS]
        texts = [column.take(pa.array(rows)).to_pylist() for column in (pairs.first, pairs.second)]
        return InputSource(source, name, block.form, tuple(block.columns.items()), list(zip(*texts, strict=True)))
    raise ValueError(f"{name} has no rows; leave it out, or make it again")


def describe(sources: Sequence[InputSource], *, with_pairs: bool) -> list[str]:
    """Return lines that show, once for each format and choice of columns, the columns and the first pairs."""
    groups: dict[tuple[Any, ...], list[InputSource]] = {}
    for source in sources:
        groups.setdefault((source.form, source.columns), []).append(source)
    lines = []
    for (form, named), (first, *others) in groups.items():
        more = f" and {len(others):,} more" if others else ""
        columns = f": {listed([f'{role} is {column}' for role, column in named])}" if named else ""
        lines.append(f"{first.name[:_SHOWN_CHARACTERS]}{more}, {form}{columns}")
        for pair in first.pairs if with_pairs else ():
            texts = (json.dumps(text[:_SHOWN_CHARACTERS], ensure_ascii=False) for text in pair)
            lines.append(f"  {' | '.join(texts)}")
    return lines


def cut_parts(sources: Sequence[InputSource], folder: Path, span_bytes: int) -> list[Part]:
    """Cut sources into the parts that one task parses; the files of the parts go to ``folder``."""
    spans = [
        (source.source, source.name, span)
        for source in sources
        for span in spans_of(source.source, source.form, span_bytes=span_bytes)
    ]
    return [Part(*span, folder / f"parsed-{number:05d}.parquet") for number, span in enumerate(spans)]


def digests_of(inputs: Sequence[Place]) -> list[dict[str, Any]]:
    """Return name, size and SHA-256 of each input."""
    return [
        {"name": name, "bytes": size_of(place), "sha256": sha256_of(place)}
        for name, place in zip(input_names(inputs), inputs, strict=True)
    ]
