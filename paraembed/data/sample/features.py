"""Feature values of the generated lines: random numbers in the ranges of real PPDB lines, drawn once."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

POOL_SIZE = 4_096
"""Different draws; a line takes two of them, so 16 million combinations."""

_COSTS = {
    "LHS|e1": (0.0, 8.0), "LHS|e2": (0.0, 8.0), "e1|LHS": (5.0, 17.0), "e1|e2": (0.5, 13.0), "e1|e2,LHS": (0.3, 13.0),
    "e2|LHS": (5.0, 17.0), "e2|e1": (0.5, 13.0), "e2|e1,LHS": (0.3, 13.0),
}  # fmt: skip
"""The ranges of the eight costs -log p(·) in the 100 original lines of PPDB 2.0."""


class Values(NamedTuple):
    """Runs of features that do not follow from the texts, as the lines of both versions write them."""

    scores_2: str
    contains_2: str
    relations_2: str
    target_2: str
    relation_2: str
    contains_1: str
    penalties_1: str
    costs_1: str


def draw_values(seed: int) -> list[Values]:
    """Draw the pool. Its rows fall in the chance of equivalence, as the lines of a file do in their score."""
    rng = np.random.default_rng([seed, 2])
    chances = rng.dirichlet([5.0, 2.0, 1.5, 0.8, 0.2], size=POOL_SIZE)
    return [_draw(rng, row) for row in chances[np.argsort(-chances[:, 0], kind="stable")]]


def number(value: float) -> str:
    """PPDB writes five decimals, and 0 without any."""
    return f"{value:.5f}" if value else "0"


def _draw(rng: np.random.Generator, chances: npt.NDArray[np.float64]) -> Values:
    entailment = "ForwardEntailment" if rng.random() < 0.5 else "ReverseEntailment"
    relations = ("Equivalence", entailment, "OtherRelated", "Independent", "Exclusion")
    equal, entailed, related, independent, exclusion = (f"{value:.6f}" for value in chances.tolist())
    costs = " ".join(f"-logp({given})={number(rng.uniform(*bounds))}" for given, bounds in _COSTS.items())
    ngrams = number(rng.choice([0.0, rng.uniform(0.006, 0.3)]))
    giga = number(rng.uniform(0, 1))
    lex, other_lex = number(rng.uniform(45, 63)), number(rng.uniform(45, 63))
    log_count = number(math.log(rng.integers(1, 250)))
    mvlsa = "NA" if rng.random() < 0.6 else number(rng.uniform(-0.1, 1))
    rarity = number(math.exp(-float(rng.integers(1, 11)))) if rng.random() < 0.2 else "0"
    complexity = f"TargetComplexity={rng.uniform(0.97, 1):.5f} " if rng.random() < 0.96 else ""
    formality = f"TargetFormality={rng.uniform(0.94, 1):.5f} " if rng.random() < 0.81 else ""
    penalties = f"PhrasePenalty=1 RarityPenalty={rarity}"
    costs_1 = costs.replace("-logp", "p").replace("e1", "e").replace("e2", "f")  # 1.0 writes the same costs this way
    return Values(
        scores_2=f"PPDB1.0Score={rng.uniform(2, 18):.6f} {costs} AGigaSim={giga} Abstract=0 Adjacent=0",
        contains_2=f"ContainsX=0 Equivalence={equal} Exclusion={exclusion} GlueRule=0 GoogleNgramSim={ngrams} "
        f"Identity=0 Independent={independent} Lex(e1|e2)={lex} Lex(e2|e1)={other_lex} Lexical=1 LogCount={log_count} "
        f"MVLSASim={mvlsa}",
        relations_2=f"OtherRelated={related} {penalties} {entailment}={entailed} SourceTerminalsButNoTarget=0",
        target_2=f"{complexity}{formality}TargetTerminalsButNoSource=0",
        relation_2=relations[int(np.argmax(chances))],
        contains_1=f"ContainsX=0 GlueRule=0 Identity=0 Lex(e|f)={lex} Lex(f|e)={other_lex} Lexical=1 "
        f"LogCount={log_count}",
        penalties_1=f"{penalties} SourceTerminalsButNoTarget=0",
        costs_1=f"{costs_1} AGigaSim={giga} GoogleNgramSim={ngrams}",
    )
