"""A small evaluation: two encoders over twelve words, two years of STS with three sets."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from paraembed import checkpoint
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, GranConfig
from paraembed.evaluation.analyses import analyse
from paraembed.evaluation.analyses.content import AnalysisInputs
from paraembed.evaluation.candidates import Candidate
from paraembed.evaluation.choose import read_choose
from paraembed.evaluation.report import compare
from paraembed.evaluation.sets import Group, ScoredPairs, Suite
from paraembed.settings import AnalysisOptions
from paraembed.text.vocabulary import Words

HOSTILE = "<script>alert(1)</script> & \"the\" 'cat' </td></style>"


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


@pytest.fixture(scope="session")
def analysed(inputs, tmp_path_factory):
    """A report whose labels, notes and texts hold HTML, its analyses, and the folder that they were written to."""
    folder = tmp_path_factory.mktemp("analysed")
    for pairs in (10, 100):
        recipe, data = {"objective": "contrastive", "contrast_phrases": 9}, {"data": {"pairs": pairs}}
        encoder = inputs.candidates[0].encoder
        checkpoint.save(encoder, folder / "runs" / str(pairs), recipe=recipe, provenance=data, model_card="")
    (folder / "tagged.tsv").write_text(10 * "the\tDT\ncat\tNN\n\n")
    (folder / "held-out.tsv").write_text("the cat\ta cat\non the mat\tthe mat\nsat\tthe cat sat\n")
    draw = np.random.default_rng(0)
    texts = [f"{HOSTILE} the {' '.join(draw.choice(['cat', 'dog', 'sat', 'mat', 'home'], 4))}" for _ in range(60)]
    pairs = ScoredPairs(HOSTILE, draw.uniform(0, 5, 30), pa.array(texts[:30]), pa.array(texts[30:]))
    own = Suite("pairs", (Group("", (pairs,)),), notes=(HOSTILE,))
    suites = (*inputs.suites, own, read_choose(folder / "held-out.tsv", 3))
    candidates = [replace(one, label=f"{one.label} {HOSTILE}", description=HOSTILE) for one in inputs.candidates]
    report, out = compare(candidates, suites, resamples=0), folder / "out"
    out.mkdir()
    options = AnalysisOptions(neighbors_of=(HOSTILE,), tagged=folder / "tagged.tsv", runs=(folder / "runs",))
    return report, analyse(report, candidates, suites, options, out), out
