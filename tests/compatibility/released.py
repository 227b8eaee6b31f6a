"""Outputs of an earlier version that later versions must read, resume and find finished: how they were made.

``python tests/compatibility/released.py FOLDER`` makes them with the code at hand, of the inputs in ``RELEASED``. The
outputs in that archive are those of commit f0dbc81, the last one before the code was rearranged.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
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
    with tarfile.open(RELEASED) as archive:
        inputs = [member for member in archive if "/inputs/" in member.name]
        archive.extractall(folder, inputs, filter="data")
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
