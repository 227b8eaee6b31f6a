"""Wieting, Bansal, Gimpel, Livescu 2016, "Towards Universal Paraphrastic Sentence Embeddings".

``best`` names the settings of the released demo. Those of avg-xxl are not printed, so it names the recipe of this
package, which is within the searched ranges.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tune_spaces.space import DEV_PEARSON, Selection, Space

_WORDS_FIXED = {"train_words": False, "word_l2": 0.0}
_ENCODER_L2 = {"encoder_l2": (1e-3, 1e-4, 1e-5, 1e-6)}
_ACTIVATION = {"encoder.activation": ("tanh", "relu")}
_OPTIMIZER = {"optimizer": ("adagrad", "adam"), "learning_rate": (0.05, 0.005, 0.0005), "clip": (1.0, None)}

_AVG = Space(
    source="Wieting 2016 §4.2.1, footnote 9, tables 2 and 3",
    base="iclr2016/avg",
    axes={
        "batch_size": (25, 50, 100),
        "word_l2": (1e-5, 1e-6, 1e-7, 1e-8, _WORDS_FIXED),
        "margin": (0.4, 0.6, 0.8),
        **_OPTIMIZER,
        "negatives": ("max", "mix"),
    },
    selection=Selection(("phrases",), ((1, "phrases/pavlick/spearman"),), "Pavlick et al. 2015, all of it"),
    tuning_data="PPDB 1.0 XXL phrasal",
    tuning_pairs=100_000,
    tuning_epochs=5,
    final_data="PPDB 1.0 XL phrasal, 3,033,753 pairs",
    final_epochs=10,
    best=("iclr2016/avg",),
)


def _with(encoder: str, more: Mapping[str, tuple[Any, ...]], *best: str) -> Space:
    names = tuple(f"iclr2016/{name}" for name in (encoder, *best))
    return replace(_AVG, base=f"iclr2016/{encoder}", axes={**_AVG.axes, **more}, best=names)


def _projected(width: int) -> Space:
    """Return a space for ``proj`` of a greater width, for the features of table 6."""
    axes = {"encoder_l2": (1e-4, 1e-5, 1e-6, 1e-7, 1e-8), "word_l2": _AVG.axes["word_l2"], **_OPTIMIZER}
    fixed = {"encoder.width": width, "batch_size": 100, "margin": 0.4, "negatives": "max"}
    return replace(
        _AVG, source="Wieting 2016 footnote 18, table 6", base="iclr2016/proj", axes=axes, fixed=fixed, best=()
    )


# λ_s is head_l2, the width of h_s head_width; one penalty for both where the paper ties them.
_SCHEMES = ({"optimizer": "adagrad", "learning_rate": 0.05}, {"optimizer": "adam", "learning_rate": 0.001})
_HEAD_L2 = (1e-3, 1e-4, 1e-5, 1e-6)
_SUPERVISED_WORD_L2 = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
_SUPERVISED = Space(
    source="Wieting 2016 §4.4, footnote 16, table 5",
    base="iclr2016/supervised-avg",
    axes={
        "batch_size": (25, 50, 100),
        "head_width": (50, 150, 300),
        "head_l2": _HEAD_L2,
        "word_l2": _SUPERVISED_WORD_L2,
        "scheme": _SCHEMES,
    },
    selection=DEV_PEARSON,
    tuning_data="SICK, or the Stanford Sentiment Treebank, training set",
    tuning_epochs=10,
    final_epochs=10,
    job="finetune",
)
_TIED = {"head_l2": tuple({"head_l2": value, "encoder_l2": value} for value in _HEAD_L2)}
_UNIVERSAL = {"head_l2": _HEAD_L2, "encoder_l2": (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)}


def _supervised(encoder: str, more: Mapping[str, tuple[Any, ...]]) -> Space:
    words = {"word_l2": (*_SUPERVISED_WORD_L2, _WORDS_FIXED)}
    return replace(
        _SUPERVISED, base=f"iclr2016/supervised-{encoder}", axes={**_SUPERVISED.axes, **_TIED, **words, **more}
    )


def _universal(encoder: str, more: Mapping[str, tuple[Any, ...]]) -> Space:
    axes = {**_SUPERVISED.axes, **more}
    return replace(
        _SUPERVISED, source="Wieting 2016 §4.4.1, footnote 17, table 5", base=f"iclr2016/universal-{encoder}", axes=axes
    )


# Its widths are those of the encoder that is given: 300 of avg; 1200 and 2400 of proj, see ``_projected``.
_FEATURES = replace(
    _SUPERVISED,
    source="Wieting 2016 §4.4.2, footnote 18, table 6",
    base="iclr2016/features",
    axes={"head_l2": _HEAD_L2, "scheme": _SCHEMES},
    tuning_epochs=20,
    final_epochs=20,
)

SPACES = {
    "iclr2016/avg": _AVG,
    "iclr2016/proj": _with("proj", _ENCODER_L2),
    "iclr2016/dan": _with("dan", {**_ENCODER_L2, **_ACTIVATION, "encoder.layers": (1, 2)}),
    "iclr2016/rnn": _with("rnn", {**_ENCODER_L2, **_ACTIVATION}),
    "iclr2016/irnn": _with("irnn", {"encoder_l2": (1000.0, 100.0, 10.0, 1.0)}),
    "iclr2016/lstm": _with("lstm", {**_ENCODER_L2, "encoder.output_gate": (True, False)}, "lstm-no-gate"),
    "iclr2016/avg-xxl": replace(
        _AVG,
        source="Wieting 2016 §4.3, footnote 12, table 4",
        base="iclr2016/avg-xxl",
        axes={"word_l2": (1e-6, 1e-7, 1e-8), "negatives": ("max", "mix")},
        tuning_data="PPDB 1.0 XL phrasal, 3,033,753 pairs",
        tuning_pairs=None,
        tuning_epochs=10,
        final_data="PPDB 1.0 XXL phrasal, 9,123,575 pairs",
        best=("iclr2016/avg-xxl",),
    ),
    # The paper prints no grid of it: that of avg, without the words' penalty.
    "iclr2016/scaled-avg": replace(
        _AVG,
        source="Wieting 2016 §6, footnote 24",
        base="iclr2016/scaled-avg",
        axes={name: values for name, values in _AVG.axes.items() if name != "word_l2"},
        best=("iclr2016/scaled-avg",),
    ),
    "iclr2016/proj-1200": _projected(1200),
    "iclr2016/proj-2400": _projected(2400),
    "iclr2016/supervised-avg": replace(
        _SUPERVISED, best=("iclr2016/supervised-avg", "iclr2016/supervised-avg-entailment")
    ),
    "iclr2016/supervised-proj": _supervised("proj", {}),
    "iclr2016/supervised-dan": _supervised("dan", {**_ACTIVATION, "encoder.layers": (1, 2)}),
    "iclr2016/supervised-rnn": _supervised("rnn", _ACTIVATION),
    "iclr2016/supervised-lstm": replace(_supervised("lstm", {}), best=("iclr2016/supervised-lstm",)),
    "iclr2016/supervised-lstm-no-gate": _supervised("lstm-no-gate", {}),
    "iclr2016/universal-avg": _universal("avg", {}),
    "iclr2016/universal-lstm": _universal("lstm", _UNIVERSAL),
    "iclr2016/features": _FEATURES,
    "iclr2016/features-proj": replace(_FEATURES, base="iclr2016/features-proj"),
}
