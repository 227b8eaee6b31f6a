"""Heads on text vectors, and what they are trained by: pairs of texts, single texts, choices.

Shapes: N examples of M texts, H width of a text's vector, K classes or options. Draws of initial values come from the
generator that is given; dropout on the vectors is the step's.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.base import drawn
from paraembed.training.objectives import SMALLEST_NORM

NUM_ASKED = {"semeval2013": 1, "turney": 2}
"""Task → how many of an example's texts, the first, are what the others are compared with."""


class PairHead(nn.Module):
    """Classes of pairs of texts (Tai et al. 2015; Wieting 2016 eq. 13-14; Wieting 2017 §4.3).

    h_s = σ(W× (h_L ⊙ h_R) + W+ |h_L - h_R| + b), logits = W_p h_s + b_p. W× and W+ are concatenated in one matrix of
    Glorot's uniform numbers, as in the released code; biases begin at zero.
    """

    def __init__(self, width: int, head_width: int, num_classes: int, generator: torch.Generator) -> None:
        """Draw a head for vectors of ``width`` H, with ``head_width`` hidden units."""
        super().__init__()
        self.weight, self.bias = _layer(2 * width, head_width, generator)
        self.class_weight, self.class_bias = _layer(head_width, num_classes, generator)

    def forward(self, vectors_NMH: Tensor) -> Tensor:
        """Logits [N, K] of N pairs, M = 2; the order of a pair's texts makes no difference."""
        left_NH, right_NH = vectors_NMH.unbind(1)
        features = torch.cat([left_NH * right_NH, (left_NH - right_NH).abs()], dim=1)
        hidden = torch.sigmoid(F.linear(features, self.weight, self.bias))
        return F.linear(hidden, self.class_weight, self.class_bias)


class TextHead(nn.Module):
    """Classes of single texts: a sigmoid layer, then the softmax layer (Wieting 2016 §4.4, sentiment).

    Without the sigmoid layer the softmax layer reads the vector (Wieting 2015 §5.5, Kim 2014).
    """

    def __init__(self, width: int, head_width: int | None, num_classes: int, generator: torch.Generator) -> None:
        """Draw a head for vectors of ``width`` H; ``head_width`` None: without the sigmoid layer."""
        super().__init__()
        self.weight: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if head_width is not None:
            self.weight, self.bias = _layer(width, head_width, generator)
        self.class_weight, self.class_bias = _layer(head_width or width, num_classes, generator)

    def forward(self, vectors_NMH: Tensor) -> Tensor:
        """Logits [N, K] of N texts, M = 1."""
        hidden = vectors_NMH.squeeze(1)
        if self.weight is not None:
            hidden = torch.sigmoid(F.linear(hidden, self.weight, self.bias))
        return F.linear(hidden, self.class_weight, self.class_bias)


class ChoiceHead(nn.Module):
    """Similarities of options; no parameters. Zhou 2017 §3.2, "task-specific".

    The paper trains its GRU on a task's own training part by the contrastive max-margin loss of §2.4 and says so of
    Turney's questions, where the contrasts can only be a question's wrong options; drawn ones would train another task.
    Of SemEval's labeled pairs it does not say what the contrasts are. Here they are the wrong phrases that the
    data set itself pairs with a word (see ``tasks_phrases``), so nothing is drawn there either. The GRU starts
    untrained: "GRU" is apart from "GRU(PPDB)" in the paper's table 1, and word vectors stay as they are.

    The suites of ``paraembed.evaluation`` score by the cosine. Columns are in their order, so their rules, ties
    included, take the outputs as they are: ``first_place(outputs)`` is Turney's accuracy of 10,
    ``first_place(outputs[:, :5])`` of 5, ``best_threshold(outputs[:, 0], labels)`` SemEval's threshold.
    """

    def __init__(self, task: str, similarity: str, margin: float) -> None:
        """Take the task, what is compared by (``cosine`` or ``dot``), and the margin δ (the paper: 1)."""
        super().__init__()
        self.num_asked, self.similarity, self.margin = NUM_ASKED[task], similarity, margin

    def forward(self, vectors_NMH: Tensor) -> Tensor:
        """Similarities of the options [N, K]; the right one is number 0.

        Options are each of the first ``num_asked`` texts with each of the others: of turney's 7 texts (bigram,
        reversed bigram, answer, 4 others) 2 × 5; of semeval2013's 3 (word, right phrase, wrong phrase) 2, of a labeled
        pair 1.
        """
        if self.similarity == "cosine":
            vectors_NMH = F.normalize(vectors_NMH, dim=2, eps=SMALLEST_NORM)
        asked, others = vectors_NMH[:, : self.num_asked], vectors_NMH[:, self.num_asked :]
        return (asked[:, :, None] * others[:, None]).sum(dim=3).flatten(1)

    def losses(self, outputs_NK: Tensor) -> Tensor:
        """Σ_i max(0, δ - s_0 + s_i) over the wrong options i of an example, [N]; δ from the margin (Zhou 2017 §2.4)."""
        return F.relu(self.margin - outputs_NK[:, :1] + outputs_NK[:, 1:]).sum(dim=1)


def score_targets(scores_N: Tensor, low: int, high: int) -> Tensor:
    """Sparse distributions over the whole scores low … high whose expectation is the score (Wieting 2016 eq. 13).

    p_{⌊y⌋+1} = y - ⌊y⌋ and p_{⌊y⌋} = ⌊y⌋ - y + 1; of the highest score all is on the last. Differences are formed in
    float64, before the rounding to float32.

    Args:
        scores_N: from ``low`` to ``high``.
        low: lowest score, of class 0.
        high: highest, of class K - 1.

    Returns:
        float32 [N, K].

    Raises:
        ValueError: a score beyond ``low`` or ``high``, or none.
    """
    scores_N = scores_N.double()
    wrong = ~((scores_N >= low) & (scores_N <= high))
    if wrong.any():
        row = int(wrong.nonzero()[0, 0])
        raise ValueError(f"score {row} is {scores_N[row].item():g}; allowed: {low} to {high}")
    below_N = scores_N.floor().clamp(max=high - 1)
    above_N = scores_N - below_N
    targets_NK = scores_N.new_zeros(len(scores_N), high - low + 1)
    places_N1 = (below_N - low).long()[:, None]
    targets_NK.scatter_(1, places_N1, 1 - above_N[:, None])
    targets_NK.scatter_(1, places_N1 + 1, above_N[:, None])
    return targets_NK.float()


def similarity_loss(logits_NK: Tensor, targets_NK: Tensor) -> Tensor:
    """KL(p ‖ p̂) of each example [N], as in the papers (Wieting 2016 eq. 14); the released code divides it by K, too.

    By the logarithm of the softmax at once, with 0 log 0 = 0: finite, and of finite gradient, however sure p̂ is.

    Args:
        logits_NK: before the softmax.
        targets_NK: p, of ``score_targets``.
    """
    return F.kl_div(logits_NK.log_softmax(dim=1), targets_NK, reduction="none").sum(dim=1)


def expected_scores(logits_NK: Tensor, low: int) -> Tensor:
    """Predicted scores ŷ = rᵀp̂ [N] with r = low, low + 1, …: the papers' [1 … K] where ``low`` is 1."""
    steps_K = torch.arange(logits_NK.shape[1], dtype=logits_NK.dtype, device=logits_NK.device)
    return low + logits_NK.softmax(dim=1) @ steps_K


def _layer(fan_in: int, fan_out: int, generator: torch.Generator) -> tuple[nn.Parameter, nn.Parameter]:
    """Weight [fan_out, fan_in] of Glorot's uniform numbers, and bias 0."""
    weight = drawn(generator, (6 / (fan_in + fan_out)) ** 0.5, fan_out, fan_in)
    return weight, nn.Parameter(torch.zeros(fan_out))
