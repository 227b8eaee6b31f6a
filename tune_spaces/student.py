"""Training a student of jobs/teach.py on paraphrase pairs, from its vectors: ``--words STUDENT``."""

from tune_spaces.space import Selection, Space

SPACES = {
    "student/avg": Space(
        source="no paper",
        base="iclr2016/avg",
        axes={
            "margin": (0.4, 0.6, 0.8),
            "learning_rate": (1e-4, 2e-4, 5e-4),  # 0.001 scored 0.3 | 0.3 less than 5e-4 (r | ρ)
            "mega_batch_size": (1, 4, 16),
        },
        selection=Selection(("sts",), ((1, "sts/mean"),), "STS 2012 to 2016, or a suite that is not reported"),
        tuning_data="paraphrase pairs of sentences",
        tuning_pairs=None,
        tuning_epochs=3,
        final_data="the same pairs",
        final_epochs=3,
        fixed={"batch_size": 500},
    )
}
