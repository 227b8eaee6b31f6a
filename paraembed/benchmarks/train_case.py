"""What the benchmark of training trains, and on what."""

from dataclasses import dataclass
from typing import Literal

from paraembed.benchmarks.generated import draw_texts, draw_words, word_chances
from paraembed.checked import check_fields
from paraembed.encoders import ENCODERS, Encoder, config_from_dict
from paraembed.encoders.base import MAX_WIDTH
from paraembed.ragged import Ragged
from paraembed.recipe import Recipe
from paraembed.words import Words

TEXTS = {"sentences": 15.0, "phrases": 4.0}
"""Tokens a text, on average; 4 is near to the phrases of PPDB XXL."""
_FLOAT_BYTES = _ID_BYTES = 4
_WITHOUT_END = 2**31 - 1  # epochs


@dataclass(frozen=True)
class Case:
    """One training to be measured.

    Attributes:
        texts: sentences or phrases.
        batch_size: pairs a step and worker.
        encoder: name of it.
        pairs: generated pairs; rounded down to full batches of two workers, so that every step is alike.
        words: rows of the word matrix.
        width: of a word vector.
        device: cpu or cuda.
        precision: of the recipe.
        threads: of torch, a process.
        seconds: that a turn lasts at least.
        epochs: passes over the pairs of a whole training, which is one turn; 0: trained on, turn by turn.
        mega_batches: batches that negatives are chosen from at once.
        seed: decides texts and word vectors.
    """

    texts: str = "sentences"
    batch_size: int = 100
    encoder: str = "avg"
    pairs: int = 200_000
    words: int = 40_000
    width: int = 300
    device: str = "cpu"
    precision: Literal["float32", "bfloat16"] = "float32"
    threads: int = 1
    seconds: float = 2.0
    epochs: int = 0
    mega_batches: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed."""
        ranges: dict[str, tuple[float, float]] = {
            "batch_size": (2, 1_000_000),
            "pairs": (1, 1_000_000_000),
            "words": (2, 100_000_000),
            "width": (1, MAX_WIDTH),
            "threads": (1, 1024),
            "seconds": (0, 86_400),
            "epochs": (0, 10_000),
            "seed": (0, 2**31),
        }
        check_fields(self, ranges)
        for name, allowed in (("texts", TEXTS), ("encoder", ENCODERS), ("device", ("cpu", "cuda"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}")
        if self.device == "cpu" and self.precision != "float32":
            raise ValueError(f"precision is {self.precision!r}, and the device is a CPU: there it is float32 alone")
        if not self.num_pairs:
            raise ValueError(
                f"pairs is {self.pairs}; two workers of batch_size {self.batch_size} need {2 * self.batch_size} or more"
            )

    @property
    def num_pairs(self) -> int:
        """Pairs there are."""
        return self.pairs // (2 * self.batch_size) * 2 * self.batch_size

    @property
    def allowed_bytes(self) -> float:
        """Memory that a training may take: the ids, four word matrices (words, Adam's two moments, one), 1 GB."""
        ids = 2 * self.num_pairs * TEXTS[self.texts] * _ID_BYTES
        return ids + 4 * self.words * self.width * _FLOAT_BYTES + 1e9

    def recipe(self) -> Recipe:
        """How to train; what is not said here is the default: margin 0.4, cosine, MAX negatives, Adam."""
        encoder = config_from_dict({"name": self.encoder})
        epochs = self.epochs or _WITHOUT_END
        return Recipe(
            encoder,
            "space",
            epochs=epochs,
            batch_size=self.batch_size,
            mega_batches=self.mega_batches,
            precision=self.precision,
            seed=self.seed,
        )

    def draw_pairs(self) -> Ragged:
        """The pairs."""
        return draw_texts(2 * self.num_pairs, TEXTS[self.texts], word_chances(self.words), self.seed)

    def draw_words(self) -> Words:
        """The words and their vectors before training."""
        return draw_words(self.words, self.width, self.seed)

    def build_encoder(self) -> Encoder:
        """The encoder before training, on its device."""
        encoder = Encoder(config_from_dict({"name": self.encoder}), self.draw_words(), "space", self.seed)
        return encoder.to(self.device)
