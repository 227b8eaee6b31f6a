"""WordPiece: the ids of Hugging Face's uncased BERT tokenizers, defined in plain Python.

Each character is dropped or replaced (lower case, without accents), white space and punctuation separate words, and a
word is divided from the left into the longest pieces of the vocabulary (Wu et al. 2016, Devlin et al. 2019).
``uncased.npz`` holds the replacement of each character, as the ``tokenizers`` library computes it, whose tables are of
other Unicode versions than Python's; ``infra/uncased.py`` writes it. ``text.scan_pieces`` computes the same ids in
compiled loops.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paraembed.io.fingerprint import read_json
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN

SPACE, MARK, LETTER, DROP, BARRIER, SYMBOL, EXPANDED = range(7)
"""Kinds of characters: white space; ASCII punctuation; part of a word; no character; the same, but accents do not move
across it; a word by itself; replaced by other characters.
"""
COMBINING = 8
"""First kind of accents that are kept. Each kind is one of Unicode's combining classes, in their order: of neighbors,
the one with the lower class comes first.
"""
HANGUL = range(0xAC00, 0xD7A4)
"""Syllables, which Unicode decomposes by a formula."""
PREFIX = "##"
"""Start of the pieces that continue a word."""
OOV = "[UNK]"
"""Name of ``UNKNOWN`` in Hugging Face's vocabularies."""
SPECIALS = ("[PAD]", OOV, "[CLS]", "[SEP]", "[MASK]")
"""Special tokens, which are found in the original text."""
MOST_CHARACTERS = 100
"""Longest word that is divided; longer words are OOV tokens."""

_NORMALIZER = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}
_MODEL = {"type": "WordPiece", "unk_token": OOV, "continuing_subword_prefix": PREFIX}


@dataclass(frozen=True)
class Characters:
    """Kinds and replacements of all characters."""

    kinds: npt.NDArray[np.uint8]  # uint8 [0x110000]
    # Replacement of each ``EXPANDED`` character; words by themselves have spaces around them.
    replacements: dict[int, str]

    @cached_property
    def texts(self) -> dict[int, str]:
        """Replacement of every character that is not its own; of a barrier NUL, which is otherwise dropped."""
        constant = {SPACE: " ", DROP: "", BARRIER: "\0"}
        texts = dict(self.replacements)
        for point in np.flatnonzero((self.kinds != LETTER) & (self.kinds < COMBINING)).tolist():
            kind = self.kinds[point]
            if kind != EXPANDED:
                texts[point] = constant.get(kind, f" {chr(point)} ")
        return texts

    @cached_property
    def runs(self) -> re.Pattern[str]:
        """Pattern of two or more combining characters."""
        return re.compile(f"[{''.join(map(chr, np.flatnonzero(self.kinds >= COMBINING)))}]{{2,}}")

    def ordered(self, run: re.Match[str]) -> str:
        """Return combining characters in Unicode's canonical order."""
        return "".join(sorted(run[0], key=lambda char: self.kinds[ord(char)]))


@lru_cache(maxsize=1)
def characters() -> Characters:
    """Return the table of ``uncased.npz``."""
    with np.load(Path(__file__).with_name("uncased.npz"), allow_pickle=False) as table:
        kinds = np.repeat(table["kinds"], np.diff(table["starts"], append=0x110000))
        texts = table["replacements"].tobytes().decode().split("\0")
    kinds[0xD800:0xE000] = SPACE  # surrogates are no characters
    points = np.flatnonzero(kinds == EXPANDED)
    others = points[(points < HANGUL.start) | (points >= HANGUL.stop)].tolist()
    syllables = {point: normalize("NFD", chr(point)) for point in HANGUL}
    return Characters(kinds, dict(zip(others, texts, strict=True)) | syllables)


class WordPieces:
    """Function that maps texts to word ids; its vocabulary [V] has ``UNKNOWN`` in the place of ``[UNK]``."""

    def __init__(self, vocabulary: pa.StringArray) -> None:
        words = vocabulary.to_pylist()
        self._rows = {word: row for row, word in reversed(list(enumerate(words)))}
        self._unknown = self._rows[OOV] = self._rows[UNKNOWN]
        self._specials = re.compile("(" + "|".join(re.escape(name) for name in specials_of(words)) + ")")
        self._longest = max(map(len, words))

    def __call__(self, texts: pa.StringArray) -> Ragged:
        """Return the ids of the pieces of a string array [n]; null counts as empty."""
        ids = [[row for word in self._words(text or "") for row in self._pieces(word)] for text in texts.to_pylist()]
        offsets = np.array([0, *accumulate(map(len, ids))], np.int64)
        return Ragged(np.array([row for text in ids for row in text], np.int32), offsets)

    def _words(self, text: str) -> Iterator[str]:
        for part in self._specials.split(text):
            yield from [part] if self._specials.fullmatch(part) else words_of(part)

    def _pieces(self, word: str) -> list[int]:
        """Return the rows of the longest pieces from the left; that of OOV tokens if there are none for a part."""
        if len(word) > MOST_CHARACTERS:
            return [self._unknown]
        rows, start, prefix = list[int](), 0, ""
        while start < len(word):
            ends = range(min(len(word), start + self._longest), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._rows), start)
            if end == start:
                return [self._unknown]
            rows.append(self._rows[prefix + word[start:end]])
            start, prefix = end, PREFIX
        return rows


def specials_of(vocabulary: Sequence[str]) -> list[str]:
    """Return the special tokens of a vocabulary."""
    return [name for name in SPECIALS if name == OOV or name in vocabulary]


def words_of(text: str) -> list[str]:
    """Return the words of a text without special tokens: lower-case, without accents, punctuation separate."""
    of_all = characters()
    replaced = of_all.runs.sub(of_all.ordered, text.translate(of_all.texts)).replace("\0", "")
    return [word for word in replaced.split(" ") if word]


def occurring(vocabulary: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which pieces a text can have: no word of a text is ``[unused7]``, and none continues with punctuation."""
    specials = {UNKNOWN, *specials_of(vocabulary)}
    words = (word.replace(PREFIX, "x", 1) if word.startswith(PREFIX) else word for word in vocabulary)
    return np.array(
        [name in specials or words_of(word) == [word] for name, word in zip(vocabulary, words, strict=True)]
    )


def uncased_vocabulary(tokenizer: Mapping[str, Any]) -> pa.StringArray:
    """Return the vocabulary of an uncased BERT tokenizer, with ``UNKNOWN`` in the place of ``[UNK]``.

    Truncation, padding and special tokens around a text, in the contents of its ``tokenizer.json``, are ignored. Raise
    ValueError if it is a tokenizer of another kind, whose ids ``WordPieces`` would not reproduce.
    """
    model, normalizer = tokenizer.get("model") or {}, tokenizer.get("normalizer") or {}
    vocabulary = model.get("vocab")
    if (
        not isinstance(vocabulary, dict)
        or {name: model.get(name, "WordPiece") for name in _MODEL} != _MODEL
        or model.get("max_input_chars_per_word") != MOST_CHARACTERS
    ):
        raise ValueError(f"the model is {str(model.get('type'))[:80]}; expected WordPiece with the settings of BERT")
    if {name: normalizer.get(name) for name in _NORMALIZER} != _NORMALIZER or normalizer.get("strip_accents") is False:
        raise ValueError("the normalizer is not that of uncased BERT, which removes case and accents")
    if (tokenizer.get("pre_tokenizer") or {}).get("type") != "BertPreTokenizer":
        raise ValueError("the pre-tokenizer is not that of BERT")
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    if (
        [vocabulary[word] for word in words] != list(range(len(words)))
        or OOV not in vocabulary
        or UNKNOWN in vocabulary
    ):
        raise ValueError(f"the vocabulary has gaps, no {OOV}, or the reserved word {UNKNOWN}")
    added = tokenizer.get("added_tokens") or []
    options = ("single_word", "lstrip", "rstrip", "normalized")
    if any(token.get(name) for token in added for name in options) or {token.get("content") for token in added} | {
        OOV
    } != set(specials_of(words)):
        raise ValueError(f"the added tokens are not those of BERT: {', '.join(SPECIALS)}")
    if any("\n" in word for word in words):
        raise ValueError("a word of the vocabulary contains a line feed")
    return pa.array([UNKNOWN if word == OOV else word for word in words], pa.string())


def read_vocabulary(path: Path) -> pa.StringArray:
    """Return the vocabulary of a ``tokenizer.json``; see ``uncased_vocabulary``."""
    try:
        return uncased_vocabulary(read_json(path, dict[str, Any]))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
