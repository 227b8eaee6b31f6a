"""What an embedding run tells MLflow."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from paraembed.cluster.tracking import Run as Tracked
from paraembed.embedding import manifest
from paraembed.embedding.manifest import Run
from paraembed.embedding.part import REPORTS, PartReport
from paraembed.files import write_json

_HISTOGRAM = "part-seconds.json"


def describe(tracked: Tracked, encoder: Path, run: Run, workers: int) -> None:
    """Log what decides the output; what a run that goes on may change is a tag."""
    values = manifest.decides(run.encoder, run.tokeniser, run.plan.inputs, run.plan.settings)
    listing = manifest.listing_digest(run.plan)
    tracked.params({**values, "inputs": listing, "num_inputs": len(run.plan.inputs), "parts": len(run.plan.parts)})
    tracked.tags({"workers": str(workers), "encoder_folder": str(encoder)})
    tracked.dataset("inputs", listing, [file.shown for file in run.plan.inputs])
    source = tracked.run_with_tag("fingerprint", run.encoder)
    if source is not None:
        tracked.tags({"encoder_run": source})


def record(
    tracked: Tracked,
    out: Path,
    written: dict[str, Any],
    reports: Iterable[PartReport],
    rows_per_second: float,
    peak_memory: int,
    retries: int,
) -> None:
    """Log what became of it: counts, speed, memory of the largest worker, the seconds that parts took, the manifest.

    The histogram lies among the reports, so that it is there for the log when the store answers late.
    """
    seconds = np.array([report.seconds for report in reports])
    counts, edges = np.histogram(seconds, bins=20)
    histogram = out / REPORTS / _HISTOGRAM
    write_json(histogram, {"parts": counts.tolist(), "edges_in_seconds": edges.round(4).tolist()})
    counted = ("rows", "n_tokens", "n_unknown", *manifest.OTHER_COUNTS, "n_duplicate_ids")
    tracked.metrics(
        {
            **{name: written[name] for name in counted},
            "rows_per_second": rows_per_second,
            "unknown_share": written["n_unknown"] / max(1, written["n_tokens"]),
            "peak_worker_memory_bytes": peak_memory,
            "parts_retried": retries,
            **{f"part_seconds/p{q}": float(np.percentile(seconds, q)) for q in (50, 95, 100)},
        }
    )
    tracked.artifacts(histogram)
    tracked.artifacts(out / manifest.MANIFEST)
