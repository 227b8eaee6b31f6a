"""Smoke test: four tiny trials on the generated sample."""

from tune_spaces.space import Selection, Space

SPACES = {
    "smoke": Space(
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
}
