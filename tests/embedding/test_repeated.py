"""Equal texts are encoded once, and the output is that of texts which are encoded each by itself."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraembed import checkpoint
from paraembed.embedding import repeated as module
from paraembed.embedding.repeated import DistinctTexts, keys_of
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, LstmConfig
from paraembed.encoders.protocol import NO_LOCK, Embedded, NotFiniteError, no_progress
from tests.embedding.without_ray import build

WIDTH = 3


class Counting:
    """An encoder whose vectors do not depend on the batch; it counts what it encodes."""

    encodes_once, width, fingerprint, identity, tokenizer = True, WIDTH, "counting", {}, "space"

    def __init__(self):
        self.encoded = []

    def embed(self, texts, batch_size, trees=None, *, on_rows, **_):
        given = [text or "" for text in texts.to_pylist()]
        of_trees = [None] * len(given) if trees is None else trees.to_pylist()
        assert batch_size == len(given)
        self.encoded += zip(given, of_trees, strict=True)
        vectors = np.array([[len(text), hash((text, tree)) % 1000, 1] for text, tree in self.encoded[-len(given) :]])
        if "nan" in given:
            raise NotFiniteError(given.index("nan"))
        tokens = np.array([text.count(" ") for text in given], np.int32)
        on_rows(len(given))
        flags = tokens > 1, np.array([tree is None for tree in of_trees])
        return Embedded(vectors.astype(np.float32), tokens, tokens // 2, *flags)


TEXTS = st.lists(st.sampled_from([None, "", "a", "a b c", "b", "ä", "3:a"]), min_size=1, max_size=9)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.booleans(), st.integers(1, 5))
def test_rows_are_those_of_an_encoder_alone(batches, has_trees, remembered):
    encoder, alone, rows = Counting(), Counting(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MEMORY_BYTES", 4 * WIDTH * remembered)
        distinct = DistinctTexts(encoder)
        for texts in batches:
            trees = pa.array([text[:1] if text else None for text in texts], pa.string()) if has_trees else None
            array = pa.array(texts, pa.string())
            result = distinct.embed(array, trees, NO_LOCK, rows.append)
            expected = alone.embed(array, len(texts), trees, lock=NO_LOCK, on_rows=no_progress)
            for name in ("vectors", "num_tokens", "num_unknown", "is_cut", "lacks_tree"):
                np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
    total = sum(map(len, batches))
    assert sum(rows) == total == len(encoder.encoded) + distinct.num_repeated
    first = len(dict.fromkeys(text or "" for text in batches[0]))
    assert len(encoder.encoded) >= first
    if remembered == 5 and len({text or "" for texts in batches for text in texts}) <= 5 and not has_trees:
        assert len(encoder.encoded) == len(set(encoder.encoded))


def test_keys_of_other_pairs_differ_and_an_error_names_the_row():
    pairs = [("a", "b"), ("a:b", ""), ("a", ":b"), ("", "a:b"), ("1:a", "b"), (None, "b"), ("a", None)]
    keys = keys_of(pa.array([text for text, _ in pairs]), pa.array([tree for _, tree in pairs]))
    assert len(set(keys.to_pylist())) == len(pairs)
    with pytest.raises(NotFiniteError) as raised:
        DistinctTexts(Counting()).embed(pa.array(["a", "a", "b", "nan", "nan"]), None, NO_LOCK, no_progress)
    assert raised.value.text == 3


@pytest.mark.parametrize(("config", "counts"), [(LstmConfig(), (4, 4, 8)), (AvgConfig(), (None, 4, 8))])
def test_an_output_counts_repeated_texts_and_truncated_rows(tiny_words, tmp_path, config, counts):
    """An average encodes every text, and its output keeps its bytes."""
    encoder = tmp_path / "encoder"
    words = Encoder(config, tiny_words, "space", max_tokens=2)
    checkpoint.save(words, encoder, recipe={}, provenance={}, model_card="")
    texts = ["the cat sat", "a dog", "the cat sat", "", "a dog ran", "the cat sat", "", "a dog"]
    (tmp_path / "t.txt").write_text("".join(f"{text}\n" for text in texts))
    out = tmp_path / "out"
    build(encoder, tmp_path / "t.txt", Settings(batch_size=4), out)
    (part,) = (out / "data").iterdir()
    table = pq.read_table(part)
    vectors = table["embedding"].to_pylist()
    assert vectors[0] == vectors[2] == vectors[5] != vectors[4]
    written = json.loads(pq.read_metadata(part).metadata[b"paraembed"])
    assert (written.get("n_repeated"), written["n_cut"], written["rows"]) == counts
    assert json.loads((out / "_manifest.json").read_text()).get("n_repeated") == counts[0]
    assert all(check.ok for check in verify(out, encoder, [str(tmp_path)]))
    assert table["n_tokens"].to_pylist() == [len(text.split()) for text in texts]
