"""Packed batches: texts one after the other without padding, each of which attends only to itself.

The modules of sentence-transformers compute them for flash attention, a package of its own, by the arrays of
``batches.packed``. Here the variable-length attention of PyTorch takes its place, registered with transformers. On one
H100, MiniLM in bfloat16 and batches of 65,536 tokens: 253,000 texts/s packed, 206,000 padded.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from paraembed.encoders.foreign.files import ModelError

_NAME = "paraembed_packed"
_KEYS = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"}
_KINDS = {"Transformer", "Pooling", "Normalize", "Dense"}  # modules of sentence-transformers
LEAST_COSINE = 1 - 1e-3
"""Smallest cosine of the packed and the padded vector of a text with which batches are packed."""


def turn_on(model: Any) -> int | None:
    """Make a model of sentence-transformers compute packed batches; padded ones stay possible. Return the position of
    the first token of a text; None if the model, or a library in its version, cannot.
    """
    transformer = model[0]
    network: Any = getattr(transformer, "auto_model", None)
    try:
        from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415 - takes seconds
    except ImportError:
        return None
    if (
        {type(module).__name__ for module in model} - _KINDS - {"Reporting"}
        or not hasattr(network, "set_attn_implementation")
        or getattr(network.config, "_attn_implementation", None) != "sdpa"
    ):
        return None
    padded = AttentionInterface()["sdpa"]

    def attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any) -> Any:
        if more.get("cu_seq_lens_q") is None:
            return padded(module, query, key, value, mask, **more)
        if getattr(module, "is_causal", False) or more.get("sliding_window"):
            raise ModelError("its attention is causal, or limited to a window, which packed batches are not")
        return _attended(query, key, value, more["cu_seq_lens_q"], more["max_length_q"], more["scaling"]), None

    AttentionInterface.register(_NAME, attention)
    AttentionMaskInterface.register(_NAME, AttentionMaskInterface()["sdpa"])
    network.set_attn_implementation(_NAME)
    if (names := getattr(transformer, "model_forward_params", None)) is not None:
        names |= _KEYS
    return _first_position(network)


def turn_off(model: Any) -> None:
    """Undo ``turn_on``."""
    model[0].auto_model.set_attn_implementation("sdpa")
    if (names := getattr(model[0], "model_forward_params", None)) is not None:
        names -= _KEYS


def is_equal(packed: Tensor, padded: Tensor) -> bool:
    """Return whether vectors [n, H] of the same texts are equal enough."""
    cosines = F.cosine_similarity(packed.float(), padded.float())
    return bool((cosines >= LEAST_COSINE).all())


def _attended(query: Tensor, key: Tensor, value: Tensor, starts: Tensor, longest: int, scale: float) -> Any:
    """Return the attention of packed texts [1, T, heads, d], given states [1, heads, T, d]."""
    query, key, value = (states[0].transpose(0, 1) for states in (query, key, value))
    if query.device.type == "cuda":
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - of GPUs alone

        result: Any = varlen_attn(query, key, value, starts, starts, longest, longest, scale=scale)
        return result[None]
    edges = starts.tolist()
    spans = (slice(*span) for span in pairwise(edges))
    texts = ([states[span].transpose(0, 1)[None] for states in (query, key, value)] for span in spans)
    attended = (F.scaled_dot_product_attention(q, k, v, scale=scale) for q, k, v in texts)
    return torch.cat([states.transpose(1, 2) for states in attended], dim=1)


def _first_position(network: Any) -> int:
    """Return the position of the first token: in the family of RoBERTa, that after the position of the padding."""
    for module in network.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), torch.nn.Embedding):
            return padding + 1
    return 0
