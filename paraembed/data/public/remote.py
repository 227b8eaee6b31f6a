"""Open a file at an http, https or file address from any byte on, and say in words what went wrong."""

import http.client
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, BinaryIO
from urllib.parse import urlsplit

from paraembed.files import without_credentials

_SCHEMES = ("http", "https", "file")
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # answers worth another try


class BrokenError(Exception):
    """The connection or the server failed in a way that may pass."""


class UnreachableError(BrokenError):
    """No connection came about."""


class StaleError(Exception):
    """The server cannot go on from the byte asked for."""


@dataclass(frozen=True)
class Answer:
    """What came for a request.

    Attributes:
        start: offset of the first byte of the body: the one asked for, or 0.
        total: size of the whole file, where known.
        validator: what tells this version of the file from others; empty where the server gives nothing.
        read: the next bytes, at most so many; empty at the end. Raises BrokenError.
    """

    start: int
    total: int | None
    validator: str
    read: Callable[[int], bytes]


def require_address(url: str) -> None:
    """Raise ValueError unless ``url`` is an http, https or file address."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # whose message repeats the address
        scheme = ""
    if scheme not in _SCHEMES:
        raise ValueError(
            f"{without_credentials(url)} is no address to fetch from; give one that begins with http://, https:// or "
            "file:///"
        )


@contextmanager
def open_at(url: str, start: int, validator: str, timeout: float) -> Iterator[Answer]:
    """Ask for a file from byte ``start`` on; where ``validator`` no longer holds, the whole file comes.

    Redirects are followed to the same scheme and from http to https, no other.

    Args:
        url: http, https or file address.
        start: first byte.
        validator: of an earlier answer, or empty.
        timeout: seconds without a byte after which the connection counts as broken.

    Raises:
        BrokenError: a failure that may pass. UnreachableError: no connection. StaleError: no such range.
        ValueError: an answer that will not change (no such file, a web page, a refused redirect).
    """
    require_address(url)
    if urlsplit(url).scheme == "file":
        with _local(url).open("rb") as file:
            yield _file_answer(file, start, validator)
        return
    headers = {"User-Agent": "paraembed", "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-"} | ({"If-Range": validator} if validator else {})
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  the scheme is one of three
    with _ask(request, timeout) as response:
        yield _http_answer(url, response)


def _local(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"}:
        raise ValueError(f"{without_credentials(url)} names another machine; a file on this one is file:///…")
    path = Path(urllib.request.url2pathname(parts.path))
    if not path.is_file():
        raise ValueError(f"{without_credentials(url)}: there is no such file")
    return path


def _file_answer(file: BinaryIO, start: int, validator: str) -> Answer:
    status = os.fstat(file.fileno())
    now = f"{status.st_size}-{status.st_mtime_ns}"
    return Answer(file.seek(start if now == validator else 0), status.st_size, now, file.read)


def _ask(request: urllib.request.Request, timeout: float) -> http.client.HTTPResponse:
    shown = without_credentials(request.full_url)
    try:
        response: http.client.HTTPResponse = _opener().open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(shown, error) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise BrokenError("no answer in time") from None
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise ValueError(f"{shown} shows no valid certificate ({error.reason.verify_message})") from None
        raise UnreachableError(_reason(error.reason)) from None
    except http.client.InvalidURL as error:
        why = without_credentials(str(error))
        raise ValueError(f"{shown} is no address to fetch from: {why}") from None
    except (OSError, http.client.HTTPException) as error:
        raise BrokenError(_reason(error)) from None
    return response


def _refused(url: str, error: urllib.error.HTTPError) -> Exception:
    """What an HTTP error status means."""
    status = " ".join(f"{error.code} {error.reason}".split())
    if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
        return StaleError("the server has fewer bytes than the part")
    if error.code in _PASSING:
        return BrokenError(f"the server answered {status}")
    if error.code in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return ValueError(f"{url} is not there ({status}); give another address with --url")
    return ValueError(f"{url} is refused ({status}); give another address with --url")


def _http_answer(url: str, response: http.client.HTTPResponse) -> Answer:
    headers = response.headers
    if headers.get_content_type() == "text/html":
        shown = without_credentials(url)
        raise ValueError(
            f"{shown} answers with a web page, not with the file; open it in a browser to see what it wants"
        )
    start, total = 0, _number(headers["Content-Length"])
    if response.status == HTTPStatus.PARTIAL_CONTENT:
        start, total = _content_range(headers["Content-Range"])
    etag = headers["ETag"] or ""
    strong = "" if etag.startswith("W/") else etag  # a weak one does not vouch for bytes (RFC 9110 §13.1.5)

    def read(most: int) -> bytes:
        try:
            return response.read1(most)
        except (OSError, http.client.HTTPException) as error:
            raise BrokenError(_reason(error)) from None

    return Answer(start, total, strong or headers["Last-Modified"] or "", read)


def _content_range(header: str | None) -> tuple[int, int | None]:
    """Start and total of ``bytes 100-199/200``; the total is None where it is ``*``."""
    unit, _, rest = (header or "").partition(" ")
    span, _, total = rest.partition("/")
    start = _number(span.partition("-")[0])
    if unit != "bytes" or start is None:
        raise StaleError(f"the server answered with the range {header!r}")
    return start, _number(total)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _reason(error: object) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


class _Redirects(urllib.request.HTTPRedirectHandler):
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
            raise ValueError(f"{shown} redirects to {new}; from {before} that is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """An opener for http and https alone; urllib's own would also open ftp, data and file."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener
