"""The papers' encoders in NumPy and float64 (``tests.parity.reference``), with the parameters of an encoder."""

import numpy as np

from paraembed.encoders import config_to_dict
from tests.parity import reference


def names_of(path, composition, config):
    """The reference's names of the gates that a parameter of the package stacks."""
    owner, _, leaf = path.rpartition(".")
    kind, side = type(composition.get_submodule(owner)).__name__, "b." if path.startswith("reader_back") else "f."
    letter = {"input_weight": "x", "state_weight": "h", "sum_weight": "a", "bias": "b", "peepholes": "c"}.get(leaf)
    if kind == "Lstm":
        gates = "ifco" if config.output_gate else "ifc"
        return [f"{side}{letter}{gate}" for gate in (gates.replace("c", "") if leaf == "peepholes" else gates)]
    if kind == "Gran":
        two = config.name in {"gran3", "gran4", "gran5"}
        return [f"{side}{letter}{gate}" for gate in ("12" if two else "1")]
    return [f"{letter}{gate}" for gate in "zrn"] if kind == "Gru" else [path]


def stacks_of(encoder, head=None):
    """Each parameter, with the reference's names of its gates."""
    stacks = [
        (parameter, names_of(path, encoder.composition, encoder.config))
        for path, parameter in encoder.composition.named_parameters()
    ]
    stacks += [] if head is None else [(parameter, [f"head.{name}"]) for name, parameter in head.named_parameters()]
    return [*stacks, (encoder.matrix, ["words"])]


def values_of(stacks):
    """The reference's parameters."""
    values = {}
    for parameter, names in stacks:
        parts = parameter.detach().double().numpy().copy()
        split = np.split(parts, len(names)) if len(names) > 1 else [parts]
        is_row = names[0][:3] in {"f.c", "b.c"}  # a peephole weight is diagonal
        values |= {name: part.reshape(-1) if is_row else part for name, part in zip(names, split, strict=True)}
    return values


def vector_of(encoder, ids, merges=None):
    """The vector of a text of word ids; without merges, its tree is right-branching."""
    options = config_to_dict(encoder.config)
    parameters = {name: value[None] for name, value in values_of(stacks_of(encoder)).items()}
    merges = [*[0] * (len(ids) - 1), len(ids) - 1] if merges is None else merges
    return reference.encode(options.pop("name"), parameters, [(ids, merges)], **options)[0, 0]
