"""``config.json`` of a model folder, which a finished training is recognized by, without PyTorch; see ``model``."""

from pathlib import Path
from typing import Any, NotRequired, TypedDict

from paraembed.io import folder_config

FORMAT = "paraembed-supervised-1"
HEAD_FILE = "head.safetensors"
FILES = ("encoder/config.json", HEAD_FILE)


class _Config(TypedDict):
    kind: dict[str, Any]
    head: dict[str, Any]
    files: dict[str, str]
    fingerprint: str
    provenance: NotRequired[dict[str, Any] | None]


def read_config(folder: Path) -> dict[str, Any]:
    """Read ``config.json`` of a model folder.

    Raises:
        FileNotFoundError, NotADirectoryError, ValueError: the same errors as ``model.load``.
    """
    what = "a model folder, written by jobs/finetune.py"
    return folder_config.read_config(folder, FORMAT, _Config, ("kind", "head"), FILES, what)
