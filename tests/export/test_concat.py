"""Two encoders as one."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.concat import Concat
from paraembed.encoders.configs import AvgConfig, RecursiveConfig
from paraembed.evaluation.candidates import named
from paraembed.export.concat import write_concat
from paraembed.loading import open_encoder
from tests.export.test_smaller import TEXTS, saved


@pytest.fixture
def both(tmp_path):
    """The folder of an encoder of 4 dimensions and one of 3, and these two."""
    saved(tmp_path / "a", seed=1)
    saved(tmp_path / "b", seed=2, width=3)
    write_concat([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    return open_encoder(str(tmp_path / "both")), checkpoint.load(tmp_path / "a"), checkpoint.load(tmp_path / "b")


def cosines(vectors):
    unit = vectors.astype(np.float64) / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit @ unit.T


def test_the_cosine_is_the_mean_of_both(both):
    concat, first, second = both
    texts = [text for text in TEXTS if first.encode(text).any() and second.encode(text).any()]
    assert len(texts) > 3
    expected = (cosines(first.encode(texts)) + cosines(second.encode(texts))) / 2
    np.testing.assert_allclose(cosines(concat.encode(texts)), expected, atol=1e-6)
    assert concat.encode(texts[0]).shape == (concat.width,) == (7,)


def test_counts_and_empty_texts(both, tiny_words):
    concat, first, _ = both
    texts = pa.array(["the cat", "zzz the", "", None])
    embedded, expected = concat.embed(texts), first.embed(texts)
    assert embedded.num_tokens.tolist() == expected.num_tokens.tolist() == [2, 2, 0, 0]
    assert embedded.num_unknown.tolist() == expected.num_unknown.tolist()
    assert not embedded.vectors[2:].any()
    with pytest.raises(ValueError, match="trees"):
        concat.embed(texts, trees=texts)
    short, long = (Encoder(AvgConfig(), tiny_words, "space", max_tokens=limit) for limit in (1, 3))
    embedded = Concat(long, short).embed(pa.array(["the cat sat on", "the cat", "the"]))
    assert (embedded.num_cut, Concat(long, short).max_tokens) == (2, 1)  # of either


def test_other_processes_get_the_same_encoder(both):
    concat = both[0]
    copy = concat.packed().encoder()
    np.testing.assert_array_equal(copy.encode(TEXTS), concat.encode(TEXTS))
    assert (copy.fingerprint, copy.max_tokens) == (concat.fingerprint, concat.max_tokens)
    assert concat.fingerprint


def test_a_changed_part_is_noticed(both, tmp_path):
    for name, other in ("first", "b"), ("second", "a"):
        part = tmp_path / "both" / name
        part.rename(tmp_path / "kept")
        shutil.copytree(tmp_path / other, part)
        with pytest.raises(ValueError, match="is another encoder than in config"):
            open_encoder(str(tmp_path / "both"))
        shutil.rmtree(part)
        (tmp_path / "kept").rename(part)
    assert open_encoder(str(tmp_path / "both")).fingerprint == both[0].fingerprint


def test_labels_of_both_are_known(tmp_path):
    labels = [{"task": "similarity", "data_set": name, "seed": 1} for name in ("sick", "sts")]
    for name, entry in zip("ab", labels, strict=True):
        saved(tmp_path / name, provenance={"training": {"gold": [entry]}})
    write_concat([tmp_path / "a", tmp_path / "b"], tmp_path / "both")
    candidate = named(str(tmp_path / "both"))
    assert candidate.gold == ("sick", "sts")
    assert candidate.kind == ""


def test_encoders_that_cannot_be_one(tmp_path, tiny_words):
    saved(tmp_path / "a")
    with pytest.raises(ValueError, match="got 3"):
        write_concat([tmp_path / "a"] * 3, tmp_path / "out")
    tree = Encoder(RecursiveConfig(), tiny_words, "space")
    checkpoint.save(tree, tmp_path / "tree", recipe={}, provenance={}, model_card="")
    with pytest.raises(ValueError, match="reads trees"):
        write_concat([tmp_path / "a", tmp_path / "tree"], tmp_path / "out")
    write_concat([tmp_path / "a", tmp_path / "a"], tmp_path / "twice")
    with pytest.raises(ValueError, match=r"two encoders as one; .*first or second"):
        write_concat([tmp_path / "a", tmp_path / "twice"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
