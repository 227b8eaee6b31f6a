"""The step without data-dependent shapes against the step of the CPU; on a GPU also as a CUDA graph."""

import gc
import inspect
import weakref
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from paraembed.encoders import ENCODERS, config_from_dict, configs
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged, joined
from paraembed.training.best import Evaluation
from paraembed.training.fast import gpu as gpu_module
from paraembed.training.fast import gpu_pairs as device_pairs_module
from paraembed.training.fast import step_kind
from paraembed.training.fast.gpu import DeviceStep, Graphs, StepInputs
from paraembed.training.loop import run_steps
from paraembed.training.objectives import step_draws
from paraembed.training.state import Checkpoints
from paraembed.training.step import Step, step_for
from tests.training.conftest import Killed, encoder_of, same_bits
from tests.training.fast.test_gpu_pairs import host_may_not_wait

OPTIONS = inspect.signature(torch.cuda.graph).parameters  # torch 2.11 does not have all of them
# A replay fails if memory that the recording read is no longer in use.
CHECKED = {name: True for name in ("check_input_liveness",) if name in OPTIONS}
BASE = Recipe(batch_size=20, learning_rate=0.002)
CHANGES = [
    *({"encoder": config_from_dict({"name": name})} for name in ENCODERS),
    {"encoder": configs.SumConfig(), "similarity": "dot", "margin": 1.0, "optimizer": "sgd"},
    {"negative_pool": "same_side", "optimizer": "adagrad", "learning_rate": 0.05, "clip": 0.05, "negatives": "mix"},
    {"word_l2": 0.1, "clip": 0.1, "clip_form": "global"},
    {"encoder": configs.Gran4Config(), "adam_form": "released", "clip": 0.05, "clip_form": "gate"},
    {"encoder": configs.ProjConfig(), "optimizer": "adagrad", "adagrad_form": "matlab"},
    {"similarity": "dot", "word_l2": 0.1, "l2_form": "released", "bos_eos_tokens": "both"},
    {"equal_negatives": "excluded", "negatives": "min_violation"},
    {"encoder": configs.WordConfig(), "paired_negatives": "excluded", "negatives": "rand"},
    {"encoder": configs.LstmConfig(peepholes=False), "clip": 0.05, "clip_form": "global", "encoder_l2": 0.01},
    {"encoder": configs.BiLstmConfig(combine="tanh"), "optimizer": "adagrad", "encoder_learning_rate": 0.02},
    {"encoder": configs.BiLstmAvgConfig(output_gate=False), "update": "dense", "word_l2": 0.01, "clip": 0.1},
    {"encoder": configs.Gran4Config(), "scramble": 0.5, "scramble_time": "after", "bos_eos_tokens": "both"},
    {"encoder": configs.RnnConfig(), "scramble": 0.5, "scramble_swaps": 1.0, "scramble_form": "each"},
    {"encoder": configs.LstmAvgConfig(), "train_words": False},
    {"encoder": configs.ProjConfig(), "objective": "contrastive", "contrast_phrases": 5, "scramble": 0.5},
    {"encoder": configs.RnnConfig(), "objective": "negative_sampling", "contrast_phrases": 5, "similarity": "dot"},
    {"encoder": configs.ProjConfig(), "objective": "squared_l2"},
    {"mega_batch_size": 2, "negatives": "mix"},
    {"encoder": configs.LstmAvgConfig(), "mega_batch_size": 3, "scramble": 0.5},
    {"encoder": configs.Gran4Config(), "mega_batch_size": 2, "equal_negatives": "excluded"},
]
ON_A_GPU = [
    {"dropout": 0.2, "word_dropout": 0.1},
    {"precision": "bfloat16", "encoder": configs.LstmAvgConfig()},
    {"batch_size": 2048},
]
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]


def name_of(changes):
    return "-".join(str(value).split("Config")[0] for value in changes.values())


def make_pairs():
    """90 pairs of texts of 1 to 9 tokens, and a text of 25: four steps of 20 pairs, and one of 10."""
    generator = np.random.default_rng(5)
    lengths = generator.integers(1, 10, 180)
    lengths[77] = 25
    ids = generator.integers(1, 40, lengths.sum(), dtype=np.int32)
    return Ragged(ids, np.concatenate(([0], np.cumsum(lengths))))


@pytest.fixture
def pairs():
    """Those of ``make_pairs``."""
    return make_pairs()


def layouts(all_changes):
    """Each recipe's changes, and whether the step pads its batches; a recurrent encoder's are compared both ways."""
    for changes in all_changes:
        recurrent = encoder_of(replace(BASE, **changes)).composition.is_recurrent
        yield pytest.param(changes, True, id=name_of(changes))
        if recurrent:
            marks = pytest.mark.slow if len(changes) > 1 else ()
            yield pytest.param(changes, False, id=name_of(changes) + "-exact", marks=marks)


@pytest.fixture
def padded(request, monkeypatch):
    """Whether recurrent encoders get padded batches."""
    if not request.param:
        monkeypatch.setattr(device_pairs_module, "_MOST_SLOTS", 0)
    return bool(request.param)


def train(step, pairs):
    return torch.stack([step(batch, number) for number, batch in enumerate(step.batches(pairs, 0), 1)])


class AsksNothing(TorchDispatchMode):
    """Raises where an operator's result would be waited for, or goes from one device to another."""

    asking: ClassVar[set[str]] = {
        f"aten::{name}" for name in ("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "is_nonzero", "equal")
    }

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function.name().split(".")[0] not in self.asking, function
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("changes", "padded"), [*layouts(CHANGES)], indirect=["padded"])
def test_the_step_on_a_device_is_that_of_the_cpu(pairs, changes, padded, device):
    """And nothing is asked of the device; a mega-batch of several batches has its negatives formed by the host."""
    recipe = replace(BASE, **changes)
    ours, theirs = encoder_of(recipe).to(device), encoder_of(recipe)
    if ours.composition.reads_trees:  # left-branching ones
        merges = np.ones(len(pairs.ids), np.int32)
        merges[pairs.offsets[:-1]] = 0
        pairs = replace(pairs, merges=merges)
    assert step_kind(ours.config, recipe, "cuda", 1) == "graphs"
    step, plain = DeviceStep(ours, recipe, pairs), Step(theirs, recipe, pairs)
    if ours.composition.is_recurrent and recipe.objective == "margin" and recipe.mega_batch_size == 1:
        assert [batch.repeats for batch in step.batches(pairs, 0)] == [padded] * 5
    before = ours.composition.state_dict() if recipe.train_words else {"matrix": ours.matrix.detach().clone()}
    with AsksNothing() if device == "cpu" else nullcontext():
        losses = train(step, pairs)
    torch.testing.assert_close(losses.cpu(), train(plain, pairs), rtol=1e-5, atol=1e-5)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=1e-5)
    assert step.update.state().keys() == plain.update.state().keys()
    for name, tensor in plain.update.state().items():
        torch.testing.assert_close(step.update.state()[name].cpu(), tensor, rtol=0, atol=1e-5)
    if not recipe.train_words:
        assert torch.equal(before["matrix"], ours.matrix.detach())


@pytest.mark.parametrize(
    "changes", [{"dropout": 0.2, "word_dropout": 0.2}, {"dropout": 0.4, "encoder": configs.Gran4Config()}]
)
def test_what_dropout_draws_is_the_steps(pairs, changes):
    """Drawn for padding, too, so not the numbers of the CPU: the same in every run, others in every step."""
    recipe = replace(BASE, **changes)
    ends = []
    for seed in (1, 1, 2):
        ours = encoder_of(recipe)
        with AsksNothing():
            losses = train(DeviceStep(ours, replace(recipe, seed=seed), pairs.slice(0, 80)), pairs)
        assert torch.isfinite(losses).all()
        ends.append(ours.matrix.detach())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])
    step = DeviceStep(encoder_of(recipe), recipe, pairs)
    batch = next(step.batches(pairs, 0))
    draws = (step_draws(recipe.seed, number, 0) for number in (1, 1, 2))
    first, again, second = (step._inputs(batch, 1, drawn)[1].tensors["factor0"] for drawn in draws)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    share = changes["dropout"]
    assert (first == 0).float().mean().item() == pytest.approx(share, abs=0.1)


@given(
    changes=st.sampled_from(
        [
            {"similarity": "dot", "negatives": "min_violation", "optimizer": "sgd"},
            {"word_l2": 0.1, "clip": 0.1, "negative_pool": "same_side"},
            {"negatives": "mix"},
        ]
    ),
    at_once=st.integers(1, 5),
    flushed=st.sets(st.integers(1, 6)),
    batch_size=st.sampled_from([9, 11, 49]),
)
def test_steps_in_a_queue_are_those_of_one_at_a_time(changes, at_once, flushed, batch_size):
    """To the bit, wherever the queue is flushed; the last step may be smaller, or have one pair."""
    pairs, recipe = make_pairs().slice(0, 100), replace(BASE, batch_size=batch_size, **changes)
    queued, single = (DeviceStep(encoder_of(recipe), recipe, pairs) for _ in range(2))
    sums = torch.zeros(2, dtype=torch.float64)
    with patch.object(gpu_module, "STEPS_AT_ONCE", at_once), AsksNothing():
        for number, batch in enumerate(queued.batches(pairs, 0), 1):
            queued.enqueue(batch, number, sums)
            if number in flushed:
                queued.flush()
        queued.flush()
    torch.testing.assert_close(sums, train(single, pairs).sum(dim=0, dtype=torch.float64), rtol=1e-12, atol=0)
    assert same_bits(queued.encoder, single.encoder)
    state = single.update.state()
    assert all(torch.equal(tensor, state[name]) for name, tensor in queued.update.state().items())
    assert queued.skipped_pairs == single.skipped_pairs == int(batch_size == 49)


@pytest.mark.parametrize("changes", [{}, {"negative_pool": "same_side", "similarity": "dot", "optimizer": "sgd"}])
def test_few_texts_get_the_gradients_of_many(pairs, changes):
    recipe, steps = replace(BASE, **changes), []
    for most in (0, 512):
        with patch.object(gpu_module, "_MOST_TEXTS_SQUARED", most):
            steps.append(DeviceStep(encoder_of(recipe), recipe, pairs))
    torch.testing.assert_close(*(train(step, pairs) for step in steps), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(*(step.matrix for step in steps), rtol=0, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("killed_at", [1, 5])
def test_a_run_with_a_queue_resumes_after_any_checkpoint(pairs, tmp_path, monkeypatch, killed_at, device):
    """Checkpoints, reports and evaluations come at steps where the queue is not full."""
    monkeypatch.setattr(gpu_module, "STEPS_AT_ONCE", 4)
    recipe = replace(BASE, batch_size=9, epochs=4, dropout=0.2, word_dropout=0.1)

    def run(encoder, name, saved=lambda: None):
        step = DeviceStep(encoder, recipe, pairs)
        evaluation = Evaluation(lambda encoder: (-encoder.matrix.detach().norm().item(), {}), every=0.37)
        checkpoints = Checkpoints(tmp_path / name, steps=7, saved=saved)
        return run_steps(encoder, step, pairs, 90, checkpoints=checkpoints, evaluation=evaluation)

    def kill():
        nonlocal killed_at
        killed_at -= 1
        if not killed_at:
            raise Killed

    unbroken, broken, resumed = (encoder_of(recipe).to(device) for _ in range(3))
    whole = run(unbroken, "unbroken")
    with pytest.raises(Killed):
        run(broken, "broken", kill)
    rest = run(resumed, "broken")
    if device == "cuda":  # the steps before a recording have other kernels than a replay
        torch.testing.assert_close(resumed.matrix, unbroken.matrix, rtol=0, atol=1e-5)
        assert [step for step, *_ in rest.scores] == [step for step, *_ in whole.scores]
    else:
        assert same_bits(unbroken, resumed)
        assert (rest.curve, rest.scores) == (whole.curve, whole.scores)


@pytest.mark.parametrize("device", DEVICES)
def test_zero_vectors_stay_finite_and_padding_moves_nothing(pairs, device):
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


@pytest.mark.parametrize("encoder", [configs.AvgConfig(), configs.ProjConfig(), configs.LstmAvgConfig()])
def test_bfloat16_is_near_to_float32_and_leaves_words_and_moments_in_it(pairs, encoder):
    recipe = replace(BASE, encoder=encoder, optimizer="sgd", learning_rate=0.05)
    exact, rough = encoder_of(recipe), encoder_of(recipe)
    losses = train(DeviceStep(exact, recipe, pairs), pairs)
    with_bfloat16 = DeviceStep(rough, replace(recipe, precision="bfloat16"), pairs)
    torch.testing.assert_close(train(with_bfloat16, pairs), losses, rtol=0.05, atol=0.05)
    assert not torch.equal(exact.matrix, rough.matrix)
    torch.testing.assert_close(rough.matrix, exact.matrix, rtol=0, atol=0.02)
    assert {tensor.dtype for tensor in [*rough.parameters(), *with_bfloat16.update.state().values()]} == {torch.float32}


def test_bfloat16_decides_no_threshold(pairs):
    """Rounded, the least violating candidate is no violation for every seventh text; avg has no other product."""
    recipe = replace(BASE, negatives="min_violation")
    exact, rough = (
        train(DeviceStep(encoder_of(one), one, pairs), pairs) for one in (recipe, replace(recipe, precision="bfloat16"))
    )
    assert torch.equal(exact, rough)
    recipe = replace(recipe, encoder=configs.ProjConfig(), precision="bfloat16")
    step = DeviceStep(encoder_of(recipe), recipe, pairs)
    assert step(next(step.batches(pairs, 0)), 1)[1] > 0.97


@pytest.mark.parametrize("changes", [{}, {"encoder": configs.LstmAvgConfig()}, {"mega_batch_size": 2}], ids=name_of)
def test_a_finished_step_leaves_the_memory_at_once(pairs, changes):
    """Without a garbage collection, which does not know how large a GPU's tensors are."""
    recipe = replace(BASE, **changes)
    train(step_for(encoder_of(recipe), recipe, pairs), pairs)  # compiles, which leaves cycles
    gc.disable()
    try:
        for kind in (step_for, DeviceStep):
            step = kind(encoder_of(recipe), recipe, pairs)
            train(step, pairs)
            is_held = weakref.ref(step)
            del step
            assert is_held() is None
    finally:
        gc.enable()


def test_a_step_that_cannot_be_recorded_runs_without_a_graph(caplog):
    """PyTorch for CPUs cannot record any; after a GPU's, nothing is left that would make the next step fail."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    graphs, total = Graphs(device), torch.zeros(1, device=device)
    graphs._records = True
    inputs = StepInputs({"ones": torch.ones(1, device=device)}, None, None, 1, 2, 1)

    def run(inputs):
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            inputs.tensors["ones"].item()  # which waits
        total.add_(inputs.tensors["ones"])

    for _ in range(3):
        graphs(run, inputs) if device.type == "cuda" else run(inputs)
    graphs._seen[inputs.shape] = 3
    graphs(run, inputs)
    graphs(run, inputs)
    assert total.item() == 5
    assert caplog.text.count("steps run without CUDA graphs") == 1


def test_a_recording_has_only_options_that_this_torch_knows():
    assert Graphs(torch.device("cpu")).options().keys() <= OPTIONS.keys()


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize(("changes", "padded"), [*layouts([*CHANGES, *ON_A_GPU])], indirect=["padded"])
def test_equal_runs_on_a_gpu_give_equal_bits_and_the_host_waits_for_none(pairs, changes, padded, monkeypatch):
    """One of steps one at a time, and one of steps in a queue, of which three are recorded together."""
    monkeypatch.setattr(gpu_module, "STEPS_AT_ONCE", 3)
    recipe = replace(BASE, **{"batch_size": 9, **changes})
    if recipe.batch_size > 90:
        pairs = joined(*[pairs] * 46)
    ends = []
    for is_queued in (True, False):
        encoder = encoder_of(recipe).to("cuda")
        step = DeviceStep(encoder, recipe, pairs)
        step.graphs.more_options = CHECKED
        sums = torch.zeros(2, dtype=torch.float64, device="cuda")
        numbers = count(1)
        for epoch in range(8):  # the first record the graphs
            with host_may_not_wait() if epoch > 3 else nullcontext():
                for batch in step.batches(pairs, epoch):
                    if is_queued:
                        step.enqueue(batch, next(numbers), sums)
                    else:
                        step(batch, next(numbers))
                step.flush()
        ends.append(torch.cat([one.detach().flatten().cpu() for one in encoder.parameters()]).numpy())
        is_exact = encoder.composition.is_recurrent and not padded
        never = encoder.composition.reads_trees or recipe.draws_contrast or is_exact
        assert (step.graphs.num_recorded == 0) == never
    assert np.array_equal(*ends)


@pytest.mark.gpu
@NO_GPU
def test_torchs_lstm_on_a_gpu_is_in_float32():
    """TF32 has 10 bits: at width 300 states would be off by 1e-4 and more."""
    generator = torch.Generator().manual_seed(1)
    composition = configs.LstmAvgConfig(peepholes=False).build(300, generator)
    rows, ids = torch.randn(50, 300, generator=generator), torch.randint(50, (60,), generator=generator)
    offsets = torch.arange(0, 61, 20)
    expected = composition(rows, ids, offsets).detach()
    found = composition.to("cuda")(rows.to("cuda"), ids.to("cuda"), offsets).detach().cpu()
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)
