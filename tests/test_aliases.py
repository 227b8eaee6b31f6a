"""Names of 0.1 stay readable: in files, in recipes, on the command line."""

import dataclasses
from pathlib import Path

import pytest

import paraembed
from paraembed.aliases import ON_DISK, current_names, did_you_mean, on_disk
from paraembed.commands.finetune import Finetune
from paraembed.commands.flags import current_flags
from paraembed.commands.paths import named_encoder
from paraembed.commands.teach import Teach
from paraembed.encoders import config_from_dict
from paraembed.io.fingerprint import differences
from paraembed.papers import find_recipe, find_supervised_recipe
from paraembed.recipe import Recipe, SupervisedRecipe
from tune_spaces import find_space


def test_a_recipe_is_written_with_the_names_of_0_1_and_read_with_either():
    recipe = Recipe(word_l2=1e-6, tokenizer="space", negative_pool="same_side", mega_batch_size=4)
    written = recipe.to_dict()
    assert (written["word_penalty"], written["tokeniser"], written["pool"]) == (1e-6, "space", "same_side")
    assert not {*ON_DISK} & {*written}
    assert Recipe.from_dict(written) == Recipe.from_dict(current_names(written)) == recipe


def test_every_name_is_of_a_field_or_says_where_it_comes_from():
    fields = {field.name for kind in (Recipe, SupervisedRecipe) for field in dataclasses.fields(kind)}
    # Of shard, an axis of a space, finetune, evaluate.
    assert {*ON_DISK} - fields == {"nested_subsets", "regularizer", "pretrained", "neighbors_of"}
    assert on_disk(current_names(dict.fromkeys(ON_DISK.values(), 1))) == dict.fromkeys(ON_DISK.values(), 1)


def test_a_field_under_both_names_is_an_error():
    with pytest.raises(ValueError, match="tokenizer and tokeniser are two names"):
        current_names({"tokenizer": "space", "tokeniser": "space"})


def test_old_flags_are_read_with_values_of_any_form():
    given = ["--tokeniser", "space", "--word-penalty=1e-6", "--dev_every", "9", "--every", "0.5", "--prior", "--pool"]
    assert current_flags(given, Finetune) == [
        *("--tokenizer", "space", "--word-l2=1e-6", "--eval-every", "9"),
        *("--eval-every", "0.5", "--pretrained", "--negative-pool"),
    ]
    values = ["--pairs", "prior", "tokeniser=space"]
    assert current_flags(values, Finetune) == values


def test_a_flag_of_a_job_is_no_old_name_of_another():
    assert current_flags(["--prior", "alone"], Teach) == ["--prior", "alone"]
    assert differences({"settings": {"prior": "alone"}}, {}) == "settings.prior (was alone, is not set)"
    assert differences({"prior": "a"}, {"prior": "b"}) == "pretrained (was a, is b)"


def test_the_page_of_formats_lists_every_name():
    page = (Path(__file__).parents[1] / "docs" / "formats.md").read_text().splitlines()
    assert {f"| `{new}` | `{old}` |" for new, old in ON_DISK.items()} <= {*page}


@pytest.mark.parametrize(
    ("ask", "near"),
    [
        (lambda: paraembed.load("smal"), "small?"),
        (lambda: paraembed.load("sentence-transformers/all-MiniLM-L6-v2"), "st:sentence-transformers/all-MiniLM-L6-v2"),
        (lambda: named_encoder("Small", "--encoder"), "small?"),
        (lambda: named_encoder("BAAI/bge-small-en", "--teacher"), "st:BAAI/bge-small-en"),
        (lambda: find_recipe("iclr2016/agv"), "iclr2016/avg or "),
        (lambda: find_supervised_recipe("iclr2016/supervised-agv"), "iclr2016/supervised-avg"),
        (lambda: find_space("acl2017/lstm-av"), "acl2017/lstm_avg"),
        (lambda: config_from_dict({"name": "lstm_agv"}), "lstm_avg"),
    ],
)
def test_an_unknown_name_is_answered_with_those_like_it(ask, near, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        ask()
    assert near in str(caught.value).rpartition(";")[2]


def test_no_name_is_suggested_that_is_nothing_like_it(tmp_path):
    assert did_you_mean("xyzzy", ["small", "avg"]) == ""
    (tmp_path / "models").mkdir()
    with pytest.raises(FileNotFoundError) as caught:
        named_encoder(str(tmp_path / "models" / "a"), "--encoder")
    assert "st:" not in str(caught.value)
