"""Wieting, Bansal, Gimpel, Livescu 2016, "Towards Universal Paraphrastic Sentence Embeddings".

Best settings of the demo of the released code (jwieting/iclr2016; FACTS §4): PPDB XL phrasal pairs, 10 epochs, δ 0.4,
MAX over both sides, batch 100 unless a recipe sets another size; halved penalties and AdaGrad in Lasagne's form, as in
that code (FACTS §7).
"""

from dataclasses import replace

from paraembed.encoders import configs
from paraembed.recipe import Recipe

_TRANSFER = Recipe(
    epochs=10,
    batch_size=100,
    margin=0.4,
    negative_pool="both_sides",
    optimizer="adam",
    learning_rate=0.0005,
    l2_form="released",
)
_LSTM = replace(_TRANSFER, word_l2=1e-6, encoder_l2=1e-3)

RECIPES = {
    "iclr2016/avg": replace(_TRANSFER, encoder=configs.AvgConfig(), learning_rate=0.005, word_l2=1e-6, clip=1.0),
    # On PPDB XXL. The paper searched λ_w {1e-6, 1e-7, 1e-8} and {MIX, MAX}, and does not print the best values.
    "iclr2016/avg-xxl": replace(
        _TRANSFER, encoder=configs.AvgConfig(), optimizer="adagrad", learning_rate=0.05, word_l2=1e-6
    ),
    # §6, footnote 24: 10 epochs on XL. The paper does not print the learning rate.
    "iclr2016/scaled-avg": replace(
        _TRANSFER, encoder=configs.ScaledAvgConfig(), learning_rate=0.005, train_words=False
    ),
    "iclr2016/proj": replace(_TRANSFER, encoder=configs.ProjConfig(), word_l2=1e-8, encoder_l2=1e-5),
    "iclr2016/dan": replace(
        _TRANSFER,
        encoder=configs.DanConfig(layers=1, activation="tanh"),
        optimizer="adagrad",
        learning_rate=0.05,
        word_l2=1e-5,
        encoder_l2=1e-5,
    ),
    "iclr2016/rnn": replace(
        _TRANSFER, encoder=configs.RnnConfig(activation="tanh"), negatives="mix", word_l2=1e-6, encoder_l2=1e-4
    ),
    "iclr2016/irnn": replace(
        _TRANSFER,
        encoder=configs.IrnnConfig(),
        learning_rate=0.005,
        word_l2=1e-6,
        encoder_l2=10.0,
        encoder_l2_target="initial",
        clip=1.0,
    ),
    "iclr2016/lstm": replace(_LSTM, encoder=configs.LstmConfig(output_gate=True)),
    "iclr2016/lstm-no-gate": replace(_LSTM, encoder=configs.LstmConfig(output_gate=False), batch_size=50),
}
