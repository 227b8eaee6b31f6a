"""Generate the plots and texts of docs/gallery.md from a run on the generated sample: ``python infra/gallery.py``.

The jobs run in a temporary folder, one after the other, in about ten minutes on two cores. Plots go to docs/images, and
the output of each job replaces the block after its marker in docs/gallery.md.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, IMAGES = ROOT / "docs" / "gallery.md", ROOT / "docs" / "images"
MOST_BYTES = 150_000  # of a picture
JOBS = {
    "sample": "sample --out sample --lines 20000",
    "shard": "shard --input sample/ppdb-2.0-format.gz --out pairs",
    "train": "train --pairs pairs --words sample/vectors.txt.gz --tokenizer space --epochs 2 "
    "--evaluate-pairs sample/test-pairs.tsv --eval-every 0.25 --out encoder",
    "evaluate": "evaluate --encoder encoder --words sample/vectors.txt.gz --pairs sample/test-pairs.tsv "
    "--margin-pairs pairs --out scores",
    "embed": "embed --encoder encoder --input sample/sentences.txt --keep text --part-rows 10000 --out embeddings",
    "again": "embed --encoder encoder --input sample/sentences.txt --keep text --part-rows 10000 --out embeddings",
    "rejected": "embed --encoder encoder --input sample/sentences.txt --keep text --part-rows 5000 --out embeddings",
    "verify": "verify embeddings",
    "tune": "tune smoke --out sweep",
}
"""Name of a block on the page → command line."""
STATUS = {"rejected": (1, 2)}
"""Exit statuses of jobs that do not end with 0."""
PICTURES = {
    "training.png": "encoder/training.png",
    "score-by-length.png": "scores/score-by-length.png",
    "margin.png": "scores/margin.png",
    "sweep-effects.png": "sweep/effects.png",
}
"""Plot on the page → file of the run."""
_STATUS_LINE = re.compile(r" \((?:\d+ min )?\d+ s\)$")


def run(name: str, folder: Path) -> str:
    """Run a job in a folder; return its output without the lines that only report durations. Raise ChildProcessError
    for an unexpected status.
    """
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "COLUMNS": "120",
    }
    done = subprocess.run(  # noqa: S603 - our own command lines
        [sys.executable, "-m", "paraembed", *JOBS[name].split()],
        cwd=folder,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode not in STATUS.get(name, (0,)):
        raise ChildProcessError(f"{JOBS[name]}: status {done.returncode}\n{done.stdout}")
    lines = done.stdout.replace(f"{folder}/", "").splitlines()
    shown = [line for line in lines if not _STATUS_LINE.search(line)]
    return "\n".join([f"$ paraembed {JOBS[name]}", *shown])


def with_block(page: str, name: str, text: str) -> str:
    """Return the page with the text in the block after the marker of this name, if the page has one."""
    block = re.compile(rf"(<!-- {name} -->\n+```text\n).*?(^```$)", re.MULTILINE | re.DOTALL)
    return block.sub(lambda match: f"{match[1]}{text}\n{match[2]}", page)


def main() -> None:
    """Run the jobs; then write either all plots and the page, or nothing."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        page = PAGE.read_text()
        for name in JOBS:
            page = with_block(page, name, run(name, folder))
        large = [name for name, file in PICTURES.items() if (folder / file).stat().st_size > MOST_BYTES]
        if large:
            raise ValueError(f"{', '.join(large)}: larger than {MOST_BYTES:,} bytes; use smaller pictures")
        for name, file in PICTURES.items():
            shutil.copyfile(folder / file, IMAGES / name)
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
