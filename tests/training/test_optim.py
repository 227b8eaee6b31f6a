import pytest
import torch

from paraembed.training.optim import RowAdaGrad, RowAdam


def draws(steps: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    made = []
    for _ in range(steps):
        rows = torch.randperm(6, generator=generator)[:3]
        made.append((rows, torch.randn(3, 2, generator=generator)))
    return made


@pytest.mark.parametrize("compiled", [True, False])
def test_row_adagrad_is_dense_adagrad(compiled: bool) -> None:
    matrix = torch.ones(6, 2)
    dense = torch.nn.Parameter(matrix.clone())
    ours, theirs = RowAdaGrad(matrix, 0.1, compiled), torch.optim.Adagrad([dense], lr=0.1)
    for step, (rows, grad) in enumerate(draws(20), 1):
        ours.update(matrix, rows, grad, step)
        dense.grad = torch.zeros(6, 2).index_copy(0, rows, grad)
        theirs.step()
    torch.testing.assert_close(matrix, dense.detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_row_adam_is_torchs_sparse_adam(compiled: bool) -> None:
    matrix = torch.ones(6, 2)
    sparse = torch.nn.Parameter(matrix.clone())
    ours, theirs = RowAdam(matrix, 0.1, compiled), torch.optim.SparseAdam([sparse], lr=0.1)
    for step, (rows, grad) in enumerate(draws(20), 1):
        ours.update(matrix, rows, grad, step)
        sparse.grad = torch.sparse_coo_tensor(rows[None], grad, (6, 2), check_invariants=True)
        theirs.step()
    torch.testing.assert_close(matrix, sparse.detach(), rtol=0, atol=1e-6)
