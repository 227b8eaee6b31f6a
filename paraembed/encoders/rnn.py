"""Encoders ``rnn`` and ``irnn``: last state of a plain recurrent network (Wieting 2016 eq. 3-4), the latter linear,
so that it equals the mean of the word vectors before training.

The recurrence is written out with its gradient. On a CPU it takes 0.6 times as long as torch's RNN kernels, because
each word is projected once, and the gradient of the weight is a single product over all steps.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from paraembed.encoders.composition import Composition, drawn
from paraembed.encoders.configs import IrnnConfig, RnnConfig
from paraembed.encoders.packed import PackedTokens, Steps, in_float32, pack, project_words


class Rnn(Composition):
    """h_t = f(W_x x_t + W_h h_{t-1} + b), g(x) = h_n; initial weights uniform within ±1/√H, b = 0.

    In ``irnn``, f is the identity and g(x) = h_n / n; initially W_x = W_h = I, which equals ``avg``. Training pulls the
    weights back to these initial values (λ_c ∈ {1000, 100, 10, 1} in Wieting 2016).
    """

    activation: str
    is_recurrent = True
    tokens_at_once = 16_384

    def __init__(self, config: RnnConfig | IrnnConfig, dimension: int, generator: torch.Generator) -> None:
        super().__init__()
        if isinstance(config, RnnConfig):
            self.width, self.activation = config.width or dimension, config.activation
            self.input_weight = drawn(generator, self.width**-0.5, self.width, dimension)
            self.state_weight = drawn(generator, self.width**-0.5, self.width, self.width)
        else:
            self.width, self.activation = dimension, "identity"
            self.input_weight = nn.Parameter(torch.eye(dimension))
            self.state_weight = nn.Parameter(torch.eye(dimension))
        self.bias = nn.Parameter(torch.zeros(self.width))

    def forward(self, rows_RD: Tensor, ids_T: Tensor, offsets_N1: Tensor, steps: Steps | None = None) -> Tensor:
        """Return the last states [N, H], those of ``irnn`` divided by the number of tokens."""
        packed = pack(offsets_N1, rows_RD.device, steps=steps)
        inputs_PH = project_words(rows_RD, ids_T[packed.tokens], self.input_weight, self.bias)
        states_NH = in_float32(_LastStates, inputs_PH, self.state_weight, packed, self.activation)
        if self.activation == "identity":
            return states_NH / offsets_N1.diff().to(states_NH.device)[:, None]
        return states_NH


_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "tanh": (torch.tanh_, lambda grad, state: torch.ops.aten.tanh_backward.grad_input(grad, state, grad_input=grad)),
    "relu": (torch.relu_, lambda grad, state: grad.mul_(state > 0)),
    "identity": (lambda state: state, lambda grad, _: grad),
}
"""The activation f, and the product of a gradient with the slope of f at the point where f returned ``state``; both in
place.
"""


class _LastStates(torch.autograd.Function):
    """The states h_t = f(inputs_t + W h_{t-1}) [N, H] after the last token of each text, in the order of the texts."""

    @staticmethod
    def forward(
        ctx: Any, inputs_PH: Tensor, weight_HH: Tensor, packed: PackedTokens, activation: str, keep: bool
    ) -> Tensor:
        activate, _ = _ACTIVATIONS[activation]
        states_PH = inputs_PH.clone() if keep else inputs_PH
        steps = states_PH.split_with_sizes(packed.sizes)
        activate(steps[0])  # from the state zero
        for before_BH, state_BH in pairwise(steps):
            activate(state_BH.addmm_(before_BH[: len(state_BH)], weight_HH.t()))
        ctx.save_for_backward(states_PH, weight_HH)
        ctx.packed, ctx.activation = packed, activation
        return states_PH.index_select(0, packed.last)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NH: Tensor) -> tuple[Tensor | None, ...]:
        states_PH, weight_HH = ctx.saved_tensors
        packed: PackedTokens = ctx.packed
        _, times_slope = _ACTIVATIONS[ctx.activation]
        grad_PH = torch.zeros_like(states_PH).index_copy_(0, packed.last, grad_NH)
        steps = packed.steps(grad_PH, states_PH)
        for (before_BH, _), (grad_BH, state_BH) in reversed(list(pairwise(steps))):
            before_BH[: len(grad_BH)].addmm_(times_slope(grad_BH, state_BH), weight_HH)
        times_slope(*steps[0])
        return grad_PH, grad_PH[packed.sizes[0] :].t() @ packed.before(states_PH), None, None, None
