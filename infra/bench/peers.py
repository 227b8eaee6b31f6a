"""Peer programs: training with PyTorch or sentence-transformers, embedding with two libraries of static vectors.

``embedding_bag`` and ``embedding`` compute the same as ``training.step``: the margin loss on cosines, with the most
similar text of the other pairs in the batch as negative (Wieting 2016 eq. 11). Their batches are prepared on the
device. ``train_static_embedding`` is sentence-transformers with its own trainer and loss, including its tokenization.
"""

import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from infra.bench.generated import pair_texts
from paraembed.text.ragged import Ragged
from paraembed.text.vocabulary import UNKNOWN, Words

MARGIN, RATE = 0.4, 0.001
_PEER_WIDTH, _PEER_WORDS = 256, 29_000  # as released static models have them: 256 dimensions, 30k WordPieces


def margin_loss(vectors_NH: Tensor) -> Tensor:
    """Return the mean over pairs of the two hinge terms; the texts of pair i are rows 2i and 2i + 1."""
    vectors_NH = F.normalize(vectors_NH)
    pair_N = torch.arange(len(vectors_NH), device=vectors_NH.device) // 2
    with torch.no_grad():
        similarity_NN = vectors_NH @ vectors_NH.T
        hardest_N = similarity_NN.masked_fill_(pair_N[:, None] == pair_N, -torch.inf).argmax(dim=1)
    positive_B = (vectors_NH[0::2] * vectors_NH[1::2]).sum(dim=1)
    negative_N = (vectors_NH * vectors_NH[hardest_N]).sum(dim=1)
    return F.relu(MARGIN - positive_B.repeat_interleave(2) + negative_N).sum() / len(positive_B)


def embedding_bag(words: Words, batches: Sequence[Ragged], device: torch.device) -> Iterator[Tensor]:
    """Train with a sparse gradient and ``SparseAdam``; yield the loss of each step, without end."""
    bag = nn.EmbeddingBag.from_pretrained(torch.from_numpy(words.matrix), freeze=False, mode="mean", sparse=True)
    bag = bag.to(device)
    optimizer = torch.optim.SparseAdam(bag.parameters(), lr=RATE)
    ready = [(torch.from_numpy(tokens.ids), torch.from_numpy(tokens.offsets[:-1])) for tokens in batches]
    for ids_T, offsets_N in cycle([(ids.to(device, torch.int64), offsets.to(device)) for ids, offsets in ready]):
        loss = margin_loss(bag(ids_T, offsets_N))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()  # type: ignore[no-untyped-call,unused-ignore]
        yield loss.detach()


def embedding(words: Words, batches: Sequence[Ragged], device: torch.device) -> Iterator[Tensor]:
    """Train with padded texts, a dense gradient and ``Adam``; yield the loss of each step, without end."""
    matrix = torch.from_numpy(words.matrix)
    table = nn.Embedding.from_pretrained(matrix, freeze=False).to(device)  # type: ignore[no-untyped-call]
    optimizer = torch.optim.Adam(table.parameters(), lr=RATE)
    for ids_NL, mask_NL in cycle([tuple(tensor.to(device) for tensor in _padded(batch)) for batch in batches]):
        mask_NL1 = mask_NL[:, :, None]
        loss = margin_loss((table(ids_NL) * mask_NL1).sum(dim=1) / mask_NL1.sum(dim=1))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()  # type: ignore[no-untyped-call,unused-ignore]
        yield loss.detach()


def _padded(texts: Ragged) -> tuple[Tensor, Tensor]:
    """Return padded ids (0 after the end of a text) and a mask (1.0 for a token), both [N, L]."""
    lengths = texts.lengths
    mask_NL = np.arange(lengths.max()) < lengths[:, None]
    ids_NL = np.zeros(mask_NL.shape, np.int64)
    ids_NL[mask_NL] = texts.ids
    return torch.from_numpy(ids_NL), torch.from_numpy(mask_NL.astype(np.float32))


def train_static_embedding(
    words: Words, pairs: Ragged, batch_size: int, device: str, folder: str, on_step: Callable[[int], None]
) -> None:
    """Train sentence-transformers' ``StaticEmbedding`` with its trainer and ``MultipleNegativesRankingLoss``.

    ``on_step`` is called with the number of finished steps; an exception that it raises ends the training.
    """
    from datasets import Dataset  # noqa: PLC0415 - optional, and slow to import
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer  # noqa: PLC0415
    from sentence_transformers.losses import MultipleNegativesRankingLoss  # noqa: PLC0415
    from sentence_transformers.models import StaticEmbedding  # noqa: PLC0415
    from sentence_transformers.training_args import SentenceTransformerTrainingArguments  # noqa: PLC0415
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415
    from transformers import TrainerCallback  # noqa: PLC0415

    class Steps(TrainerCallback):  # type: ignore[misc, unused-ignore]  # unused where transformers is installed
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:  # noqa: ARG002 - theirs
            on_step(state.global_step)

    rows = {word: row for row, word in enumerate(words.vocabulary.to_pylist())}
    tokenizer = Tokenizer(models.WordLevel(rows, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=words.matrix)], device=device)
    first, second = pair_texts(pairs, words)
    settings = SentenceTransformerTrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=batch_size,
        num_train_epochs=1_000_000,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        use_cpu=device == "cpu",
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


def library_encode(model: str, **options: Any) -> Callable[[list[str]], Any]:
    """Return ``encode`` of a model's own library: ``st:``, ``m2v:``, ``luxical:``, else this package."""
    library, _, path = model.partition(":")
    if library == "m2v":
        return partial(import_module("model2vec").StaticModel.from_pretrained(path).encode, **options)
    if library == "st":
        encoder = import_module("sentence_transformers").SentenceTransformer(path, device="cpu", local_files_only=True)
        batch_size = 1024 if type(encoder[0]).__name__ == "StaticEmbedding" else 32
        return partial(encoder.encode, batch_size=batch_size, show_progress_bar=False)
    if library == "luxical":
        embedder: Callable[[list[str]], Any] = import_module("luxical.embedder").Embedder.load(Path(path) / "model.npz")
        return embedder
    encode: Callable[[list[str]], Any] = import_module("paraembed").load(model).encode
    return encode


def model2vec_encode(words: Sequence[str]) -> Callable[[list[str]], Any]:
    """Return ``encode`` of a ``StaticModel`` like the released models; ``words`` are in its vocabulary."""
    from model2vec import StaticModel  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - optional

    tokenizer, vectors = _word_pieces(words)
    encode: Callable[[list[str]], Any] = StaticModel(vectors, tokenizer).encode
    return encode


def save_model2vec(words: Sequence[str], folder: Path) -> None:
    """Save a ``StaticModel`` as its released models are; ``words`` are in its vocabulary."""
    from model2vec import StaticModel  # noqa: PLC0415 - optional

    distinct = dict.fromkeys(word for word in words if word != UNKNOWN)  # which no released model contains
    tokenizer, vectors = _word_pieces(list(distinct))
    StaticModel(vectors, tokenizer).save_pretrained(folder)


def save_int8(model: Path, folder: Path) -> Path:
    """Save a transformer of sentence-transformers as an ONNX graph with 8-bit weights; return its folder.

    One scale per channel and 7 bits (``reduce_range``), because processors without VNNI instructions add pairs of
    products in 16 bits: with 8 bits the sums overflow, and cosines with the float32 vectors fall from 0.98 to 0.86.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - optional
    from transformers import AutoModel  # noqa: PLC0415 - optional

    class States(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(model, attn_implementation="eager", local_files_only=True).eval()

        def forward(self, *inputs: Tensor) -> Any:
            return self.model(**dict(zip(names, inputs, strict=True))).last_hidden_state

    names = ["input_ids", "attention_mask", "token_type_ids"]
    shutil.copytree(model, folder)
    graph, ones = folder / "float32.onnx", torch.ones(2, 7, dtype=torch.long)
    axes = {name: {0: "n", 1: "l"} for name in (*names, "states")}
    inputs = (ones, ones, ones - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that needs no further package is deprecated
        torch.onnx.export(
            States(), inputs, str(graph), input_names=names, output_names=["states"], dynamic_axes=axes, dynamo=False
        )
    quantize_dynamic(graph, folder / "model.onnx", weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    graph.unlink()
    return folder


def static_embedding_encode(words: Sequence[str]) -> Callable[[list[str]], Any]:
    """Return ``encode`` of sentence-transformers' ``StaticEmbedding``; ``words`` are in its vocabulary."""
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - optional, and slow to import
    from sentence_transformers.models import StaticEmbedding  # noqa: PLC0415

    tokenizer, vectors = _word_pieces(words)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu")
    return lambda texts: model.encode(texts, batch_size=1024, show_progress_bar=False)


def _word_pieces(words: Sequence[str]) -> tuple[Any, Any]:
    """Return a BERT tokenizer, and random vectors of its word pieces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # noqa: PLC0415 - optional

    characters = sorted({character for word in words for character in word})
    pieces = ["[UNK]", *characters, *(f"##{character}" for character in characters), *words[:_PEER_WORDS]]
    rows = {piece: row for row, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(rows, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer, np.random.default_rng(1).standard_normal((len(rows), _PEER_WIDTH), dtype=np.float32)
