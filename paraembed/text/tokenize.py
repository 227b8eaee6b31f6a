"""Tokenizers: their one definition, for training, evaluation and embedding.

The name of a tokenizer is part of every fingerprint, so changed rules get a new name. There are two tokenizers:

``space``  lower-case, split at Unicode white space. For tokenized text such as PPDB.

``ptb-v1``  lower-case, then split like the Penn Treebank, as far as regular expressions can:

* punctuation leaves words; ``...``, ``--``, ```` `` ```` and ``''`` stay whole; hyphenated words stay whole;
* clitics leave their word: ``it 's``, ``do n't``, ``we 're`` (``'s 're 've 'll 'd 'm n't``), stacked ones too:
  ``would n't 've``; ``o'clock`` stays;
* curly quotes become straight ones;
* abbreviations (``u.s.``) and numbers (``1,650``, ``0.11``, ``3:30``, ``1/2``) keep their inner marks;
* URLs (``http://…``, ``www.…``), ``#tags`` and ``@names`` are one token each;
* every Han, Hiragana or Katakana character is a token (there is no segmenter); other scripts split at white space;
* control and format characters and variation selectors (NUL, soft hyphen, zero-width joiner) count as white space.

Both may follow a Unicode normalization, which their name then ends in: ``ptb-v1+nfc``, ``ptb-v1+nfkc``, ``space+nfc``,
``space+nfkc``. ``nfkc`` also removes the characters that are not displayed, such as soft hyphens and zero-width spaces,
so that texts that look the same have the same tokens: ``ﬁle``, full-width ``ｆｉｌｅ`` and ``file``.

Tokenizing is idempotent: tokenizing the tokens joined by spaces gives the same tokens. Everything is Arrow compute over
whole arrays, except for the few texts with stacked clitics, which run in Python. ``paraembed.text.tokens`` computes
only the word ids of the same tokens, five times as fast.
"""

import re
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.text import check_tokenizer
from paraembed.text.ragged import string_bytes

NO_TEXT = r"[\pC\x{FE00}-\x{FE0F}]"
"""Characters that count as white space (RE2)."""
QUOTES = (("[‘’]", "'"), ("[“”]", '"'))
"""Curly quotes and the straight quotes that replace them."""
IGNORED = (
    r"[\x{AD}\x{34F}\x{61C}\x{115F}\x{1160}\x{17B4}\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200F}\x{202A}-\x{202E}"
    r"\x{2060}-\x{206F}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF0}-\x{FFF8}\x{1BCA0}-\x{1BCA3}"
    r"\x{1D173}-\x{1D17A}\x{E0000}-\x{E0FFF}]"
)
"""Characters that are not displayed: Default_Ignorable_Code_Point of Unicode 16, table 4-13 (RE2)."""
SYMBOLS = r"[^\x00-\x7F\pL\pM\pN]|[\p{Han}\p{Hiragana}\p{Katakana}]"
"""Non-ASCII characters that are one token each."""

# Unicode's large classes take milliseconds to compile in every call. So one pass puts spaces around symbols; after it,
# every other character beyond ASCII is a word character.
_BEYOND_ASCII = r"\x{80}-\x{10FFFF}"
_WORD = f"[a-z0-9_{_BEYOND_ASCII}]"
_CLITIC = "(?:n't|'(?:s|re|ve|ll|d|m))"
_STACK = re.compile(rf"(?<!\S){_CLITIC}{{2,}}(?!\S)")
# 'mémoire' is a quoted word, but RE2's \b, which only knows ASCII letters, would end a clitic 'm before é.
_QUOTED_WORD = f"(^|[^a-z0-9_{_BEYOND_ASCII}])'((?:s|re|ve|ll|d|m)[{_BEYOND_ASCII}])"
_TOKENS_WITH_MARKS = "|".join(
    (
        rf"(?:https?://|www\.)[^ ]*(?:{_WORD}|/)",
        rf"\b[a-z]\.(?:[a-z{_BEYOND_ASCII}]\.)+",
        r"\pN+(?:[.,:/]\pN+)+",
        rf"[#@]{_WORD}+",
        rf"{_WORD}+(?:[-']{_WORD}+)+",
        r"'(?:s|re|ve|ll|d|m)\b",
        r"\.{2,}|-{2,}|``|''",
        f"[^ a-z0-9_{_BEYOND_ASCII}]",
    )
)


@dataclass(frozen=True)
class Tokens:
    """Packed tokens of n texts: text i is ``flat[offsets[i]:offsets[i + 1]]``."""

    flat: pa.StringArray  # string array [T], all tokens one after the other
    offsets: npt.NDArray[np.int64]  # int64 [n + 1]

    def joined(self) -> pa.StringArray:
        """Return the texts as tokens joined by one space, string array [n]."""
        lists = pa.LargeListArray.from_arrays(pa.array(self.offsets), self.flat)
        return pc.binary_join(lists, " ")


def tokenize(texts: pa.StringArray, tokenizer: str) -> Tokens:
    """Split n texts into lower-case tokens.

    Args:
        texts: string array [n] of valid UTF-8; null counts as empty.
        tokenizer: one of ``TOKENIZERS``.

    Returns:
        The tokens; a text without any has an empty range.

    Raises:
        ValueError: the tokenizer is unknown.

    Example:
        >>> tokenize(pa.array(["It isn't 1,650 U.S. cats."]), "ptb-v1").joined().to_pylist()
        ["it is n't 1,650 u.s. cats ."]
    """
    check_tokenizer(tokenizer)
    rules, _, form = tokenizer.partition("+")
    texts = pc.utf8_lower(normalized(pc.fill_null(texts, ""), form))
    if rules == "ptb-v1":
        texts = _mark_token_borders(texts)
    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts))
    offsets = lists.offsets.to_numpy().astype(np.int64)
    flat = lists.flatten()
    offsets -= offsets[0]
    # Splitting an empty text gives one empty token.
    filled = pc.not_equal(pc.binary_length(flat), 0).to_numpy(zero_copy_only=False)
    if not filled.all():
        kept_before = np.concatenate(([0], np.cumsum(filled)))
        flat, offsets = flat.filter(pa.array(filled)), kept_before[offsets]
    return Tokens(flat, offsets)


def normalized(texts: pa.StringArray, form: str) -> pa.StringArray:
    """Return texts [n] in lower case and a Unicode normalization form, ``nfc`` or ``nfkc``, without ``IGNORED`` in the
    latter; an empty form changes nothing, and no form changes ASCII.

    Twice, as in Unicode's NFKC_Casefold (section 3.13): some letters with marks have one character only in lower case
    (``J̌``, ``İ̀``), and some symbols become capitals (``℡``).
    """
    if not form or string_bytes(texts)[0].max(initial=0) < 128:
        return texts
    others = pc.invert(pc.string_is_ascii(texts))
    chosen = texts.filter(others)
    name: Any = form.upper()
    for _ in range(2):
        chosen = pc.utf8_lower(chosen)
        if form == "nfkc":
            chosen = pc.replace_substring_regex(chosen, IGNORED, "")
        # Arrow's utf8_normalize decomposes for NFC, too: "é" becomes two characters (pyarrow 25).
        chosen = pa.array([normalize(name, text) for text in chosen.to_pylist()], texts.type)
    return pc.replace_with_mask(texts, others, chosen)


def _mark_token_borders(texts: pa.StringArray) -> pa.StringArray:
    texts = pc.replace_substring_regex(texts, NO_TEXT, " ")
    if string_bytes(texts)[0].max(initial=0) >= 128:  # ASCII text skips these passes
        for curly, straight in QUOTES:
            texts = pc.replace_substring_regex(texts, curly, straight)
        texts = pc.replace_substring_regex(texts, SYMBOLS, r" \0 ")
        texts = pc.replace_substring_regex(texts, _QUOTED_WORD, r"\1' \2")
    texts = pc.replace_substring_regex(texts, _TOKENS_WITH_MARKS, r" \0 ")
    texts = pc.replace_substring_regex(texts, rf"({_WORD})({_CLITIC}+)(?: |$)", r"\1 \2 ")
    stacked = pc.match_substring_regex(texts, f"{_CLITIC}{{2}}(?: |$)")
    if pc.any(stacked).as_py():  # RE2 cannot split a stack of any height in one pass
        split = [_STACK.sub(_with_spaces, text) for text in texts.filter(stacked).to_pylist()]
        texts = pc.replace_with_mask(texts, stacked, pa.array(split, pa.string()))
    return texts


def _with_spaces(stack: re.Match[str]) -> str:
    return " ".join(re.findall(_CLITIC, stack[0]))
