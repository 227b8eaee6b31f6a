"""The supervised step: what the modes promise. ``tests/parity`` compares its arithmetic with the papers' formulas."""

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders import Encoder, config_from_dict
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import digest_of
from paraembed.io.tensors import load_tensors, save_tensors
from paraembed.recipe import SupervisedRecipe, check_recipe, idle_fields
from paraembed.supervised.model import Kind, Supervised, load, options_of, save
from paraembed.supervised.scores import score
from paraembed.supervised.step import SupervisedStep, example_ids
from paraembed.supervised.tasks import Examples, Task
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.best import Evaluation
from paraembed.training.loop import run_steps
from paraembed.training.state import Checkpoints
from tests.jobs import digests
from tests.training.conftest import Killed, same_bits
from tests.training.test_exchange import in_two_processes

WORDS = [f"w{number}" for number in range(30)]
NAMES = {
    "similarity": ("1", "2", "3", "4", "5"),
    "entailment": ("CONTRADICTION", "NEUTRAL", "ENTAILMENT"),
    "sentiment": ("negative", "positive"),
}
PLAIN = SupervisedRecipe(
    epochs=2, batch_size=10, optimizer="sgd", learning_rate=0.1, head_width=6, tokenizer="space", seed=3
)


def examples_of(task, num=61, seed=0):
    """Texts of 1 to 6 words; the label follows from the words, so that it can be learned."""
    generator = np.random.default_rng(seed)
    sides = 1 if task == "sentiment" else 2
    drawn = [[generator.integers(0, 30, generator.integers(1, 7)) for _ in range(num)] for _ in range(sides)]
    texts = tuple(pa.array([" ".join(WORDS[word] for word in text) for text in side]) for side in drawn)
    means = np.array([[text.mean() for text in side] for side in drawn])
    if task == "similarity":
        labels = 5 - 4 * np.abs(means[0] - means[1]) / 30
    elif task == "entailment":
        labels = np.digitize(means[0] - means[1], (-5, 5)).astype(float)
    else:
        labels = (means[0] > 14.5).astype(float)
    return Examples(texts, labels)


def encoder_of(recipe):
    matrix = np.random.default_rng(1).standard_normal((31, 8), dtype=np.float32)
    return Encoder(recipe.encoder, Words(pa.array([UNKNOWN, *WORDS]), matrix), "space", recipe.seed)


def model_of(task, recipe):
    kind = Kind(task, "sst" if task == "sentiment" else "sick", NAMES[task], 1 if task == "similarity" else 0)
    return Supervised(encoder_of(recipe), kind, options_of(recipe), recipe.seed)


def trained(model, data, recipe, **more):
    run_steps(model, SupervisedStep(model, recipe), data, len(data), **more)
    return model


def test_an_encoder_of_word_pieces_can_be_fine_tuned():
    pieces = [UNKNOWN, *"w0123456789", *(f"##{digit}" for digit in "0123456789")]
    matrix = np.random.default_rng(1).standard_normal((len(pieces), 8), dtype=np.float32)
    recipe = replace(PLAIN, mode="universal", tokenizer="wordpiece")
    encoder = Encoder(recipe.encoder, Words(pa.array(pieces), matrix.copy()), "wordpiece")
    model = Supervised(encoder, Kind("similarity", "sick", NAMES["similarity"], 1), options_of(recipe), recipe.seed)
    examples = examples_of("similarity")
    data = example_ids(model, examples)
    words = examples.texts[0][0].as_py().split()
    expected = [pieces.index("##" * (place > 0) + char) for word in words for place, char in enumerate(word)]
    assert data.texts.ids[: data.texts.offsets[1]].tolist() == expected
    trained(model, data, recipe)
    assert not np.array_equal(encoder.matrix.detach(), matrix)
    with pytest.raises(ValueError, match="unknown tokenizer 'wordpiece'"):
        replace(recipe, mode="scratch")


def test_a_run_that_is_broken_off_ends_with_the_same_bits(tmp_path):
    drawn = {"dropout": 0.2, "scramble": 0.5, "head_dropout": 0.3}
    recipe = replace(PLAIN, optimizer="adam", epochs=4, eval_every=25, patience=50, **drawn)
    examples, dev = examples_of("sentiment"), examples_of("sentiment", 30, 9)
    task = Task("sentiment", "sst", examples, dev, dev, NAMES["sentiment"])

    def run(folder, stop_after=None):
        model = model_of("sentiment", recipe)
        data, evaluations = example_ids(model, examples), count(1)

        def scored(_):
            if next(evaluations) == stop_after:
                raise Killed
            return score(model, task, "dev").values["accuracy"], {}

        evaluation = Evaluation(scored, every=recipe.evaluations_apart(len(data)), patience=recipe.patience)
        checkpoints = Checkpoints(folder, seconds=1e9, steps=3)
        step = SupervisedStep(model, recipe)
        return model, run_steps(model, step, data, len(data), checkpoints=checkpoints, evaluation=evaluation).scores

    whole, scores = run(tmp_path / "whole")
    assert len(scores) == 10  # after 25, 50, … examples, and at the end
    with pytest.raises(Killed):
        run(tmp_path / "broken", 6)
    again, scores_again = run(tmp_path / "broken")
    assert scores_again == scores
    assert same_bits(whole, again)


@given(num=st.integers(2, 60), batch=st.integers(2, 9), world=st.integers(1, 3), epoch=st.integers(0, 3))
def test_every_example_comes_once_an_epoch_with_its_own_label(num, batch, world, epoch):
    recipe = replace(PLAIN, batch_size=batch)
    model = model_of("entailment", recipe)
    data = example_ids(model, examples_of("entailment", num))

    def examples(some):
        texts = [some.texts.slice(2 * number, 2 * number + 2) for number in range(len(some.targets))]
        return [
            (two.ids.tolist(), two.offsets.tolist(), int(target))
            for two, target in zip(texts, some.targets, strict=True)
        ]

    steps = [SupervisedStep(model, recipe, rank, world) for rank in range(world)]
    seen = [example for step in steps for one in step.batches(data, epoch) for example in examples(one)]
    assert sorted(seen) == sorted(examples(data))


def test_a_text_without_tokens_is_left_out_of_training_and_answered_all_the_same():
    model = model_of("similarity", PLAIN)
    examples = Examples((pa.array(["w1 w2", "  ", "w3"]), pa.array(["w2", "w1", "w4"])), np.array([1.0, 3.0, 5.0]))
    data = example_ids(model, examples)
    assert (len(data), data.num_dropped, len(data.texts)) == (2, 1, 4)
    task = Task("similarity", "sick", examples, examples, examples, NAMES["similarity"])
    assert np.isfinite(score(model, task, "test").values["pearson"])


@pytest.mark.parametrize("task", [*NAMES])
def test_a_saved_model_answers_alike_and_a_damaged_one_is_refused(tmp_path, task):
    model, examples = model_of(task, PLAIN), examples_of(task)
    how = {"recipe": PLAIN.to_dict(), "provenance": {"a": 1}, "model_card": "card\n"}
    save(model, tmp_path / "m", **how)
    again = load(tmp_path / "m")
    assert torch.equal(model.read(examples)[0], again.read(examples)[0])
    assert again.predict(*examples.texts).shape == (61,)
    save(model, tmp_path / "trained", recipe={"mode": "scratch"}, provenance={}, model_card="")
    save(model, tmp_path / "n", **how, written=tmp_path / "trained")
    assert digests(tmp_path / "n", "**/*") == digests(tmp_path / "m", "**/*")
    assert not list((tmp_path / "trained").rglob("*.safetensors"))
    (tmp_path / "m" / "head.safetensors").write_bytes(b"0" * 100)
    with pytest.raises(ValueError, match=r"head\.safetensors differs from its digest"):
        load(tmp_path / "m")


def test_what_a_task_cannot_have_is_refused():
    for task, changes, message in (
        ("similarity", {"head_layer": "none"}, "head_layer is none, but the task similarity needs a sigmoid layer"),
        ("turney", {"scramble": 0.5}, "scramble is 0.5, but the answer of turney .*; allowed: 0"),
        ("semeval2013", {"mode": "features"}, "the head of semeval2013 has no parameters; allowed: scratch, universal"),
    ):
        with pytest.raises(ValueError, match=message):
            check_recipe(replace(PLAIN, **changes), task)
    with pytest.raises(ValueError, match=r"precision is 'bfloat16'; .*float32"):
        replace(PLAIN, precision="bfloat16")
    with pytest.raises(ValueError, match="`head_width` is 0; allowed: 1 to"):
        replace(PLAIN, head_width=0)
    with pytest.raises(ValueError, match="`mode` is 'other'; allowed: scratch, universal, features"):
        replace(PLAIN, mode="other")


def test_trees_are_read_and_one_that_does_not_fit_says_which_tokenizer_does():
    recipe = replace(PLAIN, encoder=config_from_dict({"name": "recursive"}))
    trees = (pa.array(["((w1 w2) w3)", None]),)
    examples = Examples((pa.array(["w1 w2 w3", "w4 w5 w6"]),), np.array([0.0, 1.0]), trees)
    data = example_ids(model_of("sentiment", recipe), examples)
    assert data.texts.merges is not None
    assert data.texts.merges.tolist() == [0, 1, 1, 0, 0, 2]
    model = model_of("sentiment", recipe)
    model.encoder.tokenizer = "ptb-v1"
    split = replace(examples, texts=(pa.array(["w1 w2/w3", "w4"]),), trees=(pa.array(["(w1 w2/w3)", None]),))
    with pytest.raises(ValueError, match=r"text 0: .* set `tokenizer` to space"):
        example_ids(model, split)


def test_the_head_does_not_begin_as_the_encoder_does():
    model = model_of("sentiment", replace(PLAIN, encoder=config_from_dict({"name": "proj"})))
    drawn = [next(part.parameters()).detach().flatten() for part in (model.encoder.composition, model.head)]
    size = min(map(len, drawn))
    assert abs(np.corrcoef(*(one[:size] for one in drawn))[0, 1]) < 0.5


def test_fields_that_decide_nothing_are_named():
    assert {"margin", "similarity", "clip_form"} <= set(idle_fields(PLAIN, "similarity"))
    assert "loss_form" in idle_fields(PLAIN, "entailment")
    assert "target_form" not in idle_fields(PLAIN, "entailment")
    assert {"head_width", "head_l2"} <= set(idle_fields(PLAIN, "turney"))
    assert "head_width" not in idle_fields(PLAIN, "similarity")
    assert {"encoder_l2", "l2_form"} <= set(idle_fields(PLAIN, "similarity"))
    assert "l2_form" not in idle_fields(replace(PLAIN, head_l2=1e-3), "similarity")
    assert "l2_form" in idle_fields(replace(PLAIN, head_l2=1e-3), "turney")
    proj = replace(PLAIN, encoder=config_from_dict({"name": "proj"}), encoder_l2=1e-3)
    assert "encoder_l2" not in idle_fields(proj, "similarity")
    assert "encoder_l2" in idle_fields(replace(proj, mode="features"), "similarity")
    scrambled = replace(PLAIN, scramble=0.5)
    assert [task for task in ("similarity", "sentiment") if "scramble_form" in idle_fields(scrambled, task)] == [
        "sentiment"
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folder of a model, and its config."""
    folder = tmp_path_factory.mktemp("saved") / "m"
    save(model_of("similarity", PLAIN), folder, recipe={}, provenance={}, model_card="")
    return folder, (folder / "config.json").read_text()


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *(("kind", value) for value in ([], None, "a", 3, {}, {"task": "similarity"})),
        *(("classes", value) for value in (None, 3, "12345", [1, 2], ["one"])),
        *(("low", value) for value in ("a", 10**30, 1.5, True)),
        *(("task", value) for value in ("other", None, [])),
        *(("head", value) for value in ([], None, {})),
        *(("head_width", value) for value in ("a", None, 1.5, -1, 10**12)),
        *(("similarity", value) for value in ("foo", 3)),
        *(("head_layer", value) for value in ("foo", 1)),
        *(("margin", value) for value in ("a", 0)),
    ],
)
def test_a_crafted_model_folder_is_refused_in_words(saved, part, value):
    folder, config = saved[0], json.loads(saved[1])
    holder = config if part in {"kind", "head"} else config["head" if part in config["head"] else "kind"]
    holder[part] = value
    decides = {name: config[name] for name in ("kind", "head", "files")}
    write_json(folder / "config.json", {**config, "fingerprint": digest_of(decides)})
    with pytest.raises(ValueError, match=r"config\.json: .*(expected|allowed)"):
        load(folder)


def test_predict_says_what_it_takes():
    model = model_of("similarity", PLAIN)
    with pytest.raises(ValueError, match=r"similarity needs 2 sequences.* got 1"):
        model.predict(["w1"])
    with pytest.raises(ValueError, match="one of them is a single text"):
        model.predict("w1", "w2")
    with pytest.raises(ValueError, match="the sequences have 2, 1 texts"):
        model.predict(["w1", "w2"], ["w3"])


CASES = (("similarity", "lstm", {"clip": 0.1, "clip_form": "global"}), ("sentiment", "cnn", {"update": "dense"}))


def train_shares(rank, folder):
    """A worker of two."""
    for number, (task, encoder, changes) in enumerate(CASES):
        recipe = replace(PLAIN, encoder=config_from_dict({"name": encoder}), word_l2=0.1, **changes)
        model = model_of(task, recipe)
        data = example_ids(model, examples_of(task))
        run_steps(model, SupervisedStep(model, recipe, rank, 2), data, len(data))
        save_tensors(model.state_dict(), folder / f"{number}-{rank}.safetensors")


def test_two_workers_do_what_one_does_with_twice_the_batch(tmp_path):
    in_two_processes(train_shares, tmp_path)
    for number, (task, encoder, changes) in enumerate(CASES):
        recipe = replace(PLAIN, encoder=config_from_dict({"name": encoder}), word_l2=0.1, **changes)
        one = replace(recipe, batch_size=2 * recipe.batch_size)
        model = trained(model_of(task, one), example_ids(model_of(task, one), examples_of(task)), one)
        shares = [load_tensors(tmp_path / f"{number}-{rank}.safetensors") for rank in (0, 1)]
        for name, tensor in model.state_dict().items():
            assert torch.equal(shares[0][name], shares[1][name])
            torch.testing.assert_close(shares[0][name], tensor, atol=2e-6, rtol=1e-5)
