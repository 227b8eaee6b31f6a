"""The pages: README.md, docs, the guide of infra, and what else a reader opens."""

import re
import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import sha256_of
from paraembed.pairs.schema import PAIRS
from paraembed.pairs.shards import FORMAT, SUCCESS
from paraembed.text.vocabulary import UNKNOWN, Words

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        ROOT / "infra" / "README.md",
        *ROOT.glob(".github/**/*.md"),
    ]
)
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]
_BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_JOB = re.compile(r"(?:.*/)?jobs/(\w+)\.py")
_OPERATORS = {";", ">", "|", "||", "&&", "&", ")", "do", "done"}


def text_of(name):
    return (ROOT / name).read_text()


def blocks(name, language):
    """The fenced blocks of a page in one language."""
    return [body for found, body in _BLOCK.findall(text_of(name)) if found == language]


def prose(name):
    """A page without its fenced blocks."""
    return _BLOCK.sub("", text_of(name))


def job_commands(name):
    """``(job, arguments)`` of each call of a job in the bash blocks of a page; ``…`` stands for what is left out.

    A variable of a loop has its first value, what a command prints is ``x``.
    """
    for block in blocks(name, "bash"):
        values = dict(re.findall(r"for (\w+) in ([^\s;]+)", block))
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            words = shlex.split(with_values(line, values), comments=True)
            for number, word in enumerate(words):
                job = _JOB.fullmatch(word)
                if word == "paraembed" and words[number - 1 : number] in ([], ["-m"]):
                    yield words[number + 1], arguments(words[number + 2 :])
                elif job and words[number - 1] == "python":
                    yield job[1], arguments(words[number + 1 :])


def with_values(line, values):
    """A line of shell without variables that have a value, and without calls."""
    line = re.sub(r"\$\([^()]*\)", "x", line)
    for name, value in values.items():
        line = re.sub(rf"\${name}\b", value, line)
    return line


def arguments(words):
    """The words of one command: up to an operator of the shell."""
    taken = []
    for word in words:
        if word in _OPERATORS:
            break
        taken.append(word.removesuffix(";"))
        if word.endswith(";"):
            break
    return taken


def save_encoder(words, folder):
    """An encoder with random word vectors, as wide as the encoder of the pages; saved, and returned."""
    matrix = np.random.default_rng(0).standard_normal((len(words) + 1, 300), np.float32)
    encoder = Encoder(AvgConfig(), Words(pa.array([UNKNOWN, *words]), matrix), "ptb-v1").eval()
    checkpoint.save(encoder, folder, recipe={}, provenance={}, model_card="tiny\n")
    return encoder


def write_shards(folder, rows):
    """Pair shards with the columns ``first`` and ``second``."""
    folder.mkdir()
    shard, num = folder / "pairs-00000-of-00001.parquet", len(rows["first"])
    pq.write_table(pa.table(rows, pa.schema([PAIRS.field("first"), PAIRS.field("second")])), shard)
    manifest = {
        "format": FORMAT,
        "settings": {"halvings": "none"},
        "counts": {"read": num, "kept": num, "refused": 0, "duplicates": 0, "reasons": {}},
        "sources": {"pairs.tsv": {"read": num, "pairs": num, "duplicates": 0, "refused": {}}},
        "shards": [{"name": shard.name, "rows": num, "sha256": sha256_of(shard)}],
    }
    write_json(folder / "manifest.json", manifest)
    write_json(folder / SUCCESS, {"manifest_sha256": sha256_of(folder / "manifest.json")})
