"""Training state ↔ folder, so that a killed run goes on where it was.

A checkpoint is a folder ``step-<n>`` that appears whole or not at all. Its JSON holds the counters, what decides the
run, the digest of the tensors and one of its own. The last few are kept. A damaged one is skipped with a warning, and
the one before it is used. safetensors is imported where it is needed: a bare machine trains without checkpoints.

No state of a random generator is in it: every draw of a run is f(seed, epoch) or f(seed, step, worker).
"""

import logging
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from torch import Tensor

from paraembed.io.atomic import new_folder, write_json
from paraembed.io.fingerprint import differences, digest_of, read_json, sha256_of
from paraembed.options import AnyFloat, Count, checked

FORMAT = "paraembed-state-1"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often a run is saved; the end of every epoch makes a checkpoint, too.

    Attributes:
        folder: for the checkpoints; several workers must all see it.
        seconds: time between checkpoints, looked at when a report is due.
        steps: steps between checkpoints; None: by time alone.
        keep: how many are kept.
    """

    folder: Path
    seconds: float = 300.0
    steps: int | None = None
    keep: int = 2


@dataclass
class Counters:
    """Where a run stands.

    Attributes:
        epoch: epochs that are done.
        pairs_in_epoch: pairs of the next one that are done, over all workers.
        step: steps that are done.
        pairs: pairs that are done.
        skipped_pairs: pairs left alone in a batch, without a negative.
        seconds: time spent in steps.
        loss: sum of the mean losses of the steps since the last report, over all workers.
        active: sum of their shares of active terms.
        unreported_steps: how many steps these are.
        curve: step, pairs done, mean loss and share of active terms of every report.
        workers: from which step on how many workers trained.
        scores: step, pairs done and score of every evaluation; None for a score that is not defined.
        arithmetic: from which step on what decided the last bits, see ``compiled.arithmetic``.
    """

    epoch: Count = 0
    pairs_in_epoch: Count = 0
    step: Count = 0
    pairs: Count = 0
    skipped_pairs: Count = 0
    seconds: float = 0.0
    loss: AnyFloat = 0.0
    active: AnyFloat = 0.0
    unreported_steps: Count = 0
    curve: list[tuple[Count, Count, AnyFloat, AnyFloat]] = field(default_factory=list)
    workers: list[tuple[Count, Count]] = field(default_factory=list)
    scores: list[tuple[Count, Count, AnyFloat | None]] = field(default_factory=list)
    arithmetic: list[tuple[Count, str]] = field(default_factory=list)

    @property
    def last_loss(self) -> float:
        """Mean loss of the last report; 0 before the first."""
        return self.curve[-1][2] if self.curve else 0.0

    @property
    def best(self) -> tuple[int, int, float] | None:
        """Step, pairs done and score of the first evaluation that no other surpasses; None where there is none."""
        defined = [(step, pairs, score) for step, pairs, score in self.scores if score is not None]
        return max(defined, key=lambda one: one[2], default=None)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Counters":
        """The counters that ``asdict`` or JSON made of it.

        Raises:
            ValueError: these are no counters.
        """
        return checked(cls, values, "counters")


class _Body(TypedDict):
    """``state.json``."""

    counters: dict[str, Any]
    decides: dict[str, Any]
    tensors: str


def save_state(
    folder: Path, counters: Counters, tensors: dict[str, Tensor], decides: dict[str, Any], keep: int
) -> None:
    """Write checkpoint ``step-<n>`` below ``folder``, then drop those before the last ``keep``.

    Args:
        folder: made where it is missing.
        counters: where the run stands.
        tensors: parameters and optimizer state.
        decides: JSON value; ``load_state`` refuses a checkpoint in which it is another.
        keep: how many to keep, at least 1.

    Raises:
        OSError: it could not be written; those before it stand as they were.
    """
    from paraembed.io.tensors import save_tensors  # noqa: PLC0415

    name = f"step-{counters.step:010d}"
    for leftover in folder.glob(".step-*"):  # of a write that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with new_folder(folder / name) as new:
        save_tensors(tensors, new / "state.safetensors")
        digest = sha256_of(new / "state.safetensors")
        body = {"format": FORMAT, "counters": asdict(counters), "decides": decides, "tensors": digest}
        write_json(new / "state.json", {**body, "sha256": digest_of(body)})
    older = [path for path in _checkpoints(folder) if path.name <= name]
    newer = [path for path in _checkpoints(folder) if path.name > name]  # damaged ones, which this run passed over
    for path in older[:-keep] + newer:
        shutil.rmtree(path)


def load_state(
    folder: Path, decides: dict[str, Any], expected: Mapping[str, Tensor] | None = None
) -> tuple[Counters, dict[str, Tensor]] | None:
    """The last whole checkpoint below ``folder``; None if there is none.

    Args:
        folder: of the checkpoints.
        decides: as for ``save_state``.
        expected: tensors that a whole checkpoint has, by name, for their types and shapes.

    Raises:
        ValueError: it is of a run that something else decides; the message names what.
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
                raise ValueError(f"pairs_in_epoch is {counters.pairs_in_epoch}, an epoch has {decides['pairs']}")
        except (OSError, ValueError) as error:
            damaged.append(f"{path.name} ({error})")
            continue
        if changed := differences(body["decides"], decides):
            raise ValueError(f"{path} is a checkpoint of another training: {changed}; go back to that, or drop it")
        if damaged:
            log.warning("damaged checkpoints: %s; going on from %s, the one before", "; ".join(damaged), path.name)
        return counters, tensors
    if damaged:
        log.warning(
            "damaged checkpoints: %s; none in %s is whole, so the training begins anew with its first step",
            "; ".join(damaged),
            folder,
        )
    return None


def _of_the_best(counters: Counters, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The best encoder's tensors, which a checkpoint has where that is not the encoder of its own step."""
    if counters.best is None or counters.best[0] == counters.step:
        return {}
    return {f"best.{name.removeprefix('encoder.')}": of for name, of in expected.items() if name.startswith("encoder.")}


def _read_body(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = read_json(path / "state.json", _Body)
    if body.get("format") != FORMAT:
        raise ValueError(f"state.json is not of format {FORMAT}")
    if body.pop("sha256", None) != digest_of(body):
        raise ValueError("state.json differs from its digest")
    if sha256_of(path / "state.safetensors") != body["tensors"]:
        raise ValueError("state.safetensors differs from its digest")
    return body


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if path.is_dir())
