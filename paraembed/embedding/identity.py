"""Recognize the inputs of a plan: by their sizes and times, or by their digests."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from paraembed.console import doing
from paraembed.embedding.inputs import LOOKERS, InputFile, stamp_of
from paraembed.io.fingerprint import sha256_of
from paraembed.io.inflate import read_span
from paraembed.io.places import open_place
from paraembed.process import in_threads, num_threads

SPAN_BYTES = 256 << 20
"""Bytes of a file of lines that are read at once; each span begins with the first row that starts in it."""
_LINE_BYTES = 64 << 10  # read to find the end of a line
_FOOTER_BYTES = 64 << 10  # read at first, at the end of a Parquet file
_OF_FOOTER = "footer-"
_FIELDS_ON_DISK = 4  # of a stamp; an object has three


class Span(NamedTuple):
    """Part of an input that is read at once; without ``bytes``, all of it."""

    file: int
    bytes: tuple[int, int] | None = None


def spans_of(number: int, source: InputFile) -> list[Span]:
    """Cut an input into spans; one that must be read from its start has only one."""
    is_cut = source.kind in {"text", "jsonl", "tsv"} and not source.is_stream and not source.has_cr_ends
    if not is_cut or source.size <= SPAN_BYTES:
        return [Span(number)]
    return [Span(number, span) for span in pairwise([*range(0, source.size, SPAN_BYTES), source.size])]


def rows_in(source: InputFile, span: tuple[int, int]) -> tuple[int, int]:
    """Return the bytes of the rows that start in a span."""
    start, stop = (_row_start(source, byte) for byte in span)
    return start, stop


def _row_start(source: InputFile, byte: int) -> int:
    """Return where the first row at or after a byte of a file of lines starts."""
    if not byte:
        return 0
    done = byte - 1
    for block in read_span(source.place, (done, source.size), _LINE_BYTES):
        if (end := block.find(b"\n")) >= 0:
            return done + end + 1
        done += len(block)
        if done - byte > source.limits.max_line_bytes:
            most = f"{source.limits.max_line_bytes:,} bytes"
            raise ValueError(f"{source.shown}: a row is longer than `max_line_bytes`, {most}; give a larger limit")
    return source.size


def digest_of_spans(digests: Sequence[str]) -> str:
    """Return the digest of a file, from those of its spans: of one, its own; of several, theirs and their number, as
    object stores do it for the pieces of an upload.
    """
    if len(digests) == 1:
        return digests[0]
    return f"{hashlib.sha256(''.join(digests).encode()).hexdigest()}-{len(digests)}"


def footer_digest(source: InputFile) -> str:
    """Return the digest of a Parquet file's footer, which has the sizes and statistics of all column chunks."""
    with open_place(source.place) as raw:
        raw.seek(max(0, source.size - _FOOTER_BYTES))
        tail = raw.read(_FOOTER_BYTES)
        if (size := 8 + int.from_bytes(tail[-8:-4], "little")) > len(tail):
            raw.seek(max(0, source.size - size))
            tail = raw.read(size)
    return f"{_OF_FOOTER}{hashlib.sha256(tail[-size:]).hexdigest()}"


def _digest_like(source: InputFile, known: str) -> str:
    """Return the digest of a file, in the form of another one."""
    if known.startswith(_OF_FOOTER):
        return footer_digest(source)
    if "-" not in known:
        return source.sha256 or sha256_of(source.place)

    def digest(span: Span) -> str:
        whole = hashlib.sha256()
        for block in read_span(source.place, rows_in(source, span.bytes or (0, source.size)), source.block_bytes):
            whole.update(block)
        return whole.hexdigest()

    with ThreadPoolExecutor(num_threads()) as pool:
        return digest_of_spans(list(pool.map(digest, spans_of(0, source))))


def hash_inputs(files: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Return the files with their digests; those that have one are not read."""
    hashed = list[InputFile]()
    with ThreadPoolExecutor(num_threads()) as pool:
        known = pool.map(lambda file: file.sha256 or ("" if file.fault else sha256_of(file.place)), files)
        for file, digest in zip(files, known, strict=True):
            hashed.append(replace(file, sha256=digest))
            doing(f"hashing the input files: {len(hashed):,} of {len(files):,} done")
    return tuple(hashed)


def changed_inputs(inputs: Sequence[InputFile]) -> list[InputFile]:
    """Return the files that were changed or removed since ``find_inputs``: another size, modification time or ETag; or
    another status time or inode, and another digest, if that is known.

    Links, modes and backups change the status time and the inode, too. Without a digest, an edit in place that keeps
    the size and sets the modification time back is not seen.
    """

    def is_same(file: InputFile) -> bool:
        if file.fault:  # the file is not read
            return True
        now = replace(file, stamp=stamp_of(file.place), sha256="")
        return _is_as_old(file, now) and is_same_file(file, now)

    return [file for file, same in zip(inputs, in_threads(is_same, inputs, LOOKERS), strict=True) if not same]


def is_same_file(before: InputFile, now: InputFile) -> bool:
    """Return whether a file is the one of an earlier stamp, which may have been elsewhere. Equal stamps or ETags
    decide, unless ``now`` has a digest, then the digests, for which the file is read; without one, size and
    modification time.
    """
    if before.size != now.size:
        return False
    is_object = now.stamp.count(" ") < _FIELDS_ON_DISK - 1
    has_same_stamp = bool(before.stamp) and (before.stamp == now.stamp or (is_object and _is_as_old(before, now)))
    if has_same_stamp and now.sha256 in {"", before.sha256}:
        return True
    if not before.sha256:
        return _is_as_old(before, now)
    doing(f"hashing {now.shown}")
    return before.sha256 == _digest_like(now, before.sha256)


def _is_as_old(before: InputFile, now: InputFile) -> bool:
    """Return whether two stamps have the same size and modification time, or the same ETag."""
    is_on_disk = now.stamp.count(" ") == _FIELDS_ON_DISK - 1
    fields = slice(2) if is_on_disk else slice(2, 3)
    return bool(now.stamp) and before.stamp.split(" ")[fields] == now.stamp.split(" ")[fields]
