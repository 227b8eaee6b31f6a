"""Checkpoints of a training, from which a killed run resumes.

A checkpoint is a folder ``step-<n>`` that is written atomically. Its JSON holds the counters, what decides the run, the
digest of the tensors and its own digest. The latest few are kept. If one is damaged, a warning is logged and the
previous one is used. safetensors is imported only when needed, so training without checkpoints works without it.

No random state is saved, because every draw of a run is f(seed, epoch) or f(seed, step, worker).
"""

import logging
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from paraembed.io.atomic import any_content, new_folder, write_json
from paraembed.io.fingerprint import differences, digest_of, read_json, sha256_of
from paraembed.options import AnyFloat, Count, checked

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = "paraembed-state-1"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often to save a run; every epoch also ends with a checkpoint."""

    folder: Path  # folder of the checkpoints; all workers must be able to read it
    seconds: float = 300.0  # seconds between checkpoints, checked when a report is due
    steps: int | None = None  # steps between checkpoints; None: by time only
    keep: int = 2  # number of checkpoints to keep
    saved: Callable[[], object] = lambda: None  # called on rank 0 after every checkpoint


@dataclass
class Counters:
    """Progress of a run."""

    epoch: Count = 0  # finished epochs
    pairs_in_epoch: Count = 0  # finished pairs of the current epoch, over all workers
    step: Count = 0  # finished steps
    pairs: Count = 0  # finished pairs
    skipped_pairs: Count = 0  # pairs that were alone in a batch, without a negative
    seconds: float = 0.0  # seconds spent in steps
    loss: AnyFloat = 0.0  # sum of the mean losses of the steps since the last report, over all workers
    active: AnyFloat = 0.0  # sum of the fractions of active terms of these steps
    unreported_steps: Count = 0  # number of steps since the last report
    # Step, finished pairs, mean loss and fraction of active terms of every report.
    curve: list[tuple[Count, Count, AnyFloat, AnyFloat]] = field(default_factory=list)
    # First step and number of workers, for each number of workers.
    workers: list[tuple[Count, Count]] = field(default_factory=list)
    # Step, finished pairs and score of every evaluation; None for a score that is not defined.
    scores: list[tuple[Count, Count, AnyFloat | None]] = field(default_factory=list)
    # First step and arithmetic, for each ``compiled.arithmetic`` that decided the last bits.
    arithmetic: list[tuple[Count, str]] = field(default_factory=list)

    @property
    def last_loss(self) -> float:
        """Mean loss of the last report; 0 before the first."""
        return self.curve[-1][2] if self.curve else 0.0

    @property
    def best(self) -> tuple[int, int, float] | None:
        """Step, finished pairs and score of the first evaluation with the highest score; None without any score."""
        defined = [(step, pairs, score) for step, pairs, score in self.scores if score is not None]
        return max(defined, key=lambda evaluation: evaluation[2], default=None)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Counters":
        """Return the counters from a JSON object.

        Raises:
            ValueError: the object does not have the fields and types of ``asdict(counters)``.
        """
        return checked(cls, values, "counters")


class _Body(TypedDict):
    """Content of ``state.json``."""

    counters: dict[str, Any]
    decides: dict[str, Any]
    tensors: str


_EARLIER_NAMES = {"pairs a window (--pairs-memory-gb)": "pairs per window (--pairs-memory-gb)"}
"""Names in ``decides`` that had another form in checkpoints of version 0.1."""


def save_state(
    folder: Path, counters: Counters, tensors: "dict[str, Tensor]", decides: dict[str, Any], keep: int
) -> None:
    """Write checkpoint ``step-<n>`` below ``folder``, then remove all but the last ``keep``.

    ``decides`` is a JSON value that decides the run; ``load_state`` rejects a checkpoint with another one.

    Raises:
        OSError: the checkpoint could not be written; earlier ones are unchanged.
    """
    from paraembed.io.tensors import save_tensors  # noqa: PLC0415

    name = f"step-{counters.step:010d}"
    for leftover in folder.glob(".step-*"):  # of a write that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with new_folder(folder / name, any_content) as new:
        save_tensors(tensors, new / "state.safetensors")
        digest = sha256_of(new / "state.safetensors")
        body = {"format": FORMAT, "counters": asdict(counters), "decides": decides, "tensors": digest}
        write_json(new / "state.json", {**body, "sha256": digest_of(body)})
    older = [path for path in _checkpoints(folder) if path.name <= name]
    newer = [path for path in _checkpoints(folder) if path.name > name]  # damaged ones, which this run passed over
    for path in older[:-keep] + newer:
        shutil.rmtree(path)


def load_state(
    folder: Path, decides: dict[str, Any], expected: "Mapping[str, Tensor] | None" = None
) -> "tuple[Counters, dict[str, Tensor]] | None":
    """Return the last intact checkpoint below ``folder``; None without one.

    ``expected`` are the tensors of an intact checkpoint by name, for their types and shapes.

    Raises:
        ValueError: the checkpoint is of another run; the message names the fields that differ.
    """
    from paraembed.io.tensors import check_tensors, load_tensors  # noqa: PLC0415

    damaged = []
    for path in reversed(_checkpoints(folder)):
        try:
            body = _read_body(path)
            counters, tensors = Counters.from_dict(body["counters"]), load_tensors(path / "state.safetensors")
            if expected is not None:
                wanted = {**expected, **_of_the_best(counters, expected)}
                check_tensors({name: tensors[name] for name in wanted if name in tensors}, wanted, "state.safetensors")
            if counters.pairs_in_epoch >= decides.get("pairs", math.inf):
                raise ValueError(f"pairs_in_epoch is {counters.pairs_in_epoch}, but an epoch has {decides['pairs']}")
        except (OSError, ValueError) as error:
            damaged.append(f"{path.name} ({error})")
            continue
        decided = {_EARLIER_NAMES.get(name, name): value for name, value in body["decides"].items()}
        if changed := differences(decided, decides):
            raise ValueError(
                f"{path} is a checkpoint of another training: {changed}; use the earlier settings, or remove the "
                "checkpoint"
            )
        if damaged:
            log.warning("damaged checkpoints: %s; resuming from the previous one, %s", "; ".join(damaged), path.name)
        return counters, tensors
    if damaged:
        log.warning(
            "damaged checkpoints: %s; no checkpoint in %s is intact, so the training starts over",
            "; ".join(damaged),
            folder,
        )
    return None


def _of_the_best(counters: Counters, expected: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return the expected tensors of the best encoder; empty if it does not exist or is that of the last step."""
    if counters.best is None or counters.best[0] == counters.step:
        return {}
    return {f"best.{name.removeprefix('encoder.')}": of for name, of in expected.items() if name.startswith("encoder.")}


def _read_body(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = read_json(path / "state.json", _Body)
    if body.get("format") != FORMAT:
        raise ValueError(f"state.json does not have the format {FORMAT}")
    if body.pop("sha256", None) != digest_of(body):
        raise ValueError("state.json differs from its digest")
    if sha256_of(path / "state.safetensors") != body["tensors"]:
        raise ValueError("state.safetensors differs from its digest")
    return body


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if path.is_dir())
