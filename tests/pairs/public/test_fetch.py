"""Fetching from a server on the loopback that breaks off, redirects and sends something else."""

import gzip
import hashlib
import logging
import os
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
import tyro
import urllib3

from paraembed.commands.fetch import Fetch, next_command, run_fetch
from paraembed.pairs.public.fetch import _check_response, default_cache, fetch, unpack
from paraembed.pairs.public.sources import SOURCES, Source, find_source

DATA, OTHER = (gzip.compress(text * 1000) for text in (b"[X] ||| a ||| b ||| ||| 0-0\n", b"other\n"))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        status, headers, body, length = self.server.answers.get(self.path, (404, {}, b"", 0))
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
        time.sleep(self.server.pause)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        self.answers, self.asked, self.pause = {}, [], 0.0
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, path, user=""):
        return f"http://{user}127.0.0.1:{self.server_address[1]}{path}"

    def serve(self, body=DATA, *, length=None, status=200, path="/f.gz", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = status, named, body, len(body) if length is None else length


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
    return Source("one", server.url("/f.gz"), "f.gz", "none", "a test", "ppdb")


def sha(data):
    return hashlib.sha256(data).hexdigest()


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def archive_of(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, text in members.items():
            zipped.writestr(f"{name}.txt", text)
    return path


def test_a_file_is_downloaded_once(server, source, tmp_path, caplog):
    server.serve(Content_Encoding="gzip")  # as servers describe a .gz file: the cache holds the bytes that were sent
    with caplog.at_level(logging.INFO):
        path = fetch(source, tmp_path / "new" / "cache")
    assert path.read_bytes() == DATA
    assert sha(DATA) in caplog.text
    assert fetch(source, path.parent) == path
    assert files(tmp_path) == ["new/cache/f.gz"]
    assert server.asked == ["/f.gz"]


def test_the_digest_is_checked(server, source, tmp_path):
    server.serve(OTHER)
    known = replace(source, sha256=sha(DATA))
    with pytest.raises(ValueError, match=sha(OTHER)):
        fetch(known, tmp_path)
    assert files(tmp_path) == []
    server.serve()
    path = fetch(known, tmp_path)
    path.write_bytes(OTHER)
    assert fetch(known, tmp_path).read_bytes() == DATA
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ({"length": 10_000}, OSError, r"f\.gz cannot be downloaded .*IncompleteRead"),
        ({"status": 404}, OSError, r"404 .*with `url`"),
        ({"Content_Type": "text/html; charset=utf-8"}, ValueError, "returns a web page"),
        ({"status": 302, "Location": "ftp://127.0.0.1/f"}, OSError, "ftp://127.0.0.1/f"),
        ({"status": 302, "Location": "file:///etc/hostname"}, OSError, "cannot be downloaded"),
    ],
    ids=["cut", "missing", "page", "ftp", "file"],
)
def test_a_failed_download_leaves_nothing(server, source, tmp_path, answer, error, message):
    server.serve(**answer)
    with pytest.raises(error, match=message):
        fetch(source, tmp_path)
    assert files(tmp_path) == []


def test_a_password_is_not_shown(server, source, tmp_path, caplog, capfd):
    server.serve(path="/f.gz?token=planted")
    secret = {"file": server.url("/f.gz?token=planted", "me:planted@")}
    secret |= {"missing": server.url("/none?token=planted", "me:planted@")}
    secret |= {"closed": "http://me:planted@127.0.0.1:1/f?token=planted"}
    with caplog.at_level(logging.DEBUG, "paraembed"):
        fetch(replace(source, url=secret.pop("file")), tmp_path)
        for name, url in secret.items():
            with pytest.raises(OSError, match="cannot be downloaded") as failed:
                fetch(replace(source, url=url, file=name), tmp_path)
            assert "planted" not in str(failed.value)
    assert "planted" not in caplog.text + "".join(capfd.readouterr())


def test_encryption_is_not_given_up():
    response = requests.Response()
    response.raw = urllib3.HTTPResponse()
    response.status_code, response.url, response.headers["Location"] = 301, "https://a/x", "http://a/x"
    with pytest.raises(ValueError, match="https://a/x redirects"):
        _check_response(response)
    response.headers["Location"] = "https://b/x"
    _check_response(response)


def test_a_file_of_this_machine(source, tmp_path):
    (tmp_path / "a copy.gz").write_bytes(DATA)
    copied = replace(source, url=(tmp_path / "a copy.gz").as_uri())
    assert fetch(copied, tmp_path / "cache").read_bytes() == DATA
    for url in ("file:///none/such", "/etc/hostname", "ftp://127.0.0.1/f"):
        with pytest.raises(OSError, match=url.removeprefix("file://")):
            fetch(replace(source, url=url), tmp_path / "other")


def test_a_killed_download_is_no_file(server, source, tmp_path):
    server.serve(DATA[:100], length=len(DATA))
    server.pause = 30.0
    code = (
        "import sys; from pathlib import Path; from paraembed.pairs.public.fetch import fetch, Source;"
        "fetch(Source('one', sys.argv[1], 'f.gz', '', '', 'ppdb'), Path(sys.argv[2]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, source.url, str(tmp_path)]) as process:
        until = time.monotonic() + 30
        while not server.asked and time.monotonic() < until:
            time.sleep(0.01)
        process.kill()
    assert "f.gz" not in files(tmp_path)
    server.serve()
    server.pause = 0.0
    assert fetch(source, tmp_path).read_bytes() == DATA


def test_an_archive_is_unpacked_once(server, source, tmp_path):
    server.serve(archive_of(tmp_path / "a.zip", narrow="a 1\n", wide="a 1 2 3\n").read_bytes())
    vectors = replace(source, file="f.zip", kind="vectors")
    folder = fetch(vectors, tmp_path / "cache")
    assert folder == tmp_path / "cache" / "one"
    assert f"--words {folder}/wide.txt " in next_command(vectors, folder)
    first = (folder / "wide.txt").stat().st_ino
    assert fetch(vectors, tmp_path / "cache") == folder
    assert (folder / "wide.txt").stat().st_ino == first
    time.sleep(0.05)  # so that the archive is newer than the folder
    server.serve(archive_of(tmp_path / "a.zip", other="b 1\n").read_bytes())
    fetch(replace(vectors, sha256=sha((tmp_path / "a.zip").read_bytes())), tmp_path / "cache")
    assert files(folder) == ["other.txt"]


@pytest.mark.parametrize("name", ["../../evil", "/evil"])
def test_no_member_is_written_outside(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        zipped.writestr(link, "/etc")
        zipped.writestr(name, "x")
    unpack(tmp_path / "a.zip", tmp_path / "in" / "out")
    assert files(tmp_path) == ["a.zip", "in/out/evil", "in/out/link"]
    assert not (tmp_path / "in" / "out" / "link").is_symlink()


def test_a_damaged_archive_is_named(tmp_path):
    whole = archive_of(tmp_path / "whole.zip", x=os.urandom(10_000).hex()).read_bytes()
    for number, data in enumerate((DATA, whole[:-100], whole[:2000] + bytes(100) + whole[2100:])):
        path = tmp_path / f"{number}.zip"
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"{number}\.zip cannot be unpacked"):
            unpack(path, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_the_command(server, tmp_path, caplog, capsys):
    server.serve()
    line = ["ppdb-2.0-s-phrasal", "--cache", str(tmp_path), "--url", server.url("/f.gz")]
    with caplog.at_level(logging.INFO, "paraembed"):
        run_fetch(tyro.cli(Fetch, args=line))
    file = tmp_path / "ppdb-2.0-s-phrasal.gz"
    assert file.read_bytes() == DATA
    following = f"python jobs/shard.py --input {file} --out pairs/ppdb-2.0-s-phrasal"
    assert caplog.messages[-1] == f"fetched ppdb-2.0-s-phrasal to {file}; next: {following}"
    assert "--list" in next_command(find_source("sick-test"), file)
    run_fetch(tyro.cli(Fetch, args=["--list"]))
    table = capsys.readouterr().out
    assert all(f"{source.url}  [{source.license}]" in table for source in SOURCES.values())
    with pytest.raises(ValueError, match="no source was named"):
        run_fetch(Fetch())
    with pytest.raises(ValueError, match=r"unknown source 'ppdb'; allowed: .*glove-6b"):
        run_fetch(Fetch(("ppdb-1.0-s-all", "ppdb"), cache=tmp_path))
    with pytest.raises(ValueError, match=r"--url .* 2 names"):
        run_fetch(Fetch(("glove-6b", "glove-840b"), cache=tmp_path, url="file:///x"))


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PARAEMBED_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("PARAEMBED_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache() == tmp_path / ".cache" / "paraembed"
