"""Estimate the machines that a corpus needs from measurements: ``python infra/sizing.py`` writes the table of
README.md.

``infra/measured.json`` is the output of ``python jobs/bench.py embed --out infra/measured.json`` on an otherwise idle
machine.
"""

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CORPORA = (10**8, 10**9, 10**10)
CORES = 8  # of a machine, as in kuberay/rayjob-embed.yaml
BEGIN, END = "<!-- sizing.py writes from here -->", "<!-- to here -->"
_BYTES = {"float32": 4, "float16": 2}
_ROW = 16  # bytes of id, n_tokens and n_unknown
OTHER_MICROSECONDS = {"planning": 0.21, "string ids": 0.14, "verify": 2.5}
"""CPU time of a row of 111 bytes of text besides embedding, in tasks: medians of 400,000 rows with `small`."""


@dataclass(frozen=True)
class Measured:
    """Measurements of one worker."""

    rows_per_second: float  # rows that a worker embeds and writes per second, on its own core
    memory: int  # maximum bytes of memory of a worker
    start_seconds: float  # time from the start of the command to the first part that is written
    width: int  # length of a vector
    cores: int  # number of cores of the measured machine


def read_measured(path: Path, dtype: str = "float32") -> Measured:
    """Return the medians over a benchmark's rounds."""
    values: dict[str, Any] = json.loads(path.read_text())
    turns = values["programs"][dtype]["turns"]
    return Measured(
        1 / statistics.median(turn["row_seconds"] for turn in turns),
        max(turn["peak_bytes"] for turn in turns),
        statistics.median(turn["start_seconds"] for turn in turns),
        values["settings"]["width"],
        values["cores"],
    )


def table(measured: Measured) -> str:
    """Return Markdown: the measurements, then hours, machines and disk for each size of corpus."""
    rate = measured.rows_per_second
    size = {dtype: measured.width * item + _ROW for dtype, item in _BYTES.items()}
    lines = [
        f"Measured on {measured.cores} cores, width {measured.width}, float32: a worker (one core) embeds and writes "
        f"{rate:,.0f} rows/s, holds {measured.memory / 2**30:.2f} GiB at most, and the first part is written "
        f"{measured.start_seconds:.0f} s after the command. A million rows take {size['float32'] * 1e6 / 1e9:.2f} GB "
        f"as float32 and {size['float16'] * 1e6 / 1e9:.2f} GB as float16; a machine of {CORES} cores writes "
        f"{CORES * rate * size['float32'] / 1e6:,.0f} MB/s of float32, which the shared disk must take. "
        f"Per row, tasks take {', '.join(f'{us:g} µs for {what}' for what, us in OTHER_MICROSECONDS.items())}.",
        "",
        f"| sentences | core hours | all of these tasks | hours, one machine of {CORES} cores "
        "| machines for a day | for an hour | disk, float32 | disk, float16 |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for rows in CORPORA:
        hours, of_tasks = rows / rate / 3600, rows * sum(OTHER_MICROSECONDS.values()) / 3.6e9
        lines.append(
            f"| 10{str(round(math.log10(rows))).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))} | {hours:,.1f} "
            f"| {of_tasks:,.1f} | {hours / CORES:,.2f} | {math.ceil(hours / CORES / 24):,} "
            f"| {math.ceil(hours / CORES):,} | {rows * size['float32'] / 1e12:,.2f} TB "
            f"| {rows * size['float16'] / 1e12:,.2f} TB |"
        )
    return "\n".join(lines)


def with_table(readme: str, text: str) -> str:
    """Return README.md with this table."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


if __name__ == "__main__":
    page = HERE / "README.md"
    page.write_text(with_table(page.read_text(), table(read_measured(HERE / "measured.json"))))
