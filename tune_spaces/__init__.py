"""Search spaces of the papers and of students, as plain data without Ray: ``<paper>/<encoder>[-<variant>]``."""

from tune_spaces import acl2017, iclr2016, pgru2017, smoke, student, tacl2015
from tune_spaces.space import Selection, Space

__all__ = ["SPACES", "Selection", "Space", "find_space"]

SPACES: dict[str, Space] = {
    **smoke.SPACES,
    **tacl2015.SPACES,
    **iclr2016.SPACES,
    **acl2017.SPACES,
    **pgru2017.SPACES,
    **student.SPACES,
}


def find_space(name: str) -> Space:
    """Return a space by its name.

    Raises:
        ValueError: the name is unknown; the message lists all names.
    """
    if name not in SPACES:
        raise ValueError(f"unknown space {name!r}; allowed: {', '.join(SPACES)}")
    return SPACES[name]
