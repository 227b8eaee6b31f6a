"""Wieting, Bansal, Gimpel, Livescu 2016, "Towards Universal Paraphrastic Sentence Embeddings".

The recipes are the best settings found, as in the released demo: PPDB XL phrasal pairs, 10 epochs, δ 0.4, MAX over
both sides, batch 100; the released penalties carry a factor ½. PPDB texts are tokenised already.
"""

from dataclasses import replace

from paraembed.encoders.avg import AvgConfig
from paraembed.encoders.proj import ProjConfig
from paraembed.recipe import Recipe

_TRANSFER = Recipe(epochs=10, batch_size=100, margin=0.4, pool="both_sides", optimiser="adam", penalty_form="released")

RECIPES = {
    "iclr2016/avg": replace(_TRANSFER, encoder=AvgConfig(), learning_rate=0.005, word_penalty=1e-6, clip=1.0),
    "iclr2016/proj": replace(
        _TRANSFER, encoder=ProjConfig(), learning_rate=0.0005, word_penalty=1e-8, composition_penalty=1e-5
    ),
}
