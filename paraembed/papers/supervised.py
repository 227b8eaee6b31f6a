"""Recipes of the papers for labeled examples, and their published results, ×100.

Wieting 2016 §4.4: 10 epochs; the best settings are not printed. The demo of the released code (jwieting/iclr2016; FACTS
§7) prints three of them, all with batch 25, halved penalties and the loss divided by K, on PARAGRAM-SL999 vectors:
``supervised-avg`` has the settings of similarity, ``supervised-avg-entailment`` those of entailment,
``supervised-lstm`` those of sentiment. On SICK with 8,000 words, similarity scores 81.7 with these settings and 80.1
with those of version 0.1; entailment scores the same within the spread of the seeds. proj, dan and rnn use the settings
of similarity, lstm-no-gate those of sentiment. ``universal-*`` and ``features*`` are not in the demo: they use its
settings of similarity and sentiment, which are within the searched ranges (λ_s 1e-4 instead of 1e-6 costs 6 points of
the frozen encoder's SICK similarity). ``features*`` (20 epochs) freeze the whole encoder, as §4.4.2 says, whereas the
released code still trains projection and recurrent weights. Wieting 2017 §4.3: Adam 0.001, the regularizers of table
5's best rows with the rates of the released transfer models; the paper does not print epochs, batch and head, which are
within the ranges of Wieting 2016. Wieting 2015 §5.5: the CNN as printed. Zhou 2017 §3.2: task-specific GRUs with the
settings of §2.5, word vectors frozen; ``tree-rnn-specific`` is its Tree-RNN without tags, with the same settings.
"""

from dataclasses import replace
from typing import Any

from paraembed.encoders.configs import CnnConfig
from paraembed.papers import acl2017, iclr2016, pgru2017, tacl2015
from paraembed.papers.results import RESULTS
from paraembed.recipe import SupervisedRecipe

_TRANSFER = {**tacl2015.RECIPES, **iclr2016.RECIPES, **acl2017.RECIPES, **pgru2017.RECIPES}
_SIMILARITY = SupervisedRecipe(
    epochs=10,
    batch_size=25,
    optimizer="adam",
    learning_rate=0.001,
    head_width=50,
    head_l2=1e-6,
    encoder_l2=1e-6,
    word_l2=1e-5,
    l2_form="released",
    loss_form="released",
    target_form="released",
)
_ENTAILMENT = replace(_SIMILARITY, optimizer="adagrad", learning_rate=0.05, head_width=150)
_SENTIMENT = replace(_SIMILARITY, word_l2=1e-6, head_width=300)
_P17 = SupervisedRecipe(
    epochs=10, batch_size=25, optimizer="adam", learning_rate=0.001, head_width=50, head_l2=1e-4, word_l2=1e-5
)
_SCRAMBLED: dict[str, Any] = {"dropout": 0.4, "scramble": 0.5}
_PGRU = SupervisedRecipe(
    epochs=150,
    batch_size=128,
    optimizer="sgd",
    learning_rate=0.3,
    clip=5.0,
    clip_form="global",
    dropout=0.5,
    train_words=False,
    margin=1.0,
)


def _of(base: str, recipe: SupervisedRecipe, **changes: Any) -> SupervisedRecipe:
    return replace(recipe, encoder=_TRANSFER[base].encoder, **changes)


_RECURRENT_17 = ("lstm", "lstm_avg", "gran", "gran2", "gran3", "gran4", "gran5")

SUPERVISED_RECIPES: dict[str, SupervisedRecipe] = {
    "tacl2015/cnn": SupervisedRecipe(
        encoder=CnnConfig(),
        epochs=30,
        batch_size=10,
        optimizer="adagrad",
        learning_rate=0.1,
        train_words=False,
        head_layer="none",
        head_dropout=0.5,
        eval_every=3000,
    ),
    **{f"iclr2016/supervised-{name}": _of(f"iclr2016/{name}", _SIMILARITY) for name in ("avg", "proj", "dan", "rnn")},
    "iclr2016/supervised-avg-entailment": _of("iclr2016/avg", _ENTAILMENT),
    **{f"iclr2016/supervised-{name}": _of(f"iclr2016/{name}", _SENTIMENT) for name in ("lstm", "lstm-no-gate")},
    "iclr2016/universal-avg": _of("iclr2016/avg", _SIMILARITY, mode="universal"),
    "iclr2016/universal-lstm": _of("iclr2016/lstm", _SENTIMENT, mode="universal"),
    "iclr2016/features": _of("iclr2016/avg", _SIMILARITY, mode="features", epochs=20),
    "iclr2016/features-proj": _of("iclr2016/proj", _SIMILARITY, mode="features", epochs=20),
    "acl2017/supervised-avg": _of("acl2017/avg", _P17, dropout=0.4),
    **{f"acl2017/supervised-{name}": _of(f"acl2017/{name}", _P17, **_SCRAMBLED) for name in _RECURRENT_17},
    "acl2017/universal-avg": _of("acl2017/avg", _P17, mode="universal", dropout=0.4),
    "acl2017/universal-lstm_avg": _of("acl2017/lstm_avg", _P17, mode="universal", **_SCRAMBLED),
    "acl2017/universal-gran": _of("acl2017/gran", _P17, mode="universal", **_SCRAMBLED),
    "pgru2017/gru-specific": _of("pgru2017/gru", _PGRU),
    "pgru2017/tree-rnn-specific": _of("tacl2015/recursive", _PGRU),
}


def published_for(task: str, data_set: str, kind: str, mode: str, measure: str) -> dict[str, list[tuple[str, float]]]:
    """Return labels and values, ×100, of the published rows to compare a model with, by measure: those of its encoder
    and of encoders that the papers did not train. If the papers have no row for its encoder, all rows of the mode are
    returned.
    """
    name = f"{task}/{data_set}"
    of_mode = [row for row in RESULTS if name in row.values and row.mode == mode]
    is_known = any(row.kind == kind for row in of_mode)
    rows = [row for row in of_mode if not is_known or row.kind in {kind, ""}]
    published: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        published.setdefault(row.measure or measure, []).append((row.label, row.values[name]))
    return {measure: sorted(values) for measure, values in published.items()}  # as JSON sorts them
