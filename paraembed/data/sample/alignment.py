"""Word alignment of two sentences that say the same thing, from their templates."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class Alignment(NamedTuple):
    """Links ``0-0 1-1 …`` (source-target, from 0), whether none of them cross, and how many tokens have none."""

    links: str
    monotonic: int
    unaligned_source: int
    unaligned_target: int


@lru_cache(maxsize=1 << 16)  # a sample has far fewer different ones than lines
def align(source: str, target: str, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> Alignment:
    """Align two templates: slot to slot, a literal token to the same one before the same slot.

    Args:
        source: template, such as ``the {0} {1} the {2}``.
        target: another template with the same slots.
        source_lengths: how many tokens fill each slot, by its number.
        target_lengths: the same for ``target``.
    """
    sources, num_source = _places(source, source_lengths)
    targets, num_target = _places(target, target_lengths)
    links = set()
    for piece in sources.keys() & targets.keys():
        one, other = sources[piece], targets[piece]
        links |= {(one[min(i, len(one) - 1)], other[min(i, len(other) - 1)]) for i in range(max(len(one), len(other)))}
    ends = [end for _, end in sorted(links)]
    return Alignment(
        links=" ".join(f"{start}-{end}" for start, end in sorted(links)),
        monotonic=int(ends == sorted(ends)),
        unaligned_source=num_source - len({start for start, _ in links}),
        unaligned_target=num_target - len(set(ends)),
    )


def _places(template: str, lengths: Sequence[int]) -> tuple[dict[str, range], int]:
    """Where each slot and literal stands, and the number of tokens; a literal is told apart by the slot after it."""
    places: dict[str, range] = {}
    pieces = template.split()
    position = 0
    for index, piece in enumerate(pieces):
        is_slot = piece.startswith("{")
        width = lengths[int(piece[1:-1])] if is_slot else 1
        slot_after = next((later for later in pieces[index:] if later.startswith("{")), "")
        places[piece if is_slot else f"{piece} {slot_after}"] = range(position, position + width)
        position += width
    return places, position
