"""An object store on loopback for pyarrow's S3 client, with latency and limited throughput: what ``scale`` needs of S3.

Objects are generated when they are listed or read, except those that clients write.
"""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit

_HEAD = '<?xml version="1.0" encoding="UTF-8"?>'
_JOINED = 1 << 16  # bytes that are sent with the headers
_PAGE = 1_000  # entries of a listing, as of S3
TIME_NS = 946_684_800 * 10**9
"""Modification time of every object, in nanoseconds."""
_TIME, _TIME_OF_HEADER = "2000-01-01T00:00:00.000Z", "Sat, 01 Jan 2000 00:00:00 GMT"
_Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


@dataclass
class Generated:
    """``count`` objects of equal content, with the names ``name(0)``, ``name(1)`` … in alphabetical order."""

    name: str  # a format of their number
    content: bytes
    count: int


class ObjectStore:
    """Objects by key, of one bucket.

    Attributes:
        folders: generated objects, by the prefix of their keys, which ends in a slash.
        written: objects that clients wrote.
        requests: number of requests so far.
    """

    def __init__(self, latency: float, megabytes: float) -> None:
        self.folders = dict[str, Generated]()
        self.written = dict[str, bytes]()
        self.requests = self.port = 0
        self._uploads = dict[str, dict[int, bytes]]()
        self._numbers = count(1)
        self._latency, self._bytes_per_second = latency, megabytes * 1e6

    def uri(self, key: str) -> str:
        """Return the URI of a key, with credentials."""
        return f"s3://key:secret@bucket/{key}?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while head := await _head(reader):
                (method, address, _), headers = head
                if "expect" in headers:
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await _body(reader, headers)
                self.requests += 1
                status, fields, data = self._answer(method, address, headers.get("range", ""), body)
                fields = {"Content-Length": str(len(data)), **fields}
                data = b"" if method == "HEAD" else data
                await asyncio.sleep(self._latency + len(data) / self._bytes_per_second)
                lines = [f"HTTP/1.1 {status} OK", *(f"{name}: {value}" for name, value in fields.items())]
                writer.write("\r\n".join([*lines, "", ""]).encode() + data[:_JOINED])
                writer.write(memoryview(data)[_JOINED:])
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has ended
        finally:
            writer.close()

    def _answer(self, method: str, address: str, span: str, body: bytes) -> _Answer:  # noqa: PLR0911 - a case each
        """Return status, headers and body of an answer."""
        where = urlsplit(address)
        key = unquote(where.path).lstrip("/").partition("/")[2]
        query = {name: values[0] for name, values in parse_qs(where.query, keep_blank_values=True).items()}
        upload = query.get("uploadId", "")
        match method:
            case "PUT" if upload:
                self._uploads[upload][int(query["partNumber"])] = body
            case "PUT":
                self.written[key] = body
            case "POST" if "uploads" in query:
                upload = str(next(self._numbers))
                self._uploads[upload] = {}
                return _xml("InitiateMultipartUploadResult", f"<Key>{key}</Key><UploadId>{upload}</UploadId>")
            case "POST" if upload:
                self.written[key] = b"".join(data for _, data in sorted(self._uploads.pop(upload).items()))
                return _xml("CompleteMultipartUploadResult", f'<Key>{key}</Key><ETag>"0"</ETag>')
            case "POST":
                for name in re.findall(r"<Key>(.*?)</Key>", body.decode()):
                    self.written.pop(name, None)
                return _xml("DeleteResult", "")
            case "DELETE":
                self.written.pop(key, None)
                return 204, {}, b""
            case "GET" if "list-type" in query:
                return _xml("ListBucketResult", self._listing(query))
            case _:
                return self._object(key, span)
        return 200, {"ETag": '"0"'}, b""

    def _object(self, key: str, span: str) -> _Answer:
        folder, slash, name = key.rpartition("/")
        generated = self.folders.get(folder + slash)
        content = self.written.get(key)
        if content is None and generated and (number := re.search(r"\d+(?=\.)", name)):
            content = generated.content if int(number[0]) < generated.count else None
        if content is None and key:
            return 404, {}, b"" if span else f"{_HEAD}<Error><Code>NoSuchKey</Code></Error>".encode()
        headers = {"ETag": '"0"', "Last-Modified": _TIME_OF_HEADER}
        if (ends := re.fullmatch(r"bytes=(\d+)-(\d*)", span)) is None or not content:
            return 200, headers, content or b""
        first, last = int(ends[1]), min(int(ends[2] or len(content)), len(content) - 1)
        return 206, {**headers, "Content-Range": f"bytes {first}-{last}/{len(content)}"}, content[first : last + 1]

    def _listing(self, query: dict[str, str]) -> str:
        """Return a page of generated objects, or all other objects below a prefix, with its folders."""
        prefix, first = query.get("prefix", ""), int(query.get("continuation-token", 0))
        generated = self.folders.get(prefix)
        if generated and generated.count:
            last = min(first + _PAGE, generated.count)
            size = len(generated.content)
            entries = [_entry(prefix + generated.name.format(number), size) for number in range(first, last)]
            more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < generated.count else ""
            is_cut = str(bool(more)).lower()
            return f"<KeyCount>{len(entries)}</KeyCount><IsTruncated>{is_cut}</IsTruncated>{more}{''.join(entries)}"
        folders = {folder for folder, of_folder in self.folders.items() if of_folder.count}
        below = {name for name in {*self.written, *folders} if name.startswith(prefix)}
        inner = {name for name in below if "/" in name[len(prefix) :]} if "delimiter" in query else folders & below
        entries = [_entry(name, len(self.written[name])) for name in sorted(below - inner)]
        heads = {f"{prefix}{name[len(prefix) :].partition('/')[0]}/" for name in inner} if "delimiter" in query else ()
        entries += [f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in sorted(heads)]
        return f"<KeyCount>{len(entries)}</KeyCount><IsTruncated>false</IsTruncated>{''.join(entries)}"


def _entry(key: str, size: int) -> str:
    fields = f"<Key>{key}</Key><LastModified>{_TIME}</LastModified><ETag>&quot;0&quot;</ETag><Size>{size}</Size>"
    return f"<Contents>{fields}</Contents>"


def _xml(name: str, content: str) -> _Answer:
    return 200, {}, f"{_HEAD}<{name}>{content}</{name}>".encode()


async def _head(reader: asyncio.StreamReader) -> tuple[list[str], dict[str, str]] | None:
    """Return the words of a request's first line, and its headers; None if the client has closed the connection."""
    try:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
    except asyncio.IncompleteReadError:
        return None
    fields = (line.partition(":") for line in lines if line)
    return first.split(" "), {name.lower(): value.strip() for name, _, value in fields}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """Return what a request contains; Amazon's client cuts it into chunks, with its checksum behind the last."""
    if headers.get("transfer-encoding") == "chunked":
        pieces = list[bytes]()
        while size := int(await reader.readline(), 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        await reader.readuntil(b"\r\n")
        data = b"".join(pieces)
    else:
        data = await reader.readexactly(int(headers.get("content-length", 0)))
    if "aws-chunked" not in headers.get("content-encoding", ""):
        return data
    pieces, start = [], 0
    while size := int(data[start : data.index(b"\r\n", start)].split(b";")[0], 16):
        start = data.index(b"\r\n", start) + 2
        pieces.append(data[start : start + size])
        start += size + 2
    return b"".join(pieces)


@contextmanager
def serving(latency: float, megabytes: float) -> Iterator[ObjectStore]:
    """Yield a store that a thread serves until the end of the block: ``latency`` in seconds before an answer, which a
    connection sends at ``megabytes`` per second.
    """
    store, loop = ObjectStore(latency, megabytes), asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(store.serve, "127.0.0.1", 0, backlog=1024))
    store.port = server.sockets[0].getsockname()[1]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield store
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.close()
