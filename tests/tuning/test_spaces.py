"""The papers' grids, counted by hand from their sections and footnotes."""

import json
import random
from dataclasses import replace

import pytest

from paraembed.papers import RECIPES, SUPERVISED_RECIPES
from paraembed.recipe import SupervisedRecipe
from paraembed.tuning.choosing import read_space
from paraembed.tuning.points import Points
from tune_spaces import SPACES

WORDS = 7 * 4  # λ_w, batch
COMPOSED, FROM_PARAGRAM = 7 * 4 * 5, 8 * 4 * 5  # λ_w, λ_W, batch
TRANSFER = 3 * 5 * 3 * 2 * 3 * 2 * 2  # batch, λ_w or fixed, δ, optimizer, rate, clip, MIX or MAX
SUPERVISED = 3 * 3 * 4 * 7 * 2  # batch, width, λ_s = λ_c, λ_w or fixed, two schemes
REGULARIZED = 3 * 2 * (1 + 4 + 3 + 3 + 3 + 3 * 6)  # δ, λ_w; none, L2, dropout, word dropout, scrambling, both
RECURRENT = 2 * (1 + 3 + 3 + 3 + 3 * 6)
COUNTS = {
    "smoke": 4,
    "tacl2015/word": WORDS,
    "tacl2015/word-constraints": WORDS,
    **{f"tacl2015/paragram300-{name}": 9 * 5 for name in ("ws353", "sl999")},  # λ_w, batch
    **{f"tacl2015/{name}": COMPOSED for name in ("phrases", "bigrams-jn", "bigrams-nn", "bigrams-vn")},
    **{f"tacl2015/{name}-paragram": FROM_PARAGRAM for name in ("phrases", "bigrams-jn", "bigrams-nn", "bigrams-vn")},
    "iclr2016/avg": TRANSFER,
    "iclr2016/proj": TRANSFER * 4,
    "iclr2016/irnn": TRANSFER * 4,
    "iclr2016/rnn": TRANSFER * 4 * 2,
    "iclr2016/lstm": TRANSFER * 4 * 2,
    "iclr2016/dan": TRANSFER * 4 * 2 * 2,
    "iclr2016/avg-xxl": 3 * 2,
    "iclr2016/scaled-avg": 3 * 3 * 2 * 3 * 2 * 2,  # without λ_w
    "iclr2016/proj-1200": 5 * 5 * 2 * 3 * 2,
    "iclr2016/proj-2400": 5 * 5 * 2 * 3 * 2,
    "iclr2016/supervised-avg": 3 * 3 * 4 * 6 * 2,  # its words are always learned
    "iclr2016/supervised-proj": SUPERVISED,
    "iclr2016/supervised-rnn": SUPERVISED * 2,
    "iclr2016/supervised-dan": SUPERVISED * 4,
    "iclr2016/supervised-lstm": SUPERVISED,
    "iclr2016/supervised-lstm-no-gate": SUPERVISED,
    "iclr2016/universal-avg": 3 * 3 * 4 * 6 * 2,
    "iclr2016/universal-lstm": 3 * 3 * 4 * 5 * 6 * 2,
    **{f"iclr2016/{name}": 4 * 2 for name in ("features", "features-proj")},
    **{f"acl2017/{name}": 3 * 6 for name in ("avg", "lstm", "lstm_avg")},
    **{f"acl2017/{name}-boundary": 3 * 6 * 4 for name in ("lstm", "lstm_avg")},
    "acl2017/avg-regularised": 3 * 2 * 7,
    **{f"acl2017/{name}-regularised": REGULARIZED for name in ("lstm", "lstm_avg")},
    **{f"acl2017/{name}": REGULARIZED for name in ("gran", "gran2", "gran3", "gran4", "gran5")},
    **{f"acl2017/{name}": REGULARIZED * 2 for name in ("bilstm_avg-regularised", "bigran", "gran_nogate")},
    "acl2017/supervised-avg": 2 * 7,
    **{
        f"acl2017/supervised-{name}": RECURRENT
        for name in ("lstm", "lstm_avg", "gran", "gran2", "gran3", "gran4", "gran5")
    },
    "acl2017/universal-avg": 11 * 3,
    **{f"acl2017/universal-{name}": 11 * 9 * 18 for name in ("lstm_avg", "gran")},
    "pgru2017/gru": 3 * 3,
    "student/avg": 3 * 3 * 3,
}


def test_every_grid_has_the_papers_number_of_points():
    assert {name: space.size for name, space in SPACES.items()} == COUNTS


@pytest.mark.parametrize(
    "name",  # a grid of 17,280 points takes 8 s
    [pytest.param(name, marks=pytest.mark.slow if space.size > 200 else ()) for name, space in SPACES.items()],
)
def test_points_are_recipes_all_different_and_the_best_is_among_them(name):
    space = SPACES[name]
    points = Points(name, space)
    points.check()
    grid = [points.at(space.choices(number)) for number in range(space.size)]
    assert len({(str(point.recipe), point.share) for point in grid}) == space.size
    some = random.Random(0).sample(grid, min(space.size, 1000))
    assert len({str(points.shown(point.recipe.to_dict(), point.share)) for point in some}) == len(some)
    for best in space.best:
        wanted = replace({**RECIPES, **SUPERVISED_RECIPES}[best], epochs=space.tuning_epochs)
        assert any(point.recipe == wanted and point.share == 1 for point in grid), best


@pytest.mark.parametrize("name", ["smoke", "iclr2016/avg"])
def test_few_points_have_all_combinations_of_some_fields(name):
    points = Points(name, SPACES[name])
    fields = ["bos_eos_tokens", "train_words", "optimizer", "margin"]

    def combinations(some):
        return {tuple(getattr(point.recipe, field) for field in fields) for point in some}

    few = points.differing_in({*fields})
    grid = [points.at(points.space.choices(number)) for number in range(points.space.size)]
    assert combinations(few) == combinations(grid)
    assert len(few) < len(grid) / 2 or name == "smoke"


def test_every_recipe_of_the_papers_has_a_space():
    covered = {name for space in SPACES.values() for name in (space.base, *space.best)}
    # Without a grid of their own: variants by hand.
    assert set(RECIPES) - covered == {f"pgru2017/gru-{name}" for name in ("dot", "frozen-words", "negative-sampling")}
    # These were not searched: Wieting 2015 §5.5, Zhou 2017 §3.2.
    assert set(SUPERVISED_RECIPES) - covered == {
        *("tacl2015/cnn", "pgru2017/gru-specific", "pgru2017/tree-rnn-specific")
    }


def test_a_search_on_gold_labels_begins_as_its_table_does():
    """Table 5 and 8 from words or from a trained encoder, table 6 with the encoder held."""
    for name, space in SPACES.items():
        if space.job == "finetune":
            recipe = Points(name, space).at(dict.fromkeys(space.axes, 0)).recipe
            assert isinstance(recipe, SupervisedRecipe)
            modes = {"supervised": "scratch", "universal": "universal", "features": "features"}
            assert recipe.mode == modes[name.split("/")[1].split("-")[0]]
            assert space.selection.metric == ((1, "dev/pearson"),)


SMOKE, GOLD = SPACES["smoke"], SPACES["iclr2016/features"]


@pytest.mark.parametrize(
    ("space", "fixed", "message"),
    [
        (replace(SMOKE, axes={"margn": (1.0,)}), {}, "the space x: a recipe has no field 'margn'; allowed: encoder, "),
        (replace(SMOKE, axes={"margin": (0.4, 0.0)}), {}, "the space x: margin is 0.0; allowed: "),
        (replace(SMOKE, fixed={"encoder.layers": 2}), {}, "the space x: encoder 'avg' has no option 'layers'"),
        (SMOKE, {"margin": 0.5}, "margin is searched by the space x and .* the searched fields are margin, word_l2"),
        (SMOKE, {"share": "x"}, "`fixed` share: .* `sample`"),
        (SMOKE, {"epochs": 3}, "`fixed` epochs: .* `epochs`"),
        (SMOKE, {"encoder": "lstm", "encoder.output_gate": True}, "the space x: encoder is 'lstm'; expected an object"),
        (replace(GOLD, axes={"share": (0.1, 1.0)}), {}, "the space x: a recipe has no field 'share'"),
        (GOLD, {"negatives": "max"}, "the space x: a recipe has no field 'negatives'"),
        (GOLD, {"patience": 2}, "the space x: patience is 2, but trials are always scored on the dev set"),
    ],
)
def test_bad_spaces_and_settings_are_refused_before_any_trial(space, fixed, message):
    with pytest.raises(ValueError, match=message):
        Points("x", space, fixed).check()


def test_a_space_of_the_user_is_read_from_toml_and_json(tmp_path):
    (tmp_path / "my.toml").write_text(
        'base = "small"\nmetric = "pairs/dev/pearson"\nepochs = 2\nsample = 50\nfixed = {dropout = 0.2}\n'
        "[axes]\nmargin = [0.3, 0.4]\nboth = [{batch_size = 7, seed = 3}]\n"
    )
    own = read_space(tmp_path / "my.toml")
    assert (own.tuning_epochs, own.tuning_pairs, own.selection.files) == (2, 50, ("dev.tsv",))
    recipe = Points("my", own).at(own.choices(1)).recipe
    changed = (recipe.margin, recipe.dropout, recipe.batch_size, recipe.seed, recipe.learning_rate)
    assert changed == (0.4, 0.2, 7, 3, 3e-4)
    values = {"base": "iclr2016/supervised-avg", "epochs": 3, "axes": {"seed": [5, 6]}}
    (tmp_path / "my.json").write_text(json.dumps(values))
    own = read_space(tmp_path / "my.json")
    assert (own.job, Points("my", own).at(own.choices(1)).recipe.seed) == ("finetune", 6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base = ", "is not TOML: "),
        ('base = "small"\nmetric = "sts/mean"\nepochs = 0\naxes = {margin = [1]}', "epochs is 0; allowed: at least 1"),
        ('base = "small"\nmetric = "sts/mean"\nepoch = 1\naxes = {margin = [1]}', "epochs is missing"),
        ('base = "small"\nmetric = "sts/mean"\nepochs = 1\naxes = {margin = 1}', "axes.margin is 1"),
        ('base = "small"\nmetric = "sts/mean"\nepochs = 1\naxes = {margin = []}', "axes.margin is empty"),
        ('base = "small"\nmetric = "sts/mean"\nepochs = 1\naxes = {}', "axes is empty"),
        ('base = "small"\nepochs = 1\naxes = {margin = [1]}', "a space with base small needs a metric"),
    ],
)
def test_a_mistake_in_a_space_is_named(tmp_path, text, message):
    (tmp_path / "my.toml").write_text(text)
    with pytest.raises(ValueError, match=r"my\.toml") as caught:
        read_space(tmp_path / "my.toml")
    assert message in str(caught.value)
