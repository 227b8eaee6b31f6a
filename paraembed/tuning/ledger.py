"""What became of each trial: one JSON file each, which appears whole or not at all.

It is all that a sweep remembers: what comes next follows from it and the sweep's settings, so a killed sweep
resumes where it was.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import read_json
from paraembed.names import current_names, on_disk
from paraembed.options import AnyFloat, Count, Range, checked

Status = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Epoch:
    """The end of an epoch.

    Attributes:
        epoch: from 1.
        score: the metric that is maximized, of the model as this epoch leaves it; None where that is not defined.
        loss: mean loss a pair, or an example, over the last steps, without penalties.
        metrics: all metrics of the suite's sets; on labeled examples, of the dev set.
        seconds: since the trial began, scoring included.
    """

    epoch: Count
    score: float | None
    loss: AnyFloat
    metrics: dict[str, AnyFloat]
    seconds: float


def counting(curve: Sequence[Epoch], keeps_best: bool) -> tuple[float, Epoch | None]:
    """A trial's score, and the epoch that it is of: the best one, of equal ones the first, or the last one.

    NaN and None where no epoch has a score.
    """
    scored = [(epoch.score, epoch) for epoch in curve if epoch.score is not None]
    if not scored:
        return math.nan, None
    return max(scored, key=lambda both: both[0]) if keeps_best else scored[-1]


@dataclass(frozen=True)
class Record:
    """A trial that has ended.

    Attributes:
        number: of the trial, from 0.
        choices: which value of each axis.
        recipe: as ``Recipe.to_dict`` gives it.
        share: of the pairs, 0 to 1.
        status: finished all epochs, stopped early as not promising, or failed.
        reason: why it stopped or failed.
        curve: its epochs.
        seconds: that it took.
        ended: when, in seconds since 1970.
        keeps_best: whether its score is that of its best epoch, or of its last one.
    """

    number: Count
    choices: dict[str, Count]
    recipe: dict[str, Any]
    share: Annotated[float, Range(0, 1)]
    status: Status
    reason: str
    curve: tuple[Epoch, ...]
    seconds: float
    ended: float
    keeps_best: bool = False

    @property
    def score(self) -> float:
        """That of the epoch that counts; NaN where no epoch has one."""
        return counting(self.curve, self.keeps_best)[0]

    @property
    def counted(self) -> Epoch | None:
        """The epoch that counts; None where no epoch has a score."""
        return counting(self.curve, self.keeps_best)[1]

    def reached(self, epoch: int) -> float:
        """Its score when an epoch had ended; NaN where it had none, or did not get there."""
        return counting(self.curve[:epoch], self.keeps_best)[0] if len(self.curve) >= epoch else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON; ``from_dict`` reads them back."""
        return {**asdict(self), "choices": on_disk(self.choices)}

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str = "record") -> "Record":
        """The record that ``to_dict`` wrote.

        Args:
            values: the record as JSON has it.
            where: file that it comes from, for messages.

        Raises:
            ValueError: these are not the values of a record.
        """
        record = checked(cls, values, where)
        return replace(record, choices=current_names(record.choices))


class Ledger:
    """The records of a sweep, in a folder, by number.

    Raises:
        ValueError: a file in the folder is not a record.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.records: dict[int, Record] = {}
        for path in sorted(folder.glob("*.json")):
            try:
                record = Record.from_dict(read_json(path), path.name)
                if path != self._path(record.number):
                    raise ValueError(f"its number is {record.number}")
            except ValueError as error:
                raise ValueError(
                    f"{path} is not the record of a trial ({error}); remove it to run the trial again"
                ) from None
            self.records[record.number] = record

    def add(self, record: Record) -> None:
        """Keep a record, on disk before it counts."""
        write_json(self._path(record.number), record.to_dict())
        self.records[record.number] = record

    def drop_failed(self) -> None:
        """Forget the trials that failed, so that they run again."""
        for record in self.failed():
            self._path(record.number).unlink()
            del self.records[record.number]

    def failed(self) -> list[Record]:
        """The trials that failed."""
        return [record for record in self.in_order() if record.status == "failed"]

    def in_order(self) -> list[Record]:
        """All records by number."""
        return [self.records[number] for number in sorted(self.records)]

    def best(self) -> Record | None:
        """Return the finished record with the highest score, the first one on a tie; None if no trial finished."""
        finished = [record for record in self.in_order() if record.status == "finished"]
        return max(finished, key=lambda record: record.score, default=None)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05}.json"
