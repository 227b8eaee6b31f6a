"""The examples in the docstrings that users read first run as they are printed."""

import doctest
import inspect
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import paraembed
from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.evaluation.candidates import trained
from paraembed.evaluation.measures import pearson
from paraembed.evaluation.report import compare
from paraembed.evaluation.suites import read_pairs_files
from paraembed.export.word2vec import words_of, write_word2vec
from paraembed.pairs.formats import read_pairs
from paraembed.pairs.shards import read_pair_manifest
from paraembed.papers import find_recipe
from paraembed.recipe import Recipe
from paraembed.text.tokenize import tokenize
from paraembed.text.vocabulary import read_words
from paraembed.training.loop import train
from paraembed.training.pairs import pairs_to_ids
from tests.docs.pages import write_shards

EXAMPLES = (
    paraembed.load,
    paraembed.evaluate,
    Encoder.encode,
    Encoder.embed,
    tokenize,
    read_words,
    read_pairs,
    read_pair_manifest,
    Recipe.from_dict,
    find_recipe,
    train,
    pearson,
    compare,
)
NAMES = {
    "Path": Path,
    "Recipe": Recipe,
    "np": np,
    "pa": pa,
    "paraembed": paraembed,
    "pairs_to_ids": pairs_to_ids,
    "read_pairs_files": read_pairs_files,
    "trained": trained,
    **{function.__name__: function for function in EXAMPLES if inspect.isfunction(function)},
}


@pytest.fixture
def files(tiny_encoder_folder, tmp_path, monkeypatch):
    """The files that the examples name, in the working folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_encoder_folder, "encoder")
    write_word2vec(words_of(checkpoint.load("encoder")), Path("vectors.txt"))
    Path("pairs.tsv").write_text("the cat sat\ta cat sat\na dog ran\tthe dog ran\n")
    Path("scored.tsv").write_text("5\tthe cat sat\ta cat sat\n1\tthe mat\ta dog ran\n0\thome\tthe cat sat on a mat\n")
    write_shards(Path("shards"), {"first": ["the cat sat", "a dog ran"], "second": ["a cat sat", "the dog ran"]})


@pytest.mark.parametrize("documented", EXAMPLES, ids=lambda documented: documented.__qualname__)
@pytest.mark.usefixtures("files")
def test_the_examples_of_a_docstring_run(documented):
    tests = doctest.DocTestFinder(recurse=False).find(documented, globs=dict(NAMES))
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).attempted > 0
    assert runner.summarize(verbose=False).failed == 0
