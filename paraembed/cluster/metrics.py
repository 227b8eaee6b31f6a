"""Metrics for Prometheus, through Ray: each machine's agent serves them with Ray's own (infra/README.md).

The names in Prometheus are these with ``ray_`` before them, and ``_total`` behind those that are counted. Without a
running Ray nothing is reported.
"""

from functools import cache

from ray.util.metrics import Counter, Gauge

COUNTED = {
    "paraembed_rows": "Rows embedded.",
    "paraembed_parts": "Parts embedded.",
    "paraembed_parts_failed": "Parts whose worker failed, which were given out again.",
}
MEASURED = {
    "paraembed_loss": "Mean loss of the training since its last report.",
    "paraembed_pairs_per_second": "Pairs a second of the training.",
}


def embedded(rows: int) -> None:
    """Count a part and its rows."""
    _counter("paraembed_parts").inc()
    if rows:
        _counter("paraembed_rows").inc(rows)


def part_failed() -> None:
    """Count a part that failed with its worker."""
    _counter("paraembed_parts_failed").inc()


def trained(loss: float, pairs_per_second: float) -> None:
    """Report the loss and speed of a training."""
    _gauge("paraembed_loss").set(loss)
    _gauge("paraembed_pairs_per_second").set(pairs_per_second)


@cache
def _counter(name: str) -> Counter:
    return Counter(name, COUNTED[name])


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(name, MEASURED[name])
