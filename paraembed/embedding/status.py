"""Progress of an output of embeddings, from its files alone: of a run that is active elsewhere, stopped or finished.

The plan has the parts, and a listing of the parts shows which are finished, and when. No part is read; jobs/verify.py
does that.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from paraembed.embedding.inputs import readable
from paraembed.embedding.manifest import (
    ENCODER,
    MANIFEST,
    NEXT,
    encoder_name,
    open_output,
    planned,
    read_manifest,
    read_run,
)
from paraembed.embedding.part import REPORTS
from paraembed.embedding.replace import staging_folder
from paraembed.io.atomic import is_locked
from paraembed.io.places import Place, without_credentials
from paraembed.io.store import Folder, Store, is_committed, is_there, read_json, write_json

ERROR = f"{REPORTS}/error.json"
_LAST_PARTS = 100  # of a run, for its rate
_SHOWN = 500  # characters of an error

State = Literal["finished", "damaged", "running", "stopped", "unfinished"]
"""``damaged``: finished, but parts are missing. ``unfinished``: whether a run is active cannot be seen, as on object
stores, which have no locks.
"""


class LastError(TypedDict):
    """Why the last run stopped; a process that was killed writes none."""

    message: str
    time: int  # seconds since 1970
    host: str


@dataclass(frozen=True)
class OutputStatus:
    """Status of an output."""

    state: State
    encoder: str  # as the user named it
    inputs: int
    bad_files: int  # inputs that were left out
    rows: int  # of the plan, including rows that cannot be read
    rows_done: int  # of these, rows in finished parts
    parts: int
    parts_done: int
    generation: int  # from 0
    rate: float  # rows a second of the last finished parts of the last run; 0 if it has not finished any
    seconds_left: float | None  # at this rate, None if no run is active
    last_part: float | None  # seconds since the last part was finished
    error: LastError | None  # of the last run
    replacement: Path | None  # folder in which ``overwrite`` writes the output that replaces this one


def status_of(place: Place) -> OutputStatus:
    """Return the status of an output; nothing is written. Raise FileNotFoundError, NotADirectoryError or ValueError if
    there is none, or its plan is damaged.
    """
    store, names = open_output(place)
    if not planned(store):
        what = (
            "no plan yet: a run is reading the inputs, or was stopped"
            if "_plan" in names
            else "no output of embed; check the path"
        )
        raise FileNotFoundError(f"{store} has {what}")
    new = store.below(NEXT)
    places = [(store, number) for number in planned(store)] + [(new, number) for number in planned(new)]
    active, generation = places[-1]
    plans = [read_run(*place).plan for place in places]
    sizes, times = dict[str, int](), dict[str, int]()
    for (place_of, _), plan in zip(places, plans, strict=True):
        sizes |= dict(zip(plan.parts.names.to_pylist(), plan.parts.rows.tolist(), strict=True)) or {
            part["name"]: part["rows"]
            for part in read_manifest(store)["parts"]  # compacted: not those of the inputs
        }
        times |= {name: int(stamp.split(" ")[1]) for name, stamp in place_of.stamps(plan.folder) if stamp}
    finished = sorted((times[name], rows) for name, rows in sizes.items() if name in times)
    inputs = [file for plan in plans for file in plan.inputs]
    rows, rows_done = sum(sizes.values()), sum(rows for _, rows in finished)
    state: State = "unfinished"
    if active is store and is_committed(store, MANIFEST):
        state = "finished" if len(finished) == len(sizes) else "damaged"
    elif isinstance(store, Folder) and (is_held := is_locked(store.path)) is not None:
        state = "running" if is_held else "stopped"
    rate = _rate(finished, int(active.stamp(ENCODER).split(" ")[1]) if is_there(active, ENCODER) else 0)
    is_active = rate > 0 and state in {"running", "unfinished"}
    error: LastError | None = None
    with suppress(OSError, ValueError):  # none, or damaged
        error = None if state == "finished" else read_json(store, ERROR, LastError)
    staging = staging_folder(store.path) if isinstance(store, Folder) else None
    return OutputStatus(
        state=state,
        encoder=encoder_name(store),
        inputs=len(inputs),
        bad_files=len(inputs) - len(readable(inputs)),
        rows=rows,
        rows_done=rows_done,
        parts=len(sizes),
        parts_done=len(finished),
        generation=generation,
        rate=rate,
        seconds_left=(rows - rows_done) / rate if is_active else None,
        last_part=time.time() - finished[-1][0] / 1e9 if finished else None,
        error=error,
        replacement=staging if staging and staging.exists() else None,
    )


def _rate(finished: list[tuple[int, int]], started: int) -> float:
    """Return the rows a second of the last parts since ``started``, from times (ns) and rows in the order of time."""
    of_run = [(started, 0), *((moment, rows) for moment, rows in finished if moment > started)][-_LAST_PARTS - 1 :]
    (first, _), *others = of_run
    return sum(rows for _, rows in others) / max(1e-9, (of_run[-1][0] - first) / 1e9) if others else 0.0


@contextmanager
def error_kept(store: Store) -> Iterator[None]:
    """Keep the error that ends the block, for ``status_of``; without one, remove that of an earlier run."""
    try:
        yield
        with suppress(OSError):  # the output has replaced another one
            store.delete(ERROR)
    except BaseException as error:
        cause = getattr(error, "cause", None) or error  # of a task of Ray
        message = without_credentials(str(cause) or type(cause).__name__)[:_SHOWN]
        kept = LastError(message=message, time=int(time.time()), host=socket.gethostname())
        with suppress(OSError):  # the disk is full, or the output was removed
            write_json(store, ERROR, kept)
        raise
