"""Outputs of an earlier version that later versions must read, resume and find finished: how they were made.

``python tests/compatibility/released.py FOLDER`` makes them with the code at hand. ``released.tar.gz`` has those of
commit f0dbc81, the last one before the code was rearranged.
"""

import csv
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

JOBS = Path(__file__).parents[2] / "jobs"
RELEASED = Path(__file__).parent / "released.tar.gz"

_TRAIN = "--pairs shards/ppdb --words inputs/vectors.txt --batch-size 10 --tokeniser space"
_TEXTS = [f"inputs/texts.{kind}" for kind in ("txt", "csv", "tsv", "jsonl", "parquet")]
_EMBED = "--encoder encoders/trained --part-rows 10"
_TUNE = "tune.py smoke --pairs shards/ppdb --words inputs/vectors.txt --data inputs --epochs 1"

COMMANDS = {
    "shards/ppdb": "shard.py --input inputs/pairs.ppdb.gz",
    "shards/tsv": "shard.py --input inputs/pairs.tsv",
    "shards/csv": "shard.py --input inputs/pairs.csv",
    "shards/jsonl": "shard.py --input inputs/pairs.jsonl",
    "shards/parquet": "shard.py --input inputs/pairs.parquet",
    "shards/aligned": "shard.py --format aligned --input inputs/one.txt inputs/two.txt",
    "shards/words": "shard.py --format words --input inputs/lists.txt",
    "encoders/trained": f"train.py {_TRAIN} --epochs 2",
    "encoders/stopped": f"train.py {_TRAIN} --epochs 200 --checkpoint-steps 5",
    **{f"embeddings/{Path(path).suffix[1:]}": f"embed.py --input {path} {_EMBED}" for path in _TEXTS[:1]},
    **{
        f"embeddings/{Path(path).suffix[1:]}": f"embed.py --input {path} --text-column text --id-column id {_EMBED}"
        for path in _TEXTS[1:]
    },
    "embeddings/int8": f"embed.py --input inputs/texts.csv --text-column text --keep text --id-kind file-row "
    f"--dtype int8 --normalize --dim 4 --compression snappy {_EMBED}",
    "sweep": f"{_TUNE} --concurrent 1 --set batch_size=20",
    "finetuned": "finetune.py --task similarity --data inputs --words inputs/vectors.txt --epochs 2 --tokeniser space "
    "--batch-size 20 --head-width 5",
}
"""Output: the command that makes it, without ``--out``. A half-done one, ``X.half``, is of the command of ``X``."""


def write_inputs(folder):
    """Write pairs, texts, word vectors and labeled pairs, in every format."""
    draw = random.Random(7)
    starts, ends = ("ka", "lo", "mi", "nu", "re", "so", "ta", "vi"), ("ba", "de", "fi", "go", "lu", "mo", "pa")
    words = [start + end for start in starts for end in ends]

    def text(tokens):
        return " ".join(draw.choices(words, k=tokens))

    pairs = []
    for _ in range(60):
        first = text(draw.randint(1, 4))
        tokens = first.split()
        tokens[draw.randrange(len(tokens))] = draw.choice(words)
        pairs.append((first, " ".join(tokens), round(draw.uniform(1, 5), 2)))
    pairs.append(pairs[0])
    folder.mkdir()
    with gzip.GzipFile(folder / "pairs.ppdb.gz", "wb", mtime=0) as file:
        for first, second, score in pairs:
            features = f"PPDB2.0Score={score} PPDB1.0Score={score + 1}"
            file.write(f"[NP] ||| {first} ||| {second} ||| {features} ||| 0-0 ||| Equivalence\n".encode())
    names = ["first", "second", "score"]
    table = pa.table({name: list(column) for name, column in zip(names, zip(*pairs, strict=True), strict=True)})
    pq.write_table(table, folder / "pairs.parquet")
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    (folder / "pairs.tsv").write_text("".join(f"{first}\t{second}\n" for first, second, _ in pairs))
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, *pairs])
    (folder / "one.txt").write_text("".join(f"{first}\n" for first, _, _ in pairs))
    (folder / "two.txt").write_text("".join(f"{second}\n" for _, second, _ in pairs))
    (folder / "lists.txt").write_text("".join(f"{' '.join(draw.sample(words, 3))}\n" for _ in range(20)))
    (folder / "test-pairs.tsv").write_text("".join(f"{score}\t{first}\t{second}\n" for first, second, score in pairs))
    vectors = [" ".join(f"{draw.gauss(0, 0.3):.4f}" for _ in range(8)) for _ in words]
    (folder / "vectors.txt").write_text("".join(f"{word} {row}\n" for word, row in zip(words, vectors, strict=True)))
    texts = [text(draw.randint(0, 9)) for _ in range(200)]
    (folder / "texts.txt").write_text("".join(f"{one}\n" for one in texts))
    rows = [(f"r{number}", one) for number, one in enumerate(texts)]
    with (folder / "texts.csv").open("w", newline="") as file:
        lines = [(key, one + "\nand a second line" * (number % 40 == 0)) for number, (key, one) in enumerate(rows)]
        csv.writer(file).writerows([("id", "text"), *lines])
    (folder / "texts.tsv").write_text("id\ttext\n" + "".join(f"{key}\t{one}\n" for key, one in rows))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"id": key, "text": one}) + "\n" for key, one in rows))
    pq.write_table(pa.table({"id": [key for key, _ in rows], "text": texts}), folder / "texts.parquet", 60)
    (folder / "sick").mkdir()
    head = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    for name, size in (("SICK_train", 40), ("SICK_trial", 20), ("SICK_test_annotated", 20)):
        chosen = draw.sample(pairs, size)
        lines_of_sick = [f"{n}\t{a}\t{b}\t{score}\tNEUTRAL\n" for n, (a, b, score) in enumerate(chosen)]
        (folder / "sick" / f"{name}.txt").write_text(head + "".join(lines_of_sick))


def run_until(output, folder, out, is_there):
    """Run the command of an output in a folder, and kill its processes as soon as something is there."""
    process = subprocess.Popen(_command(output, out), cwd=folder, start_new_session=True, stderr=subprocess.DEVNULL)
    while not is_there(folder):
        assert process.poll() is None
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _command(output, out):
    job, *flags = COMMANDS[output].split()
    return [sys.executable, str(JOBS / job), *flags, "--out", out]


def write_encoders(folder):
    """Write an encoder of every family with random weights, and the vectors that it gives to some texts."""
    from paraembed import checkpoint  # noqa: PLC0415  the rest of this file runs with any version
    from paraembed.encoders import ENCODERS, Encoder  # noqa: PLC0415
    from paraembed.text.vocabulary import read_words  # noqa: PLC0415

    words = read_words(folder / "inputs" / "vectors.txt")
    texts = (folder / "inputs" / "texts.txt").read_text().splitlines()[:20]
    vectors = {}
    for number, (name, config) in enumerate(ENCODERS.items()):
        torch.manual_seed(number)
        encoder = Encoder(config(), words, "space").eval()
        path = folder / "encoders" / name
        fingerprint = checkpoint.save(encoder, path, recipe={}, provenance={}, model_card="Random weights.\n")
        vectors[name] = {"fingerprint": fingerprint, "vectors": np.round(encoder.encode(texts), 6).tolist()}
    (folder / "encoders" / "vectors.json").write_text(json.dumps(vectors))


def make(folder):
    """Make all of it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder.absolute()}.db"
    write_inputs(folder / "inputs")
    for output in COMMANDS:
        subprocess.run(_command(output, output), cwd=folder, timeout=280, check=True)
    run_until(
        "embeddings/txt", folder, "embeddings/txt.half", lambda root: len(_parts(root / "embeddings/txt.half")) > 1
    )
    checkpoints = "encoders/stopped.half.training/checkpoints"
    run_until(
        "encoders/stopped", folder, "encoders/stopped.half", lambda root: any((root / checkpoints).glob("step-*5"))
    )
    write_encoders(folder)


def _parts(folder):
    return [*folder.glob("*.parquet")]


if __name__ == "__main__":
    make(Path(sys.argv[1]))
