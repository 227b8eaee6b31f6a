"""Seeded texts, twenty a case: the compiled loops give the ids of the `tokenizers` library."""

import pyarrow as pa

from paraembed.text import WORDPIECE
from paraembed.text.tokens import TokenIds
from tests.fuzz import run
from tests.text.pieces import Texts, ids_of, library


def test_ids_are_those_of_the_library():
    tokenizer, vocabulary = library()
    texts, ids = Texts(vocabulary), TokenIds(vocabulary, WORDPIECE)

    def case(rng):
        made = [texts.text(rng) for _ in range(20)]
        found, expected = ids(pa.array(made)), ids_of(tokenizer, made)
        assert [found.ids[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)] == expected
        return "equal"

    assert run(case)["equal"]
