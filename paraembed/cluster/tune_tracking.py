"""Trials of a sweep in MLflow: a run each, below the sweep's."""

from typing import Any

from paraembed.tracking.runs import Run
from paraembed.tuning.ledger import Record

_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


def log_trial(sweep: Run, record: Record, shown: dict[str, Any]) -> None:
    """Log a trial that has ended; one that the store has already is not logged again.

    Args:
        sweep: run of the sweep.
        record: of the trial.
        shown: values of the searched fields.
    """
    ended = int(1000 * record.ended)
    started = ended - int(1000 * record.seconds)
    options = {f"encoder.{key}": value for key, value in record.recipe["encoder"].items()}
    recipe = {**record.recipe, **options, "encoder": options.pop("encoder.name"), **shown}
    metrics = [
        [key, value, started + int(1000 * epoch.seconds), epoch.epoch]
        for epoch in record.curve
        for key, value in {"score": epoch.score, "loss": epoch.loss, **epoch.metrics}.items()
        if value is not None
    ]
    if record.keeps_best and record.counted:
        metrics.append(["best_score", record.score, ended, record.counted.epoch])
    metrics.append(["seconds", record.seconds, ended, len(record.curve)])
    reason = {"reason": record.reason[:5000]} if record.reason else {}
    sweep.trial(
        {
            "number": str(record.number),
            "name": f"trial {record.number}",
            "start": started,
            "end": ended,
            "status": _STATUS[record.status],
            "tags": [list(tag) for tag in ({"status": record.status} | reason).items()],
            "params": [[key, str(value)] for key, value in recipe.items()],
            "metrics": metrics,
        }
    )
