"""Zhou, Huang, Ji 2017, "Learning Phrase Embeddings from Paraphrases with GRUs".

PPDB S, 200-d word2vec, SGD 0.3, batch 128, 150 epochs, margin 1, global-norm clipping at 5, dropout 0.5 ("on the GRU
cells", here on their inputs). k is 29, because the authors consider 99 not worth its cost. The paper's text compares
cosines, its formula dot products (``gru-dot``). ``gru-negative-sampling`` has the objective that §2.4 calls inferior,
with dot products, because of cosines σ stays within 0.27 to 0.73. The paper does not say whether the word vectors are
trained (FACTS §7; §3.2 suggests that they are not): ``gru`` trains them, ``gru-frozen-words`` does not. No code was
released.
"""

from dataclasses import replace

from paraembed.encoders.configs import GruConfig
from paraembed.recipe import Recipe

_PGRU = Recipe(
    encoder=GruConfig(width=200),
    epochs=150,
    batch_size=128,
    objective="contrastive",
    margin=1.0,
    contrast_phrases=29,
    optimizer="sgd",
    learning_rate=0.3,
    clip=5.0,
    clip_form="global",
    dropout=0.5,
)

RECIPES = {
    "pgru2017/gru": replace(_PGRU, similarity="cosine"),
    "pgru2017/gru-frozen-words": replace(_PGRU, similarity="cosine", train_words=False),
    "pgru2017/gru-dot": replace(_PGRU, similarity="dot"),
    "pgru2017/gru-negative-sampling": replace(_PGRU, objective="negative_sampling", similarity="dot"),
}
