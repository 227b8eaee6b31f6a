"""Download a file from an http, https or file URL; a broken download is resumed.

The file ``PART.json`` next to the partial download holds URL, validator and size. A later call requests the missing
bytes with ``Range`` and ``If-Range``, so that bytes of two versions are never mixed.
"""

import errno
import http.client
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypedDict
from urllib.parse import urlsplit

from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import read_json
from paraembed.io.places import without_credentials
from paraembed.options import Count
from paraembed.pairs.public.sources import Source

_CHUNK = 1 << 20
_LONGEST_PAUSE = 60.0  # seconds
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # answers worth another try


@dataclass(frozen=True)
class DownloadProgress:
    """Progress of a download: bytes received, and total bytes if the server sends them.

    ``note`` describes an event (a broken connection, a restart); it is empty otherwise.
    """

    name: str
    received: int
    total: int | None
    note: str = ""


OnProgress = Callable[[DownloadProgress], None]


@dataclass(frozen=True)
class Patience:
    """Limits of retries."""

    attempts: int = 6  # maximum number of tries in a row without another megabyte
    timeout: float = 60.0  # seconds without a byte after which a connection counts as broken
    pause: float = 1.0  # seconds before the second try; doubled for each further one, at most a minute


class _State(TypedDict):  # what is noted of a part
    url: str
    validator: str
    total: Count | None


class _BrokenError(Exception):
    """Error for a temporary failure of the connection or the server."""


class _UnreachableError(_BrokenError):
    """Error for a server that cannot be reached."""


class _StaleError(Exception):
    """Error for a server that cannot resume from the requested byte."""


@dataclass(frozen=True)
class _Answer:
    start: int  # the byte that was asked for, or 0
    total: int | None  # bytes of the whole file
    validator: str  # differs between versions of the file; empty where the server gives none
    read: Callable[[int], bytes]  # the next bytes, at most so many; empty at the end


def require_address(url: str) -> None:
    """Raise ValueError if ``url`` is not an http, https or file URL."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # whose message repeats the address
        scheme = ""
    if scheme not in {"http", "https", "file"}:
        raise ValueError(
            f"{without_credentials(url)} is not a URL to download from; give one that begins with http://, https:// "
            "or file:///"
        )


def download(source: Source, part: Path, report: OnProgress, patience: Patience, *, digest_known: bool) -> None:
    """Download a source to ``part``, or resume an earlier partial download if that is safe.

    Every received piece, and every other event, is reported. A download without validators is resumed only if the
    caller checks the digest (``digest_known``). Raise ValueError if the URL is rejected, or the server does not have
    the file or has a different one; OSError if there is no connection or the disk is full: received bytes are kept.
    """
    tries, most, shown = 0, _size(part), without_credentials(source.url)
    while True:
        try:
            _receive(source, part, report, patience.timeout, digest_known=digest_known)
            return
        except (_BrokenError, _StaleError) as error:
            if isinstance(error, _UnreachableError) and tries == 0:
                message = f"{shown} cannot be reached ({error}); check the URL and the network"
                raise OSError(message) from None
            if isinstance(error, _StaleError):
                discard(part)
            failure = str(error)
        tries = 1 if _size(part) >= most + _CHUNK else tries + 1
        most = max(most, _size(part))
        if tries >= patience.attempts:
            raise OSError(
                f"{shown} failed {tries} times in a row, last with: {failure}; {_size(part):,} bytes are kept, run "
                "the same command again to resume"
            )
        pause = min(patience.pause * 2 ** (tries - 1), _LONGEST_PAUSE)
        report(DownloadProgress(source.name, _size(part), None, f"{failure}; trying again in {pause:.0f} s"))
        time.sleep(pause)


def discard(part: Path) -> None:
    """Remove a partial download and its state."""
    part.unlink(missing_ok=True)
    _state_of(part).unlink(missing_ok=True)


@contextmanager
def full_disk_in_words(path: Path, kept: str) -> Iterator[None]:
    """Raise a clear error if the disk is full; ``kept`` says what is kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise OSError(
            f"no space left on the disk for {path} ({error.strerror}); {kept}: free some space and run the same "
            "command again"
        ) from None


def _receive(source: Source, part: Path, report: OnProgress, timeout: float, *, digest_known: bool) -> None:
    """Request the missing bytes over one connection, append them, and check that the file is complete."""
    state = _resumable(source, part, digest_known=digest_known)
    have = _size(part) if state else 0
    if have and have == state["total"]:
        return
    with _open_at(source.url, have, state.get("validator", ""), timeout) as answer:
        noted = state["total"] if answer.start and state else None
        total = next((size for size in (answer.total, noted, source.num_bytes) if size is not None), None)
        same_total = None in {answer.total, state.get("total")} or answer.total == state["total"]
        same_version = answer.validator in {"", state.get("validator")}
        if answer.start and not (answer.start == have and same_total and same_version):
            raise _StaleError("the file on the server has changed")
        if source.num_bytes is not None and total != source.num_bytes:
            shown = without_credentials(source.url)
            raise ValueError(
                f"{shown} has {total:,} bytes, but {source.num_bytes:,} are expected, so it is a different file; "
                "give another URL with `url`"
            )
        if not answer.start:
            if have:
                report(DownloadProgress(source.name, 0, total, "the server sends the whole file: starting over"))
            part.unlink(missing_ok=True)
            state = {"url": without_credentials(source.url), "validator": answer.validator, "total": answer.total}
            write_json(_state_of(part), state)
        with full_disk_in_words(part, "received bytes are kept"):
            size = _append(source, part, answer, total, report)
    if total is None:
        report(
            DownloadProgress(
                source.name, size, None, "the server does not send the size of the file; it may be incomplete"
            )
        )
    elif size < total:
        raise _BrokenError(f"the connection ended after {size:,} of {total:,} bytes")


def _resumable(source: Source, part: Path, *, digest_known: bool) -> dict[str, Any]:
    """Return the saved state of the partial download; empty if its bytes cannot be used."""
    if not part.exists() or not _state_of(part).exists():
        return {}
    try:
        state: dict[str, Any] = read_json(_state_of(part), _State)
    except ValueError:
        return {}
    is_same = without_credentials(state["url"]) == without_credentials(source.url)  # an earlier version kept passwords
    of_use = is_same and (state["validator"] or digest_known)  # else bytes of two versions could be mixed unnoticed
    return state if of_use and (state["total"] is None or _size(part) <= state["total"]) else {}


def _append(source: Source, part: Path, answer: _Answer, total: int | None, report: OnProgress) -> int:
    """Append the response to the partial download; return its new size."""
    size = answer.start
    if total is not None and total - size > (free := shutil.disk_usage(part.parent).free):
        raise OSError(errno.ENOSPC, f"{total - size:,} bytes are missing, but only {free:,} are free")
    with part.open("ab", buffering=0) as file:  # unbuffered: on a full disk the part holds what was written, no more
        while data := answer.read(_CHUNK if total is None else min(_CHUNK, total - size)):
            while data:
                written = file.write(data)
                size, data = size + written, data[written:]
            report(DownloadProgress(source.name, size, total))
        os.fsync(file.fileno())
    return size


def _state_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextmanager
def _open_at(url: str, start: int, validator: str, timeout: float) -> Iterator[_Answer]:
    """Request a file from byte ``start`` on; if ``validator`` no longer matches, the server sends the whole file."""
    parts, shown = urlsplit(url), without_credentials(url)
    if parts.scheme != "file":
        headers = {"User-Agent": "paraembed", "Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-"} | ({"If-Range": validator} if validator else {})
        with _ask(url, headers, timeout) as response:
            yield _http_answer(shown, response)
        return
    if parts.netloc not in {"", "localhost"}:
        raise ValueError(f"{shown} names another machine; the URL of a local file is file:///…")
    path = Path(urllib.request.url2pathname(parts.path))
    if not path.is_file():
        raise ValueError(f"{shown}: the file does not exist; check the path")
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        version = f"{status.st_size}-{status.st_mtime_ns}"
        yield _Answer(file.seek(start if version == validator else 0), status.st_size, version, file.read)


def _ask(url: str, headers: dict[str, str], timeout: float) -> http.client.HTTPResponse:
    shown = without_credentials(url)
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http or https: require_address
        response: http.client.HTTPResponse = urllib.request.build_opener(_Redirects).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        status = " ".join(f"{error.code} {error.reason}".split())
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise _StaleError("the file on the server is shorter than the partial download") from None
        if error.code in _PASSING:
            raise _BrokenError(f"the server answered {status}") from None
        what = "is not there" if error.code in {404, 410} else "is rejected"
        raise ValueError(f"{shown} {what} ({status}); give another address with `url`") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise _BrokenError("the server did not answer in time") from None
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise ValueError(
                f"{shown} has no valid certificate ({error.reason.verify_message}); give another URL with `url`"
            ) from None
        raise _UnreachableError(_reason(error.reason)) from None
    except http.client.InvalidURL as error:
        raise ValueError(f"{shown} is not a valid URL: {without_credentials(str(error))}") from None
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenError(_reason(error)) from None
    return response


def _http_answer(shown: str, response: http.client.HTTPResponse) -> _Answer:
    headers = response.headers
    if headers.get_content_type() == "text/html":
        raise ValueError(f"{shown} returns a web page instead of the file; open the URL in a browser to see why")
    start, total = 0, _number(headers["Content-Length"] or "")
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:  # bytes 100-199/200; the total can be *
        unit, _, rest = (headers["Content-Range"] or "").partition(" ")
        span, _, whole = rest.partition("/")
        first, total = _number(span.partition("-")[0]), _number(whole)
        if unit != "bytes" or first is None:
            raise _StaleError(f"the server answered with the range {headers['Content-Range']!r}")
        start = first
    etag = headers["ETag"] or ""
    strong = "" if etag.startswith("W/") else etag  # a weak one does not vouch for bytes (RFC 9110 §13.1.5)

    def read(most: int) -> bytes:
        try:
            return response.read1(most)
        except (OSError, http.client.HTTPException) as error:
            raise _BrokenError(_reason(error)) from None

    return _Answer(start, total, strong or headers["Last-Modified"] or "", read)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _reason(error: object) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirect handler that follows redirects only to the same scheme, or from http to https."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        before, now = req.type, urlsplit(newurl).scheme
        if now != before and (before, now) != ("http", "https"):
            fp.close()
            shown, new = without_credentials(req.full_url), without_credentials(newurl)
            raise ValueError(
                f"{shown} redirects to {new}, but a redirect from {before} to this scheme is not followed; give "
                "another URL with `url`"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)
