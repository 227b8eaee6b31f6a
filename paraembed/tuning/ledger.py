"""Ledger of trials: one JSON file per ended trial, written atomically.

The ledger is the whole state of a sweep. The next trial follows from it and the sweep's settings, so a killed sweep can
be resumed.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from paraembed.aliases import current_names, on_disk
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import read_json
from paraembed.options import AnyFloat, Count, Range, checked

Status = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Epoch:
    """Results at the end of an epoch."""

    epoch: Count  # number of the epoch, from 1
    score: float | None  # metric that is maximized, after this epoch; None if it is undefined
    loss: AnyFloat  # mean loss per pair or example over the last steps, without penalties
    metrics: dict[str, AnyFloat]  # all metrics of the suite's sets; for labeled examples, those of the dev set
    seconds: float  # time since the trial began, including evaluation


def counting(curve: Sequence[Epoch], keeps_best: bool) -> tuple[float, Epoch | None]:
    """Return a trial's score and its epoch: the best epoch (the first one on a tie), or the last epoch.

    Return NaN and None if no epoch has a score.
    """
    scored = [(epoch.score, epoch) for epoch in curve if epoch.score is not None]
    if not scored:
        return math.nan, None
    return max(scored, key=lambda both: both[0]) if keeps_best else scored[-1]


@dataclass(frozen=True)
class TrialRecord:
    """Record of a trial that has ended."""

    number: Count  # number of the trial, from 0
    choices: dict[str, Count]  # axis → index of its value
    recipe: dict[str, Any]  # values of ``Recipe.to_dict``
    share: Annotated[float, Range(0, 1)]  # fraction of the pairs, 0 to 1
    status: Status  # finished (all epochs), stopped (early), or failed
    reason: str  # why it was stopped or failed
    curve: tuple[Epoch, ...]  # its epochs
    seconds: float  # duration
    ended: float  # end time, in seconds since 1970
    keeps_best: bool = False  # whether its score is that of its best epoch instead of its last one
    # Its score in resamples of the sets, the same for all trials; empty without a score on pairs.
    replicates: tuple[AnyFloat, ...] = ()

    @property
    def score(self) -> float:
        """Score of the trial; NaN if no epoch has a score."""
        return counting(self.curve, self.keeps_best)[0]

    @property
    def counted(self) -> Epoch | None:
        """Epoch that gives the trial's score; None if no epoch has a score."""
        return counting(self.curve, self.keeps_best)[1]

    def reached(self, epoch: int) -> float:
        """Return the score after an epoch; NaN if it had none or did not reach the epoch."""
        return counting(self.curve[:epoch], self.keeps_best)[0] if len(self.curve) >= epoch else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; ``from_dict`` reads them back."""
        return {**asdict(self), "choices": on_disk(self.choices)}

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "record") -> "TrialRecord":
        """Return the record that ``to_dict`` wrote; messages name its file, ``where``.

        Raises:
            ValueError: the values are not those of a record.
        """
        record = checked(cls, values, where)
        return replace(record, choices=current_names(record.choices))


def p_value(first: TrialRecord, second: TrialRecord) -> float | None:
    """Return the two-sided p-value of the difference between two trials' scores, by the paired bootstrap; None without
    their resamples.
    """
    if not (first.replicates and len(first.replicates) == len(second.replicates)):
        return None
    import numpy as np  # noqa: PLC0415 - which --help does not need, nor torch

    from paraembed.evaluation.paired import bootstrap_p  # noqa: PLC0415

    return bootstrap_p(np.subtract(first.replicates, second.replicates))


class Ledger:
    """Records of a sweep in a folder, by trial number.

    Args:
        folder: the folder, created if it is missing.
        uri: URI of its copy on an object store, if it has one.

    Raises:
        ValueError: a file in the folder is not a record.
    """

    def __init__(self, folder: Path, uri: str | None = None) -> None:
        from paraembed.io.staging import Mirror  # noqa: PLC0415 - pyarrow, which --help does not need

        self.folder, self._home = folder, Mirror(folder, uri)
        folder.mkdir(parents=True, exist_ok=True)
        self.records: dict[int, TrialRecord] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                record = TrialRecord.from_dict(read_json(path), path.name)
                if path != self._path(record.number):
                    raise ValueError(f"its number is {record.number}")
            except ValueError as error:
                raise ValueError(
                    f"{path} is not the record of a trial ({error}); remove it to run the trial again"
                ) from None
            self.records[record.number] = record

    def add(self, record: TrialRecord) -> None:
        """Add a record; it is written to disk before it is used."""
        path = self._path(record.number)
        write_json(path, record.to_dict())
        self._home.push(path.name)
        self.records[record.number] = record

    def drop_failed(self) -> None:
        """Remove the records of failed trials, so that these trials run again."""
        for record in self.failed():
            path = self._path(record.number)
            self._home.remove(path.name)
            path.unlink()
            del self.records[record.number]

    def failed(self) -> list[TrialRecord]:
        """Return the records of failed trials."""
        return [record for record in self.in_order() if record.status == "failed"]

    def counts(self) -> dict[str, int]:
        """Return the number of trials of each status."""
        statuses = [record.status for record in self.records.values()]
        return {status: statuses.count(status) for status in get_args(Status)}

    def in_order(self) -> list[TrialRecord]:
        """Return all records by trial number."""
        return [self.records[number] for number in sorted(self.records)]

    def best(self) -> TrialRecord | None:
        """Return the finished record with the highest score, the first one on a tie; None if no trial finished."""
        finished = [record for record in self.in_order() if record.status == "finished"]
        return max(finished, key=lambda record: record.score, default=None)

    def ties(self) -> list[TrialRecord]:
        """Return the finished trials whose score does not differ significantly from the best one, best first."""
        from paraembed.evaluation.paired import ALPHA  # noqa: PLC0415 - as in ``p_value``

        best = self.best()
        finished = [record for record in self.in_order() if record.status == "finished" and record is not best]
        tied = [record for record in finished if best and (p_value(best, record) or 0) >= ALPHA]
        return sorted(tied, key=lambda record: -record.score)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05}.json"
