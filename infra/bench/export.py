"""Compare every encoder with its exports: ids, vectors, nearest texts, and speed in the peer's own library.

The peer's own library loads the exported folder in a process that does not import paraembed. Both sides use one thread,
and speeds are texts per second of CPU, so that other load on the machine hardly counts.
"""

import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infra.bench.command import Add, count, path
from infra.bench.rounds import Log, settings
from paraembed.console import doing, print_table, say
from paraembed.encoders import ENCODERS, Encoder, config_from_dict
from paraembed.export.folder import write_folder
from paraembed.io.lines import read_text
from paraembed.process import one_thread
from paraembed.text.tokenize import tokenize
from paraembed.text.tokens import TokenIds
from paraembed.text.vocabulary import UNKNOWN, Words

Vectors = npt.NDArray[np.float32]
_HEAD = ("encoder", "format", "equal ids", "largest |Δ|", "largest value", "equal top 10", "texts/s", "paraembed")
_QUERIES, _TOP = 200, 10

_PEER = """
import json, sys, time
from pathlib import Path
import numpy as np
folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
texts = (folder / "texts.txt").read_text().split("\\n")
{load}
ids, seconds = tokenized(texts), []
encode(texts[:64])
for _ in range(rounds):
    started = time.process_time()
    vectors = encode(texts)
    seconds.append(time.process_time() - started)
np.save(folder / "vectors.npy", vectors)
(folder / "ids.json").write_text(json.dumps(ids))
assert "paraembed" not in sys.modules
print(json.dumps(sorted(seconds)[rounds // 2]))
"""
_LOAD = {
    "sentence-transformers": """
import torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(1)
model = SentenceTransformer(str(folder / "model"), device="cpu")
encode = lambda texts: model.encode(texts, show_progress_bar=False)
tokenized = lambda texts: [one.ids for one in model[0].tokenizer.encode_batch(texts, add_special_tokens=False)]
""",
    "model2vec": """
from model2vec import StaticModel
model = StaticModel.from_pretrained(folder / "model")
encode = lambda texts: model.encode(texts, show_progress_bar=False, use_multiprocessing=False)
tokenized = lambda texts: model.tokenize(texts)
""",
    "onnx": """
import onnxruntime
from tokenizers import Tokenizer
settings = onnxruntime.SessionOptions()
settings.intra_op_num_threads = settings.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(str(folder / "model" / "model.onnx"), settings)
tokenizer = Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
tokenized = lambda texts: [one.ids for one in tokenizer.encode_batch(texts)]
padded = Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
padded.enable_padding()
def batch(texts):
    read = padded.encode_batch(texts)
    arrays = {"input_ids": [one.ids for one in read], "attention_mask": [one.attention_mask for one in read]}
    return session.run(None, {name: np.array(rows, np.int64) for name, rows in arrays.items()})[0]
encode = lambda texts: np.concatenate([batch(texts[start : start + 64]) for start in range(0, len(texts), 64)])
""",
}


def add_flags(add: Add) -> None:
    """Add the flags of this benchmark."""
    add("--texts", type=path, required=True, help="file of sentences, one per line, plain or compressed")
    add("--rows", type=count, default=10_000, help="sentences, from the first on; 10 or more")
    add("--encoders", nargs="+", choices=ENCODERS, default=[*ENCODERS], metavar="NAME", help="names of encoders")
    add("--width", type=count, default=300, help="width of the word vectors")
    add("--folder", type=path, help="folder for temporary files")


def run(options: Namespace, log: Log) -> dict[str, Any]:
    """Measure, print the table, return the numbers."""
    texts = [text for text in read_text(Path(options.texts)) if text][: options.rows]
    words = draw_words(texts, options.width, options.seed)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-export-", dir=options.folder) as folder, one_thread():
        for name in options.encoders:
            rows += compare(name, words, texts, options, Path(folder))
            for row in rows:
                if "largest" in row:
                    log({f"{row['encoder']}/{row['format']}/largest_difference": row["largest"]})
    print_table(_HEAD, [_cells(row) for row in rows])
    say(f"{len(texts):,} sentences, {len(words.vocabulary):,} words of width {options.width}, one thread")
    return {"settings": settings(options), "rows": rows}


def draw_words(texts: list[str], width: int, seed: int) -> Words:
    """Return the words that occur at least twice, with random vectors; the other words of the texts stay OOV."""
    counted = pc.value_counts(tokenize(pa.array(texts), "ptb-v1").flat)
    names = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    vocabulary = pa.concat_arrays([pa.array([UNKNOWN]), names.cast(pa.string()).filter(pc.not_equal(names, UNKNOWN))])
    return Words(vocabulary, np.random.default_rng(seed).standard_normal((len(vocabulary), width), np.float32))


def compare(name: str, words: Words, texts: list[str], options: Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return a row of results for each format of an encoder whose parameters are all random."""
    config = config_from_dict({"name": name})
    encoder = Encoder(config, words, "ptb-v1").requires_grad_(False).eval()
    rng = np.random.default_rng(options.seed)
    for parameter in encoder.composition.parameters():
        scale = parameter.shape[-1] ** -0.5  # so that a recurrence stays finite over a long text
        parameter.data.copy_(parameter.data.new_tensor(rng.standard_normal(parameter.shape) * scale))
    read = TokenIds(encoder.vocabulary, encoder.tokenizer)(pa.array(texts))
    ids = [read.ids[start:end].tolist() for start, end in zip(read.offsets[:-1], read.offsets[1:], strict=True)]
    seconds = []
    encoder.encode(texts[:64])
    for _ in range(options.rounds):
        started = time.process_time()
        vectors = encoder.encode(texts)
        seconds.append(time.process_time() - started)
    rows = []
    for to, load in _LOAD.items():
        doing(f"{name} in the format {to}")
        place = folder / f"{name}-{to}"
        row: dict[str, Any] = {"encoder": name, "format": to, "paraembed": len(texts) / median(seconds)}
        try:
            write_folder(encoder, to, place / "model")
        except ValueError as error:
            rows.append({**row, "error": str(error)})
            continue
        (place / "texts.txt").write_text("\n".join(texts))
        command = [sys.executable, "-P", "-c", _PEER.format(load=load), str(place), str(options.rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own program
        if done.returncode:
            raise ValueError(f"{to} failed for {name}: {done.stderr[-1000:]}")
        exported = np.load(place / "vectors.npy")
        limit = (json.loads((place / "model" / "tokenizer.json").read_text())["truncation"] or {}).get("max_length")
        peer_ids = json.loads((place / "ids.json").read_text())  # `word` reads the first token alone
        equal = [own[:limit] == peer for own, peer in zip(ids, peer_ids, strict=True)]
        row |= {"equal_ids": sum(equal) / len(equal), "largest": float(np.abs(exported - vectors).max())}
        row |= {"scale": float(np.abs(vectors).max()), "equal_top": share_of_equal_tops(vectors, exported)}
        rows.append({**row, "peer": len(texts) / float(done.stdout)})
    return rows


def share_of_equal_tops(expected: Vectors, exported: Vectors) -> float:
    """Return the fraction of the first texts whose ten nearest texts are the same, in the same order."""
    tops = []
    for vectors in (expected, exported):
        unit = vectors.astype(np.float64)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True).clip(1e-12)
        cosines = np.round(unit[:_QUERIES] @ unit.T, 6)  # equal texts are ties, in the order of the texts
        tops.append(np.argsort(-cosines, axis=1, kind="stable")[:, :_TOP])
    return float((tops[0] == tops[1]).all(axis=1).mean())


def _cells(row: dict[str, Any]) -> list[str]:
    first = [row["encoder"], row["format"]]
    if "error" in row:
        return [*first, "—", "—", "—", "—", "—", f"{row['paraembed']:,.0f}"]
    shares = f"{row['equal_ids']:.4f}", f"{row['largest']:.1e}", f"{row['scale']:.1f}", f"{row['equal_top']:.3f}"
    return [*first, *shares, f"{row['peer']:,.0f}", f"{row['paraembed']:,.0f}"]
