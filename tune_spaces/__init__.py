"""What each paper searched, as plain data: ``<paper>/<encoder>[-<variant>]``; no Ray, nothing that computes."""

from tune_spaces import acl2017, iclr2016, pgru2017, smoke, tacl2015
from tune_spaces.space import Selection, Space

__all__ = ["SPACES", "Selection", "Space", "find_space"]

SPACES: dict[str, Space] = {
    **smoke.SPACES,
    **tacl2015.SPACES,
    **iclr2016.SPACES,
    **acl2017.SPACES,
    **pgru2017.SPACES,
}


def find_space(name: str) -> Space:
    """A space by its name.

    Raises:
        ValueError: no such name, with all that exist.
    """
    if name not in SPACES:
        raise ValueError(f"unknown space {name!r}; allowed: {', '.join(SPACES)}")
    return SPACES[name]
