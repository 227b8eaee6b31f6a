"""Wieting, Bansal, Gimpel, Livescu, Roth 2015, "From Paraphrase Database to Compositional Paraphrase Model and Back".

AdaGrad with step 0.5 for words and 0.05 for the composition, δ 1, dot products. λ_w, λ_W and the batch were searched
(FACTS §4) and what was found is not printed: the values here are inside the searched ranges.
"""

from dataclasses import replace

from paraembed.encoders.configs import RecursiveConfig, SumConfig, WordConfig
from paraembed.recipe import Recipe

_PARAGRAM = Recipe(
    batch_size=100,
    margin=1.0,
    similarity="dot",
    optimizer="adagrad",
    learning_rate=0.5,
    encoder_learning_rate=0.05,
    word_l2=1e-5,
    l2_form="paper",
)
_WORDS = replace(_PARAGRAM, encoder=WordConfig(), epochs=20)

RECIPES = {
    "tacl2015/word": replace(_WORDS),
    "tacl2015/word-constraints": replace(_WORDS, paired_negatives="excluded"),
    "tacl2015/sum": replace(_PARAGRAM, encoder=SumConfig(), epochs=5),
    "tacl2015/recursive": replace(_PARAGRAM, encoder=RecursiveConfig(), epochs=5, encoder_l2=1e-3),
}
