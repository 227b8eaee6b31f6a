"""Ridge regression of unit vectors: the mean of a text's unit vectors approximates the teacher's vector of the text.

With the rows of A [n, V] the frequencies of the units in each text, divided by its number of units, T [n, d] the
teacher's centered vectors and S [V, d] the prior, W minimizes ‖A W - T‖² + λ‖W - S‖². Conjugate gradients with a Jacobi
preconditioner solve the normal equations (AᵀA + λI)(W - S) = Aᵀ(T - A S), all columns at once in float64. Bigrams have
rows of W, too; a text's frequencies of bigrams are divided by its number of units as well.

The columns are independent, so each task computes a slice of them: with any number of workers the same bytes, and no
exchange of the [V, d] sums of row blocks. The rows are read in blocks, the ids from a memory map and T from Parquet.

SciPy computes the products with A, or PyTorch on a GPU. In float32 there, results would differ by up to 0.2 % of the
vectors' length, because rounding delays the convergence.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse

from paraembed.distillation.device_matrix import DeviceMatrix
from paraembed.distillation.texts import IDS, OFFSETS
from paraembed.embedding.output import Embeddings
from paraembed.io.places import Place

Floats = npt.NDArray[np.float64]

_COLUMNS = 96  # of a task: with 128,000 units, six arrays of 98 MB
_DEVICE_COLUMNS, _DEVICE_VALUES = 1024, 1 << 26  # at most, of a task on a device: ten arrays of 0.5 GB
_ENTRY_BYTES = 24  # of a unit in a text on a device, in A and in its transpose
_BLOCK_ROWS = 32_768
_BIGRAM_SHARE = 0.5
"""Factor of the solved vectors of bigrams: STS r | ρ before training 75.7 | 76.1, with factor 1 75.6 | 75.7."""


class Normal(NamedTuple):
    """Sums over all texts for a slice of k columns."""

    targets: Floats  # AᵀT with T not yet centered [V, k]
    prior: Floats  # AᵀA S [V, k]
    means: Floats  # mean of T [k]
    products: Floats  # Σ A S ∘ (T - mean) [k]
    squares: Floats  # Σ (A S)² [k]
    total: Floats  # Σ (T - mean)² [k]


@dataclass(frozen=True)
class Regression:
    """Problem of a regression."""

    units: Path  # folder of ``write_units`` or ``write_bigrams``
    vectors: Place  # output of ``jobs/embed.py`` with the teacher's vectors of the same texts
    prior: Path  # float32 [V, d], an .npy file
    l2: float  # λ as a multiple of the mean of the diagonal of AᵀA, bigrams excepted
    steps: int  # steps of conjugate gradients
    # Number of units; the rows after them are bigrams, which get half of their solution. None: there are no bigrams.
    num_units: int | None = None
    device: str | None = None
    block_rows: int = _BLOCK_ROWS  # texts that are read at a time

    def normal(self, columns: slice) -> Normal:
        """Return the sums for a slice of columns, in one pass over ids and vectors."""
        prior_VK = self._computed(np.load(self.prior, mmap_mode="r")[:, columns])
        targets_VK, of_prior_VK = _zeros(prior_VK), _zeros(prior_VK)
        sums = np.zeros((5, prior_VK.shape[1]))
        num_rows = 0
        for block in Embeddings(self.vectors).blocks():
            T = self._computed(block.vectors[:, columns])
            A = self._on_device(self._rows(block.first, block.first + len(T), len(prior_VK)))
            estimates = A @ prior_VK
            targets_VK += A.T @ T
            of_prior_VK += A.T @ estimates
            of_block = T.sum(0), (estimates * T).sum(0), estimates.sum(0), (estimates**2).sum(0), (T**2).sum(0)
            sums += [_host(values) for values in of_block]
            num_rows += len(T)
        sum_T, products, sum_estimates, squares, total = sums
        means = sum_T / num_rows
        centered = products - means * sum_estimates, squares, total - num_rows * means**2
        return Normal(_host(targets_VK), _host(of_prior_VK), means, *centered)

    def solve(self, normal: Normal, columns: slice, scale: float) -> tuple[npt.NDArray[np.float32], Floats]:
        """Return W [V, k] and the sums of its squared errors [k], given the sums over all texts for a slice of columns;
        ``scale`` is the factor of the prior, so that S is the best multiple of it.
        """
        prior_VK = scale * np.load(self.prior, mmap_mode="r")[:, columns].astype(np.float64)
        diagonal_V, sums_V = self._diagonal(len(prior_VK))
        of_units_U = diagonal_V[: self.num_units]
        weight = float(self.l2 * of_units_U.sum() / max(1, np.count_nonzero(of_units_U)))
        right = normal.targets - sums_V[:, None] * normal.means - scale * normal.prior
        change = self._conjugate_gradients(self._computed(right), self._computed(diagonal_V), weight)
        change[len(of_units_U) :] *= _BIGRAM_SHARE
        product, change = _host(self._product(change)), _host(change)
        # ‖R - A X‖² = ‖R‖² - 2 Xᵀ AᵀR + Xᵀ AᵀA X, with R = T - A S
        errors = normal.total - 2 * scale * normal.products + scale**2 * normal.squares
        errors += (change * (product - 2 * right)).sum(0)
        return (prior_VK + change).astype(np.float32), errors

    def _conjugate_gradients(self, residual: Any, diagonal_V: Any, weight: float) -> Any:
        """Return the solution [V, k] for the right sides ``residual``, which become its residuals."""
        jacobi_V1, solution = (diagonal_V + weight)[:, None], _zeros(residual)
        preconditioned = direction = residual / jacobi_V1
        energy = (residual * preconditioned).sum(0)
        for _ in range(self.steps):
            product = self._product(direction) + weight * direction
            length = _ratio(energy, (direction * product).sum(0))
            solution += length * direction
            residual -= length * product
            preconditioned = residual / jacobi_V1
            before, energy = energy, (residual * preconditioned).sum(0)
            direction = preconditioned + _ratio(energy, before) * direction
        return solution

    def _product(self, matrix_VK: Any) -> Any:
        """Return AᵀA X."""
        total = _zeros(matrix_VK)
        for A in self._kept or map(self._on_device, self.blocks(len(matrix_VK))):
            total += A.T @ (A @ matrix_VK)
        return total

    @cached_property
    def _kept(self) -> list[DeviceMatrix]:
        """Blocks of A on a device, if half of a GPU's free memory is enough; otherwise each product reads them."""
        entries = len(np.load(self.units / IDS, mmap_mode="r"))
        free = torch.cuda.mem_get_info()[0] if self.device == "cuda" else 0
        if self.device is None or _ENTRY_BYTES * entries > free / 2 > 0:
            return []
        return [self._on_device(A) for A in self.blocks(len(np.load(self.prior, mmap_mode="r")))]

    def _on_device(self, A: sparse.csr_matrix) -> Any:
        return A if self.device is None else DeviceMatrix.of(A, self.device)

    def _computed(self, values: npt.NDArray[Any]) -> Any:
        """Return a copy of an array in float64, on the device."""
        return values.astype(np.float64) if self.device is None else torch.tensor(values, device=self.device).double()

    def _diagonal(self, num_units: int) -> tuple[Floats, Floats]:
        """Return the diagonal of AᵀA [V], and Aᵀ1 [V]."""
        diagonal, sums = np.zeros(num_units), np.zeros(num_units)
        for A in self.blocks(num_units):
            A.sum_duplicates()
            diagonal += np.bincount(A.indices, A.data**2, minlength=num_units)
            sums += np.bincount(A.indices, A.data, minlength=num_units)
        return diagonal, sums

    def blocks(self, num_units: int) -> Iterator[sparse.csr_matrix]:
        """Yield blocks of the rows of A."""
        num_texts = len(np.load(self.units / OFFSETS, mmap_mode="r")) - 1
        for start in range(0, num_texts, self.block_rows):
            yield self._rows(start, min(start + self.block_rows, num_texts), num_units)

    def _rows(self, start: int, stop: int, num_units: int) -> sparse.csr_matrix:
        offsets = np.load(self.units / OFFSETS, mmap_mode="r")[start : stop + 1]
        ids = np.array(np.load(self.units / IDS, mmap_mode="r")[offsets[0] : offsets[-1]])  # scipy sorts them in place
        return frequencies(ids, offsets - offsets[0], num_units, self.num_units)


def columns_of_task(num_rows: int, device: str | None) -> int:
    """Return the number of columns of a task, for the number of units and bigrams."""
    return _COLUMNS if device is None else max(1, min(_DEVICE_COLUMNS, _DEVICE_VALUES // num_rows))


def frequencies(
    ids: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], size: int, num_units: int | None = None
) -> sparse.csr_matrix:
    """Return the frequencies of V = ``size`` units and bigrams in n texts, divided by the texts' numbers of units
    [n, V]; text i has ``ids[offsets[i]:offsets[i + 1]]``, and ids from ``num_units`` on are bigrams.
    """
    lengths = np.diff(offsets)
    of_units = lengths
    if num_units is not None:
        of_units = np.diff(np.concatenate(([0], np.cumsum(ids < num_units)))[offsets])
    shares = np.repeat(1 / np.maximum(of_units, 1), lengths)
    return sparse.csr_matrix((shares, ids, offsets), shape=(len(lengths), size))


def _ratio(above: Any, below: Any) -> Any:
    """Return above / below; 0 where both vanish, for columns that are solved exactly."""
    return above * (below > 0) / (below + (below <= 0))


def _zeros(like: Any) -> Any:
    """Return zeros in the shape of an array of NumPy or PyTorch, on its device."""
    return like - like


def _host(values: Any) -> Floats:
    """Return an array of NumPy or PyTorch as one of NumPy."""
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values
