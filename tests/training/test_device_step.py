"""The step without data-dependent shapes against the same step by autograd; on a GPU also as a CUDA graph."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from paraembed.encoders.sum import SumConfig
from paraembed.ragged import Ragged
from paraembed.recipe import Recipe
from paraembed.training.device_step import DeviceStep, fits_device_step
from paraembed.training.step import Step
from tests.training.conftest import encoder_of

BASE = Recipe(batch_size=50, learning_rate=0.01)
CHANGES: list[dict[str, Any]] = [
    {},
    {"encoder": SumConfig(), "similarity": "dot", "margin": 1.0, "optimiser": "sgd"},
    {"pool": "same_side", "optimiser": "adagrad", "learning_rate": 0.05, "clip": 0.05},
    {"word_penalty": 0.1, "clip": 0.1, "clip_form": "global"},
    {"similarity": "dot", "word_penalty": 0.1, "penalty_form": "released", "boundary_tokens": "both"},
]
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("changes", CHANGES)
def test_the_step_on_a_device_is_that_of_autograd(pairs: Ragged, changes: dict[str, Any], device: str) -> None:
    recipe = replace(BASE, **changes)
    ours, theirs = encoder_of(recipe).to(device), encoder_of(recipe)
    assert fits_device_step(ours, recipe, 1)
    step, plain = DeviceStep(ours, recipe, pairs), Step(theirs, recipe, pairs, compiled=False)
    losses = torch.stack([step(batch, number) for number, batch in enumerate(step.batches(pairs, 0), 1)])
    expected = torch.stack([plain(batch, number) for number, batch in enumerate(plain.batches(pairs, 0), 1)])
    torch.testing.assert_close(losses.cpu(), expected, rtol=1e-6, atol=2e-6)
    torch.testing.assert_close(ours.matrix.cpu(), theirs.matrix, rtol=0, atol=2e-6)
    for name, tensor in plain.state().items():
        torch.testing.assert_close(step.state()[name].cpu(), tensor, rtol=0, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_zero_vectors_stay_finite_and_padding_moves_nothing(pairs: Ragged, device: str) -> None:
    encoder = encoder_of(BASE).to(device)
    with torch.no_grad():
        encoder.matrix[:10] = 0.0
    before = encoder.matrix.detach().clone()
    recipe = replace(BASE, batch_size=9)
    step = DeviceStep(encoder, recipe, pairs)
    batch = next(step.batches(pairs, 0))
    assert int((batch.text_T == 18).sum()) > 0
    assert torch.isfinite(step(batch, 1)).all()
    moved = (encoder.matrix.detach() != before).any(dim=1).nonzero().flatten().tolist()
    assert moved
    assert set(moved) <= set(batch.ids_T[batch.text_T < 18].tolist())
    assert torch.isfinite(encoder.matrix).all()


@pytest.mark.gpu
@NO_GPU
def test_equal_runs_on_a_gpu_give_equal_bits(pairs: Ragged) -> None:
    ends = []
    for _ in range(2):
        encoder = encoder_of(BASE).to("cuda")
        step = DeviceStep(encoder, BASE, pairs)
        for number, batch in enumerate(step.batches(pairs, 0), 1):
            step(batch, number)
        ends.append(encoder.matrix.detach().cpu().numpy())
    assert np.array_equal(*ends)
