"""tokenizer.json: what the library makes of it has the ids of the definition, whatever the text."""

import gzip
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.export.tokenizer import check_ids, tokenizer_json
from paraembed.text import TOKENIZERS, WORD_TOKENIZERS
from paraembed.text.vocabulary import END, START, UNKNOWN, Words
from tests.text.test_tokenize import EXAMPLES

tokenizers = pytest.importorskip("tokenizers")
SHARED = Path(__file__).parents[3] / "shared" / "data"  # real texts, where a machine has them
CASES = 100
PIECES = [
    *"xntsdmM1½_#@/:.,-`'’\"–中éİ😀 ",
    *("ll", "n't", "'s", "'d", "'ve", "``", "''", "--", "www.", "http://", "u.s.", "\r\n", "HTTPS://", "a."),
    *"\u0301\u0378\ufe0f\u00ad\u200b\x00\u00a0\u3000\u2581\u2028",
]


def encoder_of(tokenizer, words, ends="none"):
    vocabulary = pa.array([*words, UNKNOWN, START, END])
    matrix = np.zeros((len(vocabulary), 2), np.float32)
    return Encoder(AvgConfig(), Words(vocabulary, matrix), tokenizer, bos_eos_tokens=ends)


def fuzzed(count):
    rng = random.Random(count)
    for number in range(count):
        any_of = [chr(rng.choice((rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)))) for _ in range(3)]
        yield "".join(rng.choices(PIECES if number % 2 else PIECES + any_of * 5, k=rng.randrange(15)))


@pytest.mark.parametrize("unknown", ["token", "mark"])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_fuzzed_texts_and_the_examples_of_the_definition(tokenizer, unknown):
    texts = [text for example in EXAMPLES.values() for text in example]
    encoder = encoder_of(tokenizer, ["the", "cat"])
    check_ids(encoder, tokenizer_json(encoder, unknown), [*texts, *fuzzed(CASES)])


def test_wordpieces_of_a_teacher():
    words = ["[PAD]", UNKNOWN, "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "##t", "中", "e", "'", "1", "s", "t"]
    encoder = Encoder(AvgConfig(), Words(pa.array(words), np.zeros((len(words), 2), np.float32)), "wordpiece")
    document = tokenizer_json(encoder)
    check_ids(encoder, document, [*(text for pair in EXAMPLES.values() for text in pair), *fuzzed(CASES)])
    library = tokenizers.Tokenizer.from_str(document.decode())
    assert library.encode("The CATs[MASK] zebra").ids == [5, 6, 7, 4, 1]
    with pytest.raises(ValueError, match=r"pieces c ##a ##e ##h; "):
        tokenizer_json(encoder, "mark")


def test_the_oov_words_of_wordpieces_are_a_token_of_their_own():
    """Literal values for the pieces that decide whether a word is divided; the fuzzed texts for all others."""
    letters = ["a", "t", "##a", "##t", "##s", "中", "1", "!", "cat", "##at", "c", "##c"]
    words = [*("[PAD]", UNKNOWN, "[MASK]"), *letters]
    encoder = Encoder(AvgConfig(), Words(pa.array(words), np.zeros((len(words), 2), np.float32)), "wordpiece")
    document = tokenizer_json(encoder, "mark")
    check_ids(encoder, document, [*(text for pair in EXAMPLES.values() for text in pair), *fuzzed(CASES)])
    library, oov = tokenizers.Tokenizer.from_str(document.decode()), len(words)
    assert library.token_to_id(library.model.unk_token) is None
    assert library.encode("CATs sat t\u0301as a!b!! ??中日 [UNK]a[MASK]").ids == [
        *(11, 7, oov, 4, 5, 7, 3, 10, oov, 10, 10, oov, oov, 8, oov, 1, 3, 2)
    ]
    assert library.encode(f"{'a' * 100} {'a' * 101} \ue000").ids == [3, *[5] * 99, oov]


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="no real texts on this machine")
@pytest.mark.parametrize("tokenizer", WORD_TOKENIZERS)
def test_real_texts(tokenizer):
    """As ``test_fuzzed_texts_and_the_examples_of_the_definition``, whose texts are generated."""
    encoder = encoder_of(tokenizer, ["the", "cat"])
    document = tokenizer_json(encoder)
    for name in ("gutenberg-prose", "brown"):
        with gzip.open(SHARED / "train" / "text" / f"{name}.sentences.txt.gz", "rt", encoding="utf-8") as file:
            check_ids(encoder, document, file.read().splitlines())
    for path in sorted(SHARED.glob("eval/sts/20*/*.tsv")):
        check_ids(encoder, document, path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("unknown", ["token", "mark"])
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_ids_are_rows_of_the_vocabulary(tokenizer, unknown):
    encoder = encoder_of(tokenizer, ["the", "cat", "'s"])
    library = tokenizers.Tokenizer.from_str(tokenizer_json(encoder, unknown, max_tokens=4).decode())
    assert library.encode("The CAT 's").ids == [0, 1, 2]
    assert library.encode("zebra " + UNKNOWN).ids == [3, 3]  # a lower-cased token cannot be <unk>
    assert library.encode("").ids == library.encode(" \t\u00a0").ids == []
    assert library.encode("cat " * 9).ids == [1] * 4


@pytest.mark.parametrize(("ends", "ids"), [("start", [3, 1, 1]), ("end", [1, 1, 4]), ("both", [3, 1, 1, 4])])
def test_bos_and_eos_tokens_are_added(ends, ids):
    encoder = encoder_of("space", ["the", "cat"], ends)
    library = tokenizers.Tokenizer.from_str(tokenizer_json(encoder, max_tokens=2).decode())
    assert library.encode("cat cat cat").ids == ids


def test_the_first_text_that_differs_is_named():
    encoder = encoder_of("ptb-v1", ["the", "cat"])
    document = json.loads(tokenizer_json(encoder))
    del document["pre_tokenizer"]["pretokenizers"][-1]  # the clitics
    broken = json.dumps(document).encode()
    with pytest.raises(ValueError, match=r"It's we're .* \['it', \"'s\", 'we'"):
        check_ids(encoder, broken, [])
