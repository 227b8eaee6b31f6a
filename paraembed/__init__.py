"""Paraphrastic text embeddings: train on paraphrase pairs, score as the papers do, embed a corpus to Parquet."""

from paraembed.checkpoint import load
from paraembed.encoders import ENCODERS

__all__ = ["ENCODERS", "__version__", "load"]

__version__ = "0.1.0"
