"""Pair files on an object store: pyarrow's S3 client against an S3 server on loopback."""

import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paraembed.data.pairs import read_pairs
from paraembed.files import name_of, require_file, sha256_of, size_of

LINES = "".join(f"[X] ||| one {row} ||| uno {row} ||| PPDB2.0Score={row} ||| 0-0\n" for row in range(20_000))
OBJECTS = {"/bucket/pairs.gz": gzip.compress(LINES.encode()), "/bucket/plain": LINES.encode()}
DATE = "Sat, 01 Jan 2000 00:00:00 GMT"


class Bucket(BaseHTTPRequestHandler):
    """GET and HEAD of the objects of one bucket, with ranges, as S3's REST interface has them."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        body, status = OBJECTS.get(path), 200
        if body is None and "list-type" in query:
            body = b'<?xml version="1.0"?><ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>'
        elif body is None:
            body, status = b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>', 404
        elif asked := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            first, last = map(int, asked.groups())
            total, body, status = len(body), body[first : last + 1], 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{total}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", DATE)
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[Bucket]) -> Iterator[str]:
    """An object store on loopback; gives the URI of its bucket, with a place for a name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"s3://key:secret@bucket/{{}}?scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def bucket() -> Iterator[str]:
    with serving(Bucket) as uri:
        yield uri


@pytest.mark.parametrize("name", ["pairs.gz", "plain"])
def test_pairs_of_an_object_store(bucket: str, tmp_path: Path, name: str) -> None:
    uri = bucket.format(name)
    (tmp_path / name).write_bytes(OBJECTS[f"/bucket/{name}"])
    require_file(uri)
    assert name_of(uri) == name
    assert size_of(uri) == (tmp_path / name).stat().st_size
    assert sha256_of(uri) == sha256_of(tmp_path / name)
    blocks = list(read_pairs(uri))
    assert [text for block in blocks for text in block.pairs.first.to_pylist()] == [
        f"one {row}" for row in range(20_000)
    ]
    assert {block.form for block in blocks} == {"ppdb"}


def test_an_object_that_is_not_there(bucket: str) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist; check the path"):
        require_file(bucket.format("nothing.gz"))
