"""Files of another library's model: find, check and digest them, and pack them for other machines."""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paraembed.io.fingerprint import digest_of, sha256_of
from paraembed.io.places import open_regular
from paraembed.text.subword import check_merges

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
MOST_WIDTH = 1 << 16
"""Largest width of a text vector."""
_MOST_ID = 1 << 24
_LONG_NUMBER = re.compile(rb"[:,\[\s](\d{8,})(?![\d.eE])")
# External data of a graph, as a protobuf entry whose key is "location". The general pattern also finds lengths that are
# padded with zeros, which are valid but which no exporter writes.
_LOCATION = re.compile(rb"(?:\x08|\x88\x80*\x00)location")
_ENTRY = re.compile(rb"\x6a(.)\x0a\x08location\x12(.)", re.DOTALL)


class ModelError(ValueError):
    """The files of a model are readable, but this package does not support the model or a setting for it."""


@dataclass(frozen=True)
class ModelFiles:
    """Files of a model: its folder, and the sorted paths of the files below it."""

    folder: Path
    names: tuple[str, ...]

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file, by name; ValueError if a file changed since ``snapshot``."""
        with self._unchanged():
            return {name: sha256_of(self.folder / name) for name in self.names}

    @contextmanager
    def snapshot(self) -> Iterator["ModelFiles"]:
        """Yield the same files in a folder that contains nothing else, to load the model from.

        So hidden files, cards, and weights in other formats, which are in no digest or could run code, cannot be
        loaded. JSON files are copies, which cannot change between their check and their use. The others are links;
        ValueError if one changed meanwhile.
        """
        with self._unchanged(), tempfile.TemporaryDirectory(prefix="paraembed-model-") as parent:
            # transformers keeps trusted code in a cache, below the name of the folder.
            folder = Path(parent, "model")
            folder.mkdir()
            for name in self.names:
                path, copy = self.folder / name, folder / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".json":
                    copy.write_bytes(_content(path))
                elif not _is_unsafe(path):
                    copy.symlink_to(path)
                if path.match("tokenizer.*json"):  # some are for a version, as tokenizer.4.0.json
                    _check_tokenizer(name, copy.read_bytes())
            yield ModelFiles(folder, self.names)

    def check_graph(self, name: str) -> None:
        """Raise ModelError if an ONNX graph reads its numbers from a file that is not one of the model's."""
        graph = _content(self.folder / name)
        for match in _LOCATION.finditer(graph):
            start = match.end() - 12  # of the entry, as exporters write it
            entry = _ENTRY.match(graph, start) if start >= 0 else None
            size, length = (entry[1][0], entry[2][0]) if entry else (0, 0)
            path = graph[start + 14 : start + 14 + length].decode(errors="replace")
            if size != length + 12 or length > 127 or str(Path(name).parent / path) not in self.names:
                raise ModelError(
                    f"{name} reads numbers from {path[:80]!r}, which is not one of the model's files; save the graph "
                    "again, with its data next to it"
                )

    @cached_property
    def _stats(self) -> list[tuple[int, ...]]:
        """What changes if a file is written or replaced; kept from the first access on."""
        return self._current_stats()

    def _current_stats(self) -> list[tuple[int, ...]]:
        stats = [(self.folder / name).stat() for name in self.names]
        return [(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev) for stat in stats]

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Raise ValueError at the end if a file changed since the first of these blocks began."""
        before = self._stats
        yield
        if before != self._current_stats():
            raise ValueError(f"the model in {self.folder} changed while it was loaded; run the same command again")

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


def model_files(wanted: str, name: str, form: str) -> ModelFiles:
    """Return the files of a model: a folder, or a name on the Hugging Face hub, which is downloaded or found in the
    hub's cache.

    ``name`` is what the user gave, for messages. ``form``, a key of ``_FETCHED``, says which files of a model on the
    hub are read; the cache can hold others, which are no part of the model.

    Raise ValueError for a folder or name that does not exist, and for weights that can run code when they are read.
    """
    if not wanted:
        raise ValueError(f"{name} names no model; add its folder, or its name on the hub, after the colon")
    is_named = not Path(wanted).is_dir()
    folder = (_fetched(wanted, name, form) if is_named else Path(wanted)).absolute()
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
    for unsafe in filter(_is_unsafe, files):
        if not any(
            (unsafe.parent / weights).is_file() for weights in ("model.safetensors", "model.safetensors.index.json")
        ):
            raise ValueError(
                f"{name}: {unsafe.relative_to(folder)} is not available as safetensors, and other formats can run "
                "code when they are loaded; save the model again as safetensors"
            )
    names = [str(path.relative_to(folder)) for path in files]
    if is_named:
        names = list(import_module("huggingface_hub.utils").filter_repo_objects(names, **_FETCHED[form]))
    return ModelFiles(folder, tuple(names))


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages, also if another distribution brings one, as onnxruntime-gpu does."""
    versions = dict[str, str]()
    for name in packages:
        try:
            full = version(name)
        except PackageNotFoundError:
            full = str(import_module(name.replace("-", "_")).__version__)
        versions[name] = full.partition("+")[0]
    return versions


def _is_ignored(path: Path) -> bool:
    """Return whether a path below a model's folder is no part of the model: its card, a hidden file or folder."""
    return path.name == "README.md" or any(part.startswith(".") for part in path.parts)


def _check_tokenizer(name: str, content: bytes) -> None:
    """Raise ValueError for a tokenizer at which the library aborts the process, or tries every id up to a huge one."""
    if (largest := max(map(int, _LONG_NUMBER.findall(content)), default=0)) > _MOST_ID:
        raise ModelError(f"{name} has the number {largest:,}; allowed: at most {_MOST_ID:,}")
    check_merges(content)


def _content(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def _is_unsafe(path: Path) -> bool:
    """Return whether a file holds weights that can run code; OpenVINO's numbers (``.bin`` with ``.xml``) do not."""
    is_numbers = path.match("openvino_model*.bin") and path.with_suffix(".xml").is_file()
    return not is_numbers and any(path.match(pattern) for pattern in _UNSAFE)


def _fetched(wanted: str, name: str, form: str) -> Path:
    if Path(wanted).exists() or Path(wanted).is_absolute() or wanted.count("/") > 1:
        raise ValueError(f"{name}: {wanted} is not a folder; give a model's folder, or its name on the hub")
    hub = import_module("huggingface_hub")  # comes with the libraries that read these models
    try:
        return Path(hub.snapshot_download(wanted, **_FETCHED[form]))
    except (OSError, ValueError) as error:
        reason, *_ = str(error).splitlines() or [repr(error)]
        problem = f"the hub did not answer ({reason[:300]}); check the network"
        if isinstance(error, hub.errors.RepositoryNotFoundError | hub.errors.HFValidationError):
            problem = f"the hub has no such model: {reason[:300]}"
        elif isinstance(error, hub.errors.HfHubHTTPError):
            problem = f"the hub answered with an error: {reason[:300]}"
        raise ValueError(f"{name}: the folder {wanted} does not exist, and {problem}") from None


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
