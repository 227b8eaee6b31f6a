"""Seeded texts, twenty a case: the compiled loops give the ids of the `tokenizers` library."""

import pyarrow as pa

from paraembed.text import WORDPIECE
from paraembed.text.tokens import TokenIds
from tests.fuzz import run
from tests.text.pieces import Texts, ids_of, library, rows_of


def test_ids_are_those_of_the_library():
    tokenizer, vocabulary = library()
    texts, ids = Texts(vocabulary), TokenIds(vocabulary, WORDPIECE)

    def case(rng):
        made = [texts.text(rng) for _ in range(20)]
        assert rows_of(ids(pa.array(made))) == ids_of(tokenizer, made)
        return "equal"

    assert run(case)["equal"]
