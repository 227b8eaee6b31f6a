"""Wieting and Gimpel 2017, "Revisiting Recurrent Networks for Paraphrastic Sentence Embeddings".

The paper selects twice: on STS 2016 ("test"), the default here, and on all 22 sets ("oracle", ``--metric
papers-22/mean``). ``best`` names the settings of the released demo; those of the GRAN variants and of BiLSTM-AVG are
not printed.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tune_spaces.space import DEV_PEARSON, Selection, Space

_RATES = (0.2, 0.4, 0.6)
_SCRAMBLE = (0.25, 0.5, 0.75)
_MARGIN = {"margin": (0.4, 0.6, 0.8)}
_BOS_EOS = {"bos_eos_tokens": ("none", "start", "end", "both")}
_COMBINE = {"encoder.combine": ("sum", "tanh")}
_UNREGULARIZED = {"dropout": 0.0, "word_dropout": 0.0, "scramble": 0.0, "encoder_l2": 0.0}

_NONE: tuple[Mapping[str, Any], ...] = ({},)
_L2 = tuple({"encoder_l2": value} for value in (1e-3, 1e-4, 1e-5, 1e-6))
_DROPOUT = tuple({"dropout": rate} for rate in _RATES)
_WORD_DROPOUT = tuple({"word_dropout": rate} for rate in _RATES)
_SCRAMBLING = tuple({"scramble": rate} for rate in _SCRAMBLE)
_BOTH = tuple({**scrambling, **dropout} for scrambling in _SCRAMBLING for dropout in _DROPOUT + _WORD_DROPOUT)
_OF_AVG = _NONE + _DROPOUT + _WORD_DROPOUT  # word order does not matter to it, and it has no W_c
_OF_RECURRENT = _NONE + _L2 + _DROPOUT + _WORD_DROPOUT + _SCRAMBLING + _BOTH

_SIMPWIKI = "SimpWiki, 167,689 pairs, jobs/shard.py --training-set acl2017/simpwiki; or as many tokens of PPDB XL"
_FIRST = Space(
    source="Wieting 2017 §4.1.2, table 1",
    base="acl2017/avg",
    axes={**_MARGIN, "word_l2": (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 0.0)},
    selection=Selection(("sts",), ((1, "sts/2016/mean"),), "STS 2016, mean of 5 sets"),
    tuning_data=_SIMPWIKI,
    tuning_epochs=7,
    final_epochs=7,
    best=("acl2017/avg",),
)
_RECURRENT = replace(_FIRST, tuning_epochs=3, final_epochs=3, fixed=_UNREGULARIZED, best=())


def _first(encoder: str, more: Mapping[str, tuple[Any, ...]]) -> Space:
    return replace(_RECURRENT, base=f"acl2017/{encoder}", axes={**_FIRST.axes, **more})


def _regularized(encoder: str, table: str, more: Mapping[str, tuple[Any, ...]], *best: str) -> Space:
    axes = {**_MARGIN, "word_l2": (1e-5, 0.0), "regularizer": _OF_RECURRENT, **more}
    return replace(
        _RECURRENT, source=f"Wieting 2017 §4.2, table {table}", base=f"acl2017/{encoder}", axes=axes, best=best
    )


def _supervised(name: str, table: str, axes: Mapping[str, tuple[Any, ...]]) -> Space:
    """Return a space that trains on gold scores; heads, batch and epochs are not printed, so those of Wieting 2016 §4.4
    are used.
    """
    return replace(
        _RECURRENT,
        source=f"Wieting 2017 §4.3, table {table}",
        base=f"acl2017/{name}",
        axes=axes,
        selection=DEV_PEARSON,
        tuning_data="40 % of each STS set of 2012-15, or SICK's training set (epochs: not printed; Wieting 2016 §4.4)",
        tuning_epochs=10,
        final_epochs=10,
        job="finetune",
    )


_SUPERVISED_WORDS = {"word_l2": (1e-5, 0.0)}
_SUPERVISED_RECURRENT = _NONE + _DROPOUT + _WORD_DROPOUT + _SCRAMBLING + _BOTH
_UNIVERSAL_WORDS = {"word_l2": (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 0.0)}
_UNIVERSAL_AVG = {**_UNIVERSAL_WORDS, "regularizer": _DROPOUT}
_UNIVERSAL = {
    **_UNIVERSAL_WORDS,
    "encoder_l2": (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 0.0),
    "regularizer": _BOTH,
}
_GRANS = ("gran", "gran2", "gran3", "gran4", "gran5")

SPACES = {
    "acl2017/avg": _FIRST,
    "acl2017/lstm": _first("lstm", {}),
    "acl2017/lstm_avg": _first("lstm_avg", {}),
    "acl2017/lstm-boundary": replace(_first("lstm", _BOS_EOS), source="Wieting 2017 footnote 4"),
    "acl2017/lstm_avg-boundary": replace(_first("lstm_avg", _BOS_EOS), source="Wieting 2017 footnote 4"),
    "acl2017/avg-regularised": replace(
        _regularized("avg", "2", {"regularizer": _OF_AVG}, "acl2017/avg"), tuning_epochs=7, final_epochs=7
    ),
    "acl2017/lstm-regularised": _regularized("lstm", "2", {}, "acl2017/lstm"),
    "acl2017/lstm_avg-regularised": _regularized("lstm_avg", "2", {}, "acl2017/lstm_avg"),
    "acl2017/bilstm_avg-regularised": _regularized("bilstm_avg", "2", _COMBINE),
    "acl2017/gran": _regularized("gran", "3", {}, "acl2017/gran"),
    **{f"acl2017/{name}": _regularized(name, "3", {}) for name in _GRANS[1:]},
    "acl2017/gran_nogate": replace(
        _regularized("gran_nogate", "3", {"encoder.activation": ("tanh", "relu")}), source="Wieting 2017 footnote 2"
    ),
    "acl2017/bigran": _regularized("bigran", "3", _COMBINE),
    "acl2017/supervised-avg": _supervised("supervised-avg", "5", {**_SUPERVISED_WORDS, "regularizer": _OF_AVG}),
    **{
        f"acl2017/supervised-{name}": _supervised(
            f"supervised-{name}",
            "6" if name in _GRANS[1:] else "5",
            {**_SUPERVISED_WORDS, "regularizer": _SUPERVISED_RECURRENT},
        )
        for name in ("lstm", "lstm_avg", *_GRANS)
    },
    "acl2017/universal-avg": _supervised("universal-avg", "8, footnote 7", _UNIVERSAL_AVG),
    "acl2017/universal-lstm_avg": _supervised("universal-lstm_avg", "8, footnote 7", _UNIVERSAL),
    "acl2017/universal-gran": _supervised("universal-gran", "8, footnote 7", _UNIVERSAL),
}
