"""Files of another library's model: find, check and digest them, and pack them for other machines."""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paraembed.io.fingerprint import digest_of, sha256_of

_UNSAFE = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt", "*.h5", "*.msgpack")
GRAPHS = ("model.onnx", "onnx/model.onnx", "model_optimized.onnx", "onnx/model_optimized.onnx")
"""Graph of an ``onnx:`` model: the first of these files that it has."""
_NOT_NUMBERS = [pattern for pattern in _UNSAFE if pattern != "*.bin"]
# Files of a model on the hub that are fetched, as options of ``snapshot_download``: of an st: model by its backend.
_FETCHED = {
    "torch": {"ignore_patterns": [*_UNSAFE, "*.onnx"]},
    "onnx": {"ignore_patterns": [*_UNSAFE]},
    "openvino": {"ignore_patterns": [*_NOT_NUMBERS, "pytorch_model*.bin", "training_args.bin", "*.onnx"]},
    "onnx:": {"allow_patterns": ["*.json", *(f"{graph}*" for graph in GRAPHS)]},  # with a graph's external data
}
_LOADED = ("model.safetensors", "model.safetensors.index.json")  # which loaders prefer to other weights


class ModelError(ValueError):
    """The files of a model are readable, but this package does not support the model or a setting for it."""


@dataclass(frozen=True)
class ModelFiles:
    """Files of a model: its folder, and the sorted paths of the files below it."""

    folder: Path
    names: tuple[str, ...]

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file, by name."""
        return {name: sha256_of(self.folder / name) for name in self.names}

    def is_whole(self, digest: str) -> bool:
        """Return whether the files have the digest of ``digests``."""
        try:
            return digest_of(self.digests) == digest
        except OSError:
            return False

    @property
    def stamp(self) -> str:
        """Digest of the files' names, sizes and times, which is equal on machines that share a disk."""
        about = [(name, (stat := (self.folder / name).stat()).st_size, stat.st_mtime_ns) for name in self.names]
        return hashlib.sha256(repr(about).encode()).hexdigest()


def model_files(wanted: str, name: str, form: str, *, offline: bool = False) -> ModelFiles:
    """Return the files of a model: a folder, or a name on the Hugging Face hub, which is downloaded or found in the
    hub's cache (with ``offline`` only there).

    ``name`` is what the user gave, for messages. ``form``, a key of ``_FETCHED``, says which files of a model on the
    hub are read; the cache can hold others, which are no part of the model.

    A name that is not in the cache, with ``offline``, is a FileNotFoundError; a folder or name that does not exist, or
    weights of a format that can run code when they are read, a ValueError.
    """
    if not wanted:
        raise ValueError(f"{name} names no model; add its folder, or its name on the hub, after the colon")
    is_named = not Path(wanted).is_dir()
    folder = (_fetched(wanted, name, form, offline=offline) if is_named else Path(wanted)).absolute()
    paths = [path for path in sorted(folder.rglob("*")) if not _is_ignored(path.relative_to(folder))]
    # Loaders follow links to folders, but rglob does not: their files would be in no digest.
    if link := next((path for path in paths if path.is_symlink() and path.is_dir()), None):
        raise ValueError(
            f"{name}: {link.relative_to(folder)} is a link to a folder; replace it by a copy of the folder"
        )
    files = [path for path in paths if path.is_file()]
    if adapter := next((path for path in files if path.name == "adapter_config.json"), None):
        raise ValueError(
            f"{name}: {adapter.relative_to(folder)} says that this is an adapter of another model; merge the two and "
            "save the result"
        )
    for unsafe in files:
        if any(unsafe.match(pattern) for pattern in _UNSAFE) and not _is_harmless(unsafe):
            raise ValueError(
                f"{name}: {unsafe.relative_to(folder)} is not available as safetensors, and other formats can run "
                "code when they are loaded; save the model again as safetensors"
            )
    names = [str(path.relative_to(folder)) for path in files]
    if is_named:
        names = list(import_module("huggingface_hub.utils").filter_repo_objects(names, **_FETCHED[form]))
    return ModelFiles(folder, tuple(names))


def _is_ignored(path: Path) -> bool:
    """Return whether a path below a model's folder is no part of the model: its card, a hidden file or folder."""
    return path.name == "README.md" or any(part.startswith(".") for part in path.parts)


def _is_harmless(weights: Path) -> bool:
    """Return whether a weights file is not loaded, or holds OpenVINO's numbers (``.bin`` with ``.xml``)."""
    if any((weights.parent / name).is_file() for name in _LOADED):
        return True
    return weights.match("openvino_model*.bin") and weights.with_suffix(".xml").is_file()


def _fetched(wanted: str, name: str, form: str, *, offline: bool) -> Path:
    if Path(wanted).exists() or Path(wanted).is_absolute() or wanted.count("/") > 1:
        raise ValueError(f"{name}: {wanted} is not a folder; give a model's folder, or its name on the hub")
    hub = import_module("huggingface_hub")  # comes with the libraries that read these models
    try:
        return Path(hub.snapshot_download(wanted, local_files_only=offline, **_FETCHED[form]))
    except (OSError, ValueError) as error:
        if offline:
            raise FileNotFoundError(
                f"{name} is neither a folder nor in the hub's cache on this machine; give it with `encoder` to fetch it"
            ) from None
        raise ValueError(
            f"{name}: the folder {wanted} does not exist, and the hub has no such model: "
            f"{str(error).partition(chr(10))[0][:300]}"
        ) from None


@dataclass(frozen=True)
class PackedFiles:
    """Files of a model on the driver's machine (see ``ModelFiles``), with their contents for machines that do not share
    its disk: path of each file → its bytes, uint8; empty if all processes see the driver's disk.
    """

    folder: str
    stamp: str
    names: tuple[str, ...]
    contents: dict[str, npt.NDArray[np.uint8]]

    @classmethod
    def of(cls, files: ModelFiles, *, is_local: bool) -> "PackedFiles":
        """Return the memory-mapped files, which are not read yet; without contents for processes of this machine."""
        contents = {} if is_local else {name: _mapped(files.folder / name) for name in files.names}
        return cls(str(files.folder), files.stamp, files.names, contents)

    def unpacked(self, digest: str) -> ModelFiles:
        """Return the model's files on this machine: the driver's files if they are visible here, otherwise a copy with
        the ``digest`` as its name. Raise ValueError if the files changed, and their contents are not packed.

        The copy is made once per machine and user, in ``~/.cache/paraembed/models`` (``XDG_CACHE_HOME``).
        """
        here = ModelFiles(Path(self.folder), self.names)
        try:
            if here.stamp == self.stamp:
                return here
        except OSError:
            pass  # another machine, without the driver's disk
        if not self.contents:
            raise ValueError(f"the model in {self.folder} changed while the job ran; run the same command again")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "paraembed" / "models" / digest
        if folder.exists() and not ModelFiles(folder, here.names).is_whole(digest):
            shutil.rmtree(folder)
        if not folder.exists():
            self._write(folder)
        return ModelFiles(folder, here.names)

    def _write(self, folder: Path) -> None:
        """Write the files to a folder that appears when it is complete."""
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        for name, content in self.contents.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            content.tofile(new / name)
        try:
            new.rename(folder)
        except OSError:  # another worker was faster
            shutil.rmtree(new)


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    if not path.stat().st_size:
        return np.zeros(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, mode="r"))
