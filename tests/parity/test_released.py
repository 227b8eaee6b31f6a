"""Recipes ``as_released`` against results of the authors' released code, 20 steps each.

``released.json`` and ``released.npz`` hold these results as numbers: settings and texts of the batches as word ids;
parameters at the start, the negatives that it chose, and every fifth value of the parameters at the end. They come from
jwieting/iclr2016 (39d3538) and jwieting/acl2017 (a3bac54), run unchanged in float64. Parameters have the names of
``reference``. Negatives are given, because ties among equal texts are broken otherwise.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed.encoders import Encoder, config_from_dict
from paraembed.papers import RECIPES, as_released
from paraembed.papers.supervised import SUPERVISED_RECIPES
from paraembed.supervised.model import Kind, Supervised, options_of
from paraembed.supervised.step import ExampleBatch, SupervisedStep
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.negatives import Negatives
from paraembed.training.pairs import Batch
from paraembed.training.step import step_for
from tests.encoders.oracles import stacks_of, values_of
from tests.parity.test_parity import LABELS, exact_targets

HERE = Path(__file__).parent
CASES = json.loads((HERE / "released.json").read_text())
NUMBERS = np.load(HERE / "released.npz")
ALL = {**RECIPES, **SUPERVISED_RECIPES}


class Given(Negatives):
    """The negatives that the released code chose."""

    def __init__(self, rows, *arguments):
        super().__init__(*arguments)
        self.rows = rows.astype(np.int64)

    def choose(self, vectors_NH, *_):
        chosen, self.rows = np.split(self.rows, [len(vectors_NH)])
        return torch.from_numpy(chosen)


def stored(name, kind):
    prefix = f"{name}:{kind}:"
    return {key.removeprefix(prefix): NUMBERS[key] for key in NUMBERS.files if key.startswith(prefix)}


def ragged(texts):
    return Ragged(np.concatenate(texts).astype(np.int32), np.cumsum([0, *map(len, texts)]))


def recipe_of(name):
    settings = CASES[name]["settings"]
    if "encoder" in settings:
        settings = {**settings, "encoder": config_from_dict(settings["encoder"])}
    return replace(as_released(name, ALL[name]), dropout=0.0, word_dropout=0.0, scramble=0.0, **settings)


def encoder_of(recipe, num_words, width):
    words = Words(pa.array([UNKNOWN, *map(str, range(1, num_words))]), np.ones((num_words, width), np.float32))
    return Encoder(recipe.encoder, words, "space").double()


def set_values(stacks, values):
    with torch.no_grad():
        for parameter, names in stacks:
            parameter.copy_(torch.from_numpy(np.concatenate([values[name] for name in names])).reshape(parameter.shape))


def check_end(name, stacks):
    expected, found = stored(name, "end"), values_of(stacks)
    assert found.keys() == expected.keys()
    for key, values in found.items():
        np.testing.assert_allclose(values.ravel()[::5], expected[key], rtol=0, atol=1e-13, err_msg=key)


@pytest.mark.parametrize("name", sorted(CASES.keys() & RECIPES.keys()))
def test_a_training_on_pairs_is_that_of_the_released_code(name):
    recipe, start = recipe_of(name), stored(name, "start")
    encoder = encoder_of(recipe, *start["words"].shape)
    stacks = stacks_of(encoder)
    set_values(stacks, start)
    read = [(ragged([text for pair in pairs for text in pair]), len(pairs)) for pairs in CASES[name]["batches"]]
    step = step_for(encoder, recipe, read[0][0])
    step._negatives = Given(NUMBERS[f"{name}:negatives"], recipe, encoder, read[0][0], 1)
    for count, (texts, num_pairs) in enumerate(read, 1):
        step(Batch((texts,), num_pairs), count)
    assert count == 20
    check_end(name, stacks)


@pytest.mark.parametrize("name", sorted(CASES.keys() & SUPERVISED_RECIPES.keys()))
def test_a_training_on_labeled_examples_is_that_of_the_released_code(name):
    recipe, start, task = recipe_of(name), stored(name, "start"), CASES[name]["task"]
    classes = LABELS[task][1]
    kind = Kind(task, "sst" if task == "sentiment" else "sick", classes, 1 if task == "similarity" else 0)
    model = Supervised(encoder_of(recipe, *start["words"].shape), kind, options_of(recipe)).double()
    stacks = stacks_of(model.encoder, model.head)
    set_values(stacks, start)
    step = SupervisedStep(model, recipe)
    for count, examples in enumerate(CASES[name]["batches"], 1):
        labels = [example[-1] for example in examples]
        if task == "similarity":
            targets = exact_targets(np.array(labels), len(classes))
        else:
            targets = torch.tensor([classes.index(label) if label in classes else int(label) for label in labels])
        texts = ragged([text for example in examples for text in example[:-1]])
        step(ExampleBatch((texts,), len(examples), targets=targets), count)
    assert count == 20
    check_end(name, stacks)


def test_every_recipe_with_released_code_is_compared():
    """But for tacl2015's, of whose code there are no results."""
    with pytest.raises(ValueError, match="not that of a paper"):
        as_released("acl2017/mine.json", RECIPES["acl2017/avg"])
    released = set()
    for name, recipe in ALL.items():
        try:
            as_released(name, recipe)
        except ValueError:
            continue
        released.add(name)
    of_2015 = {name for name in released if name.startswith("tacl2015/")}
    assert of_2015 == {f"tacl2015/{name}" for name in ("word", "word-constraints", "paragram300", "recursive")}
    assert released - of_2015 == CASES.keys()
