"""Texts to word ids. This module holds the tokenizer names, so that settings can be checked without importing Arrow."""

WORD_TOKENIZERS = ("ptb-v1", "space")
NORMALIZED = ("nfc", "nfkc")
"""Unicode normalization forms. The name of a tokenizer that normalizes a text first ends in one: ``ptb-v1+nfkc``."""
TOKENIZERS = (*WORD_TOKENIZERS, *(f"{name}+{form}" for form in NORMALIZED for name in WORD_TOKENIZERS))
"""Tokenizers that split a text into words."""
WORDPIECE = "wordpiece"
"""Tokenizer of encoders that divide the words into the pieces of their vocabulary; see ``paraembed.text.wordpiece``."""
SUBWORD = "subword"
"""Tokenizer of encoders with a ``tokenizer.json`` of Hugging Face; see ``paraembed.text.subword``."""
OF_PIECES = (WORDPIECE, SUBWORD)
"""Tokenizers whose tokens are pieces of words."""


def check_tokenizer(name: str, *, of_encoder: bool = False) -> None:
    """Raise ValueError if ``name`` is not a tokenizer; that of an encoder may need its vocabulary."""
    allowed = (*TOKENIZERS, *OF_PIECES) if of_encoder else TOKENIZERS
    if name not in allowed:
        raise ValueError(f"unknown tokenizer {name[:80]!r}; allowed: {', '.join(allowed)}")


class TreeError(ValueError):
    """Error for a tree that does not fit its text: the number of the text, and a description of the fault."""

    def __init__(self, text: int, fault: str) -> None:
        super().__init__(text, fault)
        self.text, self.fault = text, fault

    def __str__(self) -> str:
        return f"text {self.text}: {self.fault}"
