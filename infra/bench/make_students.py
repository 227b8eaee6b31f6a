"""Peers of the benchmark of static encoders: each made by its own library from the same teacher, texts and pairs.

The settings are those of each library's own recipe, except where the recipe is for 500 times as much data; the
docstrings say what differs. Everything runs on one thread of a process of its own.
"""

import json
import shutil
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

TEXTS, PAIRS, VECTORS = "texts.parquet", "pairs.parquet", "vectors"
PACKAGES = {
    "model2vec": ("skeletoken",),  # of its extra "distill"
    "tokenlearn": ("tokenlearn",),
    "static_embedding": ("accelerate", "datasets"),  # of the trainer
    "from_model2vec": ("skeletoken", "accelerate", "datasets"),
    "luxical": ("luxical",),
}
"""Encoder → packages that make it, besides those of the extra ``st`` and ``m2v``."""
NEEDS = {"tokenlearn": (VECTORS,), "from_model2vec": ("model2vec",), "luxical": (VECTORS,)}
"""Encoder → what it is made from; its minutes count, too."""
_BLOCK = 4096  # texts whose token states are in memory together


def make(clock: Callable[[int], None], key: str, teacher: str, work: str) -> None:
    """Make the vectors of the teacher, or a peer, in ``work/key`` unless it exists, and record the CPU minutes."""
    folder, unfinished = Path(work) / key, Path(work) / f"{key}.unfinished"
    if not folder.exists():
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        started = time.process_time()
        torch.manual_seed(1)
        _MAKERS[key](teacher, Path(work), unfinished)
        folder.with_suffix(".json").write_text(json.dumps({"minutes": (time.process_time() - started) / 60}))
        unfinished.rename(folder)
    clock(0)


def minutes_of(key: str, work: Path) -> float:
    """Return the CPU minutes of a peer, with those of what it is made from."""
    files = [work / f"{name}.json" for name in (*NEEDS.get(key, ()), key)]
    return float(sum(json.loads(file.read_text())["minutes"] for file in files))


def _texts(work: Path) -> list[str]:
    texts: list[str] = pq.read_table(work / TEXTS)["text"].to_pylist()
    return texts


def _vectors(teacher: str, work: Path, out: Path) -> None:
    """Save the teacher's text vectors, and the means of its token states without the special tokens, float32 [n, H].

    It computes in bfloat16, which is almost twice as fast.
    """
    model = import_module("sentence_transformers").SentenceTransformer(
        teacher, device="cpu", local_files_only=True, model_kwargs={"dtype": torch.bfloat16}
    )
    options = {"batch_size": 32, "output_value": None, "convert_to_numpy": False, "show_progress_bar": False}
    texts, vectors, means = _texts(work), [], []
    for first in range(0, len(texts), _BLOCK):
        for output in model.encode(texts[first : first + _BLOCK], **options):
            last = int(output["attention_mask"].sum()) - 1
            vectors.append(output["sentence_embedding"].float().numpy())
            means.append(output["token_embeddings"][1:last].float().mean(dim=0).numpy())
    np.savez(out / "vectors.npz", vectors=np.stack(vectors), means=np.nan_to_num(np.stack(means)))


def _model2vec(teacher: str, work: Path, out: Path) -> None:  # noqa: ARG001 - it reads no texts
    """Distill with all defaults: 256 dimensions, float16."""
    import_module("model2vec.distill").distill(teacher, device="cpu").save_pretrained(str(out))


def _tokenlearn(teacher: str, work: Path, out: Path) -> None:
    """Train as ``tokenlearn.train --vocab-size 0`` does: the teacher's pieces, from a model2vec of 256 dimensions.

    Its default adds 56,000 words of the texts; a batch of them is as long as its longest, such as a row of dashes, so
    they alone take the teacher about 20 minutes.
    """
    train = import_module("tokenlearn.train")
    model = train.distill(teacher, device="cpu", pca_dims=256, quantize_to="float32")
    with np.load(work / VECTORS / "vectors.npz") as arrays:
        train.train_model(model, _texts(work), arrays["means"], device="cpu", pca_dims=256).save_pretrained(str(out))


def _static_embedding(teacher: str, work: Path, out: Path) -> None:
    """Train random vectors as the recipe of static-retrieval-mrl-en-v1 does: 1,024 dimensions, learning rate 0.2."""
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(Path(teacher) / "tokenizer.json"))
    static = import_module("sentence_transformers.models").StaticEmbedding(tokenizer, embedding_dim=1024)
    _train_pairs(static, 0.2, work, out)


def _from_model2vec(teacher: str, work: Path, out: Path) -> None:  # noqa: ARG001 - the teacher made model2vec's vectors
    """Train from model2vec's vectors, whose values are smaller than random ones, as is the learning rate.

    They are float16, in which the training spoils them: STS r 40.9, from 69.3 before it.
    """
    models = import_module("sentence_transformers.models")
    _train_pairs(models.StaticEmbedding.from_model2vec(str(work / "model2vec")).float(), 0.01, work, out)


def _train_pairs(static: Any, rate: float, work: Path, out: Path) -> None:
    """Train with the in-batch negatives of ``MultipleNegativesRankingLoss``, for one epoch of batches of 2,048."""
    data = import_module("datasets").Dataset.from_dict(pq.read_table(work / PAIRS).to_pydict())
    library = import_module("sentence_transformers")
    model = library.SentenceTransformer(modules=[static], device="cpu")
    settings = import_module("sentence_transformers.training_args").SentenceTransformerTrainingArguments(
        output_dir=str(out / "trainer"),
        num_train_epochs=1,
        per_device_train_batch_size=2048,
        learning_rate=rate,
        warmup_steps=0.1,  # as a fraction
        batch_sampler="no_duplicates",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        report_to="none",
    )
    loss = import_module("sentence_transformers.losses").MultipleNegativesRankingLoss(model)
    library.SentenceTransformerTrainer(model=model, args=settings, train_dataset=data, loss=loss).train()
    shutil.rmtree(out / "trainer", ignore_errors=True)
    model.save(str(out))


def _luxical(teacher: str, work: Path, out: Path, epochs: int = 8, batch_size: int = 1024, rate: float = 1e-2) -> None:
    """Train as the project ``luxical_one`` does, but for 8 epochs of batches of 1,024 instead of 3 of 12,288."""
    embedders, ngrams = import_module("luxical.embedder"), import_module("luxical.ngrams")
    training, layers = import_module("luxical.training"), import_module("luxical.sparse_to_dense_neural_nets")
    tokenizer = import_module("luxical.tokenization").load_arrow_tokenizer_from_file(Path(teacher) / "tokenizer.json")
    texts = pq.read_table(work / TEXTS)["text"].combine_chunks()
    blocks = (texts.slice(first, _BLOCK) for first in range(0, len(texts), _BLOCK))
    tokens = [tokenizer.tokenize(block, add_special_tokens=False) for block in blocks]
    documents = [ids for block in tokens for ids in block.to_numpy(zero_copy_only=False)]
    most = sum(5 * len(ids) for ids in documents)  # n-grams, so that all counts are exact
    summary = ngrams.space_saving_ngram_summary(documents, max_ngram_length=5, num_top_items=most)
    embedder = embedders.initialize_embedder_from_ngram_summary(
        summary, tokenizer, (96, 3072, 3072, 192), min_ngram_count_multiple=8.0
    )
    features = embedder.tfidf_from_bow(embedder.bow_from_tokens(documents))
    with np.load(work / VECTORS / "vectors.npz") as arrays:
        vectors = torch.from_numpy(arrays["vectors"])
    network = embedder.bow_to_dense_embedder.to_torch()
    optimizer = training.equal_beta_adamw(network.parameters(), lr=rate)
    steps = epochs * (len(documents) // batch_size)
    to_torch = import_module("luxical.csr_matrix_utils").csr_matrix_to_torch
    for step, rows in enumerate(training.batch_index_generator(len(documents), steps, batch_size), start=1):
        for group in optimizer.param_groups:
            group["lr"] = rate * training.wsd_lr_schedule(step, steps, int(0.05 * steps), int(0.1 * steps))
        loss = training.contrastive_distillation_loss(network(to_torch(features[rows])), vectors[rows], 3.0)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    trained = layers.SparseToDenseEmbedder.from_torch(network)
    embedder.replace_sparse_to_dense_embedder(trained).save(out / "model.npz")


_MAKERS: dict[str, Callable[[str, Path, Path], None]] = {
    VECTORS: _vectors,
    "model2vec": _model2vec,
    "tokenlearn": _tokenlearn,
    "static_embedding": _static_embedding,
    "from_model2vec": _from_model2vec,
    "luxical": _luxical,
}
