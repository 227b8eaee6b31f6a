"""An object store on loopback for pyarrow's S3 client: S3's REST interface, as far as this project uses it."""

import hashlib
import html
import os
import re
import signal
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit

import psutil

_XML = '<?xml version="1.0" encoding="UTF-8"?>'


class Store(ThreadingHTTPServer):
    """Objects by key, of one bucket; what clients ask goes to ``hook`` first, which may raise ``Refused``.

    Attributes:
        objects: bytes by key.
        uploads: uploads in parts that are neither complete nor aborted: parts by number, by id.
        asked: method, key and query of every request, in their order.
        hook: called with the moment: ``"PUT key"`` before an object appears, ``"PUT key done"`` before the answer; so
            for ``PART``, ``COMPLETE``, ``GET``, ``HEAD``, ``LIST`` and ``DELETE``; and with the client's port.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = {}
        self.uploads = {}
        self.asked = []
        self.hook = lambda *_: None
        self.numbers = count(1)
        self._times = {}

    def time_of(self, key):
        """When an object got its bytes, in seconds; each change takes one."""
        data = self.objects[key]
        before, seconds = self._times.get(key, (data, 946684800))
        self._times[key] = data, seconds + (before != data)
        return self._times[key][1]

    def uri(self, key=""):
        """The address of a key, with credentials."""
        options = f"scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{self.server_port}"
        return f"s3://key:secret@bucket/{key}?{options}"


class RefusedError(Exception):
    """What ``Store.hook`` raises for a request that is to fail, with a status that clients do not try again."""


class GoneError(Exception):
    """Raised by a hook: the client has died, and its request does nothing."""


def kill_client(port):
    """Kill the process that sends a request from this port, by SIGKILL."""
    ends = [end for end in psutil.net_connections("tcp") if end.laddr and end.laddr.port == port]
    os.kill(next(end.pid for end in ends if end.pid not in {None, os.getpid()}), signal.SIGKILL)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def setup(self):
        super().setup()
        self.request.setsockopt(6, 1, 1)  # TCP_NODELAY: else every answer waits 40 ms for an acknowledgement

    def answer(self):
        address = urlsplit(self.path)
        bucket, _, key = unquote(address.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        body = self.body()
        assert bucket == "bucket"
        self.server.asked.append(f"{self.command} {key} {address.query}".strip())
        try:
            self.act(key, query, body)
        except RefusedError:
            self.reply(403, f"{_XML}<Error><Code>AccessDenied</Code><Message>refused</Message></Error>".encode())
        except GoneError:
            self.close_connection = True

    def act(self, key, query, body):  # noqa: C901 - a case for each request
        objects, uploads = self.server.objects, self.server.uploads
        match self.command:
            case "PUT" if "uploadId" in query:
                self.moment("PART", key)
                uploads[query["uploadId"]][int(query["partNumber"])] = body
                self.reply(200, headers={"ETag": etag(body)})
            case "POST" if "uploads" in query:
                upload = f"upload-{next(self.server.numbers)}"
                uploads[upload] = {}
                self.reply(200, xml("InitiateMultipartUploadResult", Bucket="bucket", Key=key, UploadId=upload))
            case "POST" if "delete" in query:
                self.delete_all(re.findall(r"<Key>(.*?)</Key>", body.decode()))
            case "POST" if "uploadId" in query:
                self.moment("COMPLETE", key)
                parts = uploads.pop(query["uploadId"])
                listed = [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", body)]
                assert listed == sorted(parts)
                objects[key] = b"".join(parts[number] for number in listed)
                self.moment("COMPLETE", f"{key} done")
                self.reply(200, xml("CompleteMultipartUploadResult", Key=key, ETag=etag(objects[key])))
            case "PUT":
                self.moment("PUT", key)
                source = unquote(self.headers.get("x-amz-copy-source", "")).lstrip("/").partition("/")[2]
                objects[key] = objects[source] if source else body
                self.moment("PUT", f"{key} done")
                copied = xml("CopyObjectResult", ETag=etag(objects[key])) if source else b""
                self.reply(200, copied, {"ETag": etag(objects[key])})
            case "DELETE" if "uploadId" in query:
                uploads.pop(query["uploadId"], None)
                self.reply(204)
            case "DELETE":
                self.moment("DELETE", key)
                objects.pop(key, None)
                self.reply(204)
            case "GET" if "list-type" in query:
                self.moment("LIST", query.get("prefix", ""))
                self.reply(200, self.listing(query))
            case _ if key in objects:
                self.moment(self.command, key)
                self.send_object(key, objects[key])
            case _ if not key:
                self.reply(200)
            case _:
                self.reply(404, f"{_XML}<Error><Code>NoSuchKey</Code></Error>".encode())

    def delete_all(self, keys):
        for key in keys:
            self.server.objects.pop(key, None)
        self.reply(200, xml("DeleteResult"))

    def moment(self, what, key):
        self.server.hook(f"{what} {key}", self.client_address[1])

    def body(self):
        """What a request brings; Amazon's client cuts it into chunks, and puts its checksum behind the last."""
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            data = b"".join(self.http_chunks())
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        body, at = [], 0
        while size := int(data[at : data.index(b"\r\n", at)].split(b";")[0], 16):
            at = data.index(b"\r\n", at) + 2
            body.append(data[at : at + size])
            at += size + 2
        return b"".join(body)

    def http_chunks(self):
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def send_object(self, key, data):
        headers = {"ETag": etag(data), "Last-Modified": formatdate(self.server.time_of(key), usegmt=True)}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            self.reply(200, data, headers)
            return
        first, last = int(asked[1]), int(asked[2] or len(data) - 1)
        some = data[first : last + 1]
        self.reply(206, some, {**headers, "Content-Range": f"bytes {first}-{first + len(some) - 1}/{len(data)}"})

    def listing(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        rows, folders = [], {}
        for key, data in sorted(self.server.objects.items()):
            if not key.startswith(prefix):
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders[prefix + rest.split(delimiter)[0] + delimiter] = None
            else:
                when = datetime.fromtimestamp(self.server.time_of(key), UTC).isoformat().replace("+00:00", ".000Z")
                fields = fields_of(Key=key, Size=len(data), ETag=etag(data), LastModified=when)
                rows.append(f"<Contents>{fields}</Contents>")
        rows += [f"<CommonPrefixes>{fields_of(Prefix=name)}</CommonPrefixes>" for name in folders]
        return f"{_XML}<ListBucketResult><KeyCount>{len(rows)}</KeyCount>{''.join(rows)}</ListBucketResult>".encode()

    def reply(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass

    do_HEAD = do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names of the library


def etag(data):
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def xml(name, **fields):
    return f"{_XML}<{name}>{fields_of(**fields)}</{name}>".encode()


def fields_of(**fields):
    return "".join(f"<{name}>{html.escape(str(value))}</{name}>" for name, value in fields.items())


@contextmanager
def serving():
    """A store for the length of the block, empty at first."""
    store = Store()
    thread = threading.Thread(target=store.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        store.shutdown()
        thread.join()
        store.server_close()
