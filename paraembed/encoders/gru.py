"""Encoder ``gru``: last state of a gated recurrent unit (Zhou 2017 §2.2, "PGRU").

The reset gate is applied to the state before the multiplication with U. ``torch.nn.GRU`` and cuDNN apply it to the
product, which is a different function, so the recurrence is written out here, with its gradient.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from paraembed.encoders.composition import Composition, drawn
from paraembed.encoders.configs import GruConfig
from paraembed.encoders.packed import PackedTokens, Steps, in_float32, pack, project_words

sigmoid_backward = torch.ops.aten.sigmoid_backward
tanh_backward = torch.ops.aten.tanh_backward


class Gru(Composition):
    """g(x) = h_n of the gated recurrent unit of Zhou 2017.

    z_t = σ(W_z x_t + U_z h_{t-1}), r_t = σ(W_r x_t + U_r h_{t-1}), h̃_t = tanh(W x_t + U(r_t ⊙ h_{t-1})), h_t = (1 -
    z_t) ⊙ h_{t-1} + z_t ⊙ h̃_t. W and U are uniform within ±1/√H; ``input_weight`` [3 · H, D] stacks W_z, W_r and W,
    ``state_weight`` [3 · H, H] U_z, U_r and U.
    """

    is_recurrent = True
    tokens_at_once = 16_384

    def __init__(self, config: GruConfig, dimension: int, generator: torch.Generator) -> None:
        super().__init__()
        self.width = config.width or dimension
        three = 3 * self.width
        self.input_weight = drawn(generator, self.width**-0.5, three, dimension)
        self.state_weight = drawn(generator, self.width**-0.5, three, self.width)
        self.bias = nn.Parameter(torch.zeros(three)) if config.bias else None
        self.stacked = {"input_weight": 3, "state_weight": 3, "bias": 3}

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor, steps: Steps | None = None) -> Tensor:
        """Return the last states [N, H]."""
        packed = pack(offsets_N1, rows_RD.device, steps=steps)
        inputs_PG = project_words(rows_RD, ids_T[packed.tokens], self.input_weight, self.bias)
        return in_float32(_LastStates, inputs_PG, self.state_weight, packed)


class _LastStates(torch.autograd.Function):
    """Map inputs [P, 3 · H] of update gate, reset gate and candidate to the last states [N, H] of the texts."""

    @staticmethod
    def forward(ctx: Any, inputs_PG: Tensor, weight_GH: Tensor, packed: PackedTokens, keep: bool) -> Tensor:
        width = weight_GH.shape[1]
        gate_weight, candidate_weight = weight_GH[: 2 * width].t(), weight_GH[2 * width :].t()
        values_PG = inputs_PG.clone() if keep else inputs_PG  # become z, r and h̃
        gates_PG, candidates_PH = values_PG[:, : 2 * width], values_PG[:, 2 * width :]
        states_PH = torch.empty_like(candidates_PH) if keep else candidates_PH
        first, *later = packed.steps(gates_PG, candidates_PH, states_PH)
        gates, candidate, before = first  # from the state zero
        torch.mul(gates.sigmoid_()[:, :width], candidate.tanh_(), out=before)
        for gates, candidate, state in later:
            before = before[: len(state)]
            update, reset = gates.addmm_(before, gate_weight).sigmoid_().chunk(2, dim=1)
            candidate.addmm_(reset * before, candidate_weight).tanh_()
            before = torch.lerp(before, candidate, update, out=state)
        if keep:
            ctx.save_for_backward(values_PG, states_PH, weight_GH)
            ctx.packed = packed
        return states_PH.index_select(0, packed.last)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NH: Tensor) -> tuple[Tensor | None, ...]:
        values_PG, states_PH, weight_GH = ctx.saved_tensors
        packed: PackedTokens = ctx.packed
        width, first = weight_GH.shape[1], packed.sizes[0]
        gate_weight, candidate_weight = weight_GH[: 2 * width], weight_GH[2 * width :]
        update_PH, reset_PH, candidate_PH = values_PG.chunk(3, dim=1)
        before_PH = torch.cat([torch.zeros_like(states_PH[:first]), packed.before(states_PH)])
        # h_t by h_{t-1}, and by what goes into z and h̃; r⊙h_{t-1} by what goes into r
        stay_PH = 1 - update_PH
        by_update_PH = sigmoid_backward(candidate_PH - before_PH, update_PH)
        by_candidate_PH = tanh_backward(update_PH, candidate_PH)
        by_reset_PH = sigmoid_backward(before_PH, reset_PH)
        grad_PG = torch.empty_like(values_PG)
        grad_PH = torch.zeros_like(states_PH).index_copy_(0, packed.last, grad_NH)
        steps = packed.steps(grad_PH, grad_PG, by_update_PH, by_candidate_PH, by_reset_PH, reset_PH, stay_PH)
        for step in reversed(range(len(steps))):
            grad, grads, by_update, by_candidate, by_reset, reset, stay = steps[step]
            grad_update, grad_reset, grad_candidate = grads.chunk(3, dim=1)
            torch.mul(grad, by_update, out=grad_update)
            torch.mul(grad, by_candidate, out=grad_candidate)
            if step == 0:
                grad_reset.zero_()  # there was no state to reset
                break
            of_reset = grad_candidate @ candidate_weight
            torch.mul(of_reset, by_reset, out=grad_reset)
            grad_before = steps[step - 1][0][: len(grad)].addcmul_(grad, stay).addcmul_(of_reset, reset)
            grad_before.addmm_(grads[:, : 2 * width], gate_weight)
        gated_PH = reset_PH[first:] * before_PH[first:]
        grad_weight = grad_PG[first:, : 2 * width].t() @ before_PH[first:], grad_PG[first:, 2 * width :].t() @ gated_PH
        return grad_PG, torch.cat(grad_weight), None, None
