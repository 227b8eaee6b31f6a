"""A small evaluation: two encoders over twelve words, two years of STS with three sets."""

import numpy as np
import pyarrow as pa
import pytest

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, GranConfig
from paraembed.evaluation.analyses.content import AnalysisInputs
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.settings import AnalysisOptions
from paraembed.text.vocabulary import Words


def scored_pairs(name, vocabulary, seed, count=40):
    """Sentences of 3 to 12 words, a tenth of them not in the vocabulary, with scores from 0 to 5."""
    generator = np.random.default_rng(seed)

    def sentence():
        chosen = generator.choice([*vocabulary, "zebra"], generator.integers(3, 13))
        return " ".join(chosen)

    sides = [pa.array([sentence() for _ in range(count)]) for _ in range(2)]
    return ScoredPairs(name, np.concatenate(([0.0, 5.0], generator.uniform(0, 5, count - 2))), *sides)


@pytest.fixture
def encoder(tiny_words):
    return Encoder(AvgConfig(), tiny_words, "ptb-v1")


@pytest.fixture(scope="session")
def inputs(tiny_words):
    words = tiny_words.vocabulary.to_pylist()[1:10]
    sets = [scored_pairs(name, words, seed) for seed, name in enumerate(("MSRpar", "MSRvid", "OnWN"))]
    suite = Suite("sts", (Group("2012", tuple(sets[:2])), Group("2013", tuple(sets[2:]))), "year")
    candidates = tuple(
        Candidate(label, label, Encoder(config, Words(tiny_words.vocabulary, tiny_words.matrix.copy()), "ptb-v1"))
        for label, config in (("avg", AvgConfig()), ("gran", GranConfig()))
    )
    report = compare(candidates, [suite], resamples=0)
    return AnalysisInputs(report, candidates, (suite,), AnalysisOptions())
