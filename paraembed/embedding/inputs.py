"""Find the input files: from what a user names to files of one known kind, with their digests."""

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.fs

from paraembed.io.escape import listed
from paraembed.io.fingerprint import sha256_of
from paraembed.io.inflate import BLOCK_BYTES, is_compressed, read_blocks
from paraembed.io.limits import DEFAULT_TABLE_LIMITS, TableLimits
from paraembed.io.parquet import is_parquet
from paraembed.io.places import Place, locate, name_of, require_file, size_of, to_place, without_credentials
from paraembed.io.tables import BYTE_ORDER_MARK, Kind, Records, Table, json_object, read_records

TEXT_FIELD = "text"
KNOWN = ".txt (one text a line), .jsonl, .csv, .tsv, each also .gz, .zst or .bz2, or .parquet"
_KINDS: dict[str, Kind] = {".txt": "text", ".jsonl": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
_COMPRESSED = (".gz", ".zst", ".bz2")
_NO_TEXT = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive",
    b"%PDF-": "PDF",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_LOOKED_AT = 1 << 20  # bytes at the beginning of a file, for its header
_LINES_LOOKED_AT = 1000  # of JSON, for the keys of their objects
_DECIDING = ("max_line_bytes", "max_field_lines")
_LOOKERS = 16  # threads that ask for stamps; an answer of an object store takes 20 ms and more

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InputFile:
    """An input file as it was when the plan was made.

    Attributes:
        path: absolute path, or URI.
        name: path below the folder or glob that was given, or the file's name; ``file:row`` ids begin with it.
        kind: how rows stand in it.
        compressed: gzip, bz2 or zst: readable from the start only.
        columns: their names; of JSON lines, the keys of the first 1,000 of its first MiB, or of its first line; of
            Parquet none, its footer has them.
        size: bytes as stored.
        sha256: of the bytes as stored.
        stamp: from before they were read: size and time of change (ns), on an object store size and ETag; to see
            whether the file was changed since. It is not written anywhere, nor are ``limits`` and ``block_bytes``.
        limits: what is read of it at most.
        block_bytes: bytes to read and to parse at a time.
        max_line_bytes: of CSV, limit of a row over several lines: it decides which lines are rejected.
        max_field_lines: of CSV, limit of a quoted cell: it decides that, too.
    """

    path: str
    name: str
    kind: Kind
    compressed: bool
    columns: tuple[str, ...]
    size: int
    sha256: str
    stamp: str = field(default="", compare=False)
    limits: TableLimits = field(default=DEFAULT_TABLE_LIMITS, compare=False)
    block_bytes: int = field(default=BLOCK_BYTES, compare=False)
    max_line_bytes: int = DEFAULT_TABLE_LIMITS.max_line_bytes
    max_field_lines: int = DEFAULT_TABLE_LIMITS.max_field_lines

    @property
    def place(self) -> Place:
        """Where it is, for ``io.places``."""
        return to_place(self.path)

    @property
    def state(self) -> str:
        """What changes with the file."""
        return f"{self.size} {self.sha256} {self.stamp}"

    @property
    def is_chain(self) -> bool:
        """Whether its parts can only be read one after the other, by one reader."""
        return self.compressed

    @property
    def shown(self) -> str:
        """``path`` without the user and password of a URI, for messages and what is written."""
        return without_credentials(self.path)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, without credentials, and without limits that are the default."""
        values = asdict(replace(self, path=self.shown))
        del values["stamp"], values["limits"], values["block_bytes"]
        others = self.other_limits()
        return {name: value for name, value in values.items() if name not in _DECIDING or name in others}

    def other_limits(self) -> dict[str, int]:
        """The limits that decide which lines are rejected, by name, where they are not the default."""
        limits = {name: getattr(self, name) for name in _DECIDING}
        return {name: value for name, value in limits.items() if value != getattr(DEFAULT_TABLE_LIMITS, name)}

    def cut_records(self, pieces: Iterable[bytes] | None = None, start: int = 0) -> Iterator[Records]:
        """Cut the file, or its bytes from ``start`` on, where a record begins, into records; see ``read_records``."""
        if pieces is None:
            pieces = read_blocks(self.place, self.block_bytes, self.limits.max_inflation)
        most = self.max_line_bytes if self.kind == "csv" else self.limits.max_line_bytes
        table = Table(len(self.columns), self.max_field_lines, start == 0)
        return read_records(pieces, self.kind, self.shown, most, table)


def list_inputs(
    asked: Sequence[str | Path],
    limits: TableLimits = DEFAULT_TABLE_LIMITS,
    progress: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
    *,
    block_bytes: int = BLOCK_BYTES,
) -> tuple[InputFile, ...]:
    """Look at the input files: there, all of one known kind, not empty, not binary.

    Args:
        asked: files, folders (all files of a known kind below, but those whose names begin with ``.`` or ``_``) and
            globs (``*``, ``?`` and ``**/``), each a path or a URI (in which ``?`` begins the options). The files of a
            folder or glob are taken in the order of their names.
        limits: what is read of each at most.
        progress: is called with the number of files that were looked at, and of all.
        block_bytes: bytes to read and to parse at a time.

    Raises:
        FileNotFoundError: as said; also a link in a folder that leads nowhere.
        ValueError: a file that cannot be an input, and what can; a file that is named twice, by links perhaps.
    """
    if not asked:
        raise ValueError(f"no input is given; expected files, folders or globs of {KNOWN}")
    places = [pair for argument in asked for pair in _find(str(argument))]
    counts = Counter(comparable(place) if isinstance(place, Path) else place for place, _ in places)
    if len(counts) < len(places):
        repeated = counts.most_common(1)[0][0]
        raise ValueError(f"{without_credentials(str(repeated))} is given twice, or linked to; give every input once")
    files = []
    for place, name in places:
        files.append(replace(_look_at(place, name, limits), block_bytes=block_bytes))
        progress(len(files), len(places))
    kinds = sorted({file.kind for file in files})
    if len(kinds) > 1:
        raise ValueError(f"inputs of several kinds are mixed ({', '.join(kinds)}); embed each kind to its own `out`")
    return tuple(files)


def check_apart(asked: Sequence[str | Path], files: Sequence[InputFile], out: Place, part: str) -> None:
    """Raise ValueError where output and inputs lie in each other: a run would take its own parts for input.

    Args:
        asked: what ``files`` were found by.
        files: the inputs.
        out: output folder.
        part: name of a file in it.
    """
    shown, target = without_credentials(str(out)), comparable(out)
    paths = {file.path for file in files}
    for argument in map(str, asked):
        if (argument if "://" in argument else str(Path(argument).absolute())) in paths:
            continue
        folder = comparable(argument.partition("**")[0] if "**" in argument else argument)
        if target.is_relative_to(folder) or would_find(argument, target / part):
            raise ValueError(f"`out` {shown} lies in the input {without_credentials(argument)}; choose one beside it")
    for file in files:
        if comparable(file.place).is_relative_to(target):
            raise ValueError(f"the input {file.shown} lies in `out` {shown}; choose another `out`")


def changed_inputs(inputs: Sequence[InputFile]) -> list[InputFile]:
    """The files that are no longer those that ``list_inputs`` began to read: changed, or gone."""
    with ThreadPoolExecutor(_LOOKERS) as pool:
        now = list(pool.map(_stamp, [file.place for file in inputs]))
    return [file for file, stamp in zip(inputs, now, strict=True) if file.stamp != stamp]


def _stamp(place: Place) -> str:
    """Size and time of change (ns) of a file; of an object size and ETag, for its time has seconds. Empty: none."""
    filesystem, path = locate(str(place))
    info = filesystem.get_file_info(path)
    if info.type != pa.fs.FileType.File:
        return ""
    if isinstance(place, Path):
        return f"{info.size} {info.mtime_ns}"
    with filesystem.open_input_file(path) as file:
        known = {str(key).lower(): value for key, value in (file.metadata() or {}).items()}
        return f"{file.size()} {known.get('etag', b'').decode() or info.mtime_ns}"


def kind_of(name: str) -> Kind | None:
    """What a file's name says of its kind; None: no known kind."""
    stem = name
    for suffix in _COMPRESSED:
        stem = stem.removesuffix(suffix)
    kind = next((kind for suffix, kind in _KINDS.items() if stem.endswith(suffix)), None)
    return None if kind == "parquet" and stem != name else kind


def _find(text: str) -> list[tuple[Place, str]]:
    """The files that one argument names, each with its name below what was given."""
    if not text.strip():
        raise ValueError(
            f"an input is {text!r}; give a file, a folder or a glob of {KNOWN}, or . for the working folder"
        )
    _check_name(text if "://" in text else str(Path(text).absolute()))
    shown = without_credentials(text)
    filesystem, path = locate(text)
    kind = filesystem.get_file_info(path).type
    if kind == pa.fs.FileType.Directory:
        found = list(_below(text, re.compile(r"(?!.*(?:^|/)[._]).*", re.DOTALL)))
        known = [(place, name) for place, name in found if kind_of(name)]
        if len(known) < len(found):
            other = next(name for _, name in found if not kind_of(name))
            log.warning(
                "%s: %d of %d files are left out, their names do not end in %s; the first is %s",
                *(shown, len(found) - len(known), len(found), KNOWN, other),
            )
        if not known:
            raise FileNotFoundError(f"{shown} holds no file to embed; expected {KNOWN}")
        return known
    if kind == pa.fs.FileType.NotFound and (cut := _first_wildcard(text)) is not None:
        base, pattern = cut
        found = list(_below(base, _glob(pattern), recursive="/" in pattern))
        if not found:
            raise FileNotFoundError(f"{shown} matches no file; check the pattern (*, ? and **/ are known)")
        return found
    place = to_place(text) if "://" in text else Path(text).absolute()
    return [(place, unquote(name_of(place)) if isinstance(place, str) else name_of(place))]


def _first_wildcard(text: str) -> tuple[str, str] | None:
    """The folder in front of a glob's first wildcard, and the rest of it; None: there is no wildcard."""
    if "://" in text:
        path = urlsplit(text).path
        at = path.find("*")
        cut = path.rfind("/", 0, at) if at >= 0 else -1
        return None if at < 0 else (_with_path(text, path[:cut]), unquote(path[cut + 1 :]))
    wildcard = re.search(r"[*?]", text)
    if wildcard is None:
        return None
    cut = text.rfind("/", 0, wildcard.start())
    return text[:cut] or "/" if cut >= 0 else ".", text[cut + 1 :]


def would_find(asked: str, path: PurePath) -> bool:
    """Whether a glob would find a file, if it was there; ``path`` without links, of a URI as ``comparable`` has it."""
    cut = _first_wildcard(asked)
    if cut is None:
        return False
    folder, pattern = comparable(cut[0]), cut[1]
    return path.is_relative_to(folder) and bool(_glob(pattern).fullmatch(str(path.relative_to(folder))))


def comparable(place: Place) -> PurePath:
    """A path for comparing: of a local file without links, of a URI with scheme and bucket, without its options."""
    if isinstance(place, str) and "://" in place and not place.startswith("file://"):
        return PurePosixPath(without_credentials(place).partition("?")[0])
    path = place.absolute() if isinstance(place, Path) else Path(locate(place)[1])
    try:
        return path.resolve()
    except RuntimeError:  # of pathlib, until Python 3.13
        raise ValueError(f"{path} is a symbolic link that leads to itself; remove it, or give another path") from None


def _with_path(uri: str, path: str) -> str:
    return urlsplit(uri)._replace(path=path).geturl()


def _glob(pattern: str) -> re.Pattern[str]:
    """Names that do not begin with a dot, unless the pattern says so."""
    hidden = "" if re.search(r"(^|/)\.", pattern) else r"(?!.*(?:^|/)\.)"
    wildcards = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    pieces = re.split(r"(\*\*/|\*|\?)", pattern)
    return re.compile(hidden + "".join(wildcards.get(piece) or re.escape(piece) for piece in pieces), re.DOTALL)


def _below(folder: str, names: re.Pattern[str], *, recursive: bool = True) -> Iterator[tuple[Place, str]]:
    """The files below a folder whose path from there is one of ``names``, in the order of these."""
    filesystem, base = locate(folder)
    files, others = list[str](), list[str]()
    try:
        for info in filesystem.get_file_info(pa.fs.FileSelector(base, allow_not_found=True, recursive=recursive)):
            if info.type != pa.fs.FileType.Directory:
                (files if info.type == pa.fs.FileType.File else others).append(info.path[len(base) :].lstrip("/"))
    except UnicodeDecodeError as error:
        _check_name(os.fsdecode(error.object))
        raise
    if isinstance(filesystem, pa.fs.LocalFileSystem):
        others += _dangling(base, recursive=recursive)  # Arrow leaves them out
    for name in filter(names.fullmatch, others):
        if kind_of(name):
            raise FileNotFoundError(f"{base}/{name} is no file, or a link that leads nowhere; mend or remove it")
    for name in sorted(filter(names.fullmatch, files)):
        if "://" in folder:
            yield _with_path(folder, f"{urlsplit(folder).path.rstrip('/')}/{quote(name)}"), name
        else:
            yield Path(base) / name, name


def _dangling(folder: str, *, recursive: bool) -> Iterator[str]:
    """Paths below a folder of links that lead nowhere."""
    for path, _, names in os.walk(folder):
        for name in names:
            if not os.path.exists(f"{path}/{name}"):  # noqa: PTH110 - a Path for each takes four times as long
                yield os.path.relpath(f"{path}/{name}", folder)
        if not recursive:
            return


def _check_name(path: str) -> None:
    """Raise ValueError for a path that is not UTF-8, which no plan can hold."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name {os.fsencode(path)!r} is not UTF-8; rename the file") from None


def _look_at(place: Place, name: str, limits: TableLimits) -> InputFile:
    require_file(place)
    stamp = _stamp(place)
    kind = kind_of(name)
    shown = without_credentials(str(place))
    if kind is None:
        raise ValueError(f"{shown}: unknown kind of file; expected {KNOWN}")
    columns, compressed = tuple[str, ...](), False
    if kind == "parquet":
        if not is_parquet(place):
            raise ValueError(
                f"{shown} is empty or not a Parquet file (it does not begin with PAR1); give text the suffix .txt"
            )
    else:
        compressed = is_compressed(place)
        pieces = read_blocks(place, _LOOKED_AT, limits.max_inflation)
        head = next(pieces, b"")
        _check_head(head, shown)
        columns = _columns(kind, chain([head], pieces), shown, limits)
    if len(set(columns)) < len(columns):
        repeated = Counter(columns).most_common(1)[0][0]
        raise ValueError(f"{shown}: column {listed([repeated])!r} stands twice in the header; rename one")
    found = size_of(place), sha256_of(place), stamp, limits
    deciding = {name: getattr(limits, name) for name in _DECIDING} if kind == "csv" else {}
    return InputFile(str(place), name, kind, compressed, columns, *found, **deciding)


def _check_head(head: bytes, shown: str) -> None:
    """Raise ValueError where a file's first bytes say that it is empty, or no text."""
    if not head:
        raise ValueError(f"{shown} is empty; expected {KNOWN}")
    if b"\0" in head and (what := next((what for magic, what in _NO_TEXT.items() if head.startswith(magic)), None)):
        raise ValueError(f"{shown} is {what}; expected UTF-8 text: name it by its kind, or convert it")


def _columns(kind: Kind, pieces: Iterator[bytes], shown: str, limits: TableLimits) -> tuple[str, ...]:
    """Names of the columns, from the first records of a file."""
    if kind == "text":
        return (TEXT_FIELD,)
    table = Table(0, limits.max_field_lines, from_start=True)
    records = next(read_records(pieces, kind, shown, limits.max_line_bytes, table))
    if kind == "jsonl":
        keys: dict[str, None] = {}
        ends = records.ends[:_LINES_LOOKED_AT]
        for start, stop in zip([0, *ends[:-1]], ends, strict=True):
            value = json_object(records.data[start:stop].removeprefix(BYTE_ORDER_MARK))
            keys.update(dict.fromkeys(value if isinstance(value, dict) else ()))
        return tuple(keys)
    return _header(records, shown)


def _header(records: Records, shown: str) -> tuple[str, ...]:
    """The cells of the first record; names that are not UTF-8 have U+FFFD in place of the bytes."""
    starts, stops = records.bounds
    if not len(records) or starts[0] == stops[0]:
        raise ValueError(f"{shown}: the first line is empty; expected the names of the columns")
    if records.faults[0]:
        raise ValueError(f"{shown}, line 1, the header: {records.fault(0)}")
    cells = (cell.encode("utf-8", "surrogateescape") for cell in records.row(0))
    return tuple(cell.decode("utf-8", "replace") for cell in cells)
