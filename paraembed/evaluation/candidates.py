"""What can be scored: a trained encoder, and what it has to beat."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.checkpoint import gold_of, load, read_config
from paraembed.encoders import Embedded, Encoder, encoder_name
from paraembed.encoders.avg import AvgConfig
from paraembed.escape import printable
from paraembed.words import read_words


class TextEncoder(Protocol):
    """Texts to vectors: an ``Encoder``, or another library's model."""

    def embed(self, texts: pa.StringArray) -> Embedded:
        """Vectors and counts of a string array [n]; a model that does not count tokens gives ``num_tokens`` 0."""
        ...


@runtime_checkable
class PairScorer(Protocol):
    """Pairs of texts to similarities, without vectors."""

    def similarity(self, first: pa.StringArray, second: pa.StringArray) -> npt.NDArray[np.float64]:
        """Similarity of each text to the one beside it, float64 [n]."""
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
        gold: data sets whose gold labels it was trained on.
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
    """The encoder of a folder; raises what ``load`` does."""
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
        gold=tuple(dict.fromkeys(one["data_set"] for one in gold_of(provenance))),
    )


def untrained(path: Path, max_words: int | None, tokeniser: str) -> Candidate:
    """The plain average of a word-vector file; raises what ``read_words`` does."""
    words = read_words(path, max_words)
    description = f"average of {len(words.vocabulary):,} word vectors from {printable(path.name)}, untrained"
    return Candidate("untrained", description, Encoder(AvgConfig(), words, tokeniser), is_baseline=True)


def unique_labels(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, with a number behind a label that stands before them already."""
    taken = Counter[str]()
    unique = []
    for one in candidates:
        taken[one.label] += 1
        number = taken[one.label]
        unique.append(one if number == 1 else replace(one, label=f"{one.label} ({number})"))
    return unique
