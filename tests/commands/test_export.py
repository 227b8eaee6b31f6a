"""jobs/export.py as a user runs it."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder, config_from_dict
from paraembed.text.vocabulary import START, UNKNOWN, Words, read_words

VOCABULARY = [START, "the", "cat", UNKNOWN]


def save(name, folder, vocabulary=VOCABULARY):
    matrix = np.random.default_rng(1).standard_normal((len(vocabulary), 3), np.float32)
    boundary = "start" if START in vocabulary else "none"
    words = Words(pa.array(vocabulary), matrix)
    encoder = Encoder(config_from_dict({"name": name}), words, "space", bos_eos_tokens=boundary)
    checkpoint.save(encoder, folder, recipe={}, provenance={}, model_card="")
    return encoder


@pytest.fixture
def export(run_job):
    return partial(run_job, "export")


def test_word2vec_text_that_train_reads(export, tmp_path, capsys):
    encoder = save("lstm", tmp_path / "encoder")
    assert export("--encoder encoder --to word2vec --out deep/vectors.txt.gz") == 0
    told = capsys.readouterr().err
    assert "wrote deep/vectors.txt.gz: 4 word vectors of width 3; <unk> is UUUNKKK" in told
    assert "left out: the layers of lstm, so the word vectors alone" in told
    read = read_words(tmp_path / "deep" / "vectors.txt.gz")
    assert read.vocabulary.to_pylist() == ["<s>", *VOCABULARY[1:]]
    np.testing.assert_array_equal(read.matrix, encoder.matrix.detach().numpy())

    assert export("--encoder encoder --to word2vec --out deep/vectors.txt.gz") == 2
    assert "already exists; choose another --out, or replace it with --overwrite" in capsys.readouterr().err
    other = save("avg", tmp_path / "other", ["a", UNKNOWN])
    assert export("--encoder other --to word2vec --out deep/vectors.txt.gz --overwrite") == 0
    assert "left out" not in capsys.readouterr().err
    np.testing.assert_array_equal(
        read_words(tmp_path / "deep" / "vectors.txt.gz").matrix, other.matrix.detach().numpy()
    )


def test_bad_input_is_said_in_words(export, tmp_path, capsys):
    save("avg", tmp_path / "encoder", ["new york", UNKNOWN])
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for line, message in [
        ("--encoder none --to word2vec --out v.txt", "none does not exist; expected an encoder folder"),
        ("--encoder file --to word2vec --out v.txt", "file is a file; expected an encoder folder"),
        ("--encoder empty --to word2vec --out v.txt", "empty has no config.json; expected an encoder folder"),
        ("--encoder encoder --to word2vec --out empty", "empty is a folder; give --out a file name"),
        ("--encoder encoder --to word2vec --out v.txt", "cannot represent, such as 'new york'"),
        ("--encoder encoder --to word2vec --out file/v.txt", "File exists"),
    ]:
        assert export(line) == 2
        assert f"error: {message}" in (told := capsys.readouterr().err) or message in told
        assert "Traceback" not in told
    assert export("--encoder encoder --to onnx --out v.txt") == 2
    assert "word2vec" in capsys.readouterr().err
    assert not (tmp_path / "v.txt").exists()
