"""Write the character table of the uncased BERT tokenizers, as the `tokenizers` library treats each character.

Run: python infra/uncased.py paraembed/text/uncased.npz
"""

import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from paraembed.text.wordpiece import BARRIER, COMBINING, DROP, EXPANDED, HANGUL, LETTER, MARK, SPACE, SYMBOL

POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]


def normal_form() -> Callable[[str], str]:
    """Return the function from a text to its words, joined by spaces."""
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()

    def form(text: str) -> str:
        words = splitter.pre_tokenize_str(normalizer.normalize_str(f"x{text}x"))
        return " ".join(word for word, _ in words)[1:-1]

    return form


def combining(form: Callable[[str], str], kept: dict[int, str]) -> dict[int, int]:
    """Return the rank of each kept character that Unicode's canonical ordering moves, from 0."""
    high, low = "\U0001e944", "\u1b44"  # of classes 230 and 9, both kept
    assert form(high + low) == low + high
    moved = [point for point, text in kept.items() if text == chr(point) and form(high + text) != high + text]
    moved += [point for point, text in kept.items() if text == chr(point) and form(text + low) != text + low]
    moved = sorted({*moved, ord(high), ord(low)})
    before = {a: sum(form(chr(a) + chr(b)) == chr(b) + chr(a) != chr(a) + chr(b) for b in moved) for a in moved}
    ranks = {count: rank for rank, count in enumerate(sorted(set(before.values())))}
    return {point: ranks[count] for point, count in before.items()}


def kinds_of(form: Callable[[str], str]) -> Iterator[tuple[int, int, str]]:
    """Yield each character, its kind and its replacement."""
    replaced = {point: form(chr(point)) for point in POINTS}
    ranks = combining(form, replaced)
    high, low = "\U0001e944", "\u1b44"
    for point, text in replaced.items():
        char = chr(point)
        if point in ranks:
            yield point, COMBINING + ranks[point], ""
        elif not text:
            yield point, DROP if form(high + char + low) == low + high else BARRIER, ""
        elif text == " ":
            yield point, SPACE, ""
        elif text == char:
            yield point, LETTER, ""
        elif text == f" {char} ":
            yield point, MARK if point < 0x80 else SYMBOL, ""
        else:
            yield point, EXPANDED, "" if point in HANGUL else text


def main(path: Path) -> None:
    """Write the table."""
    rows = list(kinds_of(normal_form()))
    runs = [(next(run)[0], kind) for kind, run in groupby(rows, key=lambda row: row[1])]
    starts, kinds = zip(*runs, strict=True)
    texts = "\0".join(text for point, kind, text in rows if kind == EXPANDED and point not in HANGUL)
    table = {
        "starts": np.array(starts, np.int32),
        "kinds": np.array(kinds, np.uint8),
        "replacements": np.frombuffer(texts.encode(), np.uint8),
    }
    np.savez_compressed(path, **table)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
