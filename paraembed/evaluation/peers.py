"""Models of other libraries as candidates: sentence-transformers (``st:``) and model2vec (``m2v:``).

Weights are read as safetensors only: other formats can run code when they are loaded.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paraembed.encoders import Embedded
from paraembed.evaluation.candidates import Candidate

PEERS = {"st": "sentence_transformers", "m2v": "model2vec"}
"""Prefix → module."""
_UNSAFE = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack")


class Peer:
    """A model of another library that encodes a list of texts; it does not say which tokens it knows."""

    def __init__(self, model: Any, **options: Any) -> None:
        self._model, self._options = model, options

    def embed(self, texts: pa.StringArray) -> Embedded:
        """Vectors of a string array [n]; token counts 0."""
        vectors = np.asarray(self._model.encode(texts.to_pylist(), **self._options), np.float32)
        uncounted = np.zeros(len(texts), np.int32)
        return Embedded(vectors, uncounted, uncounted)


def is_peer(name: str) -> bool:
    """Whether a name has a peer's prefix."""
    return name.partition(":")[0] in PEERS and ":" in name


def peer(name: str) -> Candidate:
    """The candidate behind ``st:PATH_OR_NAME`` or ``m2v:PATH_OR_NAME``; a name is one of the Hugging Face hub.

    Raises:
        ValueError: the library is not installed; no model of that name; weights that are no safetensors.
    """
    prefix, _, wanted = name.partition(":")
    module = PEERS[prefix]
    try:
        library = import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{name} needs {module}, but {error.name} is not installed; pip install 'paraembed[export]'"
        ) from None
    folder = _folder(wanted, name)
    try:
        if prefix == "st":
            model = library.SentenceTransformer(str(folder), model_kwargs={"use_safetensors": True})
            encoder = Peer(model, batch_size=64, show_progress_bar=False)
        else:
            encoder = Peer(library.StaticModel.from_pretrained(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{name} is no model that {module} can load: {str(error).splitlines()[0][:300]}") from None
    return Candidate(Path(wanted).name, f"{wanted}, a model of {module}", encoder)


def _folder(wanted: str, name: str) -> Path:
    """The model's folder; a name of the hub is fetched, or found in the hub's cache."""
    folder = Path(wanted)
    if not folder.is_dir():
        if folder.exists() or folder.is_absolute() or wanted.count("/") > 1:
            raise ValueError(f"{name}: {wanted} is no folder; give a model's folder, or its name on the hub")
        hub = import_module("huggingface_hub")  # comes with both libraries
        try:
            folder = Path(hub.snapshot_download(wanted, ignore_patterns=[*_UNSAFE, "*.onnx"]))
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{name}: no folder {wanted}, and the hub does not give it: {str(error).splitlines()[0][:300]}"
            ) from None
    for unsafe in sorted(path for pattern in _UNSAFE for path in folder.rglob(pattern)):
        if not list(unsafe.parent.glob("*.safetensors")):
            raise ValueError(
                f"{name}: {unsafe.relative_to(folder)} has no safetensors beside it; other weights can run code "
                "when they are loaded: save the model again as safetensors"
            )
    return folder
