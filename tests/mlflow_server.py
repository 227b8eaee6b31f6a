"""A real MLflow server on loopback, in this process, that fails on demand."""

import io
import json
import socket
import threading
import warnings
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer


class Server(ThreadingMixIn, WSGIServer):
    """MLflow's REST interface; ``fault`` is what the next requests get.

    Attributes:
        fault: an HTTP status, ``"close"`` (no answer), ``"lose"`` (the request is carried out, its answer lost), or
            None: all is well.
        requests: number of requests so far, failed ones among them.
    """

    daemon_threads = True
    fault: int | str | None = None
    requests = 0

    @property
    def uri(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(WSGIRequestHandler):
    server: Server

    def handle(self):
        self.server.requests += 1
        fault = self.server.fault
        if fault is None:
            super().handle()
            return
        if fault == "lose":
            self.wfile.close()
            self.wfile = io.BytesIO()
            super().handle()
        elif isinstance(fault, int):
            self.rfile.readline()
            self.wfile.write(f"HTTP/1.0 {fault} Broken\r\nContent-Length: 2\r\n\r\n{{}}".encode())
            self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_):
        """Say nothing."""


def run_of(client, memo):
    """The run whose key is in a job's ``run.json``."""
    key = json.loads(memo.read_text())["key"]
    (run,) = client.search_runs(["1"], f"tags.`paraembed.run` = '{key}'")
    return run


@contextmanager
def mlflow_server(folder, monkeypatch):
    """A server whose database and artifacts are in a folder."""
    monkeypatch.setenv("_MLFLOW_SERVER_FILE_STORE", f"sqlite:///{folder / 'server.db'}")
    monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_ROOT", "mlflow-artifacts:/")
    monkeypatch.setenv("_MLFLOW_SERVER_ARTIFACT_DESTINATION", str(folder / "artifacts"))
    monkeypatch.setenv("_MLFLOW_SERVER_SERVE_ARTIFACTS", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a server imports it at its first search
        from mlflow.server import app, auth, handlers  # noqa: F401, PLC0415
    monkeypatch.setattr(handlers, "_tracking_store", None)
    monkeypatch.setattr(handlers, "_model_registry_store", None)
    monkeypatch.setattr(handlers, "_artifact_repo", None)
    server = Server(("127.0.0.1", 0), _Handler)
    server.set_app(app)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
