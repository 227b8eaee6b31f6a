"""Paraphrastic text embeddings: train on paraphrase pairs, score as the papers do, embed a corpus to Parquet."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paraembed.api import embed, evaluate, load, search, train
    from paraembed.encoders import ENCODERS
    from paraembed.papers import RECIPES

__all__ = ["ENCODERS", "RECIPES", "__version__", "embed", "evaluate", "load", "search", "train"]

__version__ = "0.2.0"

_HOMES = {
    **dict.fromkeys(("embed", "evaluate", "load", "search", "train"), "paraembed.api"),
    "ENCODERS": "paraembed.encoders",
    "RECIPES": "paraembed.papers",
}


def __dir__() -> list[str]:
    """Return the public names, for completion in a notebook, and those that Python sets."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that jobs without torch need not wait a second for its import."""
    if name not in _HOMES:
        raise AttributeError(f"module 'paraembed' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
