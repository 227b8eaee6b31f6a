"""Scored test pairs from held-out combinations, so nothing like them is in the training lines; the score is exact.

A quarter are paraphrases; a quarter echo the wording of the first but mean another thing.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from paraembed.data.sample.held_out import is_held_out
from paraembed.data.sample.lexicon import BY_KIND, CONCEPTS, OPPOSITES, SENTENCES, Pattern

_SHARES = {
    "paraphrase": 0.25,
    "changed": 0.20,  # some core concepts are others
    "echo": 0.25,  # the same, in the same words otherwise
    "unrelated": 0.15,
    "denied": 0.05,
    "opposite": 0.05,
    "exchanged": 0.05,  # who did it to whom
}
_TRIES = 64
_NUMBERS = {concept.words[0]: number for number, concept in enumerate(CONCEPTS)}
_OPPOSITE = {_NUMBERS[one]: _NUMBERS[other] for pair in OPPOSITES for one, other in (pair, pair[::-1])}

Meaning = tuple[int, ...]
"""The concept in each slot of a pattern."""


def scored_pairs(count: int, seed: int) -> Iterator[str]:
    """Yield the lines of ``test-pairs.tsv``: a header, then score, first and second sentence."""
    yield "score\tsentence1\tsentence2\n"
    rng = np.random.default_rng([seed, 4])
    for _ in range(count):
        score, one, other = _draw(rng)
        yield f"{score:g}\t{one}\t{other}\n"


def similarity(one: Meaning, other: Meaning, core: int, *, denied: bool) -> float:
    """How alike two meanings of one pattern are, from 0 to 5.

    The core roles weigh 2, modifiers 1. A role filled by the same concept, or by its opposite, counts in full; a core
    concept found in another core role counts a quarter. If an opposite occurs or one side is denied, the two contradict
    each other while they talk of the same thing: the sum is multiplied by 0.4, so such a pair has at most 2.
    """
    weights = [2 if role < core else 1 for role in range(len(one))]
    gained = 0.0
    for weight, first, second in zip(weights, one, other, strict=True):
        if first == second or _OPPOSITE.get(first) == second:
            gained += weight
        elif weight == 2 and first in other[:core]:
            gained += weight / 4
    contradiction = denied or any(_OPPOSITE.get(first) == second for first, second in zip(one, other, strict=True))
    return round(5 * gained / sum(weights) * (0.4 if contradiction else 1), 2)


def _draw(rng: np.random.Generator) -> tuple[float, str, str]:
    kind = str(rng.choice(list(_SHARES), p=list(_SHARES.values())))
    while (drawn := _draw_meanings(rng, kind)) is None:
        pass
    pattern, one, other = drawn
    ways = pattern.variants
    other_ways = pattern.denials if kind == "denied" else ways
    way = int(rng.integers(len(ways)))
    words = [_word(rng, concept) for concept in one]
    if kind in {"echo", "exchanged"} or (kind == "opposite" and rng.random() < 0.5):
        said = dict(zip(one, words, strict=True))
        other_words = [said.get(concept) or _word(rng, concept) for concept in other]
        other_way = way
    else:
        other_words = [_word(rng, concept, unlike=words) for concept in other]
        other_way = (way + int(rng.integers(1, len(other_ways)))) % len(other_ways)
    score = similarity(one, other, pattern.core, denied=kind == "denied")
    return score, ways[way].format(*words), other_ways[other_way].format(*other_words)


def _word(rng: np.random.Generator, concept: int, unlike: Sequence[str] = ()) -> str:
    words = [word for word in CONCEPTS[concept].words if word not in unlike]
    return words[rng.integers(len(words))]


def _draw_meanings(rng: np.random.Generator, kind: str) -> tuple[Pattern, Meaning, Meaning] | None:
    """Two meanings related as ``kind`` says, both held out, or None if the draws did not lead there."""
    fitting = [way for way in SENTENCES if kind != "exchanged" or way.slots[0] == way.slots[2]]
    shares = np.array([pattern.share for pattern in fitting])
    pattern = fitting[rng.choice(len(fitting), p=shares / shares.sum())]
    one = _draw_meaning(rng, pattern, {})
    if one is None:
        return None
    keep = dict(enumerate(one))
    if kind in {"changed", "echo"}:
        changed = rng.permutation(pattern.core)[: rng.integers(1, pattern.core + 1)].tolist()
        keep = {role: concept for role, concept in keep.items() if role not in changed}
    elif kind == "unrelated":
        keep = {}
    elif kind == "opposite":
        roles = [role for role, concept in keep.items() if concept in _OPPOSITE]
        if not roles:
            return None
        role = roles[rng.integers(len(roles))]
        keep[role] = _OPPOSITE[keep[role]]
    elif kind == "exchanged":
        keep[0], keep[2] = keep[2], keep[0]
    other = _draw_meaning(rng, pattern, keep, unlike=one)
    return None if other is None else (pattern, one, other)


def _draw_meaning(
    rng: np.random.Generator, pattern: Pattern, keep: dict[int, int], unlike: Meaning = ()
) -> Meaning | None:
    """A held-out combination with the concepts of ``keep``; other roles have none of ``unlike``, nor an opposite."""
    taken = {*unlike, *(_OPPOSITE.get(concept, -1) for concept in unlike)}
    columns = []
    for role, kind in enumerate(pattern.slots):
        free = [keep[role]] if role in keep else [concept for concept in BY_KIND[kind] if concept not in taken]
        columns.append(np.array(free)[rng.integers(len(free), size=_TRIES)])
    tries = np.stack(columns, axis=-1)
    fits = is_held_out(tries[:, : pattern.core]) & (tries[:, 0] != tries[:, 2])
    return tuple(tries[int(np.argmax(fits))].tolist()) if fits.any() else None
