"""Fetching: against a server on the loopback that breaks off, lies, forgets and changes its mind."""

import gzip
import hashlib
import io
import json
import logging
import os
import resource
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.request import Request

import numpy as np
import pytest
import tyro

from paraembed.commands.fetch import Fetch, next_command, run_fetch
from paraembed.io.atomic import locked
from paraembed.pairs.public.download import DownloadProgress, Patience, _Redirects
from paraembed.pairs.public.fetch import FETCHED, default_cache, fetch, fetch_unpacked, unpack
from paraembed.pairs.public.sources import PARTS, SIZES, SOURCES, Source, find_source

DATA = np.random.default_rng(1).bytes(3_000_000)
OTHER = np.random.default_rng(2).bytes(3_000_000)
QUICK = Patience(attempts=3, timeout=0.3, pause=0.01)


@dataclass
class Served:
    """What the server does with one path; lists are used up, an entry a request, the last one stays."""

    data: bytes = DATA
    etags: list[str] = field(default_factory=lambda: ['"one"'])
    modified: str | None = None
    statuses: list[int] = field(default_factory=lambda: [200])
    stop_after: list[int | None] = field(default_factory=lambda: [None])
    stall: bool = False
    ranges: bool = True
    if_range: bool = True
    length: bool = True
    chunked: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)


def used(values):
    return values.pop(0) if len(values) > 1 else values[0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        served = self.server.paths.get(self.path)
        if served is None:
            self.send_error(404)
            return
        served.asked.append(dict(self.headers))
        status, etag, stop = used(served.statuses), used(served.etags), used(served.stop_after)
        start = self.first_byte(served, etag) if status == 200 else 0
        if start:
            status = 206 if start < len(served.data) else 416
        body = served.data[start:] if status in {200, 206} else b"sorry"
        self.send_head(served, status, etag, start, len(body))
        body = body if stop is None else body[: max(0, stop - start)]
        if served.chunked:
            body = b"%x\r\n%s\r\n" % (len(body), body) + (b"0\r\n\r\n" if stop is None else b"")
        self.wfile.write(body)
        if served.stall:
            self.wfile.flush()
            time.sleep(1.0)
        self.close_connection = True

    def first_byte(self, served, etag):
        same = self.headers.get("If-Range") in {None, etag or served.modified}
        if not served.ranges or "Range" not in self.headers or (served.if_range and not same):
            return 0
        return int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))

    def send_head(self, served, status, etag, start, length):
        self.send_response(status)
        for name, value in {"ETag": etag, "Last-Modified": served.modified, **served.headers}.items():
            if value:
                self.send_header(name, value)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(served.data) - 1}/{len(served.data)}")
        if served.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif served.length:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        self.paths = {}
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, path):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def serve(self, **settings):
        self.paths["/f.gz"] = Served(**settings)
        return self.paths["/f.gz"]

    def handle_error(self, request, client_address):
        pass  # a client that hangs up is part of the tests


@pytest.fixture
def server(monkeypatch):
    for name in [*os.environ]:
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def source(server):
    return Source("one", server.url("/f.gz"), "f.gz", None, None, "none", "a test", "ppdb", "seen")


def sha(data):
    return hashlib.sha256(data).hexdigest()


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def ranges(served):
    return [asked.get("Range") for asked in served.asked]


def test_a_file_is_fetched_whole_and_recorded(server, source, tmp_path):
    served, seen = server.serve(), []
    path = fetch(source, tmp_path / "new" / "cache", seen.append, QUICK)
    assert path == tmp_path / "new" / "cache" / "f.gz"
    assert path.read_bytes() == DATA
    assert files(path.parent) == ["f.gz", FETCHED]
    assert json.loads((path.parent / FETCHED).read_text()) == {
        "f.gz": {"bytes": len(DATA), "sha256": sha(DATA), "url": source.url}
    }
    assert [one.received for one in seen] == sorted(one.received for one in seen)
    assert seen[-1] == DownloadProgress("one", len(DATA), len(DATA))
    assert fetch(source, path.parent) == path
    assert len(served.asked) == 1
    assert served.asked[0]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("validators", [{}, {"etags": [""], "modified": "Mon, 01 Jan 2018 00:00:00 GMT"}])
def test_a_broken_connection_goes_on_where_it_broke(server, source, tmp_path, validators):
    served, notes = server.serve(stop_after=[1_000_000, 1_500_000, None], **validators), []
    assert fetch(source, tmp_path, lambda one: notes.append(one.note), QUICK).read_bytes() == DATA
    assert ranges(served) == [None, "bytes=1000000-", "bytes=1500000-"]
    assert served.asked[1]["If-Range"] == (served.modified or '"one"')
    assert [note for note in notes if note] == [
        "the connection ended after 1,000,000 of 3,000,000 bytes; trying again in 0 s",
        "the connection ended after 1,500,000 of 3,000,000 bytes; trying again in 0 s",
    ]
    assert files(tmp_path) == ["f.gz", FETCHED]


def test_a_later_call_goes_on_too(server, source, tmp_path):
    served = server.serve(stop_after=[700_000, 1, None])
    with pytest.raises(OSError, match=r"failed 2 times .*700,000 bytes are kept"):
        fetch(source, tmp_path, patience=replace(QUICK, attempts=2))
    assert files(tmp_path) == ["f.gz.part", "f.gz.part.json"]
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == DATA
    assert ranges(served)[-1] == "bytes=700000-"


def test_progress_renews_the_patience(server, source, tmp_path):
    served = server.serve(data=DATA * 3, stop_after=[*range(1_500_000, 9_000_000, 1_500_000), None])
    assert fetch(source, tmp_path, patience=replace(QUICK, attempts=2)).read_bytes() == DATA * 3
    assert len(served.asked) == 6


def test_a_server_without_ranges_sends_it_all_again(server, source, tmp_path):
    served, notes = server.serve(ranges=False, stop_after=[1_000_000, None]), []
    assert fetch(source, tmp_path, lambda one: notes.append(one.note), QUICK).read_bytes() == DATA
    assert ranges(served) == [None, "bytes=1000000-"]
    assert "the server sends the whole file: starting over" in notes


@pytest.mark.parametrize("if_range", [True, False])
def test_versions_are_never_joined(server, source, tmp_path, if_range):
    served = server.serve(stop_after=[1_000_000])
    with pytest.raises(OSError, match="1,000,000 bytes are kept"):
        fetch(source, tmp_path, patience=QUICK)
    served = server.serve(data=OTHER, etags=['"two"'], if_range=if_range)
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == OTHER
    assert ranges(served)[0] == "bytes=1000000-"


def test_a_version_that_changes_every_time_is_given_up(server, source, tmp_path):
    served = server.serve(etags=[f'"{number}"' for number in range(9)], stop_after=[1_000_000])
    with pytest.raises(OSError, match="failed 3 times in a row"):
        fetch(source, tmp_path, patience=QUICK)
    assert len(served.asked) <= 4


def test_without_a_validator_only_a_known_digest_allows_going_on(server, source, tmp_path):
    served = server.serve(etags=['W/"weak"'], stop_after=[1_000_000, None])
    assert fetch(source, tmp_path / "a", patience=QUICK).read_bytes() == DATA
    assert ranges(served) == [None, None]
    served = server.serve(etags=[""], stop_after=[1_000_000, None])
    known = replace(source, sha256=sha(DATA))
    assert fetch(known, tmp_path / "b", patience=QUICK).read_bytes() == DATA
    assert ranges(served) == [None, "bytes=1000000-"]


def test_a_part_of_another_address_or_too_long_is_not_used(server, source, tmp_path):
    server.serve(stop_after=[1_000_000])
    with pytest.raises(OSError, match="1,000,000 bytes are kept"):
        fetch(source, tmp_path, patience=QUICK)
    server.paths["/mirror"] = served = Served(data=OTHER)
    mirrored = fetch(replace(source, url=server.url("/mirror")), tmp_path, patience=QUICK)
    assert mirrored.read_bytes() == OTHER
    assert ranges(served) == [None]
    (tmp_path / FETCHED).unlink()
    mirrored.rename(tmp_path / "f.gz.part")
    (tmp_path / "f.gz.part.json").write_text(json.dumps({"url": source.url, "validator": '"one"', "total": 10}))
    served = server.serve()
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == DATA
    assert ranges(served) == [None]


def test_a_whole_part_needs_no_server(server, source, tmp_path):
    (tmp_path / "f.gz.part").write_bytes(DATA)
    (tmp_path / "f.gz.part.json").write_text(json.dumps({"url": source.url, "validator": "", "total": len(DATA)}))
    known = replace(source, sha256=sha(DATA))
    assert fetch(known, tmp_path).read_bytes() == DATA
    assert server.paths == {}


def test_a_shorter_file_than_the_part_starts_over(server, source, tmp_path):
    (tmp_path / "f.gz.part").write_bytes(DATA)
    (tmp_path / "f.gz.part.json").write_text(json.dumps({"url": source.url, "validator": '"one"', "total": None}))
    served = server.serve(data=OTHER[:10])
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == OTHER[:10]
    assert ranges(served) == ["bytes=3000000-", None]


def test_a_chunked_body_that_ends_early_is_seen(server, source, tmp_path):
    server.serve(chunked=True, stop_after=[1_000_000, None])
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == DATA


def test_a_body_without_a_length_is_checked_against_the_table(server, source, tmp_path):
    server.serve(length=False, stop_after=[1_000_000, None])
    notes = []
    fetch(source, tmp_path / "unknown", lambda one: notes.append(one.note), QUICK)
    assert notes[-1] == "the server does not send the size of the file; it may be incomplete"
    server.serve(length=False, stop_after=[1_000_000, None])
    known = replace(source, num_bytes=len(DATA))
    assert fetch(known, tmp_path / "known", patience=QUICK).read_bytes() == DATA


def test_a_server_that_falls_silent_is_left(server, source, tmp_path):
    server.serve(stop_after=[1_000_000], stall=True)
    began = time.monotonic()
    with pytest.raises(OSError, match=r"failed 2 times .*timed out; 1,000,000 bytes"):
        fetch(source, tmp_path, patience=replace(QUICK, attempts=2))
    assert time.monotonic() - began < 5


def test_an_overloaded_server_is_asked_again(server, source, tmp_path):
    served = server.serve(statuses=[503, 429, 200])
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == DATA
    assert len(served.asked) == 3
    server.serve(statuses=[500])
    with pytest.raises(OSError, match=r"failed 3 times .*answered 500 Internal"):
        fetch(source, tmp_path / "other", patience=QUICK)


@pytest.mark.parametrize(
    ("settings", "known", "message"),
    [
        ({"statuses": [404]}, {}, r"/f\.gz is not there \(404 Not Found\); give another address with `url`"),
        ({"statuses": [403]}, {}, r"\(403 Forbidden\)"),
        ({"headers": {"Content-Type": "text/html; charset=utf-8"}}, {}, "returns a web page instead of the file"),
        ({}, {"sha256": sha(OTHER)}, rf"sha256 {sha(DATA)}, so the download was removed; expected {sha(OTHER)}$"),
        ({}, {"num_bytes": 3_000_001}, r"has 3,000,000 bytes, but 3,000,001 are expected"),
    ],
    ids=["missing", "forbidden", "web page", "digest", "size"],
)
def test_what_is_not_the_file_is_said_at_once_and_not_kept(server, source, tmp_path, settings, known, message):
    served = server.serve(**settings)
    with pytest.raises(ValueError, match=message):
        fetch(replace(source, **known), tmp_path, patience=QUICK)
    assert len(served.asked) == 1
    assert files(tmp_path) == []


def test_a_refused_connection_is_said_at_once(source, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/f.gz"
    with pytest.raises(OSError, match=r"cannot be reached \(Connection refused\)"):
        fetch(replace(source, url=url), tmp_path, patience=Patience(pause=100))


def test_the_first_digest_holds_from_then_on(server, source, tmp_path):
    server.serve()
    path = fetch(source, tmp_path, patience=QUICK)
    path.unlink()
    server.serve(data=OTHER)
    with pytest.raises(ValueError, match=f"first download had {sha(DATA)}; .*remove its entry"):
        fetch(source, tmp_path, patience=QUICK)
    assert files(tmp_path) == [FETCHED]
    server.serve()
    path = fetch(source, tmp_path, patience=QUICK)
    path.write_bytes(OTHER)
    with pytest.raises(ValueError, match=r"f\.gz has sha256 .* it was changed"):
        fetch(source, tmp_path, patience=QUICK)
    assert path.read_bytes() == OTHER


def test_a_file_put_there_by_hand_is_recorded(source, tmp_path):
    (tmp_path / "f.gz").write_bytes(DATA)
    assert fetch(source, tmp_path) == tmp_path / "f.gz"
    assert json.loads((tmp_path / FETCHED).read_text())["f.gz"]["sha256"] == sha(DATA)


@contextmanager
def small_files(most):
    """No file of this process may grow beyond so many bytes: a disk quota, as the kernel enforces it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_keeps_the_part(server, source, tmp_path):
    served = server.serve()
    with (
        small_files(1_234_567),
        pytest.raises(OSError, match=r"no space left .*f\.gz\.part .*are kept"),
    ):
        fetch(source, tmp_path, patience=QUICK)
    assert (tmp_path / "f.gz.part").read_bytes() == DATA[:1_234_567]
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == DATA
    assert ranges(served) == [None, "bytes=1234567-"]


def test_a_disk_that_is_full_from_the_start(server, source, tmp_path):
    server.serve(length=False, headers={"Content-Length": str(1 << 60)})  # more than any disk
    with pytest.raises(OSError, match=rf"no space .*{1 << 60:,} bytes .*[\d,]+ are free"):
        fetch(source, tmp_path, patience=QUICK)


def test_two_fetches_do_not_clash(server, source, tmp_path):
    server.serve()
    with locked(tmp_path), pytest.raises(ValueError, match="another run is writing to"):
        fetch(source, tmp_path, patience=QUICK)
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == DATA


def test_redirects(server, source, tmp_path):
    server.serve()
    server.paths["/moved"] = Served(statuses=[301], headers={"Location": "/f.gz"})
    moved = replace(source, url=server.url("/moved"))
    assert fetch(moved, tmp_path / "a", patience=QUICK).read_bytes() == DATA
    for target in ("file:///etc/hostname", "ftp://127.0.0.1/f.gz", "data:,x"):
        server.paths["/moved"] = Served(statuses=[302], headers={"Location": target})
        with pytest.raises(ValueError, match=r"is not followed|is not allowed"):
            fetch(moved, tmp_path / "b", patience=QUICK)
    server.paths["/moved"] = Served(statuses=[302], headers={"Location": "/moved"})
    with pytest.raises(ValueError, match=r"\(302 [^\n]*\)"):
        fetch(moved, tmp_path / "b", patience=QUICK)
    assert files(tmp_path / "b") == []


def test_encryption_is_not_given_up():
    body, headers = io.BytesIO(), HTTPMessage()
    with pytest.raises(ValueError, match="https://a/x redirects to http://a/x"):
        _Redirects().redirect_request(Request("https://a/x"), body, 301, "", headers, "http://a/x")
    assert body.closed
    safer = _Redirects().redirect_request(Request("http://a/x"), io.BytesIO(), 301, "", headers, "https://a/x")
    assert safer is not None
    assert safer.full_url == "https://a/x"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://127.0.0.1/f", "is not a URL to download from; give one that begins with http://"),
        ("/etc/hostname", "is not a "),
        ("http://127.0.0.1:1/a b", "is not a "),
        ("file://elsewhere/f", "names another machine"),
        ("file:///none/such", "the file does not exist"),
    ],
)
def test_other_addresses_are_refused(source, tmp_path, url, message):
    with pytest.raises(ValueError, match=message):
        fetch(replace(source, url=url), tmp_path, patience=QUICK)


def test_a_file_of_this_machine(source, tmp_path):
    (tmp_path / "a copy.gz").write_bytes(DATA)
    copied = replace(source, url=(tmp_path / "a copy.gz").as_uri())
    with small_files(1_000_000), pytest.raises(OSError, match="no space left on the disk"):
        fetch(copied, tmp_path / "cache", patience=QUICK)
    assert fetch(copied, tmp_path / "cache", patience=QUICK).read_bytes() == DATA


def tar(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                info.mode = 0o4777
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


BAD_TARS = [
    ((("ok", b"x"), ("../evil", b"x")), r"the member '\.\./evil' has '\.\.' in its path"),
    ((("a/../../evil", b"x"),), r"'a/\.\./\.\./evil' has '\.\.'"),
    ((("a\\..\\..\\evil", b"x"),), "has '..' in its path"),
    ((("/tmp/evil", b"x"),), "'/tmp/evil' has an absolute path"),
    ((("C:\\evil", b"x"),), "has an absolute path"),
    ((special("link", tarfile.SYMTYPE, "/etc"), ("link/passwd", b"x")), "'link' is a link or a device"),
    ((("a", b"x"), special("hard", tarfile.LNKTYPE, "a")), "'hard' is a link or a device"),
    ((special("null", tarfile.CHRTYPE),), "'null' is a link or a device"),
    ((special("pipe", tarfile.FIFOTYPE),), "'pipe' is a link or a device"),
    ((("a", b"x"), ("a", b"y")), "'a' occurs twice"),
    ((("a", b"x"), ("a/b", b"y")), "'a/b' occurs twice"),
]


@pytest.mark.parametrize(("members", "message"), BAD_TARS, ids=[message for _, message in BAD_TARS])
def test_a_tar_that_reaches_outside_is_refused(tmp_path, members, message):
    inner = tmp_path / "in" / "side"
    inner.mkdir(parents=True)
    archive = tar(inner / "a.tar.gz", *members)
    with pytest.raises(ValueError, match=message):
        unpack(archive, inner / "out")
    assert files(tmp_path) == ["in/side/a.tar.gz"]
    assert not (inner / "out").exists()


def test_a_zip_that_reaches_outside_is_refused(tmp_path):
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    members = [("../evil", "has '..'"), ("/evil", "absolute path"), (link, "'link' is a link or a device")]
    for number, (member, message) in enumerate(members):
        with zipfile.ZipFile(archive := tmp_path / f"{number}.zip", "w") as zipped:
            zipped.writestr("fine", "x")
            zipped.writestr(member, "/etc/passwd")
        with pytest.raises(ValueError, match=message):
            unpack(archive, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_archives_are_unpacked_plainly(tmp_path):
    archive = tar(tmp_path / "a.tar.gz", special("./", tarfile.DIRTYPE), ("./d/x", b"1"), ("y", b"2"))
    assert unpack(archive, tmp_path / "tar") == [tmp_path / "tar" / "d" / "x", tmp_path / "tar" / "y"]
    assert not (tmp_path / "tar" / "y").stat().st_mode & stat.S_ISUID
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.mkdir("d")
        zipped.writestr("d/x", DATA)
    assert [file.read_bytes() for file in unpack(tmp_path / "a.zip", tmp_path / "zip")] == [DATA]


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar"])
def test_a_broken_archive_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(DATA[:1000])
    with pytest.raises(ValueError, match=rf"{name} cannot be unpacked"):
        unpack(tmp_path / name, tmp_path / "out")
    whole = tar(tmp_path / "whole.tar.gz", ("x", DATA))
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole.read_bytes()[:-100_000])
    with pytest.raises(ValueError, match=r"cut\.tar\.gz cannot be unpacked"):
        unpack(cut, tmp_path / "out")


def test_an_archive_is_unpacked_once(server, source, tmp_path):
    server.serve(data=tar(tmp_path / "a", ("s/normal.aligned", b"a\n"), ("s/simple.aligned", b"b\n")).read_bytes())
    aligned = replace(source, file="f.tar.gz", kind="aligned")
    folder = fetch_unpacked(aligned, tmp_path / "cache", patience=QUICK)
    assert folder == tmp_path / "cache" / "one"
    assert next_command(aligned, folder) == (
        f"python jobs/shard.py --input {folder}/s/normal.aligned {folder}/s/simple.aligned --format aligned "
        "--training-set acl2017/simpwiki --out pairs/one"
    )
    first = (folder / "s" / "normal.aligned").stat().st_ino
    assert fetch_unpacked(aligned, tmp_path / "cache", patience=QUICK) == folder
    assert (folder / "s" / "normal.aligned").stat().st_ino == first
    (folder / "s" / "normal.aligned").unlink()
    (folder / "s" / "simple.aligned").unlink()
    (folder / "s").rmdir()
    folder.rmdir()
    fetch_unpacked(aligned, tmp_path / "cache", patience=QUICK)
    assert files(folder) == ["s/normal.aligned", "s/simple.aligned"]


def test_what_comes_next(source, tmp_path):
    (tmp_path / "narrow.txt").write_text("a 1\n")
    (tmp_path / "wide.txt").write_text("a 1 2 3\n")
    (tmp_path / "my ppdb.txt").write_text("")
    assert next_command(source, Path("a b.gz")) == "python jobs/shard.py --input 'a b.gz' --out pairs/one"
    assert f"--words {tmp_path}/wide.txt " in next_command(replace(source, kind="vectors"), tmp_path)
    assert f"--input '{tmp_path}/my ppdb.txt' " in next_command(replace(source, kind="pairs"), tmp_path)
    vectors = tmp_path / "vectors.bin.gz"
    vectors.touch()
    assert f"--words {vectors} " in next_command(replace(source, kind="binary"), vectors)


def test_the_command(server, tmp_path, caplog, capsys):
    data = gzip.compress(b"[X] ||| a ||| b ||| ||| 0-0\n")
    server.serve(data=data)
    line = ["ppdb-2.0-s-phrasal", "--cache", str(tmp_path), "--url", server.url("/f.gz")]
    with caplog.at_level(logging.INFO, "paraembed"):
        run_fetch(tyro.cli(Fetch, args=line))
    file = tmp_path / "ppdb-2.0-s-phrasal.gz"
    assert file.read_bytes() == data
    following = f"python jobs/shard.py --input {file} --out pairs/ppdb-2.0-s-phrasal"
    assert caplog.messages == [f"fetched ppdb-2.0-s-phrasal to {file}; next: {following}"]
    run_fetch(tyro.cli(Fetch, args=["--list"]))
    table = capsys.readouterr().out
    assert all(f"{source.url}  [{source.license}]" in table for source in SOURCES.values())
    with pytest.raises(ValueError, match="no source was named"):
        run_fetch(Fetch())
    with pytest.raises(ValueError, match=r"unknown source 'ppdb'; allowed: ppdb-\{1\.0,2\.0\}-\{s,m,.*glove-6b"):
        run_fetch(Fetch(("ppdb-2.0-s-all", "ppdb"), cache=tmp_path))
    with pytest.raises(ValueError, match=r"--url is .*single file, but 2 names"):
        run_fetch(Fetch(("glove-6b", "glove-840b"), cache=tmp_path, url="file:///x"))


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PARAEMBED_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("PARAEMBED_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "paraembed"


def test_the_table():
    assert len({source.file for source in SOURCES.values()}) == len(SOURCES)
    assert all(name == source.name and "/" not in source.file for name, source in SOURCES.items())
    assert {source.url.split(":")[0] for source in SOURCES.values()} <= {"http", "https"}
    assert all(len(source.sha256 or "0" * 64) == 64 for source in SOURCES.values())
    assert sum(name.startswith("ppdb-") for name in SOURCES) == 2 * len(SIZES) * len(PARTS)
    assert find_source("ppdb-1.0-xl-phrasal").url == (
        "http://www.cis.upenn.edu/~ccb/ppdb/release-1.0/ppdb-1.0-xl-phrasal.gz"
    )
    assert find_source("ppdb-2.0-xxxl-all").url == "http://nlpgrid.seas.upenn.edu/PPDB/eng/ppdb-2.0-xxxl-all.gz"


def test_a_killed_fetch_goes_on(server, source, tmp_path):
    served = server.serve(stop_after=[1_000_000], stall=True)
    code = (
        "import sys; from pathlib import Path; from paraembed.pairs.public.fetch import fetch, Source;"
        "fetch(Source('one', sys.argv[1], 'f.gz', None, None, '', '', 'ppdb', 'seen'), Path(sys.argv[2]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, source.url, str(tmp_path)]) as process:
        part, until = tmp_path / "f.gz.part", time.monotonic() + 30
        while not (part.exists() and part.stat().st_size == 1_000_000) and time.monotonic() < until:
            time.sleep(0.01)
        process.kill()
    served = server.serve()
    assert fetch(source, tmp_path, patience=QUICK).read_bytes() == DATA
    assert ranges(served) == ["bytes=1000000-"]
