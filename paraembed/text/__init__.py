"""Texts to word ids; here the names of the tokenizers, which settings check without importing Arrow."""

TOKENIZERS = ("ptb-v1", "space")


def check_tokenizer(name: str) -> None:
    """Raise ValueError if ``name`` is not a tokenizer."""
    if name not in TOKENIZERS:
        raise ValueError(f"unknown tokenizer {name[:80]!r}; allowed: {', '.join(TOKENIZERS)}")
