r"""Binary sentiment: the Stanford Sentiment Treebank (Socher et al. 2013).

A line is a tree ``(4 (3 lovely) (2 films))``: a label from 0 (very negative) to 4 on every constituent. ``-LRB-`` and
the like become brackets again, ``\/`` and ``\*`` a slash and an asterisk.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from paraembed.evaluation.known_files import changed_files, file_of
from paraembed.io.lines import read_text
from paraembed.supervised.tasks import Examples, Task
from paraembed.text.trees import FAULTS, parse_trees

_NEUTRAL = 2
_MOST_CHARACTERS = 20_000  # of a line; the longest of SST has 700, and a tree's constituents take its square
_PARTS = ("train", "dev", "test")
_TWO_WORDS = re.compile("\\((.) ([^\\s()]+)\xa0([^\\s()]+)\\)")  # "8\xa01\\/2" is a word there, and two to a tokenizer
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

    The texts are tokenized; the tokenizer ``space`` gives the leaves of every tree, ``ptb-v1`` splits words like
    ``and/or`` and so does not fit 810 of the training trees.

    Args:
        data: folder with ``sst/train.txt.gz``, ``dev`` and ``test``.
    """
    files = [(name, file_of(data, name, "task 'sentiment'")) for name in (f"sst/{part}.txt.gz" for part in _PARTS)]
    train, dev, test = (_sentences(path) for _, path in files)
    constituents = {
        (node.text, node.label > _NEUTRAL): node for tree in train for node in tree if node.label != _NEUTRAL
    }
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
    lines = [(f"{path}, line {number}", line) for number, line in enumerate(read_text(path), 1) if line.strip()]
    for where, line in lines:
        if len(line) > _MOST_CHARACTERS:
            raise _refusal(where, f"{len(line):,} characters; allowed: up to {_MOST_CHARACTERS:,}")
    texts = [_TWO_WORDS.sub(r"(\1 (2 \2) (2 \3))", line) for _, line in lines]
    parsed = parse_trees(pa.array(texts, pa.string()), np.full(len(texts), -1))
    words = [_plain(word) for word in parsed.words.to_pylist()]
    nodes, leaf_offsets, node_offsets = (
        numbers.tolist() for numbers in (parsed.nodes, parsed.leaf_offsets, parsed.node_offsets)
    )
    trees = []
    for number, ((where, _), text) in enumerate(zip(lines, texts, strict=True)):
        if fault := FAULTS[parsed.faults[number]]:
            raise _refusal(where, fault)
        leaves = words[leaf_offsets[number] : leaf_offsets[number + 1]]
        trees.append(
            _constituents(nodes[node_offsets[number] : node_offsets[number + 1]], text.encode(), leaves, where)
        )
    kept = [tree for tree in trees if tree[-1].label != _NEUTRAL]
    if not kept:
        raise ValueError(f"{path} holds no sentence that is not neutral; fetch it again")
    return kept


def _constituents(nodes: list[list[int]], text: bytes, words: list[str], where: str) -> list[_Constituent]:
    if not nodes:
        raise _refusal(where, "a word without a label")
    tree = []
    for start, stop, label_start, label_stop, first, last in nodes:
        label = text[label_start:label_stop] if label_start >= 0 else b""
        if label not in {b"0", b"1", b"2", b"3", b"4"}:
            raise _refusal(where, f"the label is {label.decode()[:40]!r}; expected 0 to 4")
        tree.append(_Constituent(int(label), " ".join(words[first:last]), text[start:stop].decode()))
    return tree


def _plain(word: str) -> str:
    return _STANDS_FOR.get(word, word).replace(r"\/", "/").replace(r"\*", "*")


def _examples(chosen: list[_Constituent]) -> Examples:
    texts, trees = ([getattr(node, field) for node in chosen] for field in ("text", "tree"))
    labels = np.array([node.label > _NEUTRAL for node in chosen], np.float64)
    return Examples((pa.array(texts, pa.string()),), labels, (pa.array(trees, pa.string()),))


def _refusal(where: str, what: str) -> ValueError:
    return ValueError(f"{where}: {what}; expected a tree as (3 (2 fine) (2 films)); mend the file or fetch it again")
