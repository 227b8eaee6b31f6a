"""Input files of an embedding run: find them in files, folders and globs, check them, and compute their digests."""

import errno
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path, PurePath, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.fs

from paraembed.embedding.snapshots import delta_files, iceberg_files
from paraembed.io.arrow import open_arrow
from paraembed.io.convert import array_lines, is_array, read_utf8
from paraembed.io.escape import listed
from paraembed.io.inflate import BLOCK_BYTES, compression_of, read_span, zipped_name
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, SettingError, TableLimits
from paraembed.io.lines import is_utf8
from paraembed.io.parquet import begins_parquet, open_parquet
from paraembed.io.places import Place, locate, name_of, open_place, require_file, to_place, without_credentials
from paraembed.io.store import Folder, Store
from paraembed.io.tables import (
    BYTE_ORDER_MARK,
    SEP_LINE,
    Kind,
    Records,
    TableFormat,
    check_delimiter,
    json_object,
    read_records,
)
from paraembed.process import in_threads

TEXT_FIELD = "text"
KNOWN = (
    ".txt (one text per line), .jsonl, .ndjson, .json, .csv, .tsv, each also .gz, .zst, .bz2 or .zip, or .parquet, "
    ".arrow, .feather"
)
_KINDS: dict[str, Kind] = {".txt": "text", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
_KINDS |= {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".arrow": "arrow", ".feather": "arrow"}
_BINARY = {"parquet", "arrow"}
_COMPRESSED = (".gz", ".zst", ".bz2", ".zip")
_NO_TEXT = {b"PAR1": "a Parquet file", b"%PDF-": "PDF", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_JSON = re.compile(r".*\.json(\.(gz|zst|bz2|zip))?", re.DOTALL)
_CACHE = re.compile(r"(.*/)?cache-[^/]*\.arrow", re.DOTALL)  # of Hugging Face: rows of the other files
_RECENT_NS = 5 * 10**9  # an object can change within the second of its time, so such a time is not remembered
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_DELTA_LOG = "_delta_log/"
_VISIBLE = re.compile(rf"(?!.*(?:^|/)(?:\.|_(?!{_DELTA_LOG[1:]}))).*", re.DOTALL)
_ICEBERG = re.compile(r"^(|.*/)metadata/[^/]*\.metadata\.json$", re.DOTALL)
_LOOKED_AT = 1 << 20  # bytes at the beginning of a file, for its header
_LINES_LOOKED_AT = 1000  # of JSON, for the keys of their objects
_LIMITS = ("max_line_bytes", "max_field_lines", "csv_escape", "csv_skip_blanks")
_DECIDING = (*_LIMITS, "csv_delimiter", "has_sep_line", "encoding", "is_array", "has_cr_ends")
_IF_SET = ("carried", "sha256", "stamp", "fault", "snapshot")
LOOKERS = 32
"""Threads that look at files; an answer of an object store takes 20 ms and more."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InputFile:
    """An input file in its state when the plan was made.

    Attributes:
        path: absolute path, or URI.
        name: path below the given folder or glob, or the file name; ``file:row`` ids begin with it.
        kind: format of the rows.
        compressed: gzip, bz2, zst or zip; see ``is_stream``.
        columns: names of the columns; for JSON lines, the keys of the first 1,000 rows in the first MiB, at least of
            the first row; empty for Parquet, whose footer has them.
        size: bytes of the file.
        sha256: digest of the file, if it was read for one; see ``hash_inputs``.
        stamp: size, modification and status time (ns) and inode; on an object store size, modification time and ETag;
            taken before the file was read. It decides whether a file has changed.
        limits: limits on reading the file. They are not saved, and neither is ``block_bytes``.
        block_bytes: bytes to read and parse at a time.
        max_line_bytes: CSV only: limit of a row of several lines, which affects the rejected lines.
        max_field_lines: CSV only: limit of a quoted cell, which also affects the rejected lines.
        carried: base64 of the serialized Arrow schema of the id and the kept columns, if they differ between the
            inputs; see ``columns.with_common_fields``.
        csv_delimiter, csv_escape, csv_skip_blanks: see ``TableLimits``.
        has_sep_line: CSV only: the first line is ``sep=;``, above the header.
        encoding: name of the encoding, as Python's ``codecs`` has it.
        is_array: JSON only: the file is one array of objects, because its first character is a bracket.
        has_cr_ends: text only: lines end in CR, because the first MiB has CR, but no LF.
        snapshot: version of the Delta or Iceberg table that consists of the file and others.
        fault: why the file cannot be read, so that the run leaves it out; see ``Limits.max_bad_files``.
    """

    path: str
    name: str
    kind: Kind
    compressed: bool
    columns: tuple[str, ...]
    size: int
    sha256: str = ""
    stamp: str = ""
    limits: TableLimits = field(default=DEFAULT_TABLE_LIMITS, compare=False)
    block_bytes: int = field(default=BLOCK_BYTES, compare=False)
    max_line_bytes: int = DEFAULT_TABLE_LIMITS.max_line_bytes
    max_field_lines: int = DEFAULT_TABLE_LIMITS.max_field_lines
    csv_delimiter: str = ","
    csv_escape: str = ""
    csv_skip_blanks: bool = False
    has_sep_line: bool = False
    encoding: str = "utf-8"
    is_array: bool = False
    has_cr_ends: bool = False
    carried: str = ""
    fault: str = ""
    snapshot: str = ""

    @property
    def is_stream(self) -> bool:
        """Whether the file can only be read from its start, its parts in sequence, by one reader, because it is
        compressed or converted.
        """
        return self.compressed or self.is_array or self.encoding != "utf-8"

    @property
    def place(self) -> Place:
        """Path or URI of the file, for ``io.places``."""
        return to_place(self.path)

    @property
    def partitions(self) -> dict[str, str | None]:
        """Columns of Hive folders such as ``lang=en`` in ``name``, with the value of all rows of the file."""
        pairs = (folder.split("=", 1) for folder in self.name.split("/")[:-1] if "=" in folder[1:])
        return {unquote(name): None if value == _HIVE_NULL else unquote(value) for name, value in pairs}

    @property
    def state(self) -> str:
        """Value that changes with the file."""
        return f"{self.size} {self.stamp}"

    @property
    def shown(self) -> str:
        """``path`` without user and password of a URI, for messages and files."""
        return without_credentials(self.path)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, without credentials and without those that have their defaults."""
        values = asdict(replace(self, path=self.shown))
        for name in ("limits", "block_bytes", *_DECIDING, *(name for name in _IF_SET if not values[name])):
            del values[name]
        return values | self.how_read()

    def how_read(self) -> dict[str, Any]:
        """Return what affects the rows, or the rejected lines, and differs from the default, by name."""
        return {name: getattr(self, name) for name in _DECIDING if getattr(self, name) != getattr(InputFile, name)}

    @property
    def table(self) -> TableFormat:
        """Format of CSV and TSV, to read the header."""
        dialect = self.csv_delimiter, self.csv_escape, self.csv_skip_blanks
        return TableFormat(0, self.max_field_lines, True, True, *dialect)

    def blocks(self, size: int | None = None) -> Iterator[bytes]:
        """Yield the text of the file, decompressed and converted to UTF-8 lines, in pieces of about ``size`` bytes."""
        size = self.block_bytes if size is None else size
        pieces = read_utf8(self.place, size, self.encoding, self.limits.max_inflation)
        if self.is_array:
            pieces = array_lines(pieces, self.shown, self.limits.max_line_bytes)
        return filter(None, pieces)

    def cut_records(self, pieces: Iterable[bytes] | None = None, start: int = 0) -> Iterator[Records]:
        """Split the file, or ``pieces`` that begin with the record at byte ``start``, into records."""
        pieces = self.blocks() if pieces is None else pieces
        if self.has_cr_ends:
            pieces = (piece.replace(b"\r", b"\n") for piece in pieces)
        most = self.max_line_bytes if self.kind == "csv" else self.limits.max_line_bytes
        table = self.table._replace(width=len(self.columns), from_start=start == 0)
        return read_records(pieces, self.kind, self.shown, most, table)


def find_inputs(
    asked: Sequence[str | Path],
    limits: TableLimits = DEFAULT_TABLE_LIMITS,
    *,
    known: Mapping[str, InputFile] = MappingProxyType({}),
    max_bad_files: int = 0,
) -> tuple[InputFile, ...]:
    """Find the input files, and check that they exist, have the same known kind, and are neither empty nor binary.

    ``asked`` are files, folders (all files of a known kind below, except names that begin with ``.`` or ``_``; of a
    Delta or Iceberg table, those of its current version) and globs (``*``, ``?`` and ``**/``), each a path or a URI
    (in which ``?`` begins the options). The files of a folder or glob are sorted by name. Files that an earlier call
    with the same limits looked at, ``known`` by their paths without credentials, are not opened if their size and times
    are the same. Up to ``max_bad_files`` files that cannot be read have a ``fault``.

    A missing file or broken link is a FileNotFoundError; a file that cannot be used, or is given twice (possibly
    through links), a ValueError.
    """
    if not asked:
        raise ValueError(f"no input files; give files, folders or globs of {KNOWN}")
    places = [entry for argument in asked for entry in _find(str(argument))]
    counts = Counter(_without_links([entry.place for entry in places]))
    if len(counts) < len(places):
        repeated = counts.most_common(1)[0][0]
        raise ValueError(
            f"{without_credentials(str(repeated))} is given twice, possibly through a link; give each input once"
        )
    look_at = partial(_look_or_fault if max_bad_files else _look_at, limits=limits)
    looked = in_threads(lambda entry: _known(entry, known) or look_at(entry), places, LOOKERS)
    files = [
        file
        if (file.limits, file.snapshot) == (limits, entry.snapshot)
        else replace(file, limits=limits, snapshot=entry.snapshot)
        for file, entry in zip(looked, places, strict=True)
    ]
    kinds = sorted({file.kind for file in files})
    if len(kinds) > 1:
        raise ValueError(f"the inputs are of several kinds ({', '.join(kinds)}); embed each kind to a separate `out`")
    check_faults(files, max_bad_files)
    return tuple(files)


def readable(files: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Return the files without a fault."""
    return tuple(file for file in files if not file.fault)


def check_faults(files: Sequence[InputFile], most: int) -> None:
    """Raise ValueError if more than ``most`` files, or all files, have a fault."""
    faults = [file.fault for file in files if file.fault]
    allowed = f", but `max_bad_files` is {most}" if len(faults) > most else ""
    if allowed or (faults and len(faults) == len(files)):
        raise ValueError(f"{len(faults):,} of {len(files):,} input files cannot be read{allowed}; first: {faults[0]}")


def fault_in(error: OSError | ValueError) -> str:
    """Return what is wrong with a file, if an error is one of the file itself. Raise the error if it is one of a
    setting, or of the disk or network, which may be over when the file is read again.
    """
    is_unreadable = getattr(error, "errno", None) in {errno.EACCES, errno.EPERM, errno.EIO}
    is_of_file = isinstance(error, ValueError) and not isinstance(error, SettingError)
    if is_of_file or is_unreadable or "ACCESS_DENIED" in str(error):
        return without_credentials(str(error))
    raise error


def check_apart(asked: Sequence[str | Path], files: Sequence[InputFile], out: Store, part: str) -> None:
    """Raise ValueError if the output is inside of an input or the reverse, because a run would read its own parts.
    ``asked`` are the arguments of ``find_inputs``, ``part`` is the name of a file in the output folder.
    """
    target = comparable(out.path if isinstance(out, Folder) else out.place)
    paths = {file.path for file in files}
    for argument in map(str, asked):
        if (argument if "://" in argument else str(Path(argument).absolute())) in paths:
            continue
        searched = comparable(argument.partition("**")[0] if "**" in argument else argument)
        if target.is_relative_to(searched) or would_find(argument, target / part):
            folder = without_credentials(argument)
            raise ValueError(f"`out` {out} is inside of the input {folder}; choose another `out`")
    places = _without_links([file.place for file in files])
    folders = {path.rpartition("/")[0] for path in places}
    inside = {folder for folder in folders if PurePosixPath(folder).is_relative_to(target)}
    for file, path in zip(files, places, strict=True) if inside else ():
        if path.rpartition("/")[0] in inside:
            raise ValueError(f"the input {file.shown} is inside of `out` {out}; choose another `out`")


def stamp_of(place: Place) -> str:
    """Return size, modification and status time (ns) and inode of a file; size, modification time and ETag of an
    object; empty if it does not exist.
    """
    filesystem, path = (None, place) if isinstance(place, Path) else locate(place)
    if filesystem is None or isinstance(filesystem, pa.fs.LocalFileSystem):
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path takes three times as long
        except FileNotFoundError:
            return ""
        return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
    info = filesystem.get_file_info(path)
    if info.type != pa.fs.FileType.File:
        return ""
    with filesystem.open_input_file(path) as file:
        return _stamp_of_object(file, info.mtime_ns)


def _stamp_of_object(file: Any, mtime_ns: int) -> str:
    known = {str(key).lower(): value for key, value in (file.metadata() or {}).items()}
    is_recent = time.time_ns() - mtime_ns < _RECENT_NS
    return f"{file.size()} {0 if is_recent else mtime_ns} {known.get('etag', b'').decode() or mtime_ns}"


def _known(entry: "_Entry", known: Mapping[str, InputFile]) -> InputFile | None:
    """Return the file of an earlier call, if it has the same name, size and times; without a request to a store."""
    before = known.get(without_credentials(str(entry.place)))
    if before is None or before.name != entry.name:
        return None
    is_object = bool(entry.listed)
    is_same = before.stamp.startswith(f"{entry.listed} ") if is_object else before.stamp == stamp_of(entry.place)
    is_unchanged = is_same and (before.path, before.carried) == (str(entry.place), "")
    return before if is_unchanged else replace(before, path=str(entry.place), carried="") if is_same else None


def kind_of(name: str) -> Kind | None:
    """Return the kind of a file, from its name; None if it is unknown."""
    stem = name
    for suffix in _COMPRESSED:
        stem = stem.removesuffix(suffix)
    kind = next((kind for suffix, kind in _KINDS.items() if stem.endswith(suffix)), None)
    return None if kind in _BINARY and stem != name else kind


class _Entry(NamedTuple):
    """A file with its relative name; of an object also size and time; of a table, also the version."""

    place: Place
    name: str
    listed: str = ""
    snapshot: str = ""


def _find(text: str) -> list[_Entry]:
    """Return the files of one argument."""
    if not text.strip():
        raise ValueError(
            f"an input is {text!r}; give a file, a folder or a glob of {KNOWN}, or . for the working folder"
        )
    _check_name(text if "://" in text else str(Path(text).absolute()))
    shown = without_credentials(text)
    filesystem, path = locate(text)
    kind = filesystem.get_file_info(path).type
    if kind == pa.fs.FileType.Directory:
        files = _without_tables(text, shown, list(_below(text, _VISIBLE)))
        known = [entry for entry in files if kind_of(entry.name) and not _CACHE.fullmatch(entry.name)]
        if not all(_JSON.fullmatch(entry.name) for entry in known):  # next to other files, these are metadata
            known = [entry for entry in known if not _JSON.fullmatch(entry.name)]
        if len(known) < len(files):
            kept = {entry.name for entry in known}
            other = next(entry.name for entry in files if entry.name not in kept)
            log.warning(
                "%s: %d of %d files are left out; the first is %s; expected %s, and .json only without others",
                *(shown, len(files) - len(known), len(files), other, KNOWN),
            )
        if not known:
            raise FileNotFoundError(f"{shown} has no file to embed; expected {KNOWN}")
        _check_outside(filesystem, path, [])
        return known
    if kind == pa.fs.FileType.NotFound and (cut := _first_wildcard(text)) is not None:
        base, pattern = cut
        files = list(_below(base, _glob(pattern), recursive="/" in pattern))
        if not files:
            raise FileNotFoundError(f"{shown} matches no file; check the pattern, which may use *, ? and **/")
        _check_outside(filesystem, locate(base)[1], [entry.name for entry in files])
        return files
    place = to_place(text) if "://" in text else Path(text).absolute()
    return [_Entry(place, unquote(name_of(place)) if isinstance(place, str) else name_of(place))]


def _check_outside(filesystem: pa.fs.FileSystem, folder: str, names: list[str]) -> None:
    """Raise ValueError if a folder, or one of its files ``names``, is inside of a Delta or Iceberg table."""
    parents = PurePosixPath(folder).parents if not names else [PurePosixPath(folder), *PurePosixPath(folder).parents]
    below = {parent for name in names for parent in PurePosixPath(folder, name).parents}
    folders = sorted({*parents, *below} - {PurePosixPath()})  # which has no bucket
    with ThreadPoolExecutor(LOOKERS) as pool:
        for parent, kind in zip(folders, pool.map(partial(_table_kind, filesystem), folders), strict=True):
            if kind:
                raise ValueError(
                    f"{parent} is {kind} table, in which files can be out of date; give the table itself as an input, "
                    "or its files one by one"
                )


def _table_kind(filesystem: pa.fs.FileSystem, folder: PurePosixPath) -> str:
    """Return what kind of table a folder is, or an empty string."""
    try:
        log_folder, metadata = filesystem.get_file_info([f"{folder}/_delta_log", f"{folder}/metadata"])
    except OSError:  # keys of an object store may allow no request above the input
        return ""
    if log_folder.type == pa.fs.FileType.Directory:
        return "a Delta"
    is_folder = metadata.type == pa.fs.FileType.Directory
    entries = filesystem.get_file_info(pa.fs.FileSelector(metadata.path)) if is_folder else []
    return "an Iceberg" if any(entry.path.endswith(".metadata.json") for entry in entries) else ""


def _without_tables(text: str, shown: str, files: list[_Entry]) -> list[_Entry]:
    """Return the current files of a Delta or Iceberg table; raise ValueError for a table below the folder."""
    deltas = {entry.name.partition(_DELTA_LOG)[0] for entry in files if _DELTA_LOG in entry.name}
    tables = deltas | {match[1] for entry in files if (match := _ICEBERG.search(entry.name))}
    if tables - {""}:
        kind = "a Delta" if min(tables - {""}) in deltas else "an Iceberg"
        raise ValueError(f"{shown}/{min(tables - {''})} is {kind} table; give the table itself as an input")
    if not tables:
        return files
    named = [(entry.place, entry.name) for entry in files]
    current, snapshot = (delta_files if deltas else iceberg_files)(text, named)
    names = {name for _, name in current}
    return [entry._replace(snapshot=snapshot) for entry in files if entry.name in names]


def _first_wildcard(text: str) -> tuple[str, str] | None:
    """Return the folder before a glob's first wildcard, and the rest of the glob; None without a wildcard."""
    if "://" in text:
        path = urlsplit(text).path
        star = path.find("*")
        cut = path.rfind("/", 0, star) if star >= 0 else -1
        return None if star < 0 else (_with_path(text, path[:cut]), unquote(path[cut + 1 :]))
    wildcard = re.search(r"[*?]", text)
    if wildcard is None:
        return None
    cut = text.rfind("/", 0, wildcard.start())
    return text[:cut] or "/" if cut >= 0 else ".", text[cut + 1 :]


def would_find(asked: str, path: PurePath) -> bool:
    """Return whether a glob matches ``path``, in the form that ``comparable`` returns."""
    cut = _first_wildcard(asked)
    if cut is None:
        return False
    folder, pattern = comparable(cut[0]), cut[1]
    return path.is_relative_to(folder) and bool(_glob(pattern).fullmatch(str(path.relative_to(folder))))


def comparable(place: Place) -> PurePath:
    """Return a path for comparisons: of a local file without links; of a URI with scheme and bucket, without
    options.
    """
    if isinstance(place, str) and "://" in place and not place.startswith("file://"):
        return PurePosixPath(without_credentials(place).partition("?")[0])
    path = place.absolute() if isinstance(place, Path) else Path(locate(place)[1])
    try:
        return path.resolve()
    except RuntimeError:  # of pathlib, until Python 3.13
        raise ValueError(f"{path} is a symbolic link to itself; remove it, or give another path") from None


def _without_links(places: Sequence[Place]) -> list[str]:
    """Return ``comparable`` of many files; the links of a folder are followed once."""
    folders = dict[str, str]()

    def path_of(place: Place) -> str:
        if not isinstance(place, Path) or place.is_symlink():
            return str(comparable(place))
        folder, _, name = str(place.absolute()).rpartition("/")
        if folder not in folders:
            folders[folder] = str(comparable(Path(folder or "/")))
        return f"{folders[folder].rstrip('/')}/{name}"

    return [*map(path_of, places)]


def _with_path(uri: str, path: str) -> str:
    return urlsplit(uri)._replace(path=path).geturl()


def _glob(pattern: str) -> re.Pattern[str]:
    """Convert a glob to a regular expression; names that begin with a dot match only if the pattern has it."""
    hidden = "" if re.search(r"(^|/)\.", pattern) else r"(?!.*(?:^|/)\.)"
    wildcards = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*|\?)", pattern)
    return re.compile(hidden + "".join(wildcards.get(piece) or re.escape(piece) for piece in pieces), re.DOTALL)


def _below(folder: str, names: re.Pattern[str], *, recursive: bool = True) -> Iterator[_Entry]:
    """Yield the files below a folder whose relative path matches ``names``, sorted by this path, but no empty ones."""
    filesystem, base = locate(folder)
    is_disk = isinstance(filesystem, pa.fs.LocalFileSystem)
    files, empty, others = list[str](), list[str](), list[str]()
    listed = dict[str, str]()
    try:
        for info in filesystem.get_file_info(pa.fs.FileSelector(base, allow_not_found=True, recursive=recursive)):
            if info.type != pa.fs.FileType.Directory:
                is_empty = info.type == pa.fs.FileType.File and not info.size and kind_of(info.path)
                of_type = empty if is_empty else files if info.type == pa.fs.FileType.File else others
                of_type.append(name := info.path[len(base) :].lstrip("/"))
                listed[name] = "" if is_disk else f"{info.size} {info.mtime_ns}"
    except UnicodeDecodeError as error:
        _check_name(os.fsdecode(error.object))
        raise
    if is_disk:
        others += _dangling(base, recursive=recursive)  # Arrow leaves them out
    for name in filter(names.fullmatch, others):
        if kind_of(name):
            raise FileNotFoundError(f"{base}/{name} is a broken link or not a regular file; repair or remove it")
    if left_out := sorted(filter(names.fullmatch, empty)):
        shown = without_credentials(folder)
        log.warning("%s: empty files are left out: %d, the first is %s", shown, len(left_out), left_out[0])
    for name in sorted(filter(names.fullmatch, files)):
        if "://" in folder:
            yield _Entry(_with_path(folder, f"{urlsplit(folder).path.rstrip('/')}/{quote(name)}"), name, listed[name])
        else:
            yield _Entry(Path(base) / name, name)


def _dangling(folder: str, *, recursive: bool) -> Iterator[str]:
    """Yield the paths of broken links below a folder."""
    for path, _, names in os.walk(folder):
        for name in names:
            if not os.path.exists(f"{path}/{name}"):  # noqa: PTH110 - a Path for each takes four times as long
                yield os.path.relpath(f"{path}/{name}", folder)
        if not recursive:
            return


def _check_name(path: str) -> None:
    """Raise ValueError for a path that is not UTF-8, because it cannot be saved in a plan."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name {os.fsencode(path)!r} is not UTF-8; rename the file") from None


def _look_or_fault(entry: _Entry, limits: TableLimits) -> InputFile:
    """Return an input, from its first MiB or its footer; if it cannot be read, with a fault."""
    try:
        file = _look_at(entry, limits)
        if file.kind in _BINARY:
            is_arrow = file.kind == "arrow"
            with open_arrow(file.place) if is_arrow else open_parquet(file.place, state=file.state):
                return file
        return file
    except (OSError, ValueError) as error:
        fault, kind = fault_in(error), kind_of(entry.name) or "text"  # text: of an archive
        stamp = f"{entry.listed} {entry.listed.split(' ')[1]}" if entry.listed else stamp_of(entry.place)
        size = int(stamp.split(" ", maxsplit=1)[0])
        return InputFile(str(entry.place), entry.name, kind, False, (), size, stamp=stamp, fault=fault)


def _look_at(entry: _Entry, limits: TableLimits) -> InputFile:
    """Return an input, from its first MiB. An object of a listing takes one request to open it, and one to read."""
    place, name = entry.place, entry.name
    kind = kind_of(zipped_name(place) if name.endswith(".zip") and not kind_of(name) else name)
    shown = without_credentials(str(place))
    if kind is None:
        require_file(place)
        raise SettingError(f"{shown}: unknown kind of file; expected {KNOWN}")
    stamp, start, compressed = _start_of(entry, len(b"PAR1") if kind in _BINARY else _LOOKED_AT)
    file = InputFile(str(place), name, kind, compressed, (), size=int(stamp.split(" ")[0]), stamp=stamp, limits=limits)
    limits.check_kind(kind, shown)
    if kind == "parquet" and not begins_parquet(start, place):
        raise ValueError(
            f"{shown} is empty or not a Parquet file (it does not begin with PAR1); give text the suffix .txt"
        )
    if kind in _BINARY:
        return file
    file = replace(file, encoding=limits.codec)
    after = (len(start), file.size)
    is_decoded = file.is_stream or name.endswith(_COMPRESSED)  # an error if its name claims a compression
    pieces = file.blocks(_LOOKED_AT) if is_decoded else chain([start], read_span(place, after, _LOOKED_AT))
    head = _head(file, pieces)
    rest = head
    if kind == "csv":
        sep = SEP_LINE.match(head) if limits.delimiter is None else None
        delimiter, rest = (sep[1].decode(), head[sep.end() :]) if sep else (limits.delimiter or ",", head)
        deciding = {name: getattr(limits, name) for name in _LIMITS}
        file = replace(file, csv_delimiter=delimiter, has_sep_line=bool(sep), **deciding)
    elif kind == "jsonl" and is_array(head):
        file, rest = replace(file, is_array=True), b""
        pieces = file.blocks(_LOOKED_AT)
    elif kind == "text":
        file = replace(file, has_cr_ends=b"\r" in head and b"\n" not in head)
    file = replace(file, columns=_columns(file, filter(None, chain([rest], pieces))))
    named = [name for name in file.columns if name]  # several columns without a name are ignored
    if len(set(named)) < len(named):
        repeated = Counter(named).most_common(1)[0][0]
        raise ValueError(f"{shown}: column {listed([repeated])!r} occurs twice in the header; rename one of them")
    if kind == "csv":
        _check_header(file, head, limits)
    return file


def _start_of(entry: _Entry, size: int) -> tuple[str, bytes, bool]:
    """Return the stamp of a file, its first bytes, and whether they are compressed."""
    if not entry.listed:
        require_file(entry.place)
    stamp = "" if entry.listed else stamp_of(entry.place)
    with open_place(entry.place) as raw:
        if entry.listed:
            stamp = _stamp_of_object(raw, int(entry.listed.split(" ")[1]))
        start = raw.read(size)
        return stamp, start, bool(compression_of(raw, start))


def _check_header(file: InputFile, head: bytes, limits: TableLimits) -> None:
    """Raise ValueError if the header of CSV has other delimiters; warn if names begin with blanks."""
    if limits.csv_delimiter is None:
        check_delimiter(file.columns, head, file.shown)
    if any(name.startswith(" ") for name in file.columns):
        log.warning("%s: names of columns begin with a blank; `csv_skip_blanks` leaves blanks out", file.shown)


def _head(file: InputFile, pieces: Iterator[bytes]) -> bytes:
    """Return the beginning of a file. Raise ValueError if it is empty or not text; warn if it is not UTF-8."""
    head = next(filter(None, pieces), b"")
    if not head:
        raise ValueError(f"{file.shown} is empty; expected {KNOWN}")
    if b"\0" in head and (what := next((what for magic, what in _NO_TEXT.items() if head.startswith(magic)), None)):
        remedy = "give `encoding` utf-16" if what == "UTF-16" else "give the file the suffix of its kind, or convert it"
        raise ValueError(f"{file.shown} is {what}; expected UTF-8 text: {remedy}")
    with suppress(UnicodeDecodeError):
        is_valid = file.encoding != "utf-8" or is_utf8(memoryview(head[: head.rfind(b"\n") + 1]))
        if not is_valid and head.decode("cp1252"):
            message = "%s is not UTF-8, and invalid bytes become U+FFFD; if it is Windows-1252, give `encoding` cp1252"
            log.warning(message, file.shown)
    return head


def _columns(file: InputFile, pieces: Iterable[bytes]) -> tuple[str, ...]:
    """Return the names of the columns, from the first records of a file."""
    if file.kind == "text":
        return (TEXT_FIELD,)
    none = Records(file.kind, b"", np.zeros(0, np.int64))
    records = next(read_records(pieces, file.kind, file.shown, file.limits.max_line_bytes, file.table), none)
    if file.kind == "jsonl":
        keys: dict[str, None] = {}
        ends = records.ends[:_LINES_LOOKED_AT]
        for start, stop in pairwise([0, *ends]):
            value = json_object(records.data[start:stop].removeprefix(BYTE_ORDER_MARK))
            keys.update(dict.fromkeys(value if isinstance(value, dict) else ()))
        return tuple(keys)
    starts, stops = records.bounds
    if not len(records) or starts[0] == stops[0]:
        raise ValueError(f"{file.shown}: the first line is empty; expected the column names")
    if records.faults[0]:
        raise ValueError(f"{file.shown}, line 1, the header: {records.fault(0)}")
    cells = (cell.encode("utf-8", "surrogateescape") for cell in records.row(0))
    return tuple(cell.decode("utf-8", "replace") for cell in cells)  # with U+FFFD for bytes that are not UTF-8
