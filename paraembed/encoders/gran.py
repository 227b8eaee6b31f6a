"""Encoders ``gran``, ``gran2`` to ``gran5``, ``gran_nogate``, ``bigran``: gated recurrent averaging networks (Wieting
2017 §3).

An LSTM reads the text. Gates, computed from its states and the words, weight what enters the average.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from paraembed.encoders.composition import drawn
from paraembed.encoders.configs import Form, GranNoGateConfig, GranOptions
from paraembed.encoders.lstm import Lstm, Reader, Recurrent, sigmoid_backward
from paraembed.encoders.packed import PackedTokens, in_float32, project_words


def build(config: GranOptions, dimension: int, generator: torch.Generator) -> Recurrent:
    """Return the composition for word vectors of width ``dimension``."""
    return Recurrent(lambda: Gran(config, dimension, generator), config, generator)


class Gran(Reader):
    """The vectors a_t of a GRAN, by the formula of its form (``tanh`` and ``relu`` are those of ``gran_nogate``).
    Initial weights are uniform within ±1/√D, b = 0; the weights of two gates g_1, g_2 are stacked. ``sum_weight`` is
    W_a of ``gran4``.
    """

    def __init__(self, config: GranOptions, dimension: int, generator: torch.Generator) -> None:
        super().__init__()
        self.form: Form = config.activation if isinstance(config, GranNoGateConfig) else config.form
        self.width = dimension
        self.lstm = Lstm(config, dimension, dimension, generator)
        gates = 2 * dimension if self.form in {"gran3", "gran4", "gran5"} else dimension
        shape, bound = (gates, dimension), dimension**-0.5
        self.input_weight = drawn(generator, bound, *shape)
        self.state_weight = drawn(generator, bound, *shape)
        self.sum_weight = drawn(generator, bound, *shape) if self.form == "gran4" else None
        self.bias = nn.Parameter(torch.zeros(gates))
        self.stacked = dict.fromkeys(("input_weight", "state_weight", "sum_weight", "bias"), gates // dimension)

    def forward(self, rows_RD: Tensor, ids_P: Tensor, packed: PackedTokens) -> Tensor:
        """Return the vectors a_t [P, D]."""
        states_PD: Tensor = self.lstm(rows_RD, ids_P, packed)
        words_PD = F.embedding(ids_P, rows_RD)
        logits_PG = torch.addmm(
            project_words(rows_RD, ids_P, self.input_weight, self.bias), states_PD, self.state_weight.t()
        )
        match self.form:
            case "gran":
                return words_PD * logits_PG.sigmoid_()
            case "gran2":
                return states_PD * logits_PG.sigmoid_()
            case "gran5":
                of_word_PD, of_state_PD = logits_PG.sigmoid_().chunk(2, dim=1)
                return words_PD * of_word_PD + states_PD * of_state_PD
            case "tanh":
                return logits_PG.tanh_()
            case "relu":
                return logits_PG.relu_()
        return in_float32(_GatedSums, words_PD, logits_PG, self.sum_weight, packed)


class _GatedSums(torch.autograd.Function):
    """a_t = a_{t-1}⊙g_1 + x_t⊙g_2 with g = σ(logits_t + W a_{t-1}), [P, D]; W only in ``gran4``."""

    @staticmethod
    def forward(
        ctx: Any, words_PD: Tensor, logits_PG: Tensor, weight_GD: Tensor | None, packed: PackedTokens, keep: bool
    ) -> Tensor:
        gates_PG = torch.empty_like(logits_PG) if keep else logits_PG
        sums_PD = torch.empty_like(words_PD)
        before = words_PD.new_zeros(packed.sizes[0], words_PD.shape[1])
        for words, logits, gates, sums in packed.steps(words_PD, logits_PG, gates_PG, sums_PD):
            before = before[: len(words)]
            if weight_GD is None:
                torch.sigmoid(logits, out=gates)
            else:
                torch.addmm(logits, before, weight_GD.t(), out=gates).sigmoid_()
            of_sum, of_word = gates.chunk(2, dim=1)
            torch.mul(words, of_word, out=sums).addcmul_(before, of_sum)
            before = sums
        ctx.save_for_backward(words_PD, gates_PG, sums_PD, weight_GD)
        ctx.packed = packed
        return sums_PD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_PD: Tensor) -> tuple[Tensor | None, ...]:
        words_PD, gates_PG, sums_PD, weight_GD = ctx.saved_tensors
        packed, first = ctx.packed, ctx.packed.sizes[0]
        before_PD = torch.cat((torch.zeros_like(sums_PD[:first]), packed.before(sums_PD)))
        grad_words_PD, grad_logits_PG = torch.empty_like(words_PD), torch.empty_like(gates_PG)
        # of the texts at work: gradient of the sum, and room for a product
        grad_sum_ND, room_ND = words_PD.new_zeros(2, first, words_PD.shape[1])
        for now in reversed(packed.steps(grad_PD, grad_words_PD, grad_logits_PG, words_PD, gates_PG, before_PD)):
            grad, grad_words, grad_logits, words, gates, before = now
            grad_sum, room = grad_sum_ND[: len(grad)].add_(grad), room_ND[: len(grad)]
            of_sum, of_word = gates.chunk(2, dim=1)
            logits_of_sum, logits_of_word = grad_logits.chunk(2, dim=1)
            torch.mul(grad_sum, of_word, out=grad_words)
            sigmoid_backward(torch.mul(grad_sum, before, out=room), of_sum, grad_input=logits_of_sum)
            sigmoid_backward(torch.mul(grad_sum, words, out=room), of_word, grad_input=logits_of_word)
            grad_sum.mul_(of_sum)
            if weight_GD is not None:
                grad_sum.addmm_(grad_logits, weight_GD)
        if weight_GD is None:
            return grad_words_PD, grad_logits_PG, None, None, None
        return grad_words_PD, grad_logits_PG, grad_logits_PG[first:].t() @ packed.before(sums_PD), None, None
