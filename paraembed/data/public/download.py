"""Bring a file from an address to this machine over as many connections as it takes.

Beside the part lies ``PART.json`` (address, validator, size): a later call asks for the rest with ``Range`` and
``If-Range``, so that pieces of two versions are never joined.
"""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from paraembed.checked import Count
from paraembed.data.public.remote import Answer, BrokenError, StaleError, UnreachableError, open_at
from paraembed.data.public.sources import Source
from paraembed.files import read_json, without_credentials, write_json

_CHUNK = 1 << 20
_LONGEST_PAUSE = 60.0  # seconds
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Progress:
    """How far a download is.

    Attributes:
        name: of the source.
        received: bytes on this machine.
        total: bytes of the whole file, where the server says so.
        note: what happened (a broken connection, a new start); empty for mere progress.
    """

    name: str
    received: int
    total: int | None
    note: str = ""


class _State(TypedDict):
    """What is noted of a part."""

    url: str
    validator: str
    total: Count | None


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Patience:
    """How long to go on with a server.

    Attributes:
        attempts: tries in a row that bring no further megabyte.
        timeout: seconds without a byte after which a connection counts as broken.
        pause: seconds before the second try; doubled for each further one, at most a minute.
    """

    attempts: int = 6
    timeout: float = 60.0
    pause: float = 1.0


def download(source: Source, part: Path, report: Report, patience: Patience, *, digest_known: bool) -> None:
    """Bring ``part`` to the full size.

    Args:
        source: what to fetch.
        part: file to write; what lies there from an earlier call is continued where that is safe.
        report: called for every piece that came, and with a note when something happened.
        patience: tries and timeouts.
        digest_known: the caller will check the digest, so a server without validators may be continued, too.

    Raises:
        ValueError: a refused address; the server has no such file or another one.
        OSError: no connection, or no room on the disk; what came is kept.
    """
    tries, most, shown = 0, _size(part), without_credentials(source.url)
    while True:
        try:
            _receive(source, part, report, patience.timeout, digest_known=digest_known)
            return
        except StaleError as stale:
            discard(part)
            failure = str(stale)
        except BrokenError as broken:
            failure = str(broken)
            if isinstance(broken, UnreachableError) and tries == 0:
                raise OSError(
                    f"{shown} cannot be reached ({failure}); is the address right, and the network up?"
                ) from None
        tries = 1 if _size(part) >= most + _CHUNK else tries + 1
        most = max(most, _size(part))
        if tries >= patience.attempts:
            raise OSError(
                f"{shown} failed {tries} times in a row, at last: {failure}; {_size(part):,} bytes are kept, and "
                "the same command goes on from there"
            )
        pause = min(patience.pause * 2 ** (tries - 1), _LONGEST_PAUSE)
        report(Progress(source.name, _size(part), None, f"{failure}; trying again in {pause:.0f} s"))
        time.sleep(pause)


def _receive(source: Source, part: Path, report: Report, timeout: float, *, digest_known: bool) -> None:
    """One connection: ask for what is missing, append it, and see that the part is whole then."""
    state = _resumable(source, part, digest_known=digest_known)
    have = _size(part) if state else 0
    if have and have == state["total"]:
        return
    with open_at(source.url, have, state.get("validator", ""), timeout) as answer:
        noted = state["total"] if answer.start and state else None
        total = next((size for size in (answer.total, noted, source.num_bytes) if size is not None), None)
        if answer.start and not _fits(answer, have, state):
            raise StaleError("the file on the server has changed")
        if source.num_bytes is not None and total not in {None, source.num_bytes}:
            shown = without_credentials(source.url)
            raise ValueError(f"{shown} has {total:,} bytes, not {source.num_bytes:,}: it is another file")
        if not answer.start:
            if have:
                report(Progress(source.name, 0, total, "the server sends the whole file: starting over"))
            part.unlink(missing_ok=True)
            state = {"url": without_credentials(source.url), "validator": answer.validator, "total": answer.total}
            write_json(_state_of(part), state)
        with full_disk_in_words(part, "what came is kept"):
            size = _append(source, part, answer, total, report)
    if total is None:
        report(Progress(source.name, size, None, "the server does not say how long the file is; it may be cut short"))
    elif size < total:
        raise BrokenError(f"the connection ended after {size:,} of {total:,} bytes")


def _resumable(source: Source, part: Path, *, digest_known: bool) -> dict[str, Any]:
    """What was noted of the part; empty where its bytes are of no use.

    Without a validator pieces of two versions could be joined unseen, unless the digest is known.
    """
    if not part.exists() or not _state_of(part).exists():
        return {}
    try:
        state: dict[str, Any] = read_json(_state_of(part), _State)
    except ValueError:
        return {}
    is_same = without_credentials(state["url"]) == without_credentials(source.url)  # an earlier version kept passwords
    of_use = is_same and (state["validator"] or digest_known)
    return state if of_use and (state["total"] is None or _size(part) <= state["total"]) else {}


def _fits(answer: Answer, have: int, state: dict[str, Any]) -> bool:
    """Whether a piece continues the part; what the server leaves out cannot contradict."""
    same_total = None in {answer.total, state.get("total")} or answer.total == state["total"]
    same_version = answer.validator in {"", state.get("validator")}
    return answer.start == have and same_total and same_version


def _append(source: Source, part: Path, answer: Answer, total: int | None, report: Report) -> int:
    """Write what comes after the part; returns its size then."""
    size = answer.start
    if total is not None and total - size > (free := shutil.disk_usage(part.parent).free):
        raise OSError(errno.ENOSPC, f"{total - size:,} bytes to come, {free:,} free")
    with part.open("ab", buffering=0) as file:  # unbuffered: on a full disk the part holds what was written, no more
        while total is None or size < total:
            data = answer.read(_CHUNK if total is None else min(_CHUNK, total - size))
            if not data:
                break
            while data:
                written = file.write(data)
                size, data = size + written, data[written:]
            report(Progress(source.name, size, total))
        os.fsync(file.fileno())
    return size


@contextmanager
def full_disk_in_words(path: Path, kept: str) -> Iterator[None]:
    """Say in words that the disk is full, and what is kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise OSError(
            f"no room on the disk for {path} ({error.strerror}); {kept}: make room and run the same command again"
        ) from None


def _state_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def discard(part: Path) -> None:
    """Remove a part and what was noted of it."""
    part.unlink(missing_ok=True)
    _state_of(part).unlink(missing_ok=True)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
