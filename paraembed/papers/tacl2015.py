"""Wieting, Bansal, Gimpel, Livescu, Roth 2015, "From Paraphrase Database to Compositional Paraphrase Model and Back".

δ 1, dot products, AdaGrad with learning rate 0.5 for words and 0.05 for the encoder parameters, as printed; λ_w, λ_W
and the batch were searched (FACTS §4), and the best values are not printed. Other settings follow the released Matlab
code (jwieting/tacl2015; FACTS §7): its form of AdaGrad, halved penalties, candidates equal to the text excluded for
phrases, too. Its demo uses λ_w 1e-4 for words, λ_w 1e-2 and λ_W 0 for bigrams and phrases, and batch 100. The phrase
encoder starts from the vectors of ``word``, without constraints (footnote 12). "PARAGRAM +" (tables 5, 6, 11, 12) adds
these vectors and trains nothing on phrases, so it has no recipe.

``paragram300`` trains the 300-d PARAGRAM vectors of table 10 from GloVe on PPDB XL lexical, like the released Theano
code (jwieting/paragram-word; FACTS §7), in Lasagne's form of AdaGrad.
"""

from dataclasses import replace

from paraembed.encoders.configs import RecursiveConfig, WordConfig
from paraembed.recipe import Recipe

_PARAGRAM = Recipe(
    batch_size=100,
    margin=1.0,
    similarity="dot",
    optimizer="adagrad",
    adagrad_form="matlab",
    learning_rate=0.5,
    encoder_learning_rate=0.05,
    l2_form="released",
    equal_negatives="excluded",
)
_WORDS = replace(_PARAGRAM, encoder=WordConfig(), epochs=20, word_l2=1e-4)

RECIPES = {
    "tacl2015/word": _WORDS,
    "tacl2015/word-constraints": replace(_WORDS, paired_negatives="excluded"),
    "tacl2015/paragram300": Recipe(
        encoder=WordConfig(),
        epochs=10,
        batch_size=50,
        margin=0.6,
        negatives="mix",
        equal_negatives="allowed",
        optimizer="adagrad",
        adagrad_form="lasagne",
        learning_rate=0.05,
        word_l2=1e-9,
        l2_form="released",
    ),
    "tacl2015/recursive": replace(_PARAGRAM, encoder=RecursiveConfig(), epochs=5, word_l2=1e-2),
}
