"""Files of another library's model: find, check and digest them, and pack them for other machines."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paraembed.io.atomic import new_folder
from paraembed.io.fingerprint import sha256_of

_UNSAFE = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt", "*.h5", "*.msgpack")
_NO_PART = ("*.md", ".*")  # of a model: its card, a cache of the hub


@dataclass(frozen=True)
class ModelFiles:
    """Files of a model.

    Attributes:
        folder: folder of the model.
        names: paths of the files below it, sorted.
    """

    folder: Path
    names: tuple[str, ...]

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file, by name."""
        return {name: sha256_of(self.folder / name) for name in self.names}

    @property
    def stamp(self) -> str:
        """Digest of the files' names, sizes and times, which is equal on machines that share a disk."""
        about = [(name, (stat := (self.folder / name).stat()).st_size, stat.st_mtime_ns) for name in self.names]
        return hashlib.sha256(repr(about).encode()).hexdigest()


def model_files(wanted: str, name: str) -> ModelFiles:
    """Return the files of a model.

    Args:
        wanted: folder of the model, one of its files, or its name on the Hugging Face hub. A named model is downloaded,
            or found in the hub's cache.
        name: name that the user gave, for messages.

    Raises:
        ValueError: the folder or name does not exist, or the weights have a format that can run code when they are
            read.
    """
    folder = Path(wanted)
    if folder.is_file():
        folder = folder.parent
    elif not folder.is_dir():
        folder = _fetched(wanted, name)
    folder = folder.absolute()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for unsafe in files:
        if any(unsafe.match(pattern) for pattern in _UNSAFE) and not _is_harmless(unsafe):
            raise ValueError(
                f"{name}: {unsafe.relative_to(folder)} is not available as safetensors, and other formats can run "
                "code when they are loaded; save the model again as safetensors"
            )
    names = (path.relative_to(folder) for path in files)
    return ModelFiles(folder, tuple(str(path) for path in names if not any(map(path.match, _NO_PART))))


def _is_harmless(weights: Path) -> bool:
    """Return whether a weights file is harmless: it is not the one that is loaded, or it holds OpenVINO's numbers
    (``.bin`` with ``.xml``).
    """
    return bool(list(weights.parent.glob("*.safetensors"))) or weights.with_suffix(".xml").is_file()


def _fetched(wanted: str, name: str) -> Path:
    if Path(wanted).exists() or Path(wanted).is_absolute() or wanted.count("/") > 1:
        raise ValueError(f"{name}: {wanted} is not a folder; give a model's folder, or its name on the hub")
    hub = import_module("huggingface_hub")  # comes with the libraries that read these models
    try:
        return Path(hub.snapshot_download(wanted, ignore_patterns=[*_UNSAFE, "*.onnx"]))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name}: the folder {wanted} does not exist, and the hub has no such model: "
            f"{str(error).splitlines()[0][:300]}"
        ) from None


@dataclass(frozen=True)
class PackedFiles:
    """Content of a model's files, for machines that do not share a disk with the driver.

    Attributes:
        folder: folder of the model on the driver's machine.
        stamp: see ``ModelFiles``.
        contents: path of each file → its bytes, uint8.
    """

    folder: str
    stamp: str
    contents: dict[str, npt.NDArray[np.uint8]]

    @classmethod
    def of(cls, files: ModelFiles) -> "PackedFiles":
        """Return the memory-mapped files, which are not read yet."""
        return cls(str(files.folder), files.stamp, {name: _mapped(files.folder / name) for name in files.names})

    def unpacked(self, digest: str) -> ModelFiles:
        """Return the model's files on this machine: the driver's files if they are visible here, otherwise a copy.

        The copy is made once per machine and user, in ``~/.cache/paraembed/models`` (``XDG_CACHE_HOME``).

        Args:
            digest: digest of the files, which names the copy.
        """
        here = ModelFiles(Path(self.folder), tuple(self.contents))
        try:
            if here.stamp == self.stamp:
                return here
        except OSError:
            pass  # another machine, without the driver's disk
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = cache / "paraembed" / "models" / digest
        if not folder.exists():
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with new_folder(folder) as new:
                for name, content in self.contents.items():
                    (new / name).parent.mkdir(parents=True, exist_ok=True)
                    content.tofile(new / name)
        return ModelFiles(folder, here.names)


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    if not path.stat().st_size:
        return np.zeros(0, np.uint8)
    return np.asarray(np.memmap(path, np.uint8, mode="r"))
