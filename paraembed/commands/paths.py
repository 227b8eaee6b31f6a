"""Paths and URIs that flags give."""

from pathlib import Path

from paraembed.io.places import Place, in_submitted_job, to_place


def absolute(path: Path, flag: str) -> Path:
    """A path that a flag gave, made absolute.

    Raises:
        ValueError: a relative path in a submitted job, where it is one in the temporary copy of the working folder.
    """
    if in_submitted_job() and not path.is_absolute():
        raise ValueError(
            f"{flag} is {str(path)!r}; a submitted job runs in a temporary copy of the folder: give an absolute path, "
            f'for example {flag} "$PWD/{path}"'
        )
    return path.absolute()


def absolute_place(text: str, flag: str) -> Place:
    """As ``absolute``; a URI stays as it is. ValueError also for a text that is empty or white space."""
    if not text.strip():
        raise ValueError(f"{flag} is {text!r}; give a path or a URI, or . for the working folder")
    place = to_place(text)
    return place if isinstance(place, str) else absolute(place, flag)
