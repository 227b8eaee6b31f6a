"""Files of the evaluation suites and labeled tasks with generated examples, for ``write_sample``.

The files have the names and line formats of the published data sets, because their readers need them, and no line of
their content. A limitation: the texts are simple, so a score shows that a command runs, not how good an encoder is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from paraembed.pairs.sample_lexicon import CONCEPTS

NOTE = "GENERATED.md"
"""File that marks the folder as generated."""
_NOTE_TEXT = """# Generated data, not the published data sets

paraembed generated every file of this folder. The files have the names and line formats of the
published data sets, because the readers need them, but none of their texts and scores. Do not report scores on them.
The published data sets and their line formats: docs/evaluate.md.
"""


class Layout(NamedTuple):
    """Examples of a file: their number, what they consist of, the template of one example, and the header."""

    size: int
    kinds: str  # word classes of the modifier and the head of a phrase; empty: pairs of sentences
    line: str
    header: str = ""


_STS = Layout(40, "", "{score:.2f}\t{first}\t{second}\n", "score\tsentence1\tsentence2\n")
_SICK = Layout(
    60,
    "",
    "{number}\t{first}\t{second}\t{grade:.1f}\t{judgment}\n",
    "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n",
)
_TWEETS = Layout(40, "", "{number}\tgenerated\t{first}\t{second}\t{stars}\t{tags}\t{other_tags}\n")
_WORDS = Layout(40, "quality object", "{heads[0]}\t{head}\t{similarity:.2f}\n")
_SIMLEX = Layout(
    40,
    "quality object",
    "{heads[0]}\t{head}\tN\t{similarity:.2f}\t4.50\t4.50\t4\t0.00\t0\t0.50\n",
    "word1\tword2\tPOS\tSimLex999\tconc(w1)\tconc(w2)\tconcQ\tAssoc(USF)\tSimAssoc333\tSD(SimLex)\n",
)
_BIGRAMS = "phrase/mitchell_lapata_2010.txt"
_BIGRAMS_HEADER = "participant type ver s1lemma1 s1lemma2 s2lemma1 s2lemma2 rating\n"
_MODIFIER_FIRST = "1 {mods[0]} {heads[0]} {mod} {head} {rating}\n"
_HEAD_FIRST = "1 {heads[0]} {mods[0]} {head} {mod} {rating}\n"
_PAVLICK = "{opinion:.1f}\t[NP]\tthe {mods[0]} {heads[0]}\tthe {mod} {head}\t{opinion:.1f},{opinion:.1f}\n"
_ANNOTATED = "the {mods[0]} {heads[0]}|||the {mod} {head}|||{opinion:.1f}\n"
_RIGHT = "{mods[0]}\tJJ\n{heads[0]}\tNN\n{heads[1]}\n1\n"
_WRONG = "{mods[2]}\tJJ\n{heads[2]}\tNN\n{heads[1]}\n0\n"
_CHOICES = "{heads[1]} | {mods[0]} | {heads[0]} | {mods[1]} | {heads[2]} | {mods[2]} | {heads[3]}\n"
_TREE = (
    "({label} ({label} (2 the) ({label} ({label} {mods[0]}) (2 {heads[0]}))) (2 (2 met) (2 (2 the) (2 {heads[2]}))))"
)

LAYOUTS = (
    *((f"sts/{year}/generated.tsv", _STS) for year in (2012, 2013, 2014, 2015, 2016)),
    *((f"sick/SICK_{part}.txt", _SICK) for part in ("train", "trial", "test_annotated")),
    ("pit2015/test.data", _TWEETS),
    ("pit2015/test.label", _TWEETS._replace(line="{similar}\t{fraction:.4f}\n")),
    ("word/SimLex-999.txt", _SIMLEX),
    *((f"word/{name}.txt", _WORDS) for name in ("ws353", "ws353-sim", "ws353-rel")),
    (_BIGRAMS, Layout(30, "quality object", f"participant1 adjectivenouns {_MODIFIER_FIRST}", _BIGRAMS_HEADER)),
    (_BIGRAMS, Layout(30, "place object", f"participant1 compoundnouns {_MODIFIER_FIRST}")),
    (_BIGRAMS, Layout(30, "verb_thing object", f"participant1 verbobjects {_HEAD_FIRST}")),
    ("phrase/pavlick2015_ppdb_human.tsv.gz", Layout(40, "quality object", _PAVLICK)),
    ("phrase/annotated_ppdb_3k.txt", Layout(40, "trait person", _ANNOTATED)),
    *(
        (f"phrase/semeval2013_5a/en.{part}Set", Layout(80, "quality object", _RIGHT + _WRONG))
        for part in ("train", "test")
    ),
    # The first 680 questions are for training: see supervised/readers.py.
    ("phrase/turney2012_jair.data", Layout(720, "quality object", f"{{mods[0]}} {{heads[0]}} | {_CHOICES}")),
    *((f"sst/{part}.txt.gz", Layout(40, "trait person", f"{_TREE}\n")) for part in ("train", "dev", "test")),
)
"""Files in the data folder, and what each contains; a file of several parts is listed once for each part."""

_GOOD = {"happy", "brave", "clever", "rich", "kind"}
_POSITIVE = {word for concept in CONCEPTS if concept.words[0] in _GOOD for word in concept.words}
ScoredSentences = Callable[[int, Sequence[int]], Iterable[tuple[float, str, str]]]
"""Function from a number of pairs and a seed to scores, 0 to 5, with two sentences."""


def suite_files(seed: int, sentences: ScoredSentences) -> Iterator[tuple[str, list[str]]]:
    """Yield every file of the suites: its path in the data folder, and its text in pieces."""
    yield NOTE, [_NOTE_TEXT]
    files: dict[str, list[str]] = {}
    for name, layout in LAYOUTS:
        key = [seed, *f"{name.replace('.label', '.data')} {layout.kinds}".encode()]  # the labels of the same pairs
        rows = _phrases(layout, key) if layout.kinds else map(_sentences, sentences(layout.size, key))
        files.setdefault(name, []).append(layout.header)
        files[name] += [layout.line.format(number=number, **row) for number, row in enumerate(rows, 1)]
    yield from files.items()


def _sentences(pair: tuple[float, str, str]) -> Mapping[str, Any]:
    """Return the values of a template for two sentences; the score is the fraction of shared concepts, times 5."""
    score, first, second = pair
    stars = round(score)
    return {
        "score": score,
        "first": first,
        "second": second,
        "grade": 1 + 0.8 * score,
        "judgment": "ENTAILMENT" if score == 5 else "CONTRADICTION" if score else "NEUTRAL",
        "stars": stars,
        "fraction": stars / 5,
        "similar": "true" if stars > 3 else "false" if stars < 3 else "----",
        "tags": " ".join(f"{word}/O/NN/O/O" for word in first.split()),
        "other_tags": " ".join(f"{word}/O/NN/O/O" for word in second.split()),
    }


def _phrases(layout: Layout, seed: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    """Yield the values of a template for two phrases of a modifier and a head, which share 0 to 2 concepts.

    ``mods`` and ``heads`` are four words: two of one concept, and one of each of two other concepts. The first phrase
    is ``mods[0] heads[0]``, the second one ``mod head``.
    """
    rng = np.random.default_rng(seed)
    for _ in range(layout.size):
        mods, heads = (_draw_words(rng, kind) for kind in layout.kinds.split())
        same_mod, same_head = (rng.random(2) < 0.5).tolist()
        num_shared = same_mod + same_head
        yield {
            "mods": mods,
            "heads": heads,
            "mod": mods[rng.integers(2) if same_mod else 2],  # may be the same word, so that word overlap has a score
            "head": heads[1 if same_head else 2],
            "similarity": 9 if same_head else 1,
            "rating": 1 + 3 * num_shared,  # 1 to 7
            "opinion": 1 + 2 * num_shared,  # 1 to 5
            "label": 3 if mods[0] in _POSITIVE else 1,
        }


def _draw_words(rng: np.random.Generator, kind: str) -> list[str]:
    """Return two words of a concept of the word class, and one word of each of two other concepts."""
    concepts = [[word for word in concept.words if " " not in word] for concept in CONCEPTS if concept.kind == kind]
    single = [words for words in concepts if len(words) > 1]
    own, *others = rng.permutation(len(single))[:3].tolist()
    return [*rng.permutation(single[own])[:2].tolist(), *(str(rng.choice(single[other])) for other in others)]
