"""Encoders ``lstm``, ``lstm_avg``, ``bilstm``, ``bilstm_avg``: LSTMs with peepholes (Wieting 2016 eq. 5-10, Wieting
2017).

The recurrence is written out with its gradient, over time steps without padding (see ``packed``). Each step takes one
matrix product forward and one backward; the gradient of the weight is a single product over all steps.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from paraembed.encoders.composition import Composition, drawn
from paraembed.encoders.configs import CellOptions, Combine, LstmOptions, Pool
from paraembed.encoders.packed import PackedTokens, Steps, in_float32, pack, project_words
from paraembed.process import use_exact_cudnn

# grad · out·(1 - out) and grad · (1 - out²), each in one pass
sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


def build(config: LstmOptions, dimension: int, generator: torch.Generator) -> "Recurrent":
    """Return the composition for word vectors of width ``dimension``."""
    return Recurrent(lambda: Lstm(config, dimension, config.width or dimension, generator), config, generator)


class Reader(nn.Module):
    """Module that reads texts token by token and returns a vector for each."""

    width: int  # H, the length of the vectors

    @abstractmethod
    def forward(self, rows_RD: Tensor, ids_P: Tensor, packed: PackedTokens) -> Tensor:
        """Return a vector for each slot, [P, H], given the rows of the tokens in the order of the slots."""


class Recurrent(Composition):
    """g(x) from the vectors that a reader computes for the tokens, or that two readers of opposite directions compute.

    The backward reader's vector of a token depends on the tokens from the end of the text to this token. With the
    option ``combine`` tanh, W has the initial values of Glorot (2010), and b = 0.
    """

    is_recurrent = True
    tokens_at_once = 16_384

    def __init__(self, new_reader: Callable[[], Reader], config: CellOptions, generator: torch.Generator) -> None:
        super().__init__()
        combine: Combine | None = getattr(config, "combine", None)  # an option of two directions
        self.pool: Pool = getattr(config, "state", config.pool)  # an option of gran5 and gran_nogate
        self.reader = new_reader()
        self.reader_back = None if combine is None else new_reader()
        width = self.width = self.reader.width
        self.combine_weight = self.combine_bias = None
        if combine == "tanh":
            bound = (6 / (3 * width)) ** 0.5
            self.combine_weight = drawn(generator, bound, width, 2 * width)
            self.combine_bias = nn.Parameter(torch.zeros(width))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor, steps: Steps | None = None) -> Tensor:
        """Return the vectors [N, H]."""
        packed = pack(offsets_N1, rows_RD.device, steps=steps)
        vectors_PH = self.reader(rows_RD, ids_T[packed.tokens], packed)
        if self.reader_back is not None:
            back = pack(offsets_N1, rows_RD.device, steps=steps, backward=True)
            back_PH = self.reader_back(rows_RD, ids_T[back.tokens], back)
            if self.pool == "last":
                return self._combined(F.embedding(packed.last, vectors_PH), F.embedding(back.last, back_PH))
            vectors_PH = self._combined(vectors_PH, F.embedding(back.slots[packed.tokens], back_PH))
        if self.pool == "mean":
            offsets = offsets_N1.to(vectors_PH.device)
            return F.embedding_bag(packed.slots, vectors_PH, offsets, mode="mean", include_last_offset=True)
        last_NH = F.embedding(packed.last, vectors_PH)  # not [...]: its gradient adds up in no fixed order on a GPU
        return last_NH if self.pool == "last" else last_NH / offsets_N1.diff().to(last_NH.device)[:, None]

    def _combined(self, ahead_NH: Tensor, back_NH: Tensor) -> Tensor:
        if self.combine_weight is None:
            return ahead_NH + back_NH
        return F.linear(torch.cat((ahead_NH, back_NH), dim=1), self.combine_weight, self.combine_bias).tanh()


class Lstm(Reader):
    """The states h_t of an LSTM.

    i_t = σ(W_xi x_t + W_hi h_{t-1} + w_ci⊙c_{t-1} + b_i), f_t likewise, c_t = f_t⊙c_{t-1} + i_t⊙tanh(W_xc x_t + W_hc
    h_{t-1} + b_c), o_t = σ(W_xo x_t + W_ho h_{t-1} + w_co⊙c_t + b_o), h_t = o_t⊙tanh(c_t). Weights uniform within
    ±1/√H, b = 0. The weights of the gates are stacked, in torch's order: i, f, c, o; the peepholes are w_ci, w_cf and,
    with an output gate, w_co.
    """

    def __init__(self, config: CellOptions, dimension: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.width = width
        gates = 4 if config.output_gate else 3
        bound = width**-0.5
        self.input_weight = drawn(generator, bound, gates * width, dimension)
        self.state_weight = drawn(generator, bound, gates * width, width)
        self.bias = nn.Parameter(torch.zeros(gates * width))
        self.peepholes = drawn(generator, bound, gates - 1, width) if config.peepholes else None
        self.stacked = {"input_weight": gates, "state_weight": gates, "bias": gates, "peepholes": gates - 1}
        self._is_torchs = config.output_gate and not config.peepholes

    def forward(self, rows_RD: Tensor, ids_P: Tensor, packed: PackedTokens) -> Tensor:
        """Return the states [P, H]."""
        if self._is_torchs:
            return self._by_torch(F.embedding(ids_P, rows_RD), packed)
        inputs_PG = project_words(rows_RD, ids_P, self.input_weight, self.bias)
        return in_float32(_States, inputs_PG, self.state_weight, self.peepholes, packed)

    def _by_torch(self, words_PD: Tensor, packed: PackedTokens) -> Tensor:
        """Return the states [P, H] of torch's LSTM; cuDNN needs its parameters in one block of memory."""
        parameters = self.input_weight, self.state_weight, self.bias, torch.zeros_like(self.bias)
        piece = torch.cat([parameter.flatten() for parameter in parameters]).split_with_sizes(
            [parameter.numel() for parameter in parameters]
        )
        stacked = [parameter.view_as(like) for parameter, like in zip(piece, parameters, strict=True)]
        start_1NH = words_PD.new_zeros(1, packed.sizes[0], self.width)
        if words_PD.is_cuda:
            use_exact_cudnn()
        sizes, backward = torch.tensor(packed.sizes), torch.is_grad_enabled()  # cuDNN must know, whatever the mode
        with torch.autocast(words_PD.device.type, enabled=False):  # float32: rounded once a step, states would drift
            return torch.lstm(words_PD, sizes, (start_1NH, start_1NH), stacked, True, 1, 0.0, backward, False)[0]


class _States(torch.autograd.Function):
    """The states h_t [P, H], from W_x x_t + b of the gates i, f, c and, with an output gate, o."""

    @staticmethod
    def forward(
        ctx: Any, inputs_PG: Tensor, weight_GH: Tensor, peepholes_KH: Tensor | None, packed: PackedTokens, keep: bool
    ) -> Tensor:
        width = weight_GH.shape[1]
        num_gates = len(weight_GH) // width
        gates_PG = torch.empty_like(inputs_PG) if keep else inputs_PG
        states_PH = inputs_PG.new_empty(len(inputs_PG), width)
        cells_PH = inputs_PG.new_empty(len(inputs_PG) if keep else packed.sizes[0], width)
        tanhs_PH = torch.empty_like(cells_PH) if num_gates == 4 else states_PH
        state, cell = states_PH[:0], inputs_PG.new_zeros(packed.sizes[0], width)
        for now in packed.steps(inputs_PG, gates_PG, states_PH, cells_PH, tanhs_PH):
            inputs, gates, state_now, cell_now, tanh = now
            num = len(inputs)
            if len(state):
                torch.addmm(inputs, state[:num], weight_GH.t(), out=gates)
            else:
                gates.copy_(inputs)
            take, forget, new, *output = gates.chunk(num_gates, dim=1)
            if peepholes_KH is not None:
                both_n2H = gates[:, : 2 * width].view(num, 2, width)
                both_n2H.addcmul_(cell[:num, None], peepholes_KH[:2])
            gates[:, : 2 * width].sigmoid_()
            torch.mul(forget, cell[:num], out=cell_now).addcmul_(take, new.tanh_())
            torch.tanh(cell_now, out=tanh)
            if output:
                if peepholes_KH is not None:
                    output[0].addcmul_(cell_now, peepholes_KH[2])
                torch.mul(output[0].sigmoid_(), tanh, out=state_now)
            state, cell = state_now, cell_now
        ctx.save_for_backward(gates_PG, cells_PH, tanhs_PH, states_PH, weight_GH, peepholes_KH)
        ctx.packed = packed
        return states_PH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_PH: Tensor) -> tuple[Tensor | None, ...]:
        gates_PG, cells_PH, tanhs_PH, states_PH, weight_GH, peepholes_KH = ctx.saved_tensors
        packed, first, width = ctx.packed, ctx.packed.sizes[0], weight_GH.shape[1]
        num_gates = len(weight_GH) // width
        grad_gates_PG = torch.empty_like(gates_PG)
        before_PH = torch.cat((cells_PH.new_zeros(first, width), packed.before(cells_PH)))
        # of the texts at work: gradient of the state, of the cell, and room for a product
        grad_state_NH, grad_cell_NH, room_NH = cells_PH.new_zeros(3, first, width)
        later = grad_gates_PG[:0]
        for now in reversed(packed.steps(grad_PH, grad_gates_PG, gates_PG, tanhs_PH, before_PH)):
            grad, grad_gates, gates, tanh, before = now
            num = len(grad)
            take, forget, new, *output = gates.chunk(num_gates, dim=1)
            grad_take, grad_forget, grad_new, *grad_output = grad_gates.chunk(num_gates, dim=1)
            grad_state, grad_cell, room = grad_state_NH[:num].copy_(grad), grad_cell_NH[:num], room_NH[:num]
            grad_state[: len(later)].addmm_(later, weight_GH)
            if output:
                sigmoid_backward(torch.mul(grad_state, tanh, out=room), output[0], grad_input=grad_output[0])
                grad_state.mul_(output[0])
            grad_cell.add_(tanh_backward(grad_state, tanh, grad_input=room))
            if output and peepholes_KH is not None:
                grad_cell.addcmul_(grad_output[0], peepholes_KH[2])
            sigmoid_backward(torch.mul(grad_cell, new, out=room), take, grad_input=grad_take)
            sigmoid_backward(torch.mul(grad_cell, before, out=room), forget, grad_input=grad_forget)
            tanh_backward(torch.mul(grad_cell, take, out=room), new, grad_input=grad_new)
            grad_cell.mul_(forget)
            if peepholes_KH is not None:
                grad_cell.addcmul_(grad_take, peepholes_KH[0]).addcmul_(grad_forget, peepholes_KH[1])
            later = grad_gates
        grad_weight_GH = grad_gates_PG[first:].t() @ packed.before(states_PH)
        if peepholes_KH is None:
            return grad_gates_PG, grad_weight_GH, None, None, None
        seen = [before_PH, before_PH, cells_PH][: num_gates - 1]
        gates = enumerate(grad_gates_PG.chunk(num_gates, dim=1))
        grads = [gate for number, gate in gates if number != 2]  # all but the cell's
        grad_peepholes_KH = torch.stack([(gate * cell).sum(0) for gate, cell in zip(grads, seen, strict=True)])
        return grad_gates_PG, grad_weight_GH, grad_peepholes_KH, None, None
