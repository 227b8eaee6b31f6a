"""Lines of PPDB, some of which are broken, repeated or swapped."""

from paraembed.pairs.sample import ppdb_lines


def damaged_lines(version, count, seed, share):
    """Lines of the generated PPDB; a byte that is not UTF-8 is a surrogate."""
    lines = "".join(ppdb_lines(version, count, seed)).splitlines()
    for number, row in enumerate(range(1, count, round(1 / share))):
        lines[row] = " ||| ".join(_damaged(lines[row].split(" ||| "), lines[row - 1].split(" ||| "), number))
    return "".join(f"{line}\n" for line in lines)


def _damaged(fields, neighbor, number):
    tag, first, second, *rest = fields
    other_tag, other_first, other_second, *other_rest = neighbor
    ways = [
        [tag, first],
        [tag, first, "", *rest],
        [tag, f"{first}\udcff", second, *rest],
        [tag, first, first, *rest],
        neighbor,
        [other_tag, other_second, other_first, *other_rest],
    ]
    return ways[number % len(ways)]
