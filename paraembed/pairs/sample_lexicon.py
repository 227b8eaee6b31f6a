"""Words and sentence patterns of the generated sample, from ``sample_lexicon.tsv``: 181 concepts with their synonyms.

Number, tense and grammar are reduced to one form. Nouns are singular with "the"; the past tense of every verb is also
its past participle, so the same word fits "the cook sold the cake" and "the cake was sold by the cook". A word that
carries meaning belongs to only one concept, so the concepts of a text can be recovered.
"""

from pathlib import Path
from typing import NamedTuple


class Concept(NamedTuple):
    """A concept: its word class and its 2 to 6 synonyms, each one word or a short phrase."""

    kind: str
    words: list[str]


class Pattern(NamedTuple):
    """Templates with the same meaning: filled with words of the slots' word classes, any two are paraphrases.

    A pattern of the PPDB tag ``[S]`` is a sentence; some combinations of its first three slots are held out for
    testing.
    """

    tag: str
    share: int
    slots: list[str]
    templates: list[str]


def _pattern(tag: str, share: str, slots: str, templates: str) -> Pattern:
    return Pattern(f"[{tag}]", int(share), slots.split(), templates.split(" | "))


# Concepts: word class, its tag in PPDB lines, synonyms. Patterns: tag, share, word classes of the slots, templates.
_LEXICON = Path(__file__).with_name("sample_lexicon.tsv").read_text(encoding="utf-8").split("\n\n")
_WORDS, _PATTERNS, _SENTENCES = ([line.split("\t") for line in section.splitlines()] for section in _LEXICON)
CONCEPTS = [Concept(kind, words.split(", ")) for kind, _, words in _WORDS]
_TAGS = {kind: tag for kind, tag, _ in _WORDS}
PATTERNS = [_pattern(*row) for row in _PATTERNS] + [_pattern(tag, "1", kind, "{0}") for kind, tag in _TAGS.items()]
"""Patterns of the training lines, a few tokens per side; the last patterns are single words."""
SHORT_SENTENCE = PATTERNS[0]
SENTENCES = [_pattern(*row) for row in _SENTENCES]
"""Longer sentences, for the corpus, the sentence pairs and the test pairs."""
