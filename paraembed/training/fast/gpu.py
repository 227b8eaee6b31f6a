"""Training step on a GPU without synchronization: the host knows all shapes, so it never waits for a result.

``tests/training/fast/test_gpu.py`` checks that it equals ``training.step.Step`` to 1e-5, also on a CPU.

The leaf of the autograd graph holds one row per token, the word vector. Gradients of the same word are summed over
sorted segments instead of by atomic additions, so that equal runs give equal bits. Random draws are the same as in
``Step``, except for dropout, where the padding uses some of the draws.

Steps with repeating shapes are recorded as CUDA graphs, one per shape: at batch 100, kernels take microseconds, less
than their launch. A recorded step reads fixed memory: the inputs of a step are copied there, and the graph is replayed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders import Encoder
from paraembed.encoders.averages import Avg
from paraembed.encoders.packed import Steps, to_device
from paraembed.recipe import Recipe
from paraembed.text.ragged import Ragged
from paraembed.training.fast import is_additive
from paraembed.training.fast.gpu_pairs import DeviceBatch, DevicePairs, Longs
from paraembed.training.negatives import Negatives, candidate_similarity, choose
from paraembed.training.objectives import (
    SMALLEST_NORM,
    ContrastPhrases,
    contrastive_terms,
    margin_terms,
    positive,
    squared_l2_terms,
    unit,
)
from paraembed.training.regularize import drop, drop_factors, scrambled_by
from paraembed.training.update import Update, bias_of

_MOST_SHAPES = 128  # that are recorded, each with its inputs and the memory of its graph; some dozen come in practice
_WARM_UP = 3  # steps of a shape before it is recorded; what libraries allocate at first use must not be in a graph


@dataclass(frozen=True)
class Inputs:
    """Inputs of a step on the device.

    Attributes:
        tensors: tensors on the device by name: ids, text and offsets of the batch, and the random draws of the step.
        steps: shape of the layout of a recurrent encoder.
        merges: trees of the texts and of the padding, int32 on the CPU; None if the encoder does not read trees.
        total: number of pairs in the step.
    """

    tensors: dict[str, Tensor]
    steps: Steps | None
    merges: Tensor | None
    total: int

    @property
    def shape(self) -> tuple[object, ...]:
        """Return everything that decides which kernels run."""
        sizes = self.steps.sizes if self.steps else ()
        return self.total, sizes, *((name, *tensor.shape) for name, tensor in self.tensors.items())


class Graphs:
    """Runner of steps without trees; on a CPU it runs them without recording.

    The step function is an argument of every call. If it were stored, it and this object would refer to each other and
    stay in memory until a garbage collection.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._on_gpu = device, device.type == "cuda"
        self._memory = torch.cuda.graph_pool_handle() if self._on_gpu else None  # of all shapes
        self._recorded: dict[tuple[object, ...], tuple[torch.cuda.CUDAGraph, Inputs]] = {}
        self._seen: dict[tuple[object, ...], int] = {}

    def __call__(self, run: Callable[[Inputs], None], inputs: Inputs) -> None:
        """Run a step function, the same one in every call: the first steps of a shape directly, later ones from the
        recording.
        """
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
        """Record the step for inputs of this shape; recording does not run it."""
        recorded = Inputs(
            {name: tensor.clone() for name, tensor in inputs.tensors.items()}, inputs.steps, None, inputs.total
        )
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device), torch.cuda.graph(graph, pool=self._memory):
            run(recorded)
        return graph, recorded


STEP_DRAWS = 1
"""Last number in the seed of a step's draws; the order of an epoch is drawn from (seed, epoch)."""


class DeviceStep:
    """Step of the kind graphs, with the interface of ``Step``.

    Attributes:
        skipped_pairs: number of pairs that were alone in a batch and had no negative.
    """

    def __init__(self, encoder: Encoder, recipe: Recipe, pairs: Ragged) -> None:
        """Copy the pairs to the encoder's device; arguments and errors are those of ``Step``."""
        self.encoder, self.recipe, self.rank, self.world = encoder, recipe, 0, 1
        self.skipped_pairs = 0
        self.update = Update(encoder, recipe, 1)
        self.matrix, self.device = encoder.matrix.detach(), encoder.matrix.device
        self._texts, self._whole = pairs, encoder.with_boundaries(pairs)
        composition, is_contrastive = encoder.composition, recipe.objective == "contrastive"
        repeats = not composition.reads_trees and not is_contrastive
        self._pairs = DevicePairs(self._whole, self.device, recurrent=composition.is_recurrent, repeats=repeats)
        self._contrast = ContrastPhrases(pairs, recipe.contrast_phrases) if is_contrastive else None
        self._negatives = Negatives(recipe, encoder, pairs, 1) if recipe.objective == "margin" else None
        self._excludes = self._negatives is not None and self._negatives.excludes
        self._in_closed_form = is_additive(encoder.config, recipe) and not self._excludes
        is_random = recipe.negatives in {"rand", "mix"} or recipe.scramble or recipe.dropout or recipe.word_dropout
        self._draws = is_contrastive or bool(is_random)
        self._is_mean = isinstance(composition, Avg)
        self._result = torch.zeros(2, device=self.device)
        self._bias = torch.ones((), device=self.device), torch.ones((), device=self.device)
        self._graphs = Graphs(self.device)

    def batches(self, pairs: Ragged, epoch: int, first_pair: int = 0, first_step: int = 1) -> Iterator[DeviceBatch]:  # noqa: ARG002 - the interface of Step
        """Return the batches of an epoch of the pairs on the device; see ``Step.batches``."""
        recipe = self.recipe
        return self._pairs.epoch(epoch=epoch, seed=recipe.seed, batch_size=recipe.batch_size, first_pair=first_pair)

    def state(self) -> dict[str, Tensor]:
        """Return the optimizers' state as named tensors, like ``Step``."""
        return self.update.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that ``state`` returned."""
        self.update.load_state(tensors)

    @torch.no_grad()
    def __call__(self, batch: DeviceBatch, step: int) -> Tensor:
        """Train on a batch of ``batches``; ``step`` counts from 1 over the run. The return value is that of
        ``Step``.
        """
        if batch.total == 1 and self._negatives is not None:  # no negative exists: nothing moves
            self.skipped_pairs += 1
            return torch.zeros_like(self._result)
        inputs = self._inputs(batch, step)
        for constant, value in zip(self._bias, bias_of(step), strict=True):
            constant.fill_(value)
        if batch.repeats:
            self._graphs(self._train, inputs)
        else:
            self._train(inputs)
        return self._result.clone()

    def _inputs(self, batch: DeviceBatch, step: int) -> Inputs:
        """Return the inputs of the device for a batch; every draw is a function of (seed, step), in the order of
        ``Step``.
        """
        more: dict[str, Tensor] = {}
        if self._negatives is not None and self._excludes:
            texts = self._texts.take(batch.texts)
            more["excluded"] = self._negatives.excluded(texts, texts)
        if self._draws:
            generator, num_texts = np.random.default_rng((self.recipe.seed, step, 0, STEP_DRAWS)), len(batch.texts)
            if self._contrast is not None:
                contrast = self._contrast.draw(self._texts.take(batch.texts), generator)
                more["contrast"] = to_device(contrast.drawn.numpy(), self.device)
                together = np.concatenate([batch.texts, contrast.numbers])
                batch = next(self._pairs.batches(together[None], batch.total))
            more |= self._drawn(batch, num_texts, generator)
        tensors = {"ids": batch.ids_T, "text": batch.text_T, "offsets": batch.offsets, **more}
        return Inputs(tensors, batch.steps, self._merges(batch.texts), batch.total)

    def _drawn(self, batch: DeviceBatch, num_texts: int, generator: np.random.Generator) -> dict[str, Tensor]:
        """Return the random draws of regularizers and negatives; the first ``num_texts`` texts are those of the
        pairs.
        """
        recipe = self.recipe
        drawn: dict[str, Tensor] = {}
        if recipe.scramble:
            places = scrambled_by(recipe, self._whole.take(batch.texts[:num_texts]), generator)
            order = np.arange(len(batch.ids_T))
            order[: len(places)] = places
            drawn["order"] = to_device(order, self.device)
        if recipe.dropout or recipe.word_dropout:
            device_generator = torch.Generator(self.device).manual_seed(int(generator.integers(2**63)))
            shape = len(batch.ids_T), self.matrix.shape[1]
            factors = drop_factors(shape, recipe.dropout, recipe.word_dropout, device_generator, self.matrix)
            drawn |= {f"factor{number}": factor for number, factor in enumerate(factors)}
        if self._negatives is not None and recipe.negatives in {"rand", "mix"}:
            drawn["draws"] = self._negatives.draws(num_texts, generator)
        return drawn

    def _merges(self, texts: Longs) -> Tensor | None:
        if not self.encoder.composition.reads_trees:
            return None
        taken = self._whole.take(texts)
        merges = (taken.right_branching() if taken.merges is None else taken).merges
        assert merges is not None
        return torch.from_numpy(np.append(merges, np.int32(0)))  # the padding is one token

    def _train(self, inputs: Inputs) -> None:
        tensors, recipe = inputs.tensors, self.recipe
        if self._in_closed_form:
            source_T, values = tensors["text"], self._closed_form(inputs)
        else:
            source_T = torch.arange(len(tensors["ids"]), device=self.device)
            values = self._by_autograd(inputs)
        if not recipe.train_words:
            self.update.move(source_T, values, self._bias)
            return
        is_token_T = tensors["text"] < len(tensors["offsets"]) - 2
        rows_T, counted_T1, grad_TD = self._by_row(tensors["ids"], is_token_T, source_T, values)
        if recipe.update == "dense":
            grad_VD = torch.zeros_like(self.matrix).index_copy_(0, rows_T, grad_TD)
            self.update.move(rows_T, grad_VD, self._bias)
        else:
            self.update.move(rows_T, grad_TD, self._bias, counted_T1)

    def _by_row(
        self, ids_T: Tensor, is_token_T: Tensor, source_T: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Sum values over the tokens of each row.

        Args:
            ids_T: rows of the tokens.
            is_token_T: whether each position is a token; the others are padding and are ignored.
            source_T: index of each token's value.
            values: gradients [·, D].

        Returns:
            The R distinct rows, padded to T with repeated rows; whether each is one of the R [T, 1]; their gradients
                [T, D].
        """
        num_tokens, num_rows = len(ids_T), len(self.matrix)
        sorted_T, order_T = torch.where(is_token_T, ids_T, num_rows).sort(stable=True)  # padding is the last segment
        is_first_T = F.pad(sorted_T[1:] != sorted_T[:-1], (1, 0), value=True)
        places_T = torch.arange(num_tokens, device=ids_T.device)
        starts_T = torch.searchsorted(is_first_T.cumsum(0) - 1, places_T)  # num_tokens behind the last segment
        sums_TD = F.embedding_bag(source_T[order_T], values, starts_T, mode="sum")
        count = (is_first_T & (sorted_T < num_rows)).sum()
        again_T = places_T % count
        return sorted_T[starts_T[again_T]], (places_T < count)[:, None], sums_TD[again_T]

    def _by_autograd(self, inputs: Inputs) -> Tensor:
        """Return the gradient of each token's word vector [T, D]; the gradients of the other parameters go to their
        ``grad``.
        """
        recipe = self.recipe
        leaf_TD = self.matrix.index_select(0, inputs.tensors["ids"]).requires_grad_(recipe.train_words)
        with torch.enable_grad(), self._autocast():
            terms = self._terms(leaf_TD, inputs).float()
        with torch.enable_grad():
            loss = terms.sum() / inputs.total
        composition = self.update.composition
        wanted = [leaf_TD, *composition] if recipe.train_words else composition
        grads = torch.autograd.grad(loss, wanted, materialize_grads=True)
        for parameter, grad in zip(reversed(composition), reversed(grads), strict=False):
            parameter.grad = grad
        self._result.copy_(torch.stack([loss.detach(), (terms > 0).float().mean()]))
        return grads[0]

    def _autocast(self, *, enabled: bool = True) -> torch.autocast:
        is_rounded = enabled and self.recipe.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=is_rounded)

    def _terms(self, leaf_TD: Tensor, inputs: Inputs) -> Tensor:
        recipe = self.recipe
        vectors_NH, chosen_by_NH = self._encoded(leaf_TD, inputs)
        if recipe.objective == "squared_l2":
            return squared_l2_terms(vectors_NH)
        if recipe.similarity == "cosine":
            vectors_NH, chosen_by_NH = unit(vectors_NH), unit(chosen_by_NH)
        if "contrast" in inputs.tensors:
            pairs_NH, contrast_CH = vectors_NH[: 2 * inputs.total], vectors_NH[2 * inputs.total :]
            return contrastive_terms(pairs_NH, contrast_CH, inputs.tensors["contrast"], recipe.margin)
        return margin_terms(vectors_NH, vectors_NH, self._chosen(chosen_by_NH, inputs), recipe.margin)

    def _encoded(self, leaf_TD: Tensor, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Encode the texts of a step, like ``Step._encoded``."""
        recipe, tensors = self.recipe, inputs.tensors
        places_T = torch.arange(len(leaf_TD), device=self.device)
        order_T = tensors.get("order", places_T)
        factors = [tensors[name] for name in ("factor0", "factor1") if name in tensors]
        rows_ids = drop(leaf_TD, order_T, factors) if factors else (leaf_TD, order_T)
        vectors_NH = self._composed(*rows_ids, order_T, inputs)
        chosen_by_it = not factors and (not recipe.scramble or recipe.scramble_time == "before")
        if chosen_by_it or recipe.objective != "margin":
            return vectors_NH, vectors_NH.detach()
        before_T = places_T if recipe.scramble_time == "after" else order_T
        with torch.no_grad():
            return vectors_NH, self._composed(leaf_TD.detach(), before_T, before_T, inputs)

    def _composed(self, rows_RD: Tensor, ids_T: Tensor, order_T: Tensor, inputs: Inputs) -> Tensor:
        """Return the vectors [N, H] of texts with the given order of tokens and the given word vectors."""
        composition = self.encoder.composition
        structure = [inputs.tensors["offsets"], *([] if inputs.merges is None else [inputs.merges])]
        if composition.reads_words:
            structure.append(inputs.tensors["ids"][order_T])
        how = {"steps": inputs.steps} if composition.is_recurrent else {}
        vectors: Tensor = composition(rows_RD, ids_T, *structure, **how)
        return vectors[:-1].float()

    @torch.no_grad()
    def _chosen(self, vectors_NH: Tensor, inputs: Inputs) -> Tensor:
        recipe, tensors = self.recipe, inputs.tensors
        # The least violating candidate is next to the threshold of its term, which is in float32.
        is_exact = recipe.negatives == "min_violation"
        with self._autocast(enabled=not is_exact):
            excluded_NN = tensors.get("excluded")
            similarity_NN = candidate_similarity(vectors_NH, vectors_NH, recipe.negative_pool, excluded_NP=excluded_NN)
        positive_B1 = positive(vectors_NH) if is_exact else None
        return choose(recipe.negatives, similarity_NN, positive_B1, recipe.margin, tensors.get("draws"))

    def _closed_form(self, inputs: Inputs) -> Tensor:
        """Return the gradient with respect to any token of a text [N + 1, D] for bag-of-words encoders; zero for the
        padding.

        This avoids autograd's operators, which would take most of a step of the smallest encoders.
        """
        lengths_N1 = inputs.tensors["offsets"].diff()[:-1, None].float()
        bags = inputs.tensors["ids"], self.matrix, inputs.tensors["offsets"][:-1]  # the last is the padding
        vectors_ND = F.embedding_bag(*bags, mode="sum")[:-1]
        if self._is_mean:
            vectors_ND = vectors_ND / lengths_N1
        norms_N1 = vectors_ND.norm(dim=1, keepdim=True)
        if self.recipe.similarity == "cosine":
            vectors_ND = vectors_ND / norms_N1.clamp(min=SMALLEST_NORM)
        negatives_N = self._chosen(vectors_ND, inputs)
        grad_ND = self._margin_gradient(vectors_ND, negatives_N)
        if self.recipe.similarity == "cosine":
            along_N1 = (grad_ND * vectors_ND).sum(dim=1, keepdim=True) * (norms_N1 > SMALLEST_NORM)
            grad_ND = (grad_ND - along_N1 * vectors_ND) / norms_N1.clamp(min=SMALLEST_NORM)
        return F.pad(grad_ND / lengths_N1 if self._is_mean else grad_ND, (0, 0, 0, 1))

    def _margin_gradient(self, vectors_ND: Tensor, negatives_N: Tensor) -> Tensor:
        """Return the gradient of the mean loss with respect to the vectors; write the loss and the active fraction to
        ``_result``.
        """
        pairs = len(vectors_ND) // 2
        partners_ND = vectors_ND.view(pairs, 2, -1).flip(1).reshape(len(vectors_ND), -1)
        apart_ND = vectors_ND[negatives_N] - partners_ND
        terms_N1 = F.relu(self.recipe.margin + (vectors_ND * apart_ND).sum(dim=1, keepdim=True))
        active_N1 = (terms_N1 > 0).to(vectors_ND)
        self._result.copy_(torch.stack([terms_N1.sum() / pairs, active_N1.mean()]))
        share_ND = vectors_ND * active_N1 / pairs
        # Sums the texts whose negative each text is, in a fixed order.
        as_negative_ND = torch.ops.aten.embedding_dense_backward(share_ND, negatives_N, len(share_ND), -1, False)
        grad_ND: Tensor = apart_ND * active_N1 / pairs + as_negative_ND
        return grad_ND - share_ND.view(pairs, 2, -1).flip(1).reshape(len(vectors_ND), -1)
