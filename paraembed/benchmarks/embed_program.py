"""The process of one program: ``python -m paraembed.benchmarks.embed_program TASK``, a JSON object."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.nn import functional as F

from paraembed import checkpoint
from paraembed.benchmarks.embed_case import read_texts
from paraembed.benchmarks.turns import Finished, Turn, Turns, peak_bytes
from paraembed.embedding.columns import carried_fields
from paraembed.embedding.inputs import check_apart, list_inputs
from paraembed.embedding.part import REPORTS, embed_part, embedded, layout
from paraembed.embedding.plan import Plan, make_plan, part_name
from paraembed.embedding.rows import Rows, read_part
from paraembed.embedding.settings import Settings
from paraembed.embedding.store import Folder
from paraembed.encoders import Encoder
from paraembed.files import write_file
from paraembed.ragged import Ragged
from paraembed.text import tokenise
from paraembed.words import word_ids

_BATCH_ROWS = Settings().batch_size
_GROUPS_A_PART, _PARTS = 100, 8
_PEER_WIDTH, _PEER_WORDS = 256, 29_000


@dataclass(frozen=True)
class Task:
    """What a process is to do.

    Attributes:
        program: key of it.
        encoder: folder.
        texts: file of sentences.
        folder: for what it writes.
        rows: sentences in all; input files, or row groups of the input.
        part_rows: rows an output file.
        threads: it may use.
        rank: which of the processes of the program it is, from 0.
        world: how many there are.
    """

    program: str
    encoder: str
    texts: str
    folder: str
    rows: int
    part_rows: int
    threads: int
    rank: int = 0
    world: int = 1

    def command(self) -> list[str]:
        """The command line that does it."""
        return [sys.executable, "-P", "-m", "paraembed.benchmarks.embed_program", json.dumps(asdict(self))]


Pass = Callable[[], int]
"""Do the work once; says how many rows it was."""


def main(task: Task) -> None:
    """Do the task once a turn, until no more turns are wanted; the first time is the warm-up."""
    torch.set_num_threads(task.threads)
    pa.set_cpu_count(task.threads)
    turns = Turns(0, torch.device("cpu"))
    try:
        once = PROGRAMS[task.program](task)
    except ModuleNotFoundError as missing:
        turns.skip(f"{missing.name} is not installed")
        return
    try:
        once()
        turns.begin()
        while True:
            started, cpu_started = time.perf_counter(), time.process_time()
            rows = once()
            seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
            turns.end(Turn(rows, seconds, cpu_seconds, peak_bytes()))
    except Finished:
        return


def _encode(task: Task) -> Pass:
    encoder, texts = checkpoint.load(task.encoder), read_texts(Path(task.texts), task.rows).to_pylist()
    return lambda: len(encoder.encode(texts))


def _model2vec(task: Task) -> Pass:
    """``StaticModel`` as its released models are: WordPiece of 30k pieces, 256 numbers; the pieces are words."""
    from model2vec import StaticModel  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415 - optional

    texts, tokenizer, vectors = _peer(task)
    model = StaticModel(vectors, tokenizer)
    return lambda: len(model.encode(texts))


def _static_embedding(task: Task) -> Pass:
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - optional, and slow to import
    from sentence_transformers.models import StaticEmbedding  # noqa: PLC0415

    texts, tokenizer, vectors = _peer(task)
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu")
    return lambda: len(model.encode(texts, batch_size=1024, show_progress_bar=False))


def _peer(task: Task) -> tuple[list[str], Any, Any]:
    """Sentences, and a BERT tokeniser with its vectors, made of the encoder's words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers  # noqa: PLC0415 - optional

    texts = read_texts(Path(task.texts), task.rows).to_pylist()
    words = checkpoint.load(task.encoder).vocabulary.to_pylist()
    characters = sorted({character for word in words for character in word})
    pieces = ["[UNK]", *characters, *(f"##{one}" for one in characters), *words[:_PEER_WORDS]]
    rows = {piece: row for row, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(rows, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return texts, tokenizer, np.random.default_rng(1).standard_normal((len(rows), _PEER_WIDTH), dtype=np.float32)


def _floor(task: Task) -> Pass:
    """Texts that are in memory → Parquet, with nothing around it: no plan, no report, no digest, no fsync."""
    encoder = checkpoint.load(task.encoder)
    start, stop = (task.rows * one // task.world for one in (task.rank, task.rank + 1))
    texts = read_texts(Path(task.texts), stop).slice(start)
    kind = pa.list_(pa.float32(), encoder.width)
    schema = pa.schema([pa.field("row", pa.int64(), nullable=False), pa.field("embedding", kind, nullable=False)])
    options = layout(schema, Settings())

    @torch.inference_mode()
    def once() -> int:
        for at in range(0, len(texts), task.part_rows):
            some = texts.slice(at, task.part_rows)
            tables = []
            for first in range(0, len(some), _BATCH_ROWS):
                tokens = tokenise(some.slice(first, _BATCH_ROWS), encoder.tokeniser)
                ids, offsets = word_ids(tokens.flat, encoder.vocabulary), tokens.offsets.astype(np.int32)
                bags = torch.from_numpy(ids), encoder.matrix, torch.from_numpy(offsets)
                vectors = F.embedding_bag(*bags, mode="mean", include_last_offset=True).numpy()
                numbers = start + at + first + np.arange(len(vectors))
                embedding = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), type=kind)
                tables.append(pa.table([pa.array(numbers), embedding], schema=schema))
            pq.write_table(pa.concat_tables(tables), Path(task.folder) / f"{task.rank}-{at}.parquet", **options)
        return len(texts)

    return once


def _read(task: Task) -> Pass:
    plan = _plan(task)
    return lambda: sum(len(some.texts) for some in _rows(plan))


def _tokenise(task: Task) -> Pass:
    encoder, texts = checkpoint.load(task.encoder), [some.texts for some in _rows(_plan(task))]
    return lambda: sum(len(_tokens(one, encoder)) for one in texts)


def _gather(task: Task) -> Pass:
    encoder = checkpoint.load(task.encoder)
    tokens = [_tokens(some.texts, encoder) for some in _rows(_plan(task))]
    filled = [one.take(np.flatnonzero(one.lengths > 0)) for one in tokens]

    @torch.inference_mode()
    def once() -> int:
        for one in filled:
            encoder(encoder.with_boundaries(one))
        return sum(map(len, tokens))

    return once


def _write(task: Task) -> Pass:
    encoder, plan = checkpoint.load(task.encoder), _plan(task)
    parts = {part.name: list(embedded(encoder, plan.inputs[0], part, plan.settings)) for part in plan.parts}

    def once() -> int:
        for name, batches in parts.items():
            write_file(Path(task.folder) / name, partial(_write_batches, batches=batches, plan=plan))
        return plan.rows

    return once


def _part(task: Task) -> Pass:
    encoder, plan = checkpoint.load(task.encoder), _plan(task)
    (Path(task.folder) / REPORTS).mkdir()

    def once() -> int:
        for part in plan.parts:
            embed_part(encoder, plan.inputs[0], part, plan.settings, Folder(Path(task.folder)))
        return plan.rows

    return once


def _files(task: Task) -> Pass:
    """The start of a job with many input files, each named, as a shell does with ``--input dir/*.txt``."""
    folder = Path(task.folder)
    asked = [str(folder / f"{number}.txt") for number in range(task.rows)]
    for path in asked:
        Path(path).write_text("the cat sat\n")

    def once() -> int:
        files = list_inputs(asked)
        check_apart(asked, files, folder / "out", part_name(0, 1))
        make_plan(files, Settings())
        return len(files)

    return once


def _groups(task: Task) -> Pass:
    """The first parts of a Parquet file, 100 row groups each."""
    path = Path(task.folder) / "t.parquet"
    texts = ["the cat sat"] * task.rows
    pq.write_table(pa.table({"text": texts}), path, row_group_size=1)
    plan = make_plan(list_inputs([path]), Settings("text", part_rows=_GROUPS_A_PART))
    parts = plan.parts[:_PARTS]

    def once() -> int:
        for part in parts:
            carried_fields(plan.inputs, plan.settings)  # as ``embed_part`` does
            for _ in read_part(plan.inputs[0], part, plan.settings):
                pass
        return len(parts)

    return once


PROGRAMS: dict[str, Callable[[Task], Pass]] = {
    "encode": _encode,
    "encode_1": _encode,
    "model2vec": _model2vec,
    "static_embedding": _static_embedding,
    "floor": _floor,
    "read": _read,
    "tokenise": _tokenise,
    "gather": _gather,
    "write": _write,
    "part": _part,
    "few_files": _files,
    "many_files": _files,
    "few_groups": _groups,
    "many_groups": _groups,
}


def _plan(task: Task) -> Plan:
    return make_plan(list_inputs([task.texts]), Settings(part_rows=task.part_rows))


def _rows(plan: Plan) -> Iterator[Rows]:
    for part in plan.parts:
        yield from read_part(plan.inputs[0], part, plan.settings)


def _tokens(texts: pa.StringArray, encoder: Encoder) -> Ragged:
    tokens = tokenise(texts, encoder.tokeniser)
    return Ragged(word_ids(tokens.flat, encoder.vocabulary), tokens.offsets)


def _write_batches(file: Any, batches: list[pa.RecordBatch], plan: Plan) -> None:
    with pq.ParquetWriter(file, batches[0].schema, **layout(batches[0].schema, plan.settings)) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]), row_group_size=len(batch))


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
