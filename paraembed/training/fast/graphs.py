"""A step recorded as one CUDA graph a shape: at batch 100 its kernels take microseconds each, less than to launch them.
``tests/training/fast/test_gpu.py`` holds recorded steps equal to those of ``training.step.Step``.

A recorded step reads fixed memory: the inputs of a step are copied there, and the graph is replayed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from paraembed.encoders.packed import Steps

_MOST_SHAPES = 128  # that are recorded, each with its inputs and the memory of its graph; some dozen come in practice
_WARM_UP = 3  # steps of a shape before it is recorded; what libraries allocate at first use must not be in a graph


@dataclass(frozen=True)
class Inputs:
    """What a device is given for a step.

    Attributes:
        tensors: by name, on the device: ids, text and offsets of the batch, and what the step draws.
        steps: shape of the layout of a recurrent encoder.
        merges: trees of the texts and of the padding, int32 on the CPU; None where the encoder reads none.
        total: pairs of the step.
    """

    tensors: dict[str, Tensor]
    steps: Steps | None
    merges: Tensor | None
    total: int

    @property
    def shape(self) -> tuple[object, ...]:
        """What decides which kernels run."""
        sizes = self.steps.sizes if self.steps else ()
        return self.total, sizes, *((name, *tensor.shape) for name, tensor in self.tensors.items())


class Graphs:
    """Runs a step on inputs without trees; on a CPU always as it comes.

    It is given the step at every call: holding it, the two would stay in memory until a garbage collection.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._on_gpu = device, device.type == "cuda"
        self._memory = torch.cuda.graph_pool_handle() if self._on_gpu else None  # of all shapes
        self._recorded: dict[tuple[object, ...], tuple[torch.cuda.CUDAGraph, Inputs]] = {}
        self._seen: dict[tuple[object, ...], int] = {}

    def __call__(self, run: Callable[[Inputs], None], inputs: Inputs) -> None:
        """Run, always the same function; the first steps of a shape as they come, then as recorded."""
        shape = inputs.shape
        num_seen = self._seen[shape] = self._seen.get(shape, 0) + 1
        if not self._on_gpu or num_seen <= _WARM_UP:
            run(inputs)
            return
        if shape not in self._recorded:
            if len(self._recorded) == _MOST_SHAPES:
                run(inputs)
                return
            self._recorded[shape] = self._record(run, inputs)
        graph, recorded = self._recorded[shape]
        for name, buffer in recorded.tensors.items():
            buffer.copy_(inputs.tensors[name])
        graph.replay()

    def _record(self, run: Callable[[Inputs], None], inputs: Inputs) -> tuple["torch.cuda.CUDAGraph", Inputs]:
        """The step for inputs of a shape; recording runs nothing."""
        recorded = Inputs(
            {name: tensor.clone() for name, tensor in inputs.tensors.items()}, inputs.steps, None, inputs.total
        )
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), torch.cuda.graph(graph, pool=self._memory):
            run(recorded)
        return graph, recorded
