"""Heads on text vectors, and their losses: pairs of texts, single texts, choices.

Shapes: N examples of M texts, H width of a text vector, K classes or options. Initial values are drawn from the given
generator; the training step applies dropout to the vectors.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paraembed.encoders.composition import drawn
from paraembed.training.objectives import SMALLEST_NORM

NUM_ASKED = {"semeval2013": 1, "turney": 2}
"""Task → number of texts, at the start of each example, with which the other texts are compared."""


class ClassifierHead(nn.Module):
    """Classifier of pairs of texts, M = 2, or of single texts, M = 1: a sigmoid layer, then the softmax layer.

    Of pairs (Tai et al. 2015; Wieting 2016 eq. 13-14; Wieting 2017 §4.3):
    h_s = σ(W× (h_L ⊙ h_R) + W+ |h_L - h_R| + b), logits = W_p h_s + b_p. W× and W+ are concatenated in one matrix with
    Glorot-uniform initial values, as in the released code; biases start at zero. The logits do not depend on the order
    of a pair's texts.

    Of single texts, the sigmoid layer is applied to the text vector (Wieting 2016 §4.4, sentiment); without it, the
    softmax layer is applied to the text vector (Wieting 2015 §5.5, Kim 2014).
    """

    def __init__(
        self, num_texts: int, width: int, head_width: int | None, num_classes: int, generator: torch.Generator
    ) -> None:
        """Initialize a head for M vectors of ``width`` H; ``head_width`` None: without the sigmoid layer."""
        super().__init__()
        self.weight: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        if head_width is not None:
            self.weight, self.bias = _layer(num_texts * width, head_width, generator)
        self.class_weight, self.class_bias = _layer(head_width or num_texts * width, num_classes, generator)

    def forward(self, vectors_NMH: Tensor) -> Tensor:
        """Return the logits [N, K] of N examples."""
        if vectors_NMH.shape[1] == 2:
            left_NH, right_NH = vectors_NMH.unbind(1)
            hidden = torch.cat([left_NH * right_NH, (left_NH - right_NH).abs()], dim=1)
        else:
            hidden = vectors_NMH.squeeze(1)
        if self.weight is not None:
            hidden = torch.sigmoid(F.linear(hidden, self.weight, self.bias))
        return F.linear(hidden, self.class_weight, self.class_bias)


class ChoiceHead(nn.Module):
    """Head of multiple-choice tasks: the similarities of the options, without parameters (Zhou 2017 §3.2,
    "task-specific").

    The paper trains its GRU on a task's own training set with the contrastive max-margin loss of §2.4. For Turney's
    questions it says so, and the contrasts can only be a question's wrong options, since random ones would train
    another task. For SemEval's labeled pairs it does not say what the contrasts are. Here they are the wrong phrases
    that the data set pairs with a word (see ``readers.read_semeval2013``), so nothing is drawn in this task either. The
    GRU starts untrained, because table 1 of the paper lists "GRU" separately from "GRU(PPDB)", and word vectors are
    frozen.

    The suites of ``paraembed.evaluation`` score by the cosine. The columns have the same order as there, so the same
    rules, including those for ties, apply to the outputs: ``first_place(outputs)`` is Turney's accuracy of 10,
    ``first_place(outputs[:, :5])`` of 5, ``best_threshold(outputs[:, 0], labels)`` SemEval's threshold.
    """

    def __init__(self, task: str, similarity: str, margin: float) -> None:
        """Initialize the head; the similarity is ``cosine`` or ``dot``, and the margin δ is 1 in the paper."""
        super().__init__()
        self.num_asked, self.similarity, self.margin = NUM_ASKED[task], similarity, margin

    def forward(self, vectors_NMH: Tensor) -> Tensor:
        """Return the similarities of the options [N, K]; option 0 is the right one.

        The options are all combinations of the first ``num_asked`` texts with the others: turney has 7 texts (bigram,
        reversed bigram, answer, 4 others) and 2 × 5 options; semeval2013 has 3 texts (word, right phrase, wrong phrase)
        and 2 options, and 1 option for a labeled pair.
        """
        if self.similarity == "cosine":
            vectors_NMH = F.normalize(vectors_NMH, dim=2, eps=SMALLEST_NORM)
        asked, others = vectors_NMH[:, : self.num_asked], vectors_NMH[:, self.num_asked :]
        return (asked[:, :, None] * others[:, None]).sum(dim=3).flatten(1)

    def losses(self, outputs_NK: Tensor) -> Tensor:
        """Return Σ_i max(0, δ - s_0 + s_i) over the wrong options i of each example, [N], with the margin δ (Zhou 2017
        §2.4).
        """
        return F.relu(self.margin - outputs_NK[:, :1] + outputs_NK[:, 1:]).sum(dim=1)


def score_targets(scores_N: Tensor, low: int, high: int) -> Tensor:
    """Return sparse distributions [N, K] over the integer scores low … high whose expectation is the score (Wieting
    2016 eq. 13).

    p_{⌊y⌋+1} = y - ⌊y⌋ and p_{⌊y⌋} = ⌊y⌋ - y + 1; for the highest score, the last class has probability 1. Differences
    are computed in float64, before the rounding to float32.

    Raises:
        ValueError: a score is below ``low``, above ``high``, or NaN.
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
    """Return KL(p ‖ p̂) of each example [N], as in the papers (Wieting 2016 eq. 14); the released code also divides it
    by K.

    It is computed with log-softmax and 0 log 0 = 0, so value and gradient are finite even if p̂ is close to 0 or 1.
    """
    return F.kl_div(logits_NK.log_softmax(dim=1), targets_NK, reduction="none").sum(dim=1)


def expected_scores(logits_NK: Tensor, low: int) -> Tensor:
    """Return the predicted scores ŷ = rᵀp̂ [N] with r = low, low + 1, …; this is the papers' [1 … K] if ``low`` is
    1.
    """
    steps_K = torch.arange(logits_NK.shape[1], dtype=logits_NK.dtype, device=logits_NK.device)
    return low + logits_NK.softmax(dim=1) @ steps_K


def _layer(fan_in: int, fan_out: int, generator: torch.Generator) -> tuple[nn.Parameter, nn.Parameter]:
    """Return a weight [fan_out, fan_in] with Glorot-uniform values, and a zero bias."""
    weight = drawn(generator, (6 / (fan_in + fan_out)) ** 0.5, fan_out, fan_in)
    return weight, nn.Parameter(torch.zeros(fan_out))
