"""Initial values of the released code (Theano, Lasagne), for ``init="released"``; the papers print none.

LSTM and GRAN: weights and peepholes N(0, 0.1²). rnn: weights uniform within ±0.01. proj: Glorot-uniform weights. Biases
are 0. The other encoders either start as in the released code anyway (dan, irnn), have no parameters, or are not in the
released code.
"""

import torch

from paraembed.encoders.base import Composition
from paraembed.encoders.dense import Proj
from paraembed.encoders.gran import Gran
from paraembed.encoders.lstm import Lstm
from paraembed.encoders.rnn import Rnn


@torch.no_grad()
def draw_as_released(composition: Composition, generator: torch.Generator) -> None:
    """Replace the initial weights of a new composition by those of the released code."""
    for module in composition.modules():
        if not isinstance(module, Lstm | Gran | Rnn | Proj):
            continue
        for name, weight in module.named_parameters(recurse=False):
            if name == "bias":
                continue
            if isinstance(module, Rnn):
                weight.uniform_(-0.01, 0.01, generator=generator)
            elif isinstance(module, Proj):
                bound = (6 / sum(weight.shape)) ** 0.5
                weight.uniform_(-bound, bound, generator=generator)
            else:
                weight.normal_(0, 0.1, generator=generator)
