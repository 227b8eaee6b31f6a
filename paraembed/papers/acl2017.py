"""Wieting and Gimpel 2017, "Revisiting Recurrent Networks for Paraphrastic Sentence Embeddings".

Adam 0.001, batch 100, λ_c 0; SimpWiki sentence pairs; 7 epochs for avg, 3 for recurrent encoders. The settings of avg,
lstm, lstm_avg and gran are those of the demo of the released code (jwieting/acl2017; FACTS §4). The paper does not
print the settings of the variants, so they use those of their family: "dropout and scrambling" (table 3). The recipes
keep the default ``negative_dropout="shared"``: a text that serves as a negative keeps its dropout mask. The released
code draws a fresh one (FACTS §7), which ``negative_dropout="fresh"`` repeats.
"""

from dataclasses import replace

from paraembed.encoders import configs
from paraembed.recipe import Recipe

_RECURRENT = Recipe(epochs=3, batch_size=100, margin=0.4, optimizer="adam", learning_rate=0.001, l2_form="released")
_LSTM_AVG = replace(_RECURRENT, word_l2=1e-5, scramble=0.5, dropout=0.4)
_GRAN = replace(_RECURRENT, scramble=0.5, dropout=0.4)

RECIPES = {
    "acl2017/avg": replace(_RECURRENT, encoder=configs.AvgConfig(), epochs=7, margin=0.6),
    "acl2017/lstm": replace(_RECURRENT, encoder=configs.LstmConfig(), word_l2=1e-5, scramble=0.75, word_dropout=0.2),
    "acl2017/lstm_avg": replace(_LSTM_AVG, encoder=configs.LstmAvgConfig()),
    "acl2017/bilstm_avg": replace(_LSTM_AVG, encoder=configs.BiLstmAvgConfig()),
    "acl2017/gran": replace(_GRAN, encoder=configs.GranConfig()),
    "acl2017/gran2": replace(_GRAN, encoder=configs.Gran2Config()),
    "acl2017/gran3": replace(_GRAN, encoder=configs.Gran3Config()),
    "acl2017/gran4": replace(_GRAN, encoder=configs.Gran4Config()),
    "acl2017/gran5": replace(_GRAN, encoder=configs.Gran5Config()),
    "acl2017/gran_nogate": replace(_GRAN, encoder=configs.GranNoGateConfig()),
    "acl2017/bigran": replace(_GRAN, encoder=configs.BiGranConfig()),
}
