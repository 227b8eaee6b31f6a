from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import multiprocessing

from paraembed.encoders import Encoder
from paraembed.encoders.avg import AvgConfig
from paraembed.encoders.proj import ProjConfig
from paraembed.ragged import Ragged
from paraembed.recipe import Recipe
from paraembed.training.negatives import most_similar
from paraembed.training.objectives import margin_terms, unit
from paraembed.training.pairs import epoch_batches
from paraembed.training.rows import Step, distinct, exchange_rows

ADAGRAD = Recipe(encoder=ProjConfig(), optimiser="adagrad", learning_rate=0.05, batch_size=20, clip=0.05)
MakeEncoder = Callable[[Recipe], Encoder]


@given(st.lists(st.integers(0, 30), max_size=40))
def test_distinct_is_numpys_unique(values: list[int]) -> None:
    ids = np.array(values, np.int32)
    rows, local = distinct(ids, np.random.default_rng(len(ids)).integers(0, 50, 31, dtype=np.int32))
    assert sorted(rows.tolist()) == np.unique(ids).tolist()
    assert rows[local].tolist() == values


def run(encoder: Encoder, recipe: Recipe, pairs: Ragged, steps: int = 30) -> list[float]:
    step = Step(encoder, recipe)
    batches = list(epoch_batches(pairs, epoch=0, seed=1, batch_size=recipe.batch_size))[:steps]
    return [float(step(batch, number)[0]) for number, batch in enumerate(batches, 1)]


@pytest.mark.parametrize("encoder", [AvgConfig(), ProjConfig()])
@pytest.mark.parametrize("composition_penalty", [0.0, 0.01])
def test_sparse_adagrad_steps_equal_dense_ones(
    make_encoder: MakeEncoder, pairs: Ragged, encoder: AvgConfig | ProjConfig, composition_penalty: float
) -> None:
    recipe = replace(ADAGRAD, encoder=encoder, composition_penalty=composition_penalty)
    sparse, dense = make_encoder(recipe), make_encoder(recipe)
    losses = run(sparse, recipe, pairs)
    assert losses == pytest.approx(run(dense, replace(recipe, update="dense"), pairs), abs=1e-5)
    for ours, theirs in zip(sparse.parameters(), dense.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("optimiser", ["adam", "adagrad"])
@pytest.mark.parametrize("form", ["paper", "released"])
def test_dense_step_is_plain_autograd_with_the_papers_penalties(
    make_encoder: MakeEncoder,
    pairs: Ragged,
    optimiser: Literal["adam", "adagrad"],
    form: Literal["paper", "released"],
) -> None:
    recipe = Recipe(
        encoder=ProjConfig(),
        optimiser=optimiser,
        learning_rate=0.01,
        batch_size=20,
        word_penalty=0.1,
        composition_penalty=0.2,
        penalty_form=form,
        update="dense",
    )
    ours, plain = make_encoder(recipe), make_encoder(recipe)
    run(ours, recipe, pairs, steps=10)
    initial = plain.matrix.detach().clone()
    factor = 1.0 if form == "paper" else 0.5
    kinds = {"adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad}
    optimise: Any = kinds[optimiser](plain.parameters(), lr=0.01)
    for batch in list(epoch_batches(pairs, epoch=0, seed=1, batch_size=20))[:10]:
        vectors = unit(plain(batch.texts))
        hinge = margin_terms(vectors, most_similar(vectors, "both_sides"), 0.4).sum() / 20
        composition = sum(parameter.square().sum() for parameter in plain.composition.parameters())
        loss = hinge + factor * (0.2 * composition + 0.1 * (plain.matrix - initial).square().sum())
        optimise.zero_grad()
        loss.backward()
        optimise.step()
    for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


def test_sparse_steps_leave_other_rows_alone(make_encoder: MakeEncoder, pairs: Ragged) -> None:
    recipe = Recipe(learning_rate=0.1, batch_size=4, word_penalty=0.1)
    encoder = make_encoder(recipe)
    before = encoder.matrix.detach().clone()
    batch = next(epoch_batches(pairs, epoch=0, seed=1, batch_size=4))
    Step(encoder, recipe)(batch, 1)
    moved = (encoder.matrix.detach() != before).any(dim=1).nonzero().flatten().tolist()
    assert moved
    assert set(moved) <= set(batch.texts.ids.tolist())


def test_clip_bounds_each_gradient(make_encoder: MakeEncoder, pairs: Ragged) -> None:
    recipe = replace(ADAGRAD, encoder=AvgConfig(), update="dense", clip=1e-3)
    encoder = make_encoder(recipe)
    batch = next(epoch_batches(pairs, epoch=0, seed=1, batch_size=20))
    step = Step(encoder, recipe)
    before = encoder.matrix.detach().clone()
    step(batch, 1)
    # The first AdaGrad step moves by the sign of the gradient; its state tells the size of what it was given.
    accumulated = step.state()["dense.0.sum"].sum().sqrt()
    assert accumulated.item() == pytest.approx(1e-3, rel=1e-4)
    assert not torch.equal(before, encoder.matrix.detach())


def test_a_batch_of_one_pair_is_skipped_and_counted(make_encoder: MakeEncoder, pairs: Ragged) -> None:
    recipe = Recipe(batch_size=4)
    encoder = make_encoder(recipe)
    before = encoder.matrix.detach().clone()
    step = Step(encoder, recipe)
    batch = next(epoch_batches(pairs.slice(0, 2), epoch=0, seed=1, batch_size=4))
    assert step(batch, 1).tolist() == [0.0, 0.0]
    assert step.skipped_pairs == 1
    assert torch.equal(before, encoder.matrix.detach())


def test_state_carries_an_optimiser_over(make_encoder: MakeEncoder, pairs: Ragged) -> None:
    for recipe in (ADAGRAD, replace(ADAGRAD, optimiser="adam"), replace(ADAGRAD, optimiser="adam", update="dense")):
        whole = make_encoder(recipe)
        run(whole, recipe, pairs, steps=20)
        cut = make_encoder(recipe)
        batches = list(epoch_batches(pairs, epoch=0, seed=1, batch_size=20))[:20]
        first = Step(cut, recipe)
        for number, batch in enumerate(batches[:10], 1):
            first(batch, number)
        second = Step(cut, recipe)
        second.load_state({name: tensor.clone() for name, tensor in first.state().items()})
        for number, batch in enumerate(batches[10:], 11):
            second(batch, number)
        for one, other in zip(whole.parameters(), cut.parameters(), strict=True):
            assert torch.equal(one, other)


def _exchange(rank: int, store: str, out: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    rows = [torch.tensor([3, 1]), torch.tensor([1, 5, 4])][rank]
    grad = torch.arange(1.0, 1 + 2 * len(rows)).view(-1, 2) * 10**rank
    unique, sums = exchange_rows(rows, grad, 2)
    Path(f"{out}{rank}").write_text(f"{unique.tolist()} {sums.tolist()}")
    dist.destroy_process_group()


def test_workers_exchange_rows_and_agree(tmp_path: Path) -> None:
    multiprocessing.spawn(_exchange, (str(tmp_path / "store"), str(tmp_path / "out")), nprocs=2)
    expected = "[1, 3, 4, 5] [[13.0, 24.0], [1.0, 2.0], [50.0, 60.0], [30.0, 40.0]]"
    assert [(tmp_path / f"out{rank}").read_text() for rank in (0, 1)] == [expected] * 2
