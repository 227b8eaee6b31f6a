"""Change the Arrow files of an output, as someone would who wants to pass the digests."""

import json

import pyarrow as pa
import pyarrow.ipc

from paraembed.embedding.manifest import read_manifest
from paraembed.embedding.records import ENTRIES, INPUTS, PIECES, arrow_bytes
from paraembed.io.fingerprint import sha256_of
from paraembed.io.store import Folder


def read(path):
    """The rows of a file, its schema, and the JSON in its metadata."""
    with pa.ipc.open_file(path) as file:
        table = file.read_all()
    about = json.loads((table.schema.metadata or {}).get(b"paraembed", b"null"))
    return table.to_pylist(), table.schema.remove_metadata(), about


def rewrite(path, change):
    """Change the rows of a file, and its metadata; columns of another type or name are inferred."""
    rows, schema, about = read(path)
    change(rows, about)
    is_alike = all(row.keys() == {*schema.names} for row in rows)
    try:
        table = pa.Table.from_pylist(rows, schema if is_alike else None)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        table = pa.Table.from_pylist([{name: str(value) for name, value in row.items()} for row in rows])
    path.write_bytes(arrow_bytes(table, about))


def change_plan(folder, inputs=lambda *_: None, pieces=lambda *_: None):
    """Change the inputs of a plan, and its pieces, whose digest the inputs have."""
    if pieces:
        rewrite(folder / PIECES, pieces)

    def signed(rows, about):
        about["parts"] = sha256_of(folder / PIECES)
        inputs(rows, about)

    rewrite(folder / INPUTS, signed)


def sign(folder, change=lambda _: None):
    """Write the manifest, the list of its parts, and _SUCCESS anew; ``change`` gets the manifest with its parts."""
    values = json.loads((folder / "_manifest.json").read_text())
    entries, _schema, _ = read(folder / ENTRIES)
    values["parts"] = entries
    for part in entries:
        if (folder / part["name"]).exists():
            part["sha256"] = sha256_of(folder / part["name"])
    change(values)
    rewrite(folder / ENTRIES, lambda rows, _: rows.__setitem__(slice(None), values.pop("parts")))
    values["generations"][0]["files"][ENTRIES] = sha256_of(folder / ENTRIES)
    (folder / "_manifest.json").write_text(json.dumps(values))
    (folder / "_SUCCESS").write_text(sha256_of(folder / "_manifest.json") + "\n")


def parts_of(folder):
    return read_manifest(Folder(folder))["parts"]
