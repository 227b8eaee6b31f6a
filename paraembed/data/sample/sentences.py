"""Longer texts without features: a corpus to embed, and pairs of sentences."""

from collections.abc import Iterator

from paraembed.data.sample.lexicon import SENTENCES, SHORT_SENTENCE
from paraembed.data.sample.phrases import draw_pairs


def corpus(count: int, seed: int) -> Iterator[str]:
    """Yield the lines of ``sentences.txt`` in blocks: a sentence a line, in every fourth line two joined by "and"."""
    for pairs in draw_pairs((SHORT_SENTENCE, *SENTENCES), count, [seed, 5]):
        texts = pairs.first
        for place in range(0, len(texts) - 1, 4):
            texts[place] += f", and {pairs.second[place + 1]}"
        yield "".join(f"{_as_sentence(text)}\n" for text in texts)


def sentence_pairs(count: int, seed: int) -> Iterator[str]:
    """Yield the lines of ``pairs.tsv`` in blocks: two sentences that mean the same, no header."""
    for pairs in draw_pairs(SENTENCES, count, [seed, 6]):
        rows = zip(pairs.first, pairs.second, strict=True)
        yield "".join(f"{_as_sentence(one)}\t{_as_sentence(other)}\n" for one, other in rows)


def _as_sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
