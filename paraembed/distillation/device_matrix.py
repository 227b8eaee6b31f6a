"""Sparse matrices on a device of PyTorch, whose products have the same bits in every run.

A product is a sum of rows for each bag of indices, by ``embedding_bag``: one thread computes each sum, in the order of
the indices. The kernels of cuSPARSE that PyTorch calls, and ``index_add``, promise no order.
"""

from dataclasses import dataclass
from typing import Any

import torch
from scipy import sparse
from torch.nn.functional import embedding_bag

_PIECE = 256  # entries of a row that one thread adds; the most frequent unit is in most texts


@dataclass(frozen=True)
class DeviceMatrix:
    """Float64 matrix [n, m]; ``matrix @ X`` is its product with a tensor [m, k]."""

    columns: torch.Tensor  # int32 [entries], the column of each entry, row by row
    values: torch.Tensor  # float64 [entries]
    # Int32 [pieces + 1]; piece i has the entries from ``pieces[i]`` to ``pieces[i + 1]``, of one row.
    pieces: torch.Tensor
    rows: torch.Tensor  # int32 [n + 1]; row i has the pieces from ``rows[i]`` to ``rows[i + 1]``
    T: "DeviceMatrix | None" = None

    @classmethod
    def of(cls, matrix: sparse.csr_matrix, device: str) -> "DeviceMatrix":
        """Return a matrix of SciPy on a device, with its transpose ``T``."""
        columns = torch.tensor(matrix.indices, dtype=torch.int32, device=device)
        values = torch.tensor(matrix.data, dtype=torch.float64, device=device)
        starts = torch.tensor(matrix.indptr, dtype=torch.int64, device=device)
        order = columns.argsort(stable=True)
        every_column = torch.arange(matrix.shape[1] + 1, dtype=torch.int32, device=device)
        row_of = torch.arange(len(starts) - 1, dtype=torch.int32, device=device).repeat_interleave(starts.diff())
        transposed = row_of[order], values[order], *_pieces(torch.searchsorted(columns[order], every_column))
        return cls(columns, values, *_pieces(starts), cls(*transposed))

    def __matmul__(self, dense_MK: torch.Tensor) -> torch.Tensor:
        """Return the product [n, k] with a tensor [m, k]."""
        options: dict[str, Any] = {"mode": "sum", "include_last_offset": True}
        sums_PK = embedding_bag(self.columns, dense_MK, self.pieces, per_sample_weights=self.values, **options)
        every_piece = torch.arange(len(sums_PK), dtype=torch.int32, device=sums_PK.device)
        return embedding_bag(every_piece, sums_PK, self.rows, **options)


def _pieces(starts_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the offsets of pieces in the entries, and of rows in the pieces, from those of n rows in the entries."""
    counts = (starts_N.diff() + _PIECE - 1) // _PIECE
    rows = torch.cat([starts_N.new_zeros(1), counts.cumsum(0)])
    first = (starts_N[:-1] - _PIECE * rows[:-1]).repeat_interleave(counts)
    pieces = torch.cat([first + _PIECE * torch.arange(len(first), device=first.device), starts_N[-1:]])
    return pieces.int(), rows.int()
