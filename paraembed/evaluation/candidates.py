"""What can be scored: trained encoders, plain averages of word vectors, models of other libraries."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed import encoders
from paraembed.checkpoint import gold_of, load
from paraembed.encoders.concat import Concat
from paraembed.encoders.configs import AvgConfig
from paraembed.encoders.protocol import Embeds, TextEncoder
from paraembed.io.escape import printable
from paraembed.loading import Fetch, open_encoder
from paraembed.settings import DEFAULT_INFERENCE, PEERS, Inference, is_run
from paraembed.text import TOKENIZERS
from paraembed.text.vocabulary import Words

if TYPE_CHECKING:
    from paraembed.encoders import Encoder


class PairScorer(ABC):
    """Model that scores text pairs directly, without text vectors."""

    @abstractmethod
    def similarity(self, first: pa.StringArray, second: pa.StringArray) -> npt.NDArray[np.float64]:
        """Return the similarity of each text to its counterpart, float64 [n]."""


@dataclass(frozen=True)
class Candidate:
    """An encoder or scorer to evaluate."""

    label: str
    description: str
    encoder: Embeds | PairScorer  # the encoder of texts, or the scorer of pairs
    kind: str = ""  # name of the registered encoder, which selects the published rows to compare with; "" without one
    is_baseline: bool = False  # whether it is a baseline, for which tables show only the main score
    # Metric by which it was selected as the best checkpoint of its training; "" for the last checkpoint.
    chosen_by: str = ""
    trained_on: str = ""  # sha256 of the manifest of its training pairs; "" if unknown
    gold: tuple[str, ...] = ()  # data sets whose labeled examples it was trained on


def trained(folder: Path, label: str | None = None) -> Candidate:
    """Return the encoder in a folder as a candidate; the errors are those of ``load``."""
    return _trained(load(folder), printable(folder.name), label)


def named(name: str, inference: Inference = DEFAULT_INFERENCE, fetch: Fetch | None = None) -> Candidate:
    """Return an encoder as a candidate by its name; the arguments and errors are those of ``open_encoder``."""
    encoder = open_encoder(name, inference, fetch, for_vectors=False)  # the analyses read the words
    if not isinstance(encoder, encoders.Encoder | Concat):
        kind, _, wanted = name.partition(":")
        return Candidate(Path(wanted).name, f"{wanted}, a model of {PEERS[kind]}{_settings(encoder)}", encoder)
    if is_run(name):
        return _trained(encoder, printable(name), name if name.startswith("models:/") else f"run {name[:8]}")
    return _trained(encoder, printable(Path(name).absolute().name))


def _trained(encoder: "Encoder | Concat", name: str, label: str | None = None) -> Candidate:
    parts = (encoder.first, encoder.second) if isinstance(encoder, Concat) else (encoder,)
    kinds = [part.config.name for part in parts]
    description = f"{' and '.join(kinds)} in {name}, fingerprint {encoder.fingerprint[:12]}{_settings(encoder)}"
    selected = encoder.provenance.get("selected") or {}
    chosen_by = selected.get("metric", "")
    if chosen_by:
        description += f", the best of {len(selected['scores'])} evaluations by {chosen_by}"
    training = encoder.provenance.get("training") or {}
    return Candidate(
        label or name,
        description,
        encoder,
        kinds[0] if len(kinds) == 1 else "",
        chosen_by=chosen_by,
        trained_on=training.get("pairs", ""),
        gold=tuple(dict.fromkeys(labels["data_set"] for labels in gold_of(encoder.provenance))),
    )


def _settings(encoder: TextEncoder) -> str:
    """Return the settings that differ from those of a CPU in float32 without a prompt, for the description."""
    usual = {"device": "cpu", "precision": "float32", "prompt": "", "backend": "torch"}
    changed = {name: encoder.identity.get(name, value) for name, value in usual.items()}
    return "".join(f", {name} {value!r}" for name, value in changed.items() if value != usual[name])


def untrained(words: Words, file: Path, tokenizer: str) -> Candidate:
    """Return the plain average of the words of a word-vector file."""
    description = f"average of {len(words.vocabulary):,} word vectors from {printable(file.name)}, untrained"
    return Candidate("untrained", description, encoders.Encoder(AvgConfig(), words, tokenizer), is_baseline=True)


def tokenizer_of(candidates: Sequence[Candidate]) -> str:
    """Return the tokenizer of the first candidate whose tokens are words; ``ptb-v1`` without one."""
    own = [candidate.encoder for candidate in candidates if isinstance(candidate.encoder, encoders.Encoder | Concat)]
    return next((encoder.tokenizer for encoder in own if encoder.tokenizer in TOKENIZERS), "ptb-v1")


def unique_labels(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates; a label that an earlier candidate already has gets a number appended."""
    taken = Counter[str]()
    unique = []
    for candidate in candidates:
        taken[candidate.label] += 1
        number = taken[candidate.label]
        unique.append(candidate if number == 1 else replace(candidate, label=f"{candidate.label} ({number})"))
    return unique
