"""Check the paths and URIs of flags and make them absolute, before slow imports."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from paraembed.console import doing, renamed
from paraembed.io.places import Place, absolute_name, in_submitted_job, path_exists, shown, to_place
from paraembed.io.resume import check_destination
from paraembed.settings import SHIPPED_FOLDER, is_shipped, suggested

if TYPE_CHECKING:
    from paraembed.io.staging import Staging


def absolute(path: Path, flag: str) -> Path:
    """Return the absolute path of a flag's value; ValueError if it is a URI, or relative in a submitted job, which runs
    in a temporary copy of the working folder.
    """
    if scheme := re.match(r"[a-z][a-z0-9+.-]+:(?=/)", str(path)):  # a path made of a URI has one slash
        raise ValueError(f"{flag} is a URI ({scheme[0]}//…), but here this job takes paths only; give a path on a disk")
    if in_submitted_job() and not path.is_absolute():
        raise ValueError(
            f"{flag} is {str(path)!r}, but a submitted job runs in a temporary copy of the folder; give an absolute "
            f'path, for example {flag} "$PWD/{path}"'
        )
    return path.absolute()


def existing(path: Path, flag: str, expected: str = "check the path") -> Path:
    """Return the absolute path of a flag's value; FileNotFoundError with what is ``expected`` if it is missing."""
    place = absolute(path, flag)
    if not path_exists(place):
        raise FileNotFoundError(f"{place} does not exist; {expected}")
    return place


existing_encoder = partial(existing, expected="expected an encoder folder, written by jobs/train.py")
existing_data = partial(existing, expected="expected a folder with the evaluation sets: sts/, sick/, …")
existing_pairs = partial(existing, expected="expected a folder of pair shards, written by jobs/shard.py")


def named_encoder(name: str, flag: str) -> str:
    """Return an encoder's name with an absolute path, which must exist: an encoder folder, or the folder after ``st:``,
    ``m2v:``, ``onnx:``. The name ``small``, names on the hub and MLflow runs are not checked.
    """
    if not name:
        raise ValueError(f"{flag} is empty; give an encoder folder, an MLflow run or st:MODEL")
    expected = f"expected an encoder folder, written by jobs/train.py{suggested(name)}"
    return absolute_name(name, lambda path: existing(Path(path), flag, expected))


def existing_output(text: str, flag: str) -> Place:
    """Return the absolute path of an existing output of jobs/embed.py, or its URI."""
    place = absolute_place(text, flag)
    return existing(place, flag, "expected a folder that jobs/embed.py wrote") if isinstance(place, Path) else place


@contextmanager
def staged_places() -> "Iterator[Staging]":
    """Yield the copies of a job's inputs and output; messages show URIs in the place of the copies' paths."""
    from paraembed.io.staging import staged

    with staged() as stage, renamed(stage.in_uris):
        yield stage


def staged_input(stage: "Staging", text: str | Path, flag: str, check: Callable[[Path, str], Path] = existing) -> Path:
    """Return the path of an input, found by ``check``; a file or folder of an object store is downloaded first."""
    place = to_place(str(text))
    if isinstance(place, str):
        doing(f"{flag}: downloading {shown(place)}")
    return check(stage.input(place), flag)


def staged_start(stage: "Staging", text: str, flag: str, check: Callable[[Path, str], Path] = existing) -> Path:
    """Return the path of what a training starts from: word vectors, or an encoder's folder, also that of ``small``."""
    return SHIPPED_FOLDER if is_shipped(text) else staged_input(stage, text, flag, check)


def new_output(path: Path, flag: str, *inputs: Path | str | None, is_file: bool = False) -> Path:
    """Return the absolute path of an output, checked against the inputs; see ``check_destination``."""
    out = absolute(path, flag)
    check_destination(out, *inputs, name=flag.removeprefix("--"), is_file=is_file)
    return out


def staged_output(stage: "Staging", text: str | Path, flag: str, *inputs: Path | str | None) -> Path:
    """Return the absolute path of an output, or of the copy of one on an object store; see ``check_destination``."""
    out = stage.output(absolute_place(str(text), flag))
    check_destination(out, *inputs)
    return out


def absolute_place(text: str, flag: str) -> Place:
    """Return the absolute path or the URI of a flag's value; raise ValueError if it is empty or white space."""
    if not text.strip():
        raise ValueError(f"{flag} is {text!r}; give a path or a URI, or . for the working folder")
    place = to_place(text)
    return place if isinstance(place, str) else absolute(place, flag)
