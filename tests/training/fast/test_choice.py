"""Which step runs, by recipe, device and number of workers."""

from dataclasses import replace

import pytest
import torch

from paraembed.encoders.configs import ProjConfig, ScaledAvgConfig, SumConfig
from paraembed.recipe import Recipe, SupervisedRecipe
from paraembed.training import fast
from paraembed.training.fast import step_kind


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, ("additive", "shared", "graphs")),
        ({"encoder": SumConfig(), "similarity": "dot"}, ("additive", "shared", "graphs")),
        ({"clip": 1.0}, ("additive", "additive", "graphs")),
        ({"negative_pool_workers": "all"}, ("additive", "additive", "graphs")),
        ({"mega_batch_size": 2}, ("additive", "compiled", "graphs")),
        ({"negative_dropout": "fresh", "dropout": 0.1}, ("compiled", "compiled", "plain")),
        *(
            (changes, ("compiled", "compiled", "graphs"))
            for changes in (
                {"encoder": ProjConfig()},
                {"encoder": ScaledAvgConfig()},
                {"dropout": 0.1},
                {"word_dropout": 0.1},
                {"scramble": 0.1},
                {"update": "dense"},
                {"objective": "squared_l2"},
            )
        ),
    ],
)
def test_the_fastest_step_that_can_runs(changes, kinds, monkeypatch):
    monkeypatch.setattr(fast, "COMPILED", True)
    recipe = replace(Recipe(), **changes)

    def kind(device, world, **more):
        return step_kind(recipe.encoder, recipe, device, world, **more)

    assert (kind("cpu", 1), kind("cpu", 2), kind("cuda", 1)) == kinds
    assert kind("cuda", 2) == kinds[2]
    assert kind("cpu", 1, dtype=torch.float64) == kind("cuda", 1, dtype=torch.float64) == "plain"
    monkeypatch.setattr(fast, "COMPILED", False)
    assert kind("cpu", 1) == "plain"


def test_a_head_trains_with_plain_steps(monkeypatch):
    monkeypatch.setattr(fast, "COMPILED", True)
    recipe = SupervisedRecipe()
    kinds = [step_kind(recipe.encoder, recipe, device, world) for device in ("cpu", "cuda") for world in (1, 2)]
    assert kinds == ["compiled", "compiled", "plain", "plain"]
