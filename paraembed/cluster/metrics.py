"""Prometheus metrics through Ray: each machine's agent serves them together with Ray's own (infra/README.md).

In Prometheus the names have the prefix ``ray_``, and counters have the suffix ``_total``. Without a running Ray,
nothing is reported.
"""

from functools import cache

from ray.util.metrics import Counter, Gauge

COUNTED = {
    "paraembed_rows": "Rows embedded.",
    "paraembed_parts": "Parts embedded.",
    "paraembed_parts_failed": "Parts that were retried after their worker failed.",
}
MEASURED = {
    "paraembed_loss": "Mean training loss since the last report.",
    "paraembed_pairs_per_second": "Pairs per second of the training.",
}


def embedded(rows: int) -> None:
    """Count a part and its rows."""
    _counter("paraembed_parts").inc()
    if rows:
        _counter("paraembed_rows").inc(rows)


def part_failed() -> None:
    """Count a part whose worker failed and that is retried."""
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
