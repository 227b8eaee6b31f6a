r"""Binary sentiment: the Stanford Sentiment Treebank (Socher et al. 2013).

A line is a tree ``(4 (3 lovely) (2 films))``: a label from 0 (very negative) to 4 on every constituent. ``-LRB-`` and
the like become brackets again, ``\/`` and ``\*`` a slash and an asterisk.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa

from paraembed.evaluation.cells import read_text
from paraembed.evaluation.known_files import changed_files
from paraembed.supervised.parts import Examples, Task, file_of

_NEUTRAL = 2
_MOST_CHARACTERS = 20_000  # of a line; the longest of SST has 700, and a tree's constituents take its square
_PARTS = ("train", "dev", "test")
_PIECES = re.compile(r"\(|\)|[^\s()]+")
_TWO_WORDS = re.compile("\\((.) ([^\\s()]+)\xa0([^\\s()]+)\\)")  # "8\xa01\\/2" is a word there, and two to a tokeniser
_STANDS_FOR = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


@dataclass(frozen=True)
class _Constituent:
    label: int
    text: str
    tree: str


def read_sst(data: Path) -> Task:
    """Negative or positive: constituents to train on, sentences for dev and test; neutral ones are left out.

    Train: of every training sentence that is not neutral, all constituents that are not, each distinct text and label
    once: 67,349 of 6,920 sentences, the number that the authors' file has, and but for the spelling of 240 texts
    (``colour``, ``gonna``) its very texts. Those of the neutral sentences would add 10,267. Dev and test: 872 and
    1,821.

    The texts are tokenised; the tokeniser ``space`` gives the leaves of every tree, ``ptb-v1`` splits words like
    ``and/or`` and so does not fit 810 of the training trees.

    Args:
        data: folder with ``sst/train.txt.gz``, ``dev`` and ``test``.
    """
    files = [(name, file_of(data, "sentiment", name)) for name in (f"sst/{part}.txt.gz" for part in _PARTS)]
    train, dev, test = (_sentences(path) for _, path in files)
    constituents = {(one.text, one.label > _NEUTRAL): one for tree in train for one in tree if one.label != _NEUTRAL}
    return Task(
        "sentiment",
        "sst",
        _examples([*constituents.values()]),
        _examples([tree[-1] for tree in dev]),
        _examples([tree[-1] for tree in test]),
        ("negative", "positive"),
        low=0,
        measure="accuracy",
        notes=changed_files(files),
    )


def _sentences(path: Path) -> list[list[_Constituent]]:
    """The constituents of each sentence that is not neutral; the last is the sentence."""
    trees = [[*_constituents(line, f"{path}, line {at}")] for at, line in enumerate(read_text(path), 1) if line.strip()]
    kept = [tree for tree in trees if tree[-1].label != _NEUTRAL]
    if not kept:
        raise ValueError(f"{path} holds no sentence that is not neutral; fetch it again")
    return kept


def _examples(chosen: list[_Constituent]) -> Examples:
    texts, trees = ([getattr(one, field) for one in chosen] for field in ("text", "tree"))
    labels = np.array([one.label > _NEUTRAL for one in chosen], np.float64)
    return Examples((pa.array(texts, pa.string()),), labels, (pa.array(trees, pa.string()),))


def _constituents(line: str, where: str) -> Iterator[_Constituent]:
    if len(line) > _MOST_CHARACTERS:
        _refuse(where, f"{len(line):,} characters; allowed: up to {_MOST_CHARACTERS:,}")
    words: list[str] = []
    opened: list[tuple[int, int, int | None]] = []  # where it begins in the line, and among the words; its label
    before = ""
    for piece in _PIECES.finditer(_TWO_WORDS.sub(r"(\1 (2 \2) (2 \3))", line)):
        if not opened and (words or piece[0] != "("):
            _refuse(where, f"{piece[0][:40]!r} outside of the tree")
        if piece[0] == "(":
            opened.append((piece.start(), len(words), None))
        elif piece[0] == ")":
            start, first, label = opened.pop()
            if label is None or first == len(words):
                _refuse(where, "a constituent without a label or a word")
            yield _Constituent(label, " ".join(words[first:]), piece.string[start : piece.end()])
        elif before == "(":
            if piece[0] not in {"0", "1", "2", "3", "4"}:
                _refuse(where, f"the label is {piece[0][:40]!r}; expected 0 to 4")
            opened[-1] = (*opened[-1][:2], int(piece[0]))
        else:
            words.append(_STANDS_FOR.get(piece[0], piece[0]).replace(r"\/", "/").replace(r"\*", "*"))
        before = piece[0]
    if opened:
        _refuse(where, f"{len(opened)} brackets are not closed")


def _refuse(where: str, what: str) -> NoReturn:
    raise ValueError(f"{where}: {what}; expected a tree as (3 (2 fine) (2 films)); mend the file or fetch it again")
