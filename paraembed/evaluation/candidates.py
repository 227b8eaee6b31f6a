"""What can be scored: a trained encoder, and what it has to beat."""

from dataclasses import dataclass
from pathlib import Path

from paraembed.checkpoint import load
from paraembed.encoders import Encoder, encoder_name
from paraembed.encoders.avg import AvgConfig
from paraembed.words import read_words


@dataclass(frozen=True)
class Candidate:
    """An encoder to score, with the head of its column and one line that says what it is."""

    label: str
    description: str
    encoder: Encoder


def trained(folder: Path) -> Candidate:
    """The encoder of a folder; raises what ``load`` does."""
    encoder = load(folder)
    description = f"{encoder_name(encoder.config)} in {folder.name}, fingerprint {encoder.fingerprint[:12]}"
    return Candidate(folder.name, description, encoder)


def untrained(path: Path, max_words: int | None, tokeniser: str) -> Candidate:
    """The plain average of a word-vector file; raises what ``read_words`` does."""
    words = read_words(path, max_words)
    description = f"average of {len(words.vocabulary):,} word vectors from {path.name}, untrained"
    return Candidate("untrained", description, Encoder(AvgConfig(), words, tokeniser))
