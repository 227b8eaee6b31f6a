"""Training step on a GPU without synchronization: the host knows all shapes, so it never waits for a result.

``tests/training/fast/test_gpu.py`` checks that it equals ``training.step.Step`` to 1e-5, also on a CPU.

The leaf of the autograd graph holds one row per token, the word vector. Gradients of the same word are summed over
sorted segments instead of by atomic additions, so that equal runs give equal bits. Random draws are the same as in
``Step``, except for dropout, where the padding uses some of the draws.

Steps with repeating shapes are recorded as CUDA graphs, one per shape: at batch 100, kernels take microseconds, less
than their launch. A recorded step reads fixed memory: the inputs of a step are copied there, and the graph is replayed.
In closed form even this takes longer than the kernels. So these steps wait in a queue, and a graph has several of them.

Data-parallel: every worker forms the batches of all workers and encodes its own part. One all-gather collects the
gradients of the texts (avg, sum) or tokens of all workers, so that all of them update the same rows by the same bits;
one all-reduce sums the gradients of all other parameters. A negative pool of all workers adds an all-gather of vectors
and a reduce-scatter of their gradients. All shapes are known, so a graph records these collectives, too. NCCL demands
that all workers record and replay the same steps: what is recorded depends on shapes that all of them know.

The texts of a mega-batch's negatives, and so the shapes of its steps, depend on which negatives the encoder chooses. So
once per mega-batch, before its first step, the workers send what they chose, and the host waits for it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders import Encoder
from paraembed.encoders.averages import Avg
from paraembed.encoders.packed import Steps, to_device
from paraembed.process import records_graphs
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.training.base_step import BaseStep
from paraembed.training.exchange import first_problem, gather, scatter_sum
from paraembed.training.fast import is_additive
from paraembed.training.fast.gpu_pairs import DeviceBatch, DevicePairs
from paraembed.training.negatives import candidate_similarity, choose, gathered_pool
from paraembed.training.objectives import (
    SMALLEST_NORM,
    contrastive_terms,
    margin_terms,
    positive,
    squared_l2_terms,
    unit,
    with_contrast,
)
from paraembed.training.pairs import Batch, MappedPairs
from paraembed.training.regularize import drop, drop_factors, scrambled
from paraembed.training.update import device_bias

log = logging.getLogger(__name__)

_MOST_SHAPES = 128  # that are recorded, each with its inputs and the memory of its graph; some dozen come in practice
# In a graph; it divides the steps between reports. On an H100 5, 10 and 20 train 929,000, 895,000 and 878,000 pairs/s.
STEPS_AT_ONCE = 5
_MOST_TEXTS_SQUARED = 512  # in a step whose gradient is a product with a matrix of weights; with more, it is slower
_MOST_PAIRS_AT_ONCE = 1024  # in a step; with more, its kernels take longer than their launch
_BAG_OF_PADDING = 8  # tokens
_WARM_UP = 3  # steps of a shape before it is recorded; what libraries allocate at first use must not be in a graph


@dataclass(frozen=True)
class StepInputs:
    """Inputs of a step on the device."""

    # Tensors on the device by name: ids and offsets of this worker's batch, ``by_row`` of all workers', the random
    # draws, and ``bias``, Adam's bias correction; of S steps that run together, [S, …].
    tensors: dict[str, Tensor]
    steps: Steps | None  # shape of the layout of a recurrent encoder
    # Trees of the texts and of the padding, int32 on the CPU; None if the encoder does not read trees.
    merges: Tensor | None
    total: int  # number of pairs in the step, over all workers
    num_texts: int  # number of texts in the largest part of a worker
    num_pairs: int  # number of pairs of this worker

    @property
    def shape(self) -> tuple[object, ...]:
        """Return everything that decides which kernels run."""
        sizes = self.steps.sizes if self.steps else ()
        return self.total, sizes, *((name, *tensor.shape) for name, tensor in self.tensors.items())


class Graphs:
    """Runner of steps without trees; on a CPU, and unless ``all_record``, it runs them without recording.

    The step function is an argument of every call. If it were stored, it and this object would refer to each other and
    stay in memory until a garbage collection.
    """

    # Options of ``torch.cuda.graph`` that not all supported versions of torch have; for tests.
    more_options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, device: torch.device, world: int = 1) -> None:
        self._device, self._world = device, world
        self._records = device.type == "cuda" and all_record(world, device)
        self._memory = torch.cuda.graph_pool_handle() if self._records else None  # of all shapes
        self._stream = torch.cuda.Stream(device) if self._records else None  # type: ignore[no-untyped-call]
        self._recorded: dict[tuple[object, ...], tuple[torch.cuda.CUDAGraph, StepInputs]] = {}
        self._seen: dict[tuple[object, ...], int] = {}
        self._failed: torch.cuda.CUDAGraph | None = None

    def __call__(self, run: Callable[[StepInputs], None], inputs: StepInputs) -> None:
        """Run a step function, the same one in every call; after the first steps of a shape, replay its recording."""
        if not self._records:
            run(inputs)
            return
        shape = inputs.shape
        num_seen = self._seen[shape] = self._seen.get(shape, 0) + 1
        if num_seen <= _WARM_UP:
            self._warm_up(run, inputs)
            return
        if shape not in self._recorded and (len(self._recorded) == _MOST_SHAPES or not self._record(run, inputs)):
            run(inputs)
            return
        graph, recorded = self._recorded[shape]
        for name, buffer in recorded.tensors.items():
            buffer.copy_(inputs.tensors[name])
        graph.replay()

    @property
    def num_recorded(self) -> int:
        """Return the number of shapes whose steps are replayed; 0 if a step could not be recorded."""
        return len(self._recorded)

    def turn_off(self) -> None:
        """Run all further steps without graphs."""
        self._records = False
        self._recorded.clear()

    def options(self) -> dict[str, Any]:
        """Return the options of ``torch.cuda.graph``."""
        # thread_local: other threads, such as NCCL's watchdog, may do what a recording may not.
        how = {"pool": self._memory, "stream": self._stream, "capture_error_mode": "thread_local"}
        return how | dict(self.more_options)

    def _warm_up(self, run: Callable[[StepInputs], None], inputs: StepInputs) -> None:
        """Run the step on the stream that records, where libraries then have what they allocate at first use."""
        assert self._stream is not None
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            run(inputs)
        current.wait_stream(self._stream)

    def _record(self, run: Callable[[StepInputs], None], inputs: StepInputs) -> bool:
        """Record the step for inputs of this shape, without running it; return whether all workers could.

        If one of them could not, none of them replays any graph from here on, because NCCL demands that all workers do.
        """
        recorded = replace(inputs, tensors={name: tensor.clone() for name, tensor in inputs.tensors.items()})
        graph, problem = self._captured(run, recorded)
        problem = first_problem(problem, self._world, self._device)
        if problem:
            log.warning("steps run without CUDA graphs, which is slower: a step could not be recorded (%s)", problem)
            self._failed = graph  # which the memory allocator may still refer to
            self.turn_off()
            return False
        assert graph is not None
        self._recorded[inputs.shape] = graph, recorded
        return True

    def _captured(
        self, run: Callable[[StepInputs], None], recorded: StepInputs
    ) -> tuple[torch.cuda.CUDAGraph | None, str]:
        """Return the graph of the step with these inputs, and the problem if it could not be recorded."""
        graph = None
        try:
            graph = torch.cuda.CUDAGraph()
            # A recording that fails leaves its stream as the current one; the outer block restores it.
            current = torch.cuda.stream(torch.cuda.current_stream(self._device))
            recording = torch.cuda.graph(graph, **self.options())
            with torch.cuda.device(self._device), current, recording:
                run(recorded)
        except RuntimeError as error:
            return graph, str(error).partition("\n")[0] or "no reason given"
        return graph, ""


def all_record(world: int, device: torch.device) -> bool:
    """Return whether no worker's environment turns graphs off; all workers must call it."""
    return not first_problem("" if records_graphs() else "off", world, device)


class DeviceStep(BaseStep):
    """Step of the kind graphs; its batches are formed on the device if the pairs are there.

    Attributes:
        graphs: runner of the steps.
        exchanges: whether gradients go through the collectives; for a check, also with one worker.
    """

    def __init__(self, encoder: Encoder, recipe: Recipe, pairs: Ragged, rank: int = 0, world: int = 1) -> None:
        """Copy the pairs to the encoder's device, unless they are on disk; the rest is as in ``BaseStep``."""
        super().__init__(encoder, recipe, pairs, rank, world)
        self.matrix = encoder.matrix.detach()
        composition, is_contrastive = encoder.composition, self._contrast is not None
        excludes = self._negatives is not None and self._negatives.excludes
        self._excludes = self._mega is None and excludes
        self._in_closed_form = is_additive(encoder.config, recipe) and not excludes
        # On the device as a whole, unless other texts come with them, or they exceed the memory that is given to them.
        self._is_whole = not (is_contrastive or self._mega or isinstance(pairs, MappedPairs))
        self._pairs = DevicePairs(
            encoder.with_boundaries(pairs) if self._is_whole else None,
            self.device,
            texts_alike=self._in_closed_form,
            recurrent=composition.is_recurrent,
            repeats=not composition.reads_trees and not is_contrastive,
            rank=rank,
            world=world,
        )
        self._texts, self.exchanges = pairs, world > 1
        self._draws_negatives = (
            recipe.objective == "margin" and self._mega is None and recipe.negatives in {"rand", "mix"}
        )
        self._is_mean = isinstance(composition, Avg)
        self._results = torch.zeros(STEPS_AT_ONCE, 2, device=self.device)
        self._launches_many = self._is_whole and self._in_closed_form and not self._draws_negatives
        self._launches_many &= recipe.batch_size <= _MOST_PAIRS_AT_ONCE
        self._queue, self._sums = list[tuple[DeviceBatch, int]](), torch.zeros(0)
        num_texts = 2 * recipe.batch_size
        self._is_small = self._in_closed_form and self._mega is None and num_texts <= _MOST_TEXTS_SQUARED
        self._is_small &= recipe.negatives == "max" and recipe.precision == "float32"
        self._constants = list[Tensor]()  # added to similarities, and multiplied by the share of each text in the loss
        if self._is_small:
            zeros_N1 = torch.zeros(num_texts, 1, device=self.device)
            partner_NN = _swapped(torch.eye(num_texts, device=self.device))
            self._constants = [candidate_similarity(zeros_N1, zeros_N1, recipe.negative_pool), -partner_NN]
        # Scales the root mean square 1 to the length 1, and bounds the divisor of a zero vector.
        width = self.matrix.shape[1]
        self._unit_D = torch.full((width,), width**-0.5, device=self.device)
        self._unit_eps = SMALLEST_NORM**2 / width
        self.graphs = Graphs(self.device, world)

    def batches(self, pairs: Ragged, epoch: int, first_pair: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch of the pairs; see ``BaseStep.batches``."""
        if not self._is_whole:
            return super().batches(pairs, epoch, first_pair)
        how = {"epoch": epoch, "seed": self.recipe.seed, "first_pair": first_pair}
        return self._pairs.epoch(batch_size=self._batch_size, **how)

    def enqueue(self, batch: DeviceBatch | Batch, step: int, sums: Tensor) -> None:
        """Train on a batch later, together with others; see ``TrainingStep``."""
        is_queued = self._launches_many and not self._gathers_pool
        if not (is_queued and isinstance(batch, DeviceBatch) and batch.repeats and batch.total > 1):
            self.flush()
            super().enqueue(batch, step, sums)
            return
        if self._queue and (self._queue[0][0].total, self._queue[0][0].ids.shape) != (batch.total, batch.ids.shape):
            self.flush()
        self._queue.append((batch, step))
        self._sums = sums
        if len(self._queue) == STEPS_AT_ONCE:
            self._train_together(self._queue)
            self._queue = []

    def flush(self) -> None:
        """Train on the batches that are in the queue; see ``TrainingStep``."""
        for entry in self._queue:
            self._train_together([entry])
        self._queue = []

    def _train_together(self, queue: list[tuple[DeviceBatch, int]]) -> None:
        inputs = self._inputs_of([batch for batch, _ in queue], len(queue[0][0].numbers[self.rank]), {})
        self._sums += self._launch(True, inputs, queue[0][1]).sum(dim=0, dtype=torch.float64)

    def _train(self, batch: DeviceBatch | Batch, step: int, generator: np.random.Generator) -> Tensor:
        return self._launch(*self._inputs(batch, step, generator), step)[0]

    @torch.no_grad()
    def _launch(self, repeats: bool, inputs: StepInputs, first_step: int) -> Tensor:
        """Run steps, which may be recorded if their shape repeats; return the result of each, [S, 2]."""
        last_step = first_step + len(inputs.tensors["ids"])
        bias_S3 = np.array([device_bias(step) for step in range(first_step, last_step)], np.float32)
        inputs = replace(inputs, tensors={**inputs.tensors, "bias": to_device(bias_S3, self.device)})
        if repeats:
            self.graphs(self._run, inputs)
        else:
            self._run(inputs)
        return self._results[: len(bias_S3)].clone()

    def _inputs(self, batch: DeviceBatch | Batch, step: int, generator: np.random.Generator) -> tuple[bool, StepInputs]:
        """Return whether shapes like this repeat, and the inputs of one step, drawn in the order of ``Step``."""
        more = dict[str, Tensor]()
        compares_texts = self._excludes or self._gathers_pool
        if isinstance(batch, DeviceBatch):
            texts = [self._texts.take(numbers_N) for numbers_N in batch.numbers] if compares_texts else []
            num_own = len(batch.numbers[self.rank])
        else:
            texts, num_own = list(batch.parts), len(batch.texts)
            batch = self._formed(batch, step, generator, more)
        if compares_texts:
            assert self._negatives is not None
            excluded_NP = self._negatives.excluded_by(texts, self.rank)
            more |= {} if excluded_NP is None else {"excluded": excluded_NP}
        more |= self._drawn(batch, num_own, generator)
        return batch.repeats, self._inputs_of([batch], num_own, {name: tensor[None] for name, tensor in more.items()})

    def _inputs_of(self, batches: Sequence[DeviceBatch], num_own: int, more: dict[str, Tensor]) -> StepInputs:
        """Return the inputs of S steps of one shape, where this worker has ``num_own`` texts, as tensors [S, …]."""
        first = batches[0]
        ids_ST = torch.stack([batch.ids for batch in batches])[:, self.rank, : first.num_tokens]
        tensors = {name: torch.stack([getattr(batch, name) for batch in batches]) for name in ("offsets", "by_row")}
        merges = self._merges(first.texts) if self.encoder.composition.reads_trees else None
        tensors |= {"ids": ids_ST, **more}
        return StepInputs(tensors, first.steps, merges, first.total, first.num_texts, num_own // 2)

    @property
    def _gathers_pool(self) -> bool:
        return self.exchanges and self._negatives is not None and self.recipe.negative_pool_workers == "all"

    def _formed(self, batch: Batch, step: int, generator: np.random.Generator, more: dict[str, Tensor]) -> DeviceBatch:
        """Form a batch on the device with the texts that come to it; ``more`` gets which of them are the negatives."""
        parts: Sequence[Ragged] = batch.parts
        if self._mega is not None:
            parts, chosen_N = self._mega(batch, generator)
            more["chosen"] = to_device(chosen_N, self.device)
        elif self._contrast is not None:
            parts, drawn_BK = with_contrast(self._contrast, parts, self.rank, generator, self.recipe.seed, step)
            more["contrast"] = to_device(drawn_BK.numpy(), self.device)
        whole = [self.encoder.with_boundaries(texts) if len(texts) else texts for texts in parts]
        return self._pairs.batch_of(whole, batch.total)

    def _drawn(self, batch: DeviceBatch, num_texts: int, generator: np.random.Generator) -> dict[str, Tensor]:
        """Return the random draws of regularizers and negatives; the pairs have the first ``num_texts`` texts."""
        recipe = self.recipe
        drawn: dict[str, Tensor] = {}
        if recipe.scramble:
            order = np.arange(batch.num_tokens)
            if num_texts:
                places = scrambled(recipe, batch.texts.slice(0, num_texts), generator)
                order[: len(places)] = places
            drawn["order"] = to_device(order, self.device)
        factors = drop_factors(recipe, batch.num_tokens, generator, self.matrix)
        drawn |= {f"factor{number}": factor for number, factor in enumerate(factors)}
        if self._negatives is not None and self._draws_negatives:
            drawn["draws"] = self._negatives.draws(num_texts, generator)
        return drawn

    @staticmethod
    def _merges(texts: Ragged) -> Tensor:
        merges = (texts.right_branching() if texts.merges is None else texts).merges
        assert merges is not None
        return torch.from_numpy(np.append(merges, np.int32(0)))  # the padding is one token

    def _run(self, inputs: StepInputs) -> None:
        """Run S steps one after the other, given the tensors of all of them, [S, …]; write their results."""
        tensors = dict(inputs.tensors)
        if self._in_closed_form:
            tensors["bags"] = _bags(tensors["offsets"], tensors["ids"].shape[1])
        steps = [
            dict(zip(tensors, step, strict=True)) for step in zip(*map(torch.unbind, tensors.values()), strict=True)
        ]
        places_P = torch.arange(inputs.tensors["by_row"].shape[2], device=self.device)
        terms_SBK = torch.stack([self._run_step(replace(inputs, tensors=step), places_P) for step in steps])
        if self._in_closed_form:
            terms_SBK = F.relu(self.recipe.margin + terms_SBK)
        _, _, num_terms = terms_SBK.shape
        loss_S = terms_SBK.sum(dim=(1, 2)) / inputs.total
        active_S = (terms_SBK > 0).sum(dim=(1, 2)) / (inputs.total * num_terms)
        self._results[: len(terms_SBK)].copy_(torch.stack([loss_S, active_S], dim=1))

    def _run_step(self, inputs: StepInputs, places_P: Tensor) -> Tensor:
        """Run a step; return the terms of the objective [B, K], in closed form those that the hinge gets, less δ."""
        tensors, recipe, bias = inputs.tensors, self.recipe, inputs.tensors["bias"]
        values, terms_BK = self._closed_form(inputs) if self._in_closed_form else self._by_autograd(inputs)
        if self.exchanges:
            self.update.sum_over_workers()
        order_P, segments_P, row_starts_P, again_P, rows_P = tensors["by_row"]
        if not recipe.train_words:
            self.update.move(rows_P, values, bias)
            return terms_BK
        # Texts or tokens of a worker's part, those of each worker after those of the one before.
        if self.exchanges:
            num_rows = inputs.num_texts if self._in_closed_form else len(rows_P) // self.world
            values = gather(values, num_rows, self.world)
        sums_PD = F.embedding_bag(order_P, values, segments_P, mode="sum")
        grad_PD = F.embedding_bag(places_P, sums_PD, row_starts_P, mode="sum").index_select(0, again_P)
        if recipe.update == "dense":
            grad_VD = torch.zeros_like(self.matrix).index_copy_(0, rows_P, grad_PD)
            self.update.move(rows_P, grad_VD, bias)
        else:
            self.update.move(rows_P, grad_PD, bias, (again_P == places_P)[:, None] if recipe.clip else None)
        return terms_BK

    def _by_autograd(self, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """Return the gradient of tokens' vectors [T, D], and the terms; other gradients are in ``grad``."""
        recipe = self.recipe
        leaf_TD = self.matrix.index_select(0, inputs.tensors["ids"]).requires_grad_(recipe.train_words)
        with torch.enable_grad(), self._autocast():
            terms = self._terms(leaf_TD, inputs)
        with torch.enable_grad():
            terms = terms.float()
            loss = terms.sum() / inputs.total
        composition = self.update.composition
        wanted = [leaf_TD, *composition] if recipe.train_words else composition
        grads = torch.autograd.grad(loss, wanted, materialize_grads=True)
        for parameter, grad in zip(reversed(composition), reversed(grads), strict=False):
            parameter.grad = grad
        return grads[0], terms.detach()

    def _autocast(self, *, enabled: bool = True) -> AbstractContextManager[None]:
        if self.recipe.precision != "bfloat16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16, enabled=enabled)

    def _terms(self, leaf_TD: Tensor, inputs: StepInputs) -> Tensor:
        """Return the terms of the objective, [B, K]."""
        recipe, num_texts = self.recipe, 2 * inputs.num_pairs
        vectors_MH, chosen_by_MH = self._encoded(leaf_TD, inputs)
        if recipe.objective == "squared_l2":
            return squared_l2_terms(vectors_MH)
        if recipe.similarity == "cosine":
            vectors_MH, chosen_by_MH = unit(vectors_MH), None if chosen_by_MH is None else unit(chosen_by_MH)
        vectors_NH = vectors_MH[:num_texts]
        if "contrast" in inputs.tensors:
            return contrastive_terms(recipe, vectors_NH, vectors_MH[num_texts:], inputs.tensors["contrast"])
        pool_PH, candidates_PH = vectors_MH, chosen_by_MH
        if self._gathers_pool:
            pool_PH, candidates_PH = gathered_pool(vectors_MH, chosen_by_MH, inputs.num_texts, self.world)
        negatives_N = inputs.tensors.get("chosen")
        if negatives_N is None:
            selected_NH = vectors_NH if chosen_by_MH is None else chosen_by_MH
            negatives_N = self._chosen(selected_NH, pool_PH if candidates_PH is None else candidates_PH, inputs)
        return margin_terms(vectors_NH, pool_PH, negatives_N, recipe.margin)

    def _encoded(self, leaf_TD: Tensor, inputs: StepInputs) -> tuple[Tensor, Tensor | None]:
        """Encode the texts of a step, like ``Step._encoded``."""
        tensors = inputs.tensors
        places_T = torch.arange(len(leaf_TD), device=self.device)
        order_T = tensors.get("order", places_T)
        factors = [tensors[name] for name in ("factor0", "factor1") if name in tensors]
        rows_ids = drop(leaf_TD, order_T, factors) if factors else (leaf_TD, order_T)
        vectors_NH = self._composed(*rows_ids, order_T, inputs)
        if not self._selects_apart:
            return vectors_NH, None
        before_T = places_T if self.recipe.scramble_time == "after" else order_T
        with torch.no_grad():
            return vectors_NH, self._composed(leaf_TD.detach(), before_T, before_T, inputs)

    def _composed(self, rows_RD: Tensor, ids_T: Tensor, order_T: Tensor, inputs: StepInputs) -> Tensor:
        """Return the vectors [N, H] of texts with the given order of tokens and the given word vectors."""
        composition = self.encoder.composition
        structure = [inputs.tensors["offsets"], *([] if inputs.merges is None else [inputs.merges])]
        if composition.reads_words:
            structure.append(inputs.tensors["ids"][order_T])
        how = {"steps": inputs.steps} if composition.is_recurrent else {}
        vectors: Tensor = composition(rows_RD, ids_T, *structure, **how)
        return vectors[:-1].float()

    @torch.no_grad()
    def _chosen(self, vectors_NH: Tensor, pool_PH: Tensor, inputs: StepInputs) -> Tensor:
        recipe, tensors = self.recipe, inputs.tensors
        # The least violating candidate is next to the threshold of its term, which is in float32.
        is_exact = recipe.negatives == "min_violation"
        with self._autocast(enabled=not is_exact):
            first, excluded_NP = self.rank * inputs.num_texts * self._gathers_pool, tensors.get("excluded")
            similarity_NP = candidate_similarity(
                vectors_NH, pool_PH, recipe.negative_pool, first=first, excluded_NP=excluded_NP
            )
        if recipe.negatives == "max" and excluded_NP is None and len(vectors_NH):
            return similarity_NP.argmax(dim=1)  # every text has a candidate
        positive_B1 = positive(vectors_NH) if is_exact else None
        return choose(recipe.negatives, similarity_NP, positive_B1, recipe.margin, tensors.get("draws"))

    def _closed_form(self, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """Return the gradient by any token of a text [N, D] without autograd, for bag-of-words encoders, and the terms.

        With the cosine, the mean of a text's vectors and their sum have the same unit vector and the same gradient.
        """
        offsets = inputs.tensors["offsets"]
        vectors_MD = F.embedding_bag(inputs.tensors["ids"], self.matrix, inputs.tensors["bags"], mode="sum")
        vectors_MD = vectors_MD[: len(offsets) - 2]
        if self.recipe.similarity == "cosine":
            vectors_MD.requires_grad_()
            with torch.enable_grad():
                unit_MD = F.rms_norm(vectors_MD, self._unit_D.shape, self._unit_D, self._unit_eps)
            grad_MD, terms_BK = self._margin_gradient(unit_MD.detach(), inputs)
            return torch.autograd.grad(unit_MD, vectors_MD, grad_MD)[0], terms_BK
        lengths_M1 = offsets.diff()[:-1, None].float() if self._is_mean else 1.0
        grad_MD, terms_BK = self._margin_gradient(vectors_MD / lengths_M1, inputs)
        return grad_MD / lengths_M1, terms_BK

    def _margin_gradient(self, vectors_MD: Tensor, inputs: StepInputs) -> tuple[Tensor, Tensor]:
        """Return the gradient of the mean loss by a worker's vectors, and the terms [B, 2] before hinge and margin."""
        num_texts, total, margin = 2 * inputs.num_pairs, inputs.total, self.recipe.margin
        if num_texts and self._is_small and not self._gathers_pool:
            return self._gradient_of_few(vectors_MD, total)
        vectors_ND, pool_PD = vectors_MD[:num_texts], vectors_MD
        if self._gathers_pool:
            pool_PD = gather(vectors_MD, inputs.num_texts, self.world)
        negatives_N = inputs.tensors.get("chosen")
        if negatives_N is None:
            negatives_N = self._chosen(vectors_ND, pool_PD, inputs)
        lacks_N1 = None
        if "chosen" in inputs.tensors or "excluded" in inputs.tensors:  # otherwise every text has a negative
            lacks_N1, negatives_N = negatives_N[:, None] < 0, negatives_N.clamp(min=0)
        apart_ND = pool_PD.index_select(0, negatives_N) - _swapped(vectors_ND)
        terms_N1 = (vectors_ND * apart_ND).sum(dim=1, keepdim=True)
        if lacks_N1 is not None:
            terms_N1.masked_fill_(lacks_N1, -torch.inf)
        share_N1 = (terms_N1 > -margin) / total
        moved_ND = vectors_ND * share_N1
        # Sums the texts whose negative each text is, in a fixed order.
        grad_PD = torch.ops.aten.embedding_dense_backward(moved_ND, negatives_N, len(pool_PD), -1, False)
        if self._gathers_pool:
            grad_PD = scatter_sum(grad_PD, inputs.num_texts)[: len(vectors_MD)]
        grad_PD[:num_texts].addcmul_(apart_ND, share_N1).sub_(_swapped(moved_ND))
        return grad_PD, terms_N1.view(-1, 2)

    def _gradient_of_few(self, vectors_ND: Tensor, total: int) -> tuple[Tensor, Tensor]:
        """Return the same for few texts and the rule max, by fewer kernels, which work on [N, N]: the gradient by a
        text's vector is a weighted sum of the other vectors.
        """
        num_texts = len(vectors_ND)
        mask_NN, minus_partner_NN = (constant[:num_texts, :num_texts] for constant in self._constants)
        similarity_NN = vectors_ND @ vectors_ND.T
        positive_BB = similarity_NN.view(num_texts // 2, 2, num_texts // 2, 2)[:, 0, :, 1]
        best = (similarity_NN + mask_NN).max(dim=1, keepdim=True)
        terms_B2 = best.values.view(-1, 2) - positive_BB.diagonal()[:, None]
        share_N1 = (terms_B2 > -self.recipe.margin).view(-1, 1) / total
        weights_NN = (minus_partner_NN * share_N1).scatter_(1, best.indices, share_N1)
        return (weights_NN + weights_NN.T) @ vectors_ND, terms_B2


def _bags(offsets: Tensor, num_tokens: int) -> Tensor:
    """Return the starts of the texts of S steps, and of short bags for the padding behind them, [S, M].

    A kernel adds the vectors of a bag one after the other, so that the padding as one bag would take longest.
    """
    places = torch.arange(0, num_tokens, _BAG_OF_PADDING, device=offsets.device)
    return torch.cat([offsets[:, :-2], (offsets[:, -2:-1] + places).clamp(max=num_tokens)], dim=1)


def _swapped(vectors_ND: Tensor) -> Tensor:
    """Return the vectors with the two of each pair swapped."""
    return vectors_ND.view(len(vectors_ND) // 2, 2, vectors_ND.shape[1]).flip(1).flatten(0, 1)
