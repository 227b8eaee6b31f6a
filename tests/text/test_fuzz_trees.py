"""Fuzzing of bracketed trees: each is read or refused by reason, and the structure of a good one is right."""

import pyarrow as pa

from paraembed.text.tokenize import tokenize
from paraembed.text.trees import FAULTS, read_trees
from tests.encoders.oracles_recursive import leaves_of, merges_of
from tests.fuzz import mutated, run

WORDS = ["cat", "naïve", "-LRB-", "``", "\\/", "“", "a", "0.5", "don", "'t", "😀"]
Tree = str | tuple["Tree", "Tree"]


def drawn(draw, leaves):
    if leaves == 1:
        return draw.choice(WORDS)
    left = draw.choice((1, leaves - 1, draw.randint(1, leaves - 1)))
    return drawn(draw, left), drawn(draw, leaves - left)


def written(tree, draw, label):
    """As parsers write it, with labels (``2`` as in SST) or without."""
    if isinstance(tree, str):
        return f"({label} {tree})" if label else tree
    inner = " ".join(written(part, draw, label) for part in tree)
    return f"({label}{' ' if label else ''}{inner})"


def test_trees():
    def case(draw):
        trees = [drawn(draw, draw.randint(1, 8)) for _ in range(draw.randint(1, 4))]
        texts = [" ".join(leaves_of(tree)) for tree in trees]
        tokens = tokenize(pa.array(texts), "space")
        whole = [written(tree, draw, draw.choice(("", "NP", "2"))) for tree in trees]
        changed = draw.random() < 0.7
        given = [
            mutated(text.encode(), draw, (b"(", b")", b"((", b"))", b" ", b"()", b"\n")).decode("utf-8", "replace")
            if changed
            else text
            for text in whole
        ]
        found = read_trees(
            pa.array([draw.choice((text, text, text, None)) if changed else text for text in given]), tokens
        )
        assert len(found.refused) == len(trees)
        assert {*found.refused.to_pylist()} <= {*FAULTS}
        assert len(found.merges) == len(tokens.flat)
        assert found.merges.sum() == len(tokens.flat) - len(trees)
        if changed:
            return "refused by reason" if found.refused.null_count < len(trees) else "changed"
        assert found.refused.null_count == len(trees), found.refused.to_pylist()
        assert found.merges.tolist() == [number for tree in trees for number in merges_of(tree)]
        return "read"

    ends = run(case)
    assert min(ends["read"], ends["refused by reason"]) > 0, ends
