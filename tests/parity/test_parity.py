"""Encoders, objectives, penalties and optimizers against ``reference``, the papers' formulas in NumPy: float64 to 1e-12
by autograd, float32 to 1e-4 by the compiled step; vectors, objective, and parameters after 1, 2 and 10 updates.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from paraembed.encoders import ENCODERS, Encoder, config_from_dict, config_to_dict
from paraembed.papers import RECIPES
from paraembed.recipe import Recipe, SupervisedRecipe
from paraembed.supervised.model import Kind, Supervised, options_of
from paraembed.supervised.step import ExampleBatch, SupervisedStep
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.objectives import ContrastPhrases, step_draws
from paraembed.training.pairs import Batch
from paraembed.training.step import step_for
from tests.encoders.oracles import stacks_of, values_of
from tests.parity import reference

VOCABULARY, WIDTH, PAIRS, BATCHES, STEPS, SEED = 9, 3, 3, 2, 10, 6
LOOKED_AT = (1, 2, STEPS)


def read_texts(num, seed):
    """Texts of 1 to 4 words, each with a random binary tree, as the reference and as the package have them."""
    draw = np.random.default_rng(seed)
    texts = []
    for _ in range(num):
        length = int(draw.integers(1, 5))
        merges, waiting = [], 0
        for place in range(length):
            closes = waiting if place == length - 1 else int(draw.integers(0, waiting + 1))
            merges.append(closes)
            waiting += 1 - closes
        texts.append((draw.integers(0, VOCABULARY, length).tolist(), merges))
    return texts


def ragged(texts):
    ids, merges = (np.concatenate([text[part] for text in texts]).astype(np.int32) for part in (0, 1))
    return Ragged(ids, np.cumsum([0, *(len(ids) for ids, _ in texts)]), merges)


def encoder_of(config, dtype):
    """An encoder with random parameters, biases too."""
    words = Words(pa.array([UNKNOWN, *map(str, range(1, VOCABULARY))]), np.ones((VOCABULARY, WIDTH), np.float32))
    encoder = Encoder(config, words, "space").to(dtype)
    randomize(encoder)
    if getattr(config, "activation", "") == "relu":  # else one unit alone is active, whose cosine has no gradient
        with torch.no_grad():
            for name, parameter in encoder.composition.named_parameters():
                parameter.add_(0.7 * ("bias" in name))
    return encoder


def randomize(model):
    draw = np.random.default_rng(SEED)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(draw.normal(0, 0.7, tuple(parameter.shape))))


def forms_of(recipe):
    """The recipe's fields as the reference has them."""
    return {
        "optimizer": recipe.optimizer,
        "form": {"adam": recipe.adam_form, "adagrad": recipe.adagrad_form}.get(recipe.optimizer, ""),
        "rate": recipe.learning_rate,
        "encoder_rate": recipe.encoder_learning_rate or recipe.learning_rate,
        "word_l2": recipe.word_l2,
        "encoder_l2": recipe.encoder_l2,
        "head_l2": getattr(recipe, "head_l2", 0.0),
        "l2_factor": 1 if recipe.l2_form == "paper" else 0.5,
        "target": "initial" if recipe.pulls_to_initial else "zero",
        "clip": recipe.clip,
        "clip_form": recipe.clip_form,
        "dense": recipe.update == "dense",
    }


def compare(step, batches_of_step, stacks, expected, tolerance):
    for count, (batch, (value, values)) in enumerate(zip(batches_of_step, expected, strict=True), 1):
        loss = float(step(batch, count)[0])
        assert loss == pytest.approx(value, rel=tolerance, abs=tolerance), count
        if count in LOOKED_AT:
            for name, found in values_of(stacks).items():
                np.testing.assert_allclose(found, values[name], rtol=0, atol=tolerance, err_msg=f"{name}, step {count}")
    assert count == STEPS


def check_pairs(recipe, dtype=torch.float64, tolerance=1e-12):
    """Train on pairs both ways."""
    encoder = encoder_of(recipe.encoder, dtype)
    options = config_to_dict(recipe.encoder)
    kind = options.pop("name")
    texts = [read_texts(2 * PAIRS, seed) for seed in range(BATCHES)]
    everything = ragged([text for batch in texts for text in batch])
    phrases = ContrastPhrases(everything, recipe.contrast_phrases) if recipe.draws_contrast else None
    batches, read = [], []
    for count in range(1, STEPS + 1):
        own = texts[count % BATCHES]
        draw = step_draws(recipe.seed, count, rank=0)
        batches.append({"read": own, "pairs": own})
        if phrases is not None:
            numbers, indices = phrases.draw(ragged(own), draw)
            drawn = [text for batch in texts for text in batch]
            chosen = [drawn[number] for number in numbers]
            batches[-1] |= {"read": own + chosen, "contrast": chosen, "drawn": indices.numpy()}
        elif recipe.negatives in {"mix", "rand"}:
            batches[-1] |= {"draws": draw.random((2, len(own)))}
        read.append(Batch((ragged(own),), PAIRS))

    def objective(p, batch, count):
        vectors = reference.encode(kind, p, batch["pairs"], **options)
        if recipe.objective == "squared_l2":
            return reference.squared_l2_loss(vectors)
        if phrases is not None:
            contrast = reference.encode(kind, p, batch["contrast"], **options)
            margin = recipe.margin if recipe.objective == "contrastive" else None
            return reference.contrastive_loss(vectors, contrast, batch["drawn"], margin, recipe.similarity)
        how = recipe.negatives, recipe.negative_pool, batch.get("draws")
        return reference.margin_loss(vectors, recipe.margin, recipe.similarity, *how)

    stacks = stacks_of(encoder)
    start = values_of(stacks)
    vectors = reference.encode(kind, {name: value[None] for name, value in start.items()}, texts[0], **options)[0]
    found = encoder(ragged(texts[0])).detach().numpy()
    np.testing.assert_allclose(found, vectors, rtol=0, atol=tolerance)
    with torch.inference_mode():
        np.testing.assert_allclose(encoder(ragged(texts[0])).numpy(), vectors, rtol=0, atol=tolerance)
    frozen = () if recipe.train_words else ("words",)
    names = [names for _, names in stacks]
    expected = reference.train(start, objective, batches, forms_of(recipe), names, frozen)
    compare(step_for(encoder, recipe, everything), read, stacks, expected, tolerance)


def variants(kind, options, forms):
    """The recipe of an encoder in each form."""
    for changes in forms:
        yield replace(Recipe(), encoder=config_from_dict({"name": kind, **options}), batch_size=PAIRS, **changes)


P15 = {"similarity": "dot", "margin": 1.0, "optimizer": "adagrad", "adagrad_form": "matlab", "learning_rate": 0.05}
P15_FORMS = (
    {**P15, "word_l2": 1e-2, "l2_form": "released", "update": "dense", "encoder_learning_rate": 0.02},
    {**P15, "objective": "squared_l2", "encoder_l2": 1e-2},
    {**P15, "adagrad_form": "torch", "negatives": "min_violation", "word_l2": 1e-2},
)
P16 = {"learning_rate": 0.005, "word_l2": 1e-2, "encoder_l2": 1e-2, "l2_form": "released"}
P16_FORMS = (
    {**P16, "update": "dense"},
    {**P16, "adam_form": "released", "clip": 0.05, "clip_form": "gate", "update": "dense", "negatives": "mix"},
    {**P16, "optimizer": "adagrad", "clip": 0.05, "negative_pool": "same_side"},
    {**P16, "optimizer": "adagrad", "l2_form": "paper", "train_words": False, "encoder_l2_target": "initial"},
)
P17_FORMS = ({**P16, "margin": 0.6, "update": "dense"}, {**P16, "adam_form": "released", "negatives": "rand"})
Z17 = {"objective": "contrastive", "margin": 1.0, "contrast_phrases": 2, "optimizer": "sgd", "learning_rate": 0.3}
Z17_FORMS = (
    {**Z17, "clip": 0.1, "clip_form": "global"},
    {**Z17, "clip": 0.1, "clip_form": "global", "similarity": "dot"},
    {**Z17, "objective": "negative_sampling", "similarity": "dot"},
    {**Z17, "train_words": False},
)
OF_P15 = [("word", {}), ("sum", {}), ("recursive", {})]
OF_P16 = [
    *[("avg", {}), ("scaled_avg", {}), ("proj", {}), ("dan", {}), ("dan", {"layers": 2, "activation": "relu"})],
    *[("proj", {"width": 4}), ("dan", {"layers": 3, "width": 2})],
    *[("rnn", {}), ("rnn", {"activation": "relu", "width": 4}), ("irnn", {}), ("cnn", {"filters": 5})],
    *[("lstm", {}), ("lstm", {"output_gate": False}), ("lstm", {"peepholes": False, "width": 4})],
    ("lstm", {"output_gate": False, "peepholes": False}),
]
OF_P17 = [
    *[("lstm_avg", {}), ("bilstm", {}), ("bilstm", {"combine": "tanh"}), ("bilstm_avg", {}), ("bigran", {})],
    *[("bilstm_avg", {"combine": "tanh", "output_gate": False, "width": 2}), ("bilstm", {"peepholes": False})],
    *[("bigran", {"combine": "tanh", "peepholes": False}), ("gran", {"output_gate": False, "peepholes": False})],
    *[(name, {}) for name in ("gran", "gran2", "gran3", "gran4", "gran5", "gran_nogate")],
    *[("gran5", {"state": "last"}), ("gran_nogate", {"activation": "relu"})],
]
OF_Z17 = [("gru", {}), ("gru", {"bias": True, "width": 4})]
BY_PAPER = ((OF_P15, P15_FORMS), (OF_P16, P16_FORMS), (OF_P17, P17_FORMS), (OF_Z17, Z17_FORMS))
CASES = [
    recipe
    for encoders, forms in BY_PAPER
    for kind, options in encoders
    for recipe in variants(kind, options, forms[: len(forms) // 2] if options else forms)
    if recipe.train_words or kind not in {"avg", "sum", "word"}
]


def label(recipe):
    options = [str(value) for value in config_to_dict(recipe.encoder).values()]
    return "-".join([*options, recipe.optimizer, recipe.objective])


@pytest.mark.parametrize("recipe", CASES, ids=label)
def test_a_training_on_pairs_is_the_papers(recipe):
    check_pairs(recipe)


def test_every_encoder_is_compared():
    assert {recipe.encoder.name for recipe in CASES} == set(ENCODERS)
    assert {type(recipe.encoder) for recipe in RECIPES.values()} <= {type(recipe.encoder) for recipe in CASES}


COMPILED = [
    *variants("avg", {}, (*P15_FORMS[::2], *P16_FORMS[:3])),
    *variants("sum", {}, (P15_FORMS[0] | {"update": "sparse"}, P15_FORMS[2])),
    *variants("gran4", {}, (*P17_FORMS, P16_FORMS[2])),
]


@pytest.mark.parametrize("recipe", COMPILED, ids=label)
def test_the_compiled_step_is_the_papers_in_float32(recipe):
    check_pairs(replace(recipe, update="sparse"), torch.float32, 1e-4)


# Labeled examples

DEMO = {"optimizer": "adam", "learning_rate": 0.001, "l2_form": "released", "word_l2": 1e-2, "encoder_l2": 1e-2}
SUPERVISED_FORMS = (
    {**DEMO, "head_l2": 1e-2, "loss_form": "released", "target_form": "released", "adam_form": "released"},
    {**DEMO, "head_l2": 1e-2, "optimizer": "adagrad", "learning_rate": 0.05, "mode": "universal", "update": "dense"},
    {"optimizer": "adagrad", "learning_rate": 0.05, "head_l2": 1e-2, "mode": "features"},
)
LABELS = {
    "similarity": (np.array([1.0, 3.4, 5.0]), ("1", "2", "3", "4", "5")),
    "entailment": (np.array([0, 2, 1]), ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")),
    "sentiment": (np.array([0, 1, 1]), ("negative", "positive")),
    "turney": (np.zeros(3), ()),
}
NUM_TEXTS = {"similarity": 2, "entailment": 2, "sentiment": 1, "turney": 7}
LABELED = [
    (task, name, forms)
    for task in LABELS
    for name, all_forms in (("avg", SUPERVISED_FORMS), ("dan", SUPERVISED_FORMS[:2]), ("lstm", SUPERVISED_FORMS[1:]))
    for forms in all_forms
    if not (task == "turney" and forms.get("mode") == "features")  # its head has no parameters
]


@pytest.mark.parametrize(("task", "name", "forms"), LABELED)
def test_a_training_on_labeled_examples_is_the_papers(task, name, forms):
    config = config_from_dict({"name": name})
    recipe = replace(SupervisedRecipe(encoder=config, head_width=4, batch_size=3), **forms)
    labels, classes = LABELS[task]
    data_set = {"sentiment": "sst", "turney": "turney"}.get(task, "sick")
    kind = Kind(task, data_set, classes, 1 if task == "similarity" else 0)
    model = Supervised(encoder_of(config, torch.float64), kind, options_of(recipe)).double()
    randomize(model)
    texts = [read_texts(NUM_TEXTS[task] * len(labels), seed) for seed in range(BATCHES)]
    targets = exact_targets(labels, len(classes)) if task == "similarity" else torch.from_numpy(labels.astype(int))

    released = recipe.loss_form == "released", recipe.target_form == "released"

    def objective(p, batch, count):
        vectors = reference.encode(name, p, batch["read"])
        if task == "turney":
            return reference.choice_loss(vectors, recipe.margin)
        if task == "sentiment":
            return reference.cross_entropy(reference.text_logits(p, vectors), labels, released[1])
        logits = reference.pair_logits(p, vectors)
        if task == "entailment":
            return reference.cross_entropy(logits, labels, released[1])
        return reference.divergence(logits, labels, *released)

    stacks = stacks_of(model.encoder, model.head)
    names = [names for _, names in stacks]
    frozen = [name for group in names for name in group if not name.startswith("head.")] * (recipe.mode == "features")
    batches = [{"read": texts[count % BATCHES]} for count in range(1, STEPS + 1)]
    read = [ExampleBatch((ragged(batch["read"]),), len(labels), targets=targets) for batch in batches]
    expected = reference.train(values_of(stacks), objective, batches, forms_of(recipe), names, frozen)
    compare(SupervisedStep(model, recipe), read, stacks, expected, 1e-12)


def exact_targets(scores, classes):
    """Sparse targets in float64: the package rounds its own to float32."""
    targets = np.maximum(0, 1 - np.abs(scores[:, None] - np.arange(1, classes + 1)))
    return torch.from_numpy(targets)
