"""Texts to word ids. This module holds the tokenizer names, so that settings can be checked without importing Arrow."""

TOKENIZERS = ("ptb-v1", "space")


def check_tokenizer(name: str) -> None:
    """Raise ValueError if ``name`` is not a tokenizer."""
    if name not in TOKENIZERS:
        raise ValueError(f"unknown tokenizer {name[:80]!r}; allowed: {', '.join(TOKENIZERS)}")
