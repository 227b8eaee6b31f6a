"""What can be scored: trained encoders, plain averages of word vectors, models of other libraries.

Those are of sentence-transformers (``st:``) and model2vec (``m2v:``). Their weights are read as safetensors only: other
formats can run code when they are loaded.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.checkpoint import gold_of, load, read_config
from paraembed.encoders import Embedded, Encoder, encoder_name
from paraembed.encoders.configs import AvgConfig
from paraembed.io.escape import printable
from paraembed.settings import PEERS
from paraembed.text.vocabulary import read_words

_UNSAFE = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack")


class TextEncoder(Protocol):
    """Texts to vectors: an ``Encoder``, or another library's model."""

    def embed(self, texts: pa.StringArray) -> Embedded:
        """Vectors and counts of a string array [n]; a model that does not count tokens gives ``num_tokens`` 0."""
        ...


@runtime_checkable
class PairScorer(Protocol):
    """Model that scores text pairs directly, without text vectors."""

    def similarity(self, first: pa.StringArray, second: pa.StringArray) -> npt.NDArray[np.float64]:
        """Similarity of each text to its counterpart, float64 [n]."""
        ...


@dataclass(frozen=True)
class Candidate:
    """What is scored.

    Attributes:
        label: head of its column.
        description: one line that says what it is.
        encoder: what embeds, or scores pairs.
        kind: name of the registered encoder, which says what published rows it is compared with; "" where it has none.
        is_baseline: something to beat: tables show its main score only.
        chosen_by: metric by which it is the best of the encoders of its training; "" where it is the last one.
        trained_on: sha256 of the manifest of its training pairs; "" where that is not known.
        gold: data sets whose labeled examples it was trained on.
    """

    label: str
    description: str
    encoder: TextEncoder | PairScorer
    kind: str = ""
    is_baseline: bool = False
    chosen_by: str = ""
    trained_on: str = ""
    gold: tuple[str, ...] = ()


def trained(folder: Path, label: str | None = None) -> Candidate:
    """Return the encoder in a folder as a candidate; errors are those of ``load``."""
    encoder = load(folder)
    kind = encoder_name(encoder.config)
    name = printable(folder.name)
    description = f"{kind} in {name}, fingerprint {encoder.fingerprint[:12]}"
    provenance: dict[str, Any] = read_config(folder).get("provenance") or {}
    selected = provenance.get("selected") or {}
    chosen_by = selected.get("metric", "")
    if chosen_by:
        description += f", the best of {len(selected['scores'])} evaluations by {chosen_by}"
    training = provenance.get("training") or {}
    return Candidate(
        label or name,
        description,
        encoder,
        kind,
        chosen_by=chosen_by,
        trained_on=training.get("pairs", ""),
        gold=tuple(dict.fromkeys(labels["data_set"] for labels in gold_of(provenance))),
    )


def untrained(path: Path, max_words: int | None, tokenizer: str) -> Candidate:
    """The plain average of a word-vector file; raises what ``read_words`` does."""
    words = read_words(path, max_words)
    description = f"average of {len(words.vocabulary):,} word vectors from {printable(path.name)}, untrained"
    return Candidate("untrained", description, Encoder(AvgConfig(), words, tokenizer), is_baseline=True)


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
    folder = _peer_folder(wanted, name)
    try:
        if prefix == "st":
            model = library.SentenceTransformer(str(folder), model_kwargs={"use_safetensors": True})
            encoder = _Peer(model, batch_size=64, show_progress_bar=False)
        else:
            encoder = _Peer(library.StaticModel.from_pretrained(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{name} is not a model that {module} can load: {str(error).splitlines()[0][:300]}") from None
    return Candidate(Path(wanted).name, f"{wanted}, a model of {module}", encoder)


def unique_labels(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates, with a number after a label that an earlier one has."""
    taken = Counter[str]()
    unique = []
    for candidate in candidates:
        taken[candidate.label] += 1
        number = taken[candidate.label]
        unique.append(candidate if number == 1 else replace(candidate, label=f"{candidate.label} ({number})"))
    return unique


class _Peer:
    """A model of another library that encodes a list of texts; it does not say which tokens it knows."""

    def __init__(self, model: Any, **options: Any) -> None:
        self._model, self._options = model, options

    def embed(self, texts: pa.StringArray) -> Embedded:
        """Vectors of a string array [n]; token counts 0."""
        vectors = np.asarray(self._model.encode(texts.to_pylist(), **self._options), np.float32)
        uncounted = np.zeros(len(texts), np.int32)
        return Embedded(vectors, uncounted, uncounted)


def _peer_folder(wanted: str, name: str) -> Path:
    """The model's folder; a name of the hub is fetched, or found in the hub's cache."""
    folder = Path(wanted)
    if not folder.is_dir():
        if folder.exists() or folder.is_absolute() or wanted.count("/") > 1:
            raise ValueError(f"{name}: {wanted} is not a folder; give a model's folder, or its name on the hub")
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
                f"{name}: {unsafe.relative_to(folder)} has no safetensors next to it; other weights can run code "
                "when they are loaded: save the model again as safetensors"
            )
    return folder
