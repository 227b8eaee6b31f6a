"""``config.json`` of an output folder: format, settings, digests of the files, fingerprint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import digest_of, read_json, sha256_of
from paraembed.options import checked


def write_config(folder: Path, form: str, decides: dict[str, Any], files: Sequence[str], record: dict[str, Any]) -> str:
    """Write ``config.json`` and return the fingerprint, a digest of ``decides`` and of the files.

    ``decides`` holds the JSON values that decide the content of the folder, ``record`` those that are only stored.
    """
    decides = {**decides, "files": {name: sha256_of(folder / name) for name in files}}
    fingerprint = digest_of(decides)
    write_json(folder / "config.json", {"format": form, **decides, "fingerprint": fingerprint, **record})
    return fingerprint


def read_config(
    folder: Path,
    form: str,
    kind: Any,
    decides: Sequence[str],
    files: Sequence[str],
    what: str,
    *,
    may_list: Sequence[str] = (),
) -> dict[str, Any]:
    """Read a ``config.json`` that ``write_config`` wrote.

    ``kind`` is the typed dictionary of the configuration, with ``files`` and ``fingerprint``; it says which names in
    ``decides`` may be missing. It must list ``files``, may list ``may_list``, and no others. ``what`` describes the
    expected folder: ``an encoder folder, written by jobs/train.py``. Raise FileNotFoundError or NotADirectoryError if
    the folder does not exist, ValueError if it has another format, or its config.json was changed.
    """
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; expected {what}")
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; expected {what}")
    if not (folder / "config.json").is_file():
        raise ValueError(f"{folder} has no config.json; expected {what}")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict) or config.get("format") != form:
        raise ValueError(f"{folder}/config.json does not have the format {form!r}; expected {what}")
    config = checked(kind, config, f"{folder}/config.json")
    decided = {key: config[key] for key in (*decides, "files") if key in config}
    if set(decided["files"]) - set(may_list) != set(files):
        raise ValueError(f"{folder}/config.json must list {' and '.join(files)} with digests, and no other file")
    if digest_of(decided) != config["fingerprint"]:
        raise ValueError(
            f"{folder}/config.json does not match its fingerprint, so it was changed after it was written; copy or "
            "write the folder again"
        )
    return dict(config)


def check_files(folder: Path, config: dict[str, Any]) -> None:
    """Raise FileNotFoundError or ValueError if a file is missing, or differs from its digest in ``config``."""
    for name, digest in config["files"].items():
        if sha256_of(folder / name) != digest:
            raise ValueError(f"{folder / name} differs from its digest in config.json; download it or train it again")
