"""Composition of an encoder: what turns word vectors into a text vector."""

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn


class Composition(nn.Module):
    """Composition: the part of an encoder that turns word vectors into a text vector, W_c of the papers."""

    width: int  # H, the length of a text vector
    # Whether ``forward`` takes ``merges_T`` (see ``Ragged``, int32 [T] on the CPU) as a fourth argument.
    reads_trees: ClassVar[bool] = False
    # Whether ``forward`` takes ``words_T``, the tokens' rows in the vocabulary, int32 [T], as a fourth argument.
    reads_words: ClassVar[bool] = False
    # Whether ``forward`` takes the keyword ``steps``, the shape of a layout that is computed on a device (see
    # ``packed``).
    is_recurrent: ClassVar[bool] = False
    # Maximum tokens per call outside training, for compositions that store several vectors per token; None: no limit.
    tokens_at_once: ClassVar[int | None] = None

    def gates(self) -> list[int]:
        """Return for each parameter the number of gates that are stacked along its first dimension; 1 for most
        parameters.
        """
        owners = [name.rpartition(".") for name, _ in self.named_parameters()]
        return [getattr(self.get_submodule(owner), "stacked", {}).get(name, 1) for owner, _, name in owners]

    def for_vocabulary(self, num_words: int) -> None:
        """Create the parameters that exist once per word; the encoder calls this once. Most compositions have none."""

    @abstractmethod
    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor) -> Tensor:
        """Compute text vectors.

        Args:
            rows_RD: word vectors.
            ids_T: rows of the tokens, int32, on the device of ``rows_RD``.
            offsets_N1: start and end of each text, int64, on the CPU, where the layout of a batch is decided without
                waiting for a GPU. In training on a GPU they are on the GPU (recurrent encoders then also get
                ``steps``), and no code may read their values. No text is empty.

        Returns:
            Vectors [N, H].
        """


def drawn(generator: torch.Generator, bound: float, *shape: int) -> nn.Parameter:
    """Return a parameter of uniform random numbers between -bound and bound.

    With bound 1/√H, the default of torch.nn's recurrent modules, a rounding error fades along a text. With the N(0,
    0.1²) of other toolkits it grows by 11 % per token at H = 300 (tanh), and the vector of a long text would depend on
    its batch. The papers do not print their initial values.
    """
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))


@torch.no_grad()
def draw_as_released(name: str, composition: Composition, generator: torch.Generator) -> None:
    """Replace the initial weights of an encoder by those of the released code (Theano, Lasagne); the papers print none.

    LSTM and GRAN: weights and peepholes N(0, 0.1²). rnn: weights uniform within ±0.01. proj: Glorot-uniform weights.
    Biases are 0. The other encoders either start as in the released code anyway (dan, irnn), have no parameters, or are
    not in the released code.
    """
    for path, weight in composition.named_parameters():
        if path.endswith("bias") or path == "combine_weight":
            continue
        if name in {"rnn", "proj"}:
            bound = 0.01 if name == "rnn" else (6 / sum(weight.shape)) ** 0.5
            weight.uniform_(-bound, bound, generator=generator)
        else:
            weight.normal_(0, 0.1, generator=generator)
