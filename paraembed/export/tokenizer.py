"""Write a tokenizer of ``paraembed.text`` as Hugging Face's ``tokenizer.json``, which gives the same ids.

The classes of characters are written out from the tables of ``text.tokens``, because the library has another version of
Unicode.
"""

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paraembed.io.fingerprint import json_bytes
from paraembed.text import OF_PIECES, SUBWORD, WORDPIECE, wordpiece
from paraembed.text.scan import NUMBER, SPACE, SYMBOL
from paraembed.text.subword import Subwords, SubwordTokenizer, contents_of
from paraembed.text.tokenize import IGNORED, QUOTES, tokenize
from paraembed.text.tokens import TokenIds, as_strings, character_kinds
from paraembed.text.vocabulary import BOS_EOS, END, START, UNKNOWN, unknown_row
from paraembed.text.wordpiece import MOST_CHARACTERS, OOV, PREFIX, characters, occurring, specials_of

if TYPE_CHECKING:
    from paraembed.encoders import Encoder

Unknown = Literal["token", "mark"]
"""How OOV tokens are written: ``token``, the token ``UUUNKKK`` of a WordLevel model, ``[UNK]`` of word pieces;
``mark``, the mark that begins every token, or ``OOV_WORD``, for libraries that drop the former.
"""
MARK = " "  # begins every token of a vocabulary with ``mark``; no token contains it
OOV_WORD = "\ue000"  # of word pieces with ``mark``; no text has it, because the normalizer removes private characters

_CLITIC = "(?:n't|'(?:s|re|ve|ll|d|m))"
_LETTER = r"[a-z0-9_\x{80}-\x{10FFFF}]"  # of a word, once symbols are split off
_UNCASED = {"clean_text": True, "handle_chinese_chars": True, "lowercase": True}
_AT_ONCE = 16_384


def tokenizer_json(encoder: "Encoder", unknown: Unknown = "token", max_tokens: int | None = None) -> bytes:
    """Return ``tokenizer.json`` of an encoder, with its tokenizer, vocabulary and BOS/EOS tokens, which ``max_tokens``
    does not count. Raise ValueError if no such file can give the same ids.
    """
    if encoder.tokenizer == SUBWORD:
        return _stored(encoder, unknown, max_tokens)
    words = encoder.vocabulary.to_pylist()
    ids, ends = _keys(words, is_marked=False), BOS_EOS[encoder.bos_eos_tokens]
    model: dict[str, Any] = {"type": "WordLevel", "vocab": ids, "unk_token": UNKNOWN}
    normalizers, splits, added = *_stages(encoder.tokenizer), list[dict[str, Any]]()
    if encoder.tokenizer == WORDPIECE:
        model = {"type": "WordPiece", "unk_token": OOV, "continuing_subword_prefix": PREFIX}
        model |= {"max_input_chars_per_word": MOST_CHARACTERS, "vocab": _keys(words, is_marked=False, unknown=OOV)}
        if unknown == "mark":
            normalizers.append(_replace({"Regex": _oov_words(words)}, f" {OOV_WORD} "))
            model["vocab"][OOV_WORD] = len(words)
            model |= {"unk_token": "\n"}  # no token has this name, so none is dropped
        added = [_special(name, model["vocab"][name]) for name in specials_of(words)]
    elif unknown == "mark":
        # Without merges, BPE gives a word of the vocabulary, or the word's characters: the mark has an id, the others,
        # which get a prefix, have none and are dropped.
        splits.append({"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": False})
        model = {"type": "BPE", "vocab": _keys(words, is_marked=True), "merges": [], "ignore_merges": True}
        model |= {"unk_token": None, "continuing_subword_prefix": "\n", "end_of_word_suffix": None, "dropout": None}
        model |= {"fuse_unk": False, "byte_fallback": False}
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None if max_tokens is None else _truncation(max_tokens + len(ends)),
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: int(token["id"])),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "post_processor": _with_ends(ends, ids) if ends else None,
        "decoder": None,
        "model": model,
    }
    return json_bytes(document)


def _truncation(limit: int) -> dict[str, Any]:
    return {"direction": "Right", "max_length": limit, "strategy": "LongestFirst", "stride": 0}


def _stored(encoder: "Encoder", unknown: Unknown, max_tokens: int | None) -> bytes:
    """Return the ``tokenizer.json`` of an encoder with the tokenizer ``SUBWORD``."""
    contents = contents_of(encoder.tokenizer)
    subwords = Subwords(encoder.vocabulary, SubwordTokenizer(contents))
    if encoder.bos_eos_tokens != "none":
        raise ValueError(f"an encoder with the tokenizer {SUBWORD} and BOS/EOS tokens cannot be exported")
    if not subwords.keeps_ids:
        raise ValueError("the encoder lacks pieces of its tokenizer.json; export the encoder that it is made from")
    if unknown == "mark":
        raise ValueError(
            "model2vec leaves out OOV tokens, and takes no row without a token, which an encoder with the tokenizer "
            f"{SUBWORD} may have; export it with `to` sentence-transformers"
        )
    document = json.loads(contents) | {"truncation": None if max_tokens is None else _truncation(max_tokens)}
    return json_bytes(document)


def _keys(words: Sequence[str], *, is_marked: bool, unknown: str = UNKNOWN) -> dict[str, int]:
    """Return the vocabulary of a model: word → id."""
    if is_marked:
        # A word-vector file may have an empty word; like two marks, it is no token.
        return {MARK if word == UNKNOWN else MARK + (word or MARK): row for row, word in enumerate(words)}
    return {unknown if word == UNKNOWN else word: row for row, word in enumerate(words)}


def _oov_words(vocabulary: Sequence[str]) -> str:
    """Return the pattern of the words that word pieces do not compose: those that have a character of no piece, or are
    too long. Raise ValueError if there are others, because a character is in pieces, but is none by itself.
    """
    specials = {UNKNOWN, *specials_of(vocabulary)}
    pieces = {word for word in np.array(vocabulary, object)[occurring(vocabulary)] if word not in specials}
    starts = {word[0] for word in pieces if not word.startswith(PREFIX)}
    later = {char for word in pieces for char in (word.removeprefix(PREFIX) if word.startswith(PREFIX) else word[1:])}
    if missing := sorted(starts - pieces) + sorted({PREFIX + char for char in later} - pieces):
        raise ValueError(
            f"OOV tokens of the encoder would be left out, because it lacks the pieces {' '.join(missing[:5])}; export "
            "it with `to` sentence-transformers"
        )
    kinds = characters().kinds
    alone = (kinds == wordpiece.MARK) | (kinds == wordpiece.SYMBOL)
    of_words = ~alone
    of_words[ord(" ")] = False
    start, rest = np.zeros_like(alone), np.zeros_like(alone)
    start[[*map(ord, starts)]] = True
    rest[[*map(ord, later)]] = True
    word, composed = _class(of_words), f"{_class(start)}{_class(rest)}{{0,{MOST_CHARACTERS - 1}}}"
    return f"{_class(alone & ~start)}|(?<!{word})(?!{composed}(?!{word})){word}+"


def _special(name: str, row: int) -> dict[str, Any]:
    """Return a token that is found in the original text."""
    how = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": row, "content": name, "special": True, **how}


def _with_ends(ends: Sequence[str], ids: dict[str, int]) -> dict[str, Any]:
    def special(token: str) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": token, "type_id": 0}}] if token in ends else []

    single = [*special(START), {"Sequence": {"id": "A", "type_id": 0}}, *special(END)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in ends},
    }


def _stages(tokenizer: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the normalizers and pre-tokenizers of a tokenizer."""
    if tokenizer == WORDPIECE:
        return [{"type": "BertNormalizer", "strip_accents": None, **_UNCASED}], [{"type": "BertPreTokenizer"}]
    rules, _, form = tokenizer.partition("+")
    forms = [_replace({"Regex": IGNORED}, "")] if form == "nfkc" else []
    forms += [{"type": form.upper()}] if form else []
    kinds = character_kinds(tokenizer)
    space = _class(kinds == SPACE)
    # The library's lower case of "İ" has two characters.
    lower = [_replace({"String": "İ"}, "i"), {"type": "Lowercase"}]
    lower = [*lower, *forms, *lower, *forms] if form else lower
    if rules == "space":
        return lower, [_split(f"{space}+", "Removed")]
    number = _class(kinds == NUMBER)
    quotes = [_replace({"Regex": curly}, straight) for curly, straight in QUOTES]
    return [*lower, *quotes], [
        _split(f"{space}+", "Removed"),
        _split(_class(kinds == SYMBOL), "Isolated"),
        # 'mémoire' is a quoted word, not a clitic 'm
        _split(rf"(?<!{_LETTER})'(?=(?:s|re|ve|ll|d|m)[\x{{80}}-\x{{10FFFF}}])", "MergedWithPrevious"),
        _split(_tokens_with_marks(number), "Isolated"),
        _split(rf"(?<={_LETTER}){_CLITIC}(?={_CLITIC}*\z)", "Isolated"),
    ]


def _tokens_with_marks(number: str) -> str:
    """Return the pattern of the tokens that contain marks, in the order of ``text.tokenize``."""
    return "|".join(
        (
            rf"(?:https?://|www\.).*(?:{_LETTER}|/)",
            r"(?<![a-z0-9_])[a-z]\.(?:[a-z\x{80}-\x{10FFFF}]\.)+",
            f"{number}+(?:[.,:/]{number}+)+",
            f"[#@]{_LETTER}+",
            f"{_LETTER}+(?:[-']{_LETTER}+)+",
            r"'(?:s|re|ve|ll|d|m)(?![a-z0-9_])",
            r"\.{2,}|-{2,}|``|''",
            r"[^a-z0-9_\x{80}-\x{10FFFF}]",
        )
    )


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _split(regex: str, behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False}


def _class(mask: npt.NDArray[np.bool_]) -> str:
    """Return the class of the characters whose code points are set, as ranges; surrogates are no characters."""
    mask = mask.copy()
    mask[0xD800:0xE000] = False
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    ranges = (rf"\x{{{first:X}}}-\x{{{end - 1:X}}}" for first, end in edges.tolist())
    return f"[{''.join(ranges)}]"


def check_ids(encoder: "Encoder", document: bytes, texts: Sequence[str]) -> None:
    """Check that a ``tokenizer.json`` gives the tokens of the encoder, on a built-in sample and on texts. Raise
    ValueError with the first text whose tokens differ, or if the library is not installed.
    """
    try:
        library = import_module("tokenizers")
    except ModuleNotFoundError:
        raise ValueError("the export needs the package tokenizers; run pip install tokenizers") from None
    value = json.loads(document)
    every = [*_sample(), *texts]
    for start in range(0, len(every), _AT_ONCE):
        _check(library, encoder, value, pa.array(every[start : start + _AT_ONCE], pa.large_string()))


def _sample() -> Iterator[str]:
    """Yield texts in which each rule of the tokenizers occurs, and each character of the scripts in use."""
    yield from (
        "It's we're I've they'll he'd I'm; wouldn't've I'd've x's's's's 'n't d'être rock'n'roll don't-care",
        "'mémoire' ‘déjà vu’ “so” ``quoted'' $5.00 or 50% well... so--that 1,650 0.11 3:30 1/2 10:30am ½",
        "The U.S. p.m. e.g., see http://a.b/c?d=e, www.x.org. HTTPS://Foo.com/'s #tag's @name -pre post-",
        "\x00\t\r\n\u00a0\u00ad\u200b\u3000 İ ΑΣ Straße 中文 ひらがな 😀 e\u0301 \ufe0f",
        "",
    )
    points = (*range(0x3000), *range(0xFE00, 0x10000), *range(0x1F300, 0x1FB00))
    for point in (*points, *range(0x3000, 0x110000, 257)):
        if not 0xD800 <= point < 0xE000:
            char = chr(point)
            yield f"{char}'s {char}{char} a{char}'d'{char}1{char}.{char}. 'm{char} #{char}"


def _check(library: Any, encoder: "Encoder", document: dict[str, Any], texts: pa.StringArray) -> None:
    """Compare ids, those of words under a vocabulary of all tokens of the texts: equal only if all tokens are."""
    words, model = encoder.vocabulary, document["model"]
    if encoder.tokenizer not in OF_PIECES:
        seen = pc.unique(tokenize(as_strings(texts), encoder.tokenizer).flat)
        words = pa.concat_arrays([pa.array([UNKNOWN]), seen.filter(pc.not_equal(seen, UNKNOWN))])
        model = {**model, "vocab": _keys(words.to_pylist(), is_marked=model["type"] == "BPE")}
    expected, unknown = TokenIds(words, encoder.tokenizer)(texts), unknown_row(words)
    compared = {**document, "truncation": None, "post_processor": None, "model": model}
    tokenizer = library.Tokenizer.from_str(json.dumps(compared))
    for row, encoding in enumerate(tokenizer.encode_batch_fast(texts.to_pylist())):
        ids = expected.ids[expected.offsets[row] : expected.offsets[row + 1]].tolist()
        if [unknown if row == len(words) else row for row in encoding.ids] != ids:  # that of OOV_WORD
            tokens = words.take(pa.array(ids, pa.int32())).to_pylist()
            raise ValueError(
                f"the text {texts[row].as_py()[:200]!r} has the tokens {tokens[:20]}, but tokenizer.json gives others; "
                f"an encoder with the tokenizer {encoder.tokenizer} cannot be exported for such texts"
            )
