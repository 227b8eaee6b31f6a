"""Settings of ``jobs/teach.py`` that decide the student; this module imports nothing slow."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from paraembed.embedding.settings import Settings
from paraembed.options import check_fields
from paraembed.recipe import Recipe

Units = Literal["word", "subword", "wordpiece", "both"]


@dataclass(frozen=True)
class TeachSettings:
    """Settings that, together with the texts and the teacher, decide the student."""

    units: Units = "word"
    """Units with a vector: words of the texts, split by ptb-v1 (word); or the pieces of the teacher's tokenizer.json
    (subword; wordpiece is an earlier name of it); or a student of each, concatenated into one encoder (both).
    """
    normalize: Literal["none", "nfc", "nfkc"] = "nfkc"
    """Unicode normalization of texts before they are split into words; nfkc also removes soft hyphens and zero-width
    characters, so that texts that look the same have equal words. Pieces have the normalization of their tokenizer.
    """
    min_count: int = 2
    """Minimum occurrences of a word; rarer words share the vector of <unk>."""
    max_words: int | None = None
    """Maximum number of words, the most frequent ones; default: all."""
    bigrams: int | None = None
    """Minimum occurrences of two adjacent units that get a vector of their own, which is added to theirs; default: no
    vectors of bigrams.
    """
    prior: Literal["states", "alone"] | None = None
    """Vectors from which the regression starts: the mean of the teacher's token states of a unit in the texts (states),
    or the teacher's vector of the unit alone (alone); default: states if the teacher is an st: transformer without a
    prompt.
    """
    alone_weight: float = 5.0
    """Weight of a unit alone in the prior from token states, as a number of occurrences; each occurrence in the texts
    has weight 1.
    """
    smoothing: float = 1e-3
    """Smoothing a of the prior: the vectors of the units, centered, times a / (a + p(unit)) (Arora et al. 2017)."""
    l2: float = 1.0
    """L2 penalty of the regression towards the prior, as a multiple of the mean diagonal of the normal equations."""
    steps: int = 12
    """Steps of conjugate gradients."""
    oov: Literal["shared", "hashed", "drop", "pieces"] = "hashed"
    """Vectors of out-of-vocabulary words: one for all (shared); for each word a random direction, computed from a hash,
    as long as the vectors of rare words (hashed); none (drop); or of that length, in the direction of the word's
    subwords (pieces), with `units` both. Subwords have shared ones.
    """
    dim: int | None = None
    """Dimensions of the student, the first principal components of its text vectors; default: those of the teacher."""
    dtype: Literal["float32", "int8"] = "float32"
    """Number type of the student's table; int8 takes a quarter of the disk space, and has a scale for each row."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is not allowed."""
        most = 2**31 - 1
        ranges = dict.fromkeys(("min_count", "max_words", "bigrams"), (1, most))
        ranges |= {"steps": (0, 10_000), "dim": (1, 65_536)}
        check_fields(self, ranges | dict.fromkeys(("smoothing", "l2", "alone_weight"), (1e-36, 1e36)))
        if self.oov == "pieces" and (self.units != "both" or self.dim is not None):
            given = f"`units` {self.units}" + ("" if self.dim is None else f" and `dim` {self.dim}")
            raise ValueError(
                f"`oov` is pieces, with {given}; it takes the subwords of the other "
                "student, so it needs `units` both, and no `dim`"
            )

    @property
    def tokenizer(self) -> str:
        """Tokenizer of the words, see ``paraembed.text.TOKENIZERS``."""
        return "ptb-v1" if self.normalize == "none" else f"ptb-v1+{self.normalize}"

    def to_dict(self) -> dict[str, Any]:
        """Return the settings for the student's ``config.json``, which names no bigrams and no normalization if there
        are none, as before these existed: students keep their bytes.
        """
        settings = asdict(self)
        if self.normalize == "none" or self.units != "word":
            del settings["normalize"]
        if self.bigrams is None:
            del settings["bigrams"]
        return settings


def reading_settings(columns: Sequence[str]) -> Settings:
    """Return the settings that read texts from columns; .txt files have none."""
    return Settings(text_column=columns[0] if columns else None, keep=tuple(columns[1:]))


DEFAULT_TEACHING = TeachSettings()
STUDENT = Recipe(margin=0.6, learning_rate=2e-4, batch_size=500, mega_batch_size=4, epochs=3, word_l2=1e-6)
"""Recipe of the training on pairs, with the scores in docs/teach.md."""
STUDENT_WITH_BIGRAMS = replace(STUDENT, learning_rate=3e-4)
"""Recipe of the training on pairs for students with vectors of bigrams, with the scores in docs/teach.md."""
