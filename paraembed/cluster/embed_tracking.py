"""MLflow run of an embedding: parameters, metrics, artifacts."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paraembed.embedding import manifest
from paraembed.embedding.manifest import MEMO, RECORDED, EmbeddingRun
from paraembed.embedding.part import REPORTS, PartReport
from paraembed.io.fingerprint import json_bytes
from paraembed.io.store import Folder, Store, is_there, read_bytes, write_json
from paraembed.tracking.records import Run
from paraembed.tracking.runs import tracked_run

_HISTOGRAM = f"{REPORTS}/part-seconds.json"


@dataclass(frozen=True)
class TrackedEmbedding:
    """An MLflow run of an embedding."""

    tracked: Run
    store: Store  # the output; its reports keep the files that are sent to MLflow later
    scratch: Path  # folder for copies of files from an object store


@contextmanager
def recorded(store: Store, shown: Store) -> Iterator[TrackedEmbedding]:
    """Open an MLflow run for the length of the block, or resume that of a resumed embedding.

    ``shown``, the final output, names the run; records that cannot be sent are kept next to it.
    """
    store.delete(RECORDED)
    # MLflow's default store and the file of records go next to this path.
    out = shown.path if isinstance(shown, Folder) else Path.cwd() / shown.name
    with tempfile.TemporaryDirectory() as folder:
        memo = _on_disk(store, MEMO, Path(folder))
        with tracked_run(f"embed {out.name}", out, memo) as tracked:
            if not isinstance(store, Folder) and memo.exists():
                store.write(MEMO, lambda file: file.write(memo.read_bytes()))
            yield TrackedEmbedding(tracked, store, Path(folder))
    write_json(shown, RECORDED, {})


def _on_disk(store: Store, name: str, scratch: Path) -> Path:
    """Return the path of a file of the output; a file on an object store is copied first."""
    if isinstance(store, Folder):
        return store.path / name
    copy = scratch / Path(name).name
    if is_there(store, name):
        copy.write_bytes(read_bytes(store, name))
    return copy


def describe(tracked: Run, encoder: str, run: EmbeddingRun, workers: int) -> None:
    """Log parameters (what decides the output) and tags (what a resumed run may change)."""
    listing = manifest.listing_digest(run.plan)
    counts = {"num_inputs": len(run.plan.inputs), "parts": len(run.plan.parts)}
    tracked.params({"encoder": run.encoder, **manifest.decides(run), "inputs": listing, **counts})
    tracked.tags({"workers": str(workers), "encoder_folder": encoder})
    tracked.dataset("inputs", listing, [file.shown for file in run.plan.inputs], "embedding", run.plan.rows)
    tracked.link("encoder_run", "fingerprint", run.encoder)


def record(
    into: TrackedEmbedding, written: dict[str, Any], reports: Iterable[PartReport], measured: Mapping[str, float]
) -> None:
    """Log the result: counts, measurements, seconds per part, and the manifest."""
    seconds = np.array([report.seconds for report in reports])
    counts, edges = np.histogram(seconds, bins=20)
    histogram = json_bytes({"parts": counts.tolist(), "edges_in_seconds": edges.round(4).tolist()})
    into.store.write(_HISTOGRAM, lambda file: file.write(histogram))
    counted = ("rows", "n_tokens", "n_unknown", *manifest.OTHER_COUNTS, "n_duplicate_ids")
    into.tracked.metrics(
        {
            **{name: written[name] for name in counted},
            "n_repeated": written.get("n_repeated", 0),
            "unknown_share": written["n_unknown"] / max(1, written["n_tokens"]),
            **measured,
            **{f"part_seconds/p{q}": float(np.percentile(seconds, q)) for q in (50, 95, 100)},
        }
    )
    for name in (_HISTOGRAM, manifest.MANIFEST):
        into.tracked.artifacts(_on_disk(into.store, name, into.scratch))
