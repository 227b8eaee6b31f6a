"""Search spaces of the papers and of students, as plain data without Ray: ``<paper>/<encoder>[-<variant>]``."""

from paraembed.aliases import did_you_mean
from tune_spaces import acl2017, iclr2016, pgru2017, tacl2015
from tune_spaces.space import Selection, Space

__all__ = ["SPACES", "Selection", "Space", "find_space"]

# Smoke test: four tiny trials on the generated sample.
_SMOKE = Space(
    source="no paper",
    base="acl2017/avg",
    axes={"margin": (0.4, 0.6), "word_l2": (1e-5, 0.0)},
    selection=Selection(("pairs",), ((1, "pairs/test-pairs/pearson"),), "the sample's pairs", ("test-pairs.tsv",)),
    tuning_data="the generated sample",
    tuning_pairs=2000,
    tuning_epochs=2,
    final_data="the generated sample",
    final_epochs=2,
    fixed={"tokenizer": "space", "learning_rate": 0.02},
)
# Training a student of jobs/teach.py on paraphrase pairs, from its vectors: ``--words STUDENT``.
_STUDENT = Space(
    source="no paper",
    base="iclr2016/avg",
    axes={
        "margin": (0.4, 0.6, 0.8),
        "learning_rate": (1e-4, 2e-4, 5e-4),  # 0.001 scored 0.3 | 0.3 less than 5e-4 (r | ρ)
        "mega_batch_size": (1, 4, 16),
    },
    selection=Selection(("sts",), ((1, "sts/mean"),), "STS 2012 to 2016, or a suite that is not reported"),
    tuning_data="paraphrase pairs of sentences",
    tuning_epochs=3,
    final_data="the same pairs",
    final_epochs=3,
    fixed={"batch_size": 500},
)

SPACES: dict[str, Space] = {
    "smoke": _SMOKE,
    **tacl2015.SPACES,
    **iclr2016.SPACES,
    **acl2017.SPACES,
    **pgru2017.SPACES,
    "student/avg": _STUDENT,
}


def find_space(name: str) -> Space:
    """Return a space by its name.

    Raises:
        ValueError: the name is unknown; the message lists all names.
    """
    if name not in SPACES:
        allowed = f"{', '.join(SPACES)}, or a .toml or .json file"
        raise ValueError(f"unknown space {name!r}; allowed: {allowed}{did_you_mean(name, SPACES)}")
    return SPACES[name]
