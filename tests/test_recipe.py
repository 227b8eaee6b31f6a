import json
from dataclasses import replace

import pytest

from paraembed.commands.train import defaults
from paraembed.encoders.configs import IrnnConfig, ProjConfig
from paraembed.papers import RECIPES, SUPERVISED_RECIPES, find_recipe
from paraembed.recipe import Recipe, SupervisedRecipe, read_recipe, without_effect


@pytest.mark.parametrize("recipe", [*RECIPES.values(), Recipe(), Recipe(encoder=ProjConfig(width=7), clip=2.0)])
def test_recipe_survives_json(recipe, tmp_path):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(recipe.to_dict()))
    assert read_recipe(path, Recipe) == recipe
    assert find_recipe(str(path)) == recipe


def test_published_settings():
    """FACTS §4, "best found (released demo)"."""
    avg, proj = RECIPES["iclr2016/avg"], RECIPES["iclr2016/proj"]
    assert (avg.batch_size, avg.word_l2, avg.clip, avg.optimizer, avg.learning_rate) == (100, 1e-6, 1, "adam", 0.005)
    assert (proj.word_l2, proj.encoder_l2, proj.clip, proj.learning_rate) == (1e-8, 1e-5, None, 0.0005)
    assert {(one.margin, one.negative_pool, one.epochs, one.l2_form) for one in (avg, proj)} == {
        (0.4, "both_sides", 10, "released")
    }


def test_released_settings():
    """FACTS §7."""
    supervised = {name: SUPERVISED_RECIPES[f"iclr2016/supervised-{name}"] for name in ("avg", "avg-entailment", "lstm")}
    fields = ("optimizer", "learning_rate", "word_l2", "encoder_l2", "head_l2", "head_width", "batch_size")
    assert {name: tuple(getattr(recipe, field) for field in fields) for name, recipe in supervised.items()} == {
        "avg": ("adam", 0.001, 1e-5, 1e-6, 1e-6, 50, 25),
        "avg-entailment": ("adagrad", 0.05, 1e-5, 1e-6, 1e-6, 150, 25),
        "lstm": ("adam", 0.001, 1e-6, 1e-6, 1e-6, 300, 25),
    }
    for recipe in supervised.values():
        assert recipe.l2_form == recipe.loss_form == recipe.target_form == "released"
    word, words, phrases = (RECIPES[f"tacl2015/{name}"] for name in ("paragram300", "word", "recursive"))
    assert (word.similarity, word.margin, word.negatives, word.learning_rate) == ("cosine", 0.6, "mix", 0.05)
    assert (word.word_l2, word.batch_size, word.epochs, word.equal_negatives) == (1e-9, 50, 10, "allowed")
    assert (words.word_l2, phrases.word_l2, phrases.encoder_l2, phrases.equal_negatives) == (1e-4, 1e-2, 0, "excluded")
    forms = {
        name: recipe.adagrad_form
        for name, recipe in [*RECIPES.items(), *SUPERVISED_RECIPES.items()]
        if recipe.optimizer == "adagrad"
    }
    matlab = {f"tacl2015/{name}" for name in ("word", "word-constraints", "recursive")}
    assert forms == {name: "matlab" if name in matlab else "lasagne" for name in forms}
    assert RECIPES["pgru2017/gru"].train_words != RECIPES["pgru2017/gru-frozen-words"].train_words


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"margn": 1}, "no field 'margn'; allowed: encoder, tokenizer, "),
        ({"encoder": {"name": "bert"}}, "unknown encoder 'bert'; allowed: avg, sum, word, scaled_avg, proj"),
        ({"optimizer": "lion"}, "optimizer is 'lion'; allowed: adam, adagrad, sgd"),
        ({"tokenizer": "moses"}, "unknown tokenizer 'moses'; allowed: ptb-v1, space"),
        ({"margin": -1.0}, "margin is -1.0; allowed: 1e-36 to 1e"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; allowed: 1e-36 to"),
        ({"word_l2": -1e-6}, "word_l2 is -1e-06; allowed: 0 to"),
        ({"batch_size": 1}, r"batch_size is 1; allowed: 2 to 1,000,000"),
        ({"seed": -1}, "seed is -1; allowed: at least 0"),
        ({"seed": 1.5}, "seed is 1.5; expected int"),
        ({"epochs": True}, "epochs is True; expected int"),
        ({"clip": "no"}, "clip is 'no'; expected float or none"),
        ({"max_words": 0}, "max_words is 0; allowed: 1 to 2,147,483,647"),
        ({"encoder": None}, "encoder is None; expected an object"),
        ({"clip": 0.0}, "clip is 0.0; allowed: at least 1e-36"),
        ({"max_tokens": 10**22}, "max_tokens is 10000000000000000000000; allowed: 1 to 2,147,483,647"),
        ({"encoder": {"name": "word"}, "bos_eos_tokens": "start"}, "would have the same vector; allowed: none, end"),
        ({"objective": "info_nce"}, "has objective 'info_nce', which paraembed 0.2.0 removed"),
        ({"mega_anneal": 40}, "has mega_anneal 40, which paraembed 0.2.0 removed"),
        ({"teacher_objective": "vector"}, "has teacher_objective 'vector', which paraembed"),
        ({"negative_dropout": "fresh", "negative_pool_workers": "all"}, "'fresh' and negative_pool_workers is 'all'"),
        ({"mega_batch_size": 4, "negative_pool_workers": "all"}, "is 4 .* set negative_pool_workers to own"),
    ],
)
def test_errors_say_what_came_and_what_is_allowed(values, message):
    with pytest.raises(ValueError, match=message):
        Recipe.from_dict(values)


FORMS = {"adam_form": "released", "adagrad_form": "matlab", "clip_form": "gate", "negative_dropout": "fresh"}
FORMS["init"] = "released"


def test_a_recipe_file_of_0_1_means_the_forms_of_0_1():
    """FACTS §7: AdaGrad's constant of 0.1 was 1e-10; the other forms have kept their defaults."""
    old = {"optimiser": "adagrad", "clip": 1.0, "dropout": 0.1}
    assert Recipe.from_dict(old).adagrad_form == "torch"
    assert Recipe.from_dict({**old, "adagrad_form": "lasagne"}) == Recipe(optimizer="adagrad", clip=1.0, dropout=0.1)
    assert Recipe.from_dict({}) == Recipe()
    assert not Recipe().to_dict().keys() & {"adam_form", "init", "adagrad_form", "negative_dropout"}


def test_fields_of_earlier_versions_are_read_if_they_had_no_effect():
    """A file of 0.1 has ``mega_anneal``, which is still written, so that fingerprints stay the same."""
    without = {"mega_anneal": 0, "pair_weights": "none", "batches": "random", "info_nce_weight": 0, "temperature": 0.05}
    assert Recipe.from_dict({**without, "teacher_objective": "none", "teacher_weight": 1.0}) == Recipe()
    assert Recipe().to_dict()["mega_anneal"] == 0
    assert "mega_anneal" not in SupervisedRecipe().to_dict()


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_forms_survive_json(optimizer):
    for form in ("lasagne", "matlab", "torch"):
        recipe = replace(Recipe(optimizer=optimizer), **{**FORMS, "adagrad_form": form})
        assert Recipe.from_dict(recipe.to_dict()) == recipe
        supervised = SupervisedRecipe(optimizer=optimizer, adagrad_form=form, target_form="released")
        assert SupervisedRecipe.from_dict(supervised.to_dict()) == supervised


@pytest.mark.parametrize(
    ("changes", "idle"),
    [
        ({"objective": "squared_l2", "similarity": "dot"}, {"similarity", "negatives", "negative_pool"}),
        ({"objective": "contrastive"}, {"paired_negatives", "negative_pool_workers"}),
        ({"objective": "negative_sampling"}, {"paired_negatives", "margin"}),
        ({"objective": "squared_l2", "mega_batch_size": 2}, {"mega_batch_size", "margin"}),
        ({"encoder_l2": 1.0}, {"encoder_l2", "encoder_l2_target"}),
        ({"train_words": False, "encoder": ProjConfig()}, {"word_l2", "update"}),
        ({"scramble_swaps": 2.0, "clip_form": "global"}, {"scramble_swaps", "clip_form", "contrast_phrases"}),
    ],
)
def test_fields_without_effect_are_known(changes, idle):
    assert idle <= set(without_effect(replace(Recipe(), **changes)))


def test_fields_with_effect_are_not_called_idle():
    changes = {"encoder_l2": 0.1, "word_l2": 0.1, "clip": 1.0, "new_words": "random", "scramble": 0.5}
    recipe = replace(RECIPES["acl2017/gran"], mega_batch_size=2, **changes)
    idle = {"adagrad_form", "contrast_phrases"}
    assert {*without_effect(recipe)} == {*idle, "scramble_time", "negative_dropout"}
    assert {*without_effect(replace(recipe, mega_batch_size=1))} == idle
    assert set(without_effect(RECIPES["pgru2017/gru"])) & {"similarity", "margin", "clip_form"} == set()


def test_irnn_and_pretrained_encoders_are_pulled_to_their_initial_values_unless_told_otherwise():
    irnn, universal = Recipe(encoder=IrnnConfig()), SupervisedRecipe(mode="universal")
    for recipe, is_pulled in ((irnn, True), (universal, True), (Recipe(), False), (SupervisedRecipe(), False)):
        targets = [replace(recipe, encoder_l2_target=target).pulls_to_initial for target in ("auto", "zero", "initial")]
        assert targets == [is_pulled, False, True]


def test_unknown_recipes_are_listed(tmp_path):
    with pytest.raises(
        ValueError, match=r"recipe 'iclr2016/gran'; allowed: tacl2015/word, .*pgru2017/gru-dot, .*small, or"
    ):
        find_recipe("iclr2016/gran")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        find_recipe(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("[1]")
    with pytest.raises(ValueError, match="expected a JSON object"):
        find_recipe(str(tmp_path / "bad.json"))


def test_a_flag_sets_the_forms_of_the_released_code():
    flags = defaults(["--recipe", "acl2017/avg", "--encoder", "gran5", "--as-released"])
    recipe = flags.settings
    forms = recipe.adam_form, recipe.init, recipe.update, recipe.negative_dropout
    assert forms == ("released", "released", "dense", "fresh")
    assert (recipe.encoder.name, recipe.encoder.state, recipe.epochs) == ("gran5", "last", 7)
