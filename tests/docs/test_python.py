"""The Python blocks of docs/python.md run, one after the other; that of the README prints what it shows."""

from pathlib import Path

import numpy as np
import pytest

from paraembed.export.word2vec import words_of, write_word2vec
from tests.docs.pages import blocks, save_encoder, write_shards

TITLES = ["how do i control my thoughts", "a cat sat", "one text", "can i control a cat"]


@pytest.mark.ray
def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    words = ["how", "do", "i", "control", "my", "thoughts", "can", "a", "cat", "sat", "one", "text"]
    write_word2vec(words_of(save_encoder(words, Path("encoder"))), Path("paragram.txt.gz"))
    write_shards(Path("pairs"), {"first": TITLES * 60, "second": TITLES[::-1] * 60})
    Path("dev.tsv").write_text("5\ta cat sat\ta cat\n1\tone text\tmy thoughts\n3\tmy cat\tcontrol a cat\n")
    Path("titles.csv").write_text("\n".join(["title", *TITLES]))
    names = {}
    for block in blocks("docs/python.md", "python"):
        exec(block, names)
    assert names["vectors"].shape == (2, 300)
    assert names["cosines"].shape == (2, 2)
    assert names["embedded"].num_tokens.tolist() == [3, 1, 0]
    assert names["embedded"].num_unknown.tolist() == [0, 1, 0]
    assert set(names["report"].metrics()) >= {"pairs/dev/pearson", "encoder/pairs/dev/pearson"}
    assert names["hits"]["title"].to_pylist()[0] == TITLES[0]
    assert len(names["hits"]) == 3
    np.testing.assert_array_equal(names["matrix"], names["trained"].encode(TITLES))


def test_the_readme_prints_what_it_shows(capsys):
    [code], [shown] = blocks("README.md", "python"), blocks("README.md", "text")
    exec(code, {})
    assert capsys.readouterr().out == shown
