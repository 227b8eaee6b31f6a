"""Zhou, Huang, Ji 2017, "Learning Phrase Embeddings from Paraphrases with GRUs".

The paper compares settings on its test pairs and names no best one (k = 99 is not worth its time to it); the space
selects on dev. ``best`` names the recipe of this package, which is within the searched ranges.
"""

from tune_spaces.space import Selection, Space

SPACES = {
    "pgru2017/gru": Space(
        source="Zhou 2017 §3.1, figure 2",
        base="pgru2017/gru",
        axes={"share": (0.01, 0.1, 1.0), "contrast_phrases": (9, 29, 99)},
        selection=Selection(
            ("choose",),
            ((1, "choose/100/accuracy"),),
            "which of 100 phrases is the paraphrase; --data is the folder that jobs/shard.py split",
            ("dev",),
        ),
        tuning_data="PPDB 1.0 S, 406,170 pairs, the 80 % of jobs/shard.py --training-set pgru2017 --split train",
        tuning_epochs=150,
        final_epochs=150,
        best=("pgru2017/gru",),
    )
}
