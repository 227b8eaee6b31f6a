"""Names of 0.1: the files that a job writes keep them, flags and recipes with them are still read."""

from collections.abc import Iterable, Mapping
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
    "mega_batch_anneal_steps": "mega_anneal",
    "eval_every": "dev_every",
    "nested_subsets": "halvings",
    "regularizer": "regulariser",
    "pretrained": "prior",
    "neighbors_of": "neighbours_of",
}
"""Name of a field in the code and on the command line → its name in files, which saved scripts read."""

_NOW = {old: new for new, old in ON_DISK.items()}

_FLAGS = {
    **{f"--{old}".replace("_", "-"): f"--{new}".replace("_", "-") for old, new in _NOW.items()},
    "--every": "--eval-every",
}


def current_path(path: str) -> str:
    """Return the path of a value in a JSON file, with current names: ``recipe.word_l2``."""
    return ".".join(_NOW.get(name, name) for name in path.split("."))


def on_disk(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields under their names in files; ``current_names`` is the inverse."""
    return {ON_DISK.get(name, name): value for name, value in values.items()}


def current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields under their current names; each may be given under its current name or its name in files.

    Raises:
        ValueError: a field is given under both names.
    """
    named: dict[str, Any] = {}
    for name, value in values.items():
        current = _NOW.get(name, name)
        if current in named:
            raise ValueError(f"{current} and {ON_DISK[current]} are one field; give it once")
        named[current] = value
    return named


def current_flags(arguments: Iterable[str]) -> list[str]:
    """Return a command line with the current names of flags: ``--tokeniser space`` as ``--tokenizer space``."""
    current = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        current.append(_FLAGS.get(flag.replace("_", "-"), flag) + equals + value)
    return current
