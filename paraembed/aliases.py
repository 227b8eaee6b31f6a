"""Names of version 0.1, which files keep and old flags and recipes may use, and suggestions for unknown names."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

ON_DISK = {
    "tokenizer": "tokeniser",
    "bos_eos_tokens": "boundary_tokens",
    "optimizer": "optimiser",
    "encoder_learning_rate": "composition_learning_rate",
    "word_l2": "word_penalty",
    "encoder_l2": "composition_penalty",
    "encoder_l2_target": "composition_target",
    "l2_form": "penalty_form",
    "head_l2": "head_penalty",
    "negative_pool": "pool",
    "negative_pool_workers": "pool_workers",
    "mega_batch_size": "mega_batches",
    "eval_every": "dev_every",
    "nested_subsets": "halvings",
    "regularizer": "regulariser",
    "pretrained": "prior",
    "neighbors_of": "neighbours_of",
}
"""Current name of a field (code and command line) → its name in files, which saved scripts read."""

STILL_WRITTEN = {"mega_anneal": 0}
"""Fields of recipes of 0.1 that were removed, but are written, so that fingerprints stay the same."""
REMOVED = STILL_WRITTEN | {
    "mega_batch_anneal_steps": 0,
    "batches": "random",
    "pair_weights": "none",
    "info_nce_weight": 0.0,
    "temperature": 0.05,
    "teacher_objective": "none",
    "teacher_weight": 1.0,
}
"""Fields of recipes that were removed, and the values with which they had no effect."""

_NOW = {old: new for new, old in ON_DISK.items()}


def current_path(path: str) -> str:
    """Return the path of a value in a JSON file with current names, such as ``recipe.word_l2``."""
    if path == "settings.prior":  # of teach, which never had another name
        return path
    return ".".join(_NOW.get(name, name) for name in path.split("."))


def on_disk(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with their names in files; ``current_names`` is the inverse."""
    return {ON_DISK.get(name, name): value for name, value in values.items()}


def current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with their current names; the input may use the current name or the name in files, but not both."""
    named: dict[str, Any] = {}
    for name, value in values.items():
        current = _NOW.get(name, name)
        if current in named:
            raise ValueError(f"{current} and {ON_DISK[current]} are two names of one field; give it once")
        named[current] = value
    return named


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: ``; did you mean small?``, with up to three of the names that
    are like it; empty if none is.
    """
    lower = {known.lower(): known for known in names}
    near = [lower[match] for match in get_close_matches(name.lower(), lower, cutoff=0.6)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
