"""Training state ↔ folder, so that a killed run goes on where it was.

A checkpoint is a folder ``step-<n>`` that appears whole or not at all; its JSON names the digest of its tensors. The
last two are kept. A damaged one is skipped with a warning, and the one before it is used.
"""

import logging
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from paraembed.files import new_folder, read_json, sha256_of, write_json
from paraembed.tensors import load_tensors, save_tensors

_KEPT = 2

log = logging.getLogger(__name__)


@dataclass
class Counters:
    """Where a run stands.

    ``loss`` and ``active`` add up since the last report, whose mean loss is ``last_loss``; ``seconds`` over the run.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    pairs: int = 0
    skipped_pairs: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    active: float = 0.0
    last_loss: float = 0.0


def save_state(folder: Path, counters: Counters, tensors: dict[str, Tensor]) -> None:
    """Write checkpoint ``step-<n>`` below ``folder`` and drop those before the last two."""
    name = f"step-{counters.step:010d}"
    with new_folder(folder / name) as new:
        save_tensors(tensors, new / "state.safetensors")
        digest = sha256_of(new / "state.safetensors")
        write_json(new / "state.json", {"counters": asdict(counters), "sha256": digest})
    for old in _checkpoints(folder)[:-_KEPT]:
        shutil.rmtree(old)


def load_state(folder: Path) -> tuple[Counters, dict[str, Tensor]] | None:
    """The last whole checkpoint below ``folder``; None if there is none."""
    for path in reversed(_checkpoints(folder)):
        try:
            state = read_json(path / "state.json")
            if sha256_of(path / "state.safetensors") != state["sha256"]:
                raise ValueError(f"{path}/state.safetensors differs from its digest")
            return Counters(**state["counters"]), load_tensors(path / "state.safetensors")
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("checkpoint %s is damaged (%s); the one before it is used", path.name, error)
    return None


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if path.is_dir())
