"""Recipe: everything that decides a training result, apart from the data and the number of workers."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from paraembed.encoders import AnyConfig, config_from_dict, config_to_dict
from paraembed.encoders.avg import AvgConfig
from paraembed.files import read_json
from paraembed.text import check_tokeniser

_TINY = 1e-36  # float32 ends at 3.4e38, and Adam's first step is ten times the rate
_RANGES = {
    "epochs": (1, math.inf),
    "batch_size": (2, 1_000_000),  # negatives come from other pairs
    "margin": (_TINY, 1 / _TINY),
    "learning_rate": (_TINY, 1 / _TINY),
    "word_penalty": (0, 1 / _TINY),
    "composition_penalty": (0, 1 / _TINY),
    "clip": (_TINY, math.inf),
    "max_words": (1, math.inf),
    "new_words_min_count": (1, math.inf),
    "seed": (0, 2**63 - 1),
}


@dataclass(frozen=True)
class Recipe:
    """What is learned and how; frozen, JSON, part of the fingerprint."""

    encoder: AnyConfig = field(default_factory=AvgConfig)
    """Architecture and its options."""
    tokeniser: str = "ptb-v1"
    """How the encoder will split raw text: ptb-v1 or space. Pair shards are split already."""
    epochs: int = 10
    """Passes over the pairs."""
    batch_size: int = 100
    """Pairs a step and worker."""
    margin: float = 0.4
    """δ of the margin loss on cosines (Wieting 2016 eq. 11)."""
    pool: Literal["both_sides", "same_side"] = "both_sides"
    """Where MAX looks for negatives: both texts of the other pairs (released code), or the same side (paper)."""
    optimiser: Literal["adam", "adagrad"] = "adam"
    """Adam or AdaGrad."""
    learning_rate: float = 0.001
    """Step size η."""
    word_penalty: float = 0.0
    """λ_w, pulls the word vectors to their initial values."""
    composition_penalty: float = 0.0
    """λ_c, pulls the other parameters to zero."""
    penalty_form: Literal["paper", "released"] = "paper"
    """λ‖·‖² as in the papers, or ½λ‖·‖² as in the released code."""
    clip: float | None = None
    """Largest norm of each parameter's gradient; none: no clipping."""
    update: Literal["sparse", "dense"] = "sparse"
    """sparse: optimiser and λ_w act on the rows a batch touches. dense: on every row, as in the papers."""
    max_words: int | None = None
    """Vocabulary cut of the word-vector file; none: every row."""
    new_words: Literal["unknown", "random"] = "unknown"
    """Words of the pairs without a vector: share the unknown word's vector, or get a random one each."""
    new_words_min_count: int = 5
    """Occurrences in the pairs from which a word gets its random vector."""
    seed: int = 1
    """Decides order, initial values and every draw."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not allowed, naming field, value and what is allowed."""
        for one in dataclasses.fields(self):
            _check_type(one.name, getattr(self, one.name), one.type)
        check_tokeniser(self.tokeniser)
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} is {value}; allowed: {low:g} to {high:g}")

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON; ``from_dict`` reads them back."""
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return {**values, "encoder": config_to_dict(self.encoder)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Recipe":
        """The recipe that ``to_dict`` wrote; fields left out take their defaults.

        Raises:
            ValueError: unknown field, encoder, option or value, with what is allowed.
        """
        allowed = [one.name for one in dataclasses.fields(cls)]
        unknown = sorted(set(values) - set(allowed))
        if unknown:
            raise ValueError(f"a recipe has no field {unknown[0]!r}; allowed: {', '.join(allowed)}")
        if not isinstance(values.get("encoder", {}), dict):
            raise ValueError(f'encoder is {values["encoder"]!r}; expected an object such as {{"name": "avg"}}')
        encoder = {"encoder": config_from_dict(values["encoder"])} if "encoder" in values else {}
        return cls(**{**values, **encoder})


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Raise ValueError unless a value is of a field's type; JSON's 1 is good for 1.0."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(f"{name} is {value!r}; allowed: {', '.join(get_args(kind))}")
        return
    kinds = get_args(kind) or (kind,)
    fits = isinstance(value, kinds) or (float in kinds and isinstance(value, int))
    if not fits or isinstance(value, bool):
        names = " or ".join("none" if one is type(None) else one.__name__ for one in kinds)
        raise ValueError(f"{name} is {value!r}; expected {names}")


def read_recipe(path: Path) -> Recipe:
    """A recipe from a JSON file.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError: no such file, not JSON, or not a recipe.
    """
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds {json.dumps(values)[:40]}; expected a JSON object with a recipe's fields")
    return Recipe.from_dict(values)
