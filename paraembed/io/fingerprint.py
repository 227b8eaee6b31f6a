"""SHA-256 digests, JSON files, and differences between JSON values."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paraembed.aliases import current_path
from paraembed.io.places import Place, open_place, open_regular
from paraembed.options import MOST_BYTES, json_value

_READ_BYTES = 1 << 20
_DIFFERENCES, _VALUE_CHARACTERS = 20, 100  # in a message


def sha256_of(place: Place) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    if isinstance(place, Path):
        with open_regular(place) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    with open_place(place) as stream:
        while piece := stream.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value as canonical JSON, hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def json_bytes(value: Any) -> bytes:
    """Return a value as indented JSON."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_json(path: Path, kind: Any = Any, most_bytes: int = MOST_BYTES) -> Any:
    """Read a JSON file whose value must have the type hint ``kind`` (see ``paraembed.options``).

    Raise the errors of ``open_regular``; ValueError if the file is longer than ``most_bytes`` or not JSON, or the value
    does not match ``kind``.
    """
    with open_regular(path) as file:
        return json_value(file.read(most_bytes + 1), str(path), kind, most_bytes)


def differences(before: Any, now: Any) -> str:
    """Return the differing fields of two JSON values: ``recipe.margin (was 0.4, is 0.5); …``, or an empty text."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    changed = (name for name in {**new, **old} if old.get(name) != new.get(name))
    shown = [f"{current_path(name)} (was {_short(old.get(name))}, is {_short(new.get(name))})" for name in changed]
    more = [f"and {len(shown) - _DIFFERENCES:,} more"] if len(shown) > _DIFFERENCES else []
    return "; ".join([*shown[:_DIFFERENCES], *more])


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        yield name, f"{len(value)} values"
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{name}[{number}]")
    else:
        yield name, value


def _short(value: Any) -> str:
    """Return a value for messages; digests are truncated."""
    text = "not set" if value is None else re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}$", r"\1…", str(value))
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}…"


def stamp_of(path: Path) -> str:
    """Return a digest of the names, sizes and times of a file, or of all files of a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    about = [(str(file.relative_to(path)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(about).encode()).hexdigest()
