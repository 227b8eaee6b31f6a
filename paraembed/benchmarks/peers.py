"""What others would write for the same training: mean of word vectors, pairs in batches, Adam.

``embedding_bag`` and ``embedding`` compute what ``training.step`` does: the margin loss on cosines, the negative being
the most similar text of the other pairs of the batch (Wieting 2016 eq. 11). ``static_embedding`` is
sentence-transformers with its own trainer and its own loss. The first two get their batches ready made, on the device;
the third tokenises texts, as it always does.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.ragged import Ragged
from paraembed.words import UNKNOWN, Words

MARGIN, RATE = 0.4, 0.001


def margin_loss(vectors_NH: Tensor) -> Tensor:
    """Mean over pairs of the two hinge terms; texts of pair i stand at rows 2i and 2i + 1."""
    vectors_NH = F.normalize(vectors_NH)
    pair_N = torch.arange(len(vectors_NH), device=vectors_NH.device) // 2
    with torch.no_grad():
        similarity_NN = vectors_NH @ vectors_NH.T
        hardest_N = similarity_NN.masked_fill_(pair_N[:, None] == pair_N, -torch.inf).argmax(dim=1)
    positive_B = (vectors_NH[0::2] * vectors_NH[1::2]).sum(dim=1)
    negative_N = (vectors_NH * vectors_NH[hardest_N]).sum(dim=1)
    return F.relu(MARGIN - positive_B.repeat_interleave(2) + negative_N).sum() / len(positive_B)


def embedding_bag(words: Words, batches: Sequence[Ragged], device: torch.device) -> Iterator[Tensor]:
    """Train with a sparse gradient and ``SparseAdam``; yields the loss of each step, without end."""
    bag = nn.EmbeddingBag.from_pretrained(torch.from_numpy(words.matrix), freeze=False, mode="mean", sparse=True)
    bag = bag.to(device)
    optimiser = torch.optim.SparseAdam(bag.parameters(), lr=RATE)
    ready = [(torch.from_numpy(one.ids), torch.from_numpy(one.offsets[:-1])) for one in batches]
    for ids_T, offsets_N in cycle([(ids.to(device, torch.int64), offsets.to(device)) for ids, offsets in ready]):
        loss = margin_loss(bag(ids_T, offsets_N))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()  # type: ignore[no-untyped-call,unused-ignore]
        yield loss.detach()


def embedding(words: Words, batches: Sequence[Ragged], device: torch.device) -> Iterator[Tensor]:
    """Train with padded texts, a dense gradient and ``Adam``; yields the loss of each step, without end."""
    matrix = torch.from_numpy(words.matrix)
    table = nn.Embedding.from_pretrained(matrix, freeze=False).to(device)  # type: ignore[no-untyped-call]
    optimiser = torch.optim.Adam(table.parameters(), lr=RATE)
    for ids_NL, mask_NL in cycle([tuple(one.to(device) for one in _padded(batch)) for batch in batches]):
        mask_NL1 = mask_NL[:, :, None]
        loss = margin_loss((table(ids_NL) * mask_NL1).sum(dim=1) / mask_NL1.sum(dim=1))
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()  # type: ignore[no-untyped-call,unused-ignore]
        yield loss.detach()


def _padded(texts: Ragged) -> tuple[Tensor, Tensor]:
    """Ids, 0 behind the end of a text, and 1.0 where there is a token; [N, L] both."""
    lengths = texts.lengths
    mask_NL = np.arange(lengths.max()) < lengths[:, None]
    ids_NL = np.zeros(mask_NL.shape, np.int64)
    ids_NL[mask_NL] = texts.ids
    return torch.from_numpy(ids_NL), torch.from_numpy(mask_NL.astype(np.float32))


def static_embedding(
    words: Words,
    pairs: Ragged,
    batch_size: int,
    device: torch.device,
    folder: Path,
    on_step: Callable[[int], None],
) -> None:
    """Train sentence-transformers' ``StaticEmbedding`` with its trainer and ``MultipleNegativesRankingLoss``.

    Args:
        words: of the model; the tokeniser splits at white space.
        pairs: what to train on.
        batch_size: pairs a step.
        device: where.
        folder: the trainer wants one.
        on_step: told how many steps are done; what it raises ends the training.

    Raises:
        ModuleNotFoundError: sentence-transformers, or what its trainer needs, is not installed.
    """
    from datasets import Dataset  # noqa: PLC0415 - optional, and slow to import
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer  # noqa: PLC0415
    from sentence_transformers.losses import MultipleNegativesRankingLoss  # noqa: PLC0415
    from sentence_transformers.models import StaticEmbedding  # noqa: PLC0415
    from sentence_transformers.training_args import SentenceTransformerTrainingArguments  # noqa: PLC0415
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415
    from transformers import TrainerCallback  # noqa: PLC0415

    class Steps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002 - theirs
            on_step(state.global_step)

    rows = {word: row for row, word in enumerate(words.vocabulary.to_pylist())}
    tokenizer = Tokenizer(models.WordLevel(rows, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=words.matrix)], device=str(device)
    )
    first, second = texts_of(pairs, words)
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=batch_size,
        num_train_epochs=1_000_000,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        use_cpu=device.type == "cpu",
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
    )
    SentenceTransformerTrainer(
        model=model,
        args=settings,
        train_dataset=Dataset.from_dict({"anchor": first.to_pylist(), "positive": second.to_pylist()}),
        loss=MultipleNegativesRankingLoss(model),
        callbacks=[Steps()],
    ).train()


def texts_of(pairs: Ragged, words: Words) -> tuple[pa.StringArray, pa.StringArray]:
    """First and second texts of pairs, tokens joined by one space."""
    tokens = pa.LargeListArray.from_arrays(pairs.offsets, words.vocabulary.take(pa.array(pairs.ids)))
    texts = pc.binary_join(tokens, " ")
    numbers = np.arange(len(pairs))
    return texts.take(pa.array(numbers[0::2])), texts.take(pa.array(numbers[1::2]))


def every(steps: Iterator[object], interval: int, on_step: Callable[[int], None]) -> None:
    """Run steps; ``on_step`` is told how many are done each ``interval`` of them, and ends it by what it raises."""
    for number in count(1):
        next(steps)
        if number % interval == 0:
            on_step(number)
