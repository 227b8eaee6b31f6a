"""Heads and losses against the papers' equations in NumPy."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.measures import best_threshold, first_place
from paraembed.recipe import SupervisedRecipe
from paraembed.supervised.heads import ChoiceHead, PairHead, TextHead, expected_scores, score_targets, similarity_loss
from paraembed.supervised.model import Kind, Supervised, options_of

Array = npt.NDArray[np.float64]


def generator():
    return torch.Generator().manual_seed(7)


def vectors(*shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def array(tensor):
    return tensor.detach().numpy().astype(np.float64)


@pytest.mark.parametrize(
    ("score", "low", "expected"),
    [
        (1, 1, [1, 0, 0, 0, 0]),
        (1.5, 1, [0.5, 0.5, 0, 0, 0]),
        (3, 1, [0, 0, 1, 0, 0]),
        (4.99, 1, [0, 0, 0, 0.01, 0.99]),
        (5, 1, [0, 0, 0, 0, 1]),
        (0, 0, [1, 0, 0, 0, 0, 0]),
        (5, 0, [0, 0, 0, 0, 0, 1]),
        (0.25, 0, [0.75, 0.25, 0, 0, 0, 0]),
    ],
)
def test_targets_by_hand(score, low, expected):
    targets = score_targets(torch.tensor([score], dtype=torch.float64), low, 5)
    assert targets.dtype == torch.float32
    np.testing.assert_allclose(targets.numpy()[0], expected, atol=1e-7)


@given(st.lists(st.floats(1, 5), min_size=1), st.sampled_from([0, 1]))
def test_targets_sum_to_one_and_their_expectation_is_the_score(scores, low):
    targets = array(score_targets(torch.tensor(scores, dtype=torch.float64), low, 5))
    assert (targets >= 0).all()
    assert ((targets > 0).sum(axis=1) <= 2).all()
    np.testing.assert_allclose(targets.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(targets @ np.arange(low, 6), scores, atol=1e-5)


@pytest.mark.parametrize("score", [0.9, 5.1, float("nan")])
def test_a_score_beyond_the_range_is_refused(score):
    with pytest.raises(ValueError, match=r"score 1 is .*; allowed: 1 to 5"):
        score_targets(torch.tensor([3.0, score]), 1, 5)


def test_the_similarity_head_is_the_papers():
    head, given_N2H = PairHead(6, 4, 5, generator()).double(), vectors(3, 2, 6)
    torch.nn.init.normal_(head.bias, generator=generator())  # they begin at zero, which would hide them
    torch.nn.init.normal_(head.class_bias, generator=generator())
    left, right = array(given_N2H).transpose(1, 0, 2)
    times, plus = np.split(array(head.weight), 2, axis=1)
    hidden = sigmoid((left * right) @ times.T + np.abs(left - right) @ plus.T + array(head.bias))
    logits = hidden @ array(head.class_weight).T + array(head.class_bias)
    predicted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    outputs = head(given_N2H)
    np.testing.assert_allclose(array(outputs), logits, rtol=1e-12)
    np.testing.assert_allclose(array(head(given_N2H.flip(1))), logits, rtol=1e-12)  # no side is the first
    np.testing.assert_allclose(array(expected_scores(outputs, 1)), predicted @ [1, 2, 3, 4, 5], rtol=1e-12)

    scores = np.array([1, 2.75, 5])
    losses = []
    for score, row in zip(scores, predicted, strict=True):
        target = np.zeros(6)
        floor = int(score)
        target[floor], target[floor - 1] = score - floor, floor - score + 1
        losses.append(sum(p * np.log(p / q) for p, q in zip(target[:5], row, strict=True) if p))
    found = similarity_loss(outputs, score_targets(torch.from_numpy(scores), 1, 5).double())
    np.testing.assert_allclose(array(found), losses, rtol=1e-6)


def test_the_sentiment_heads_are_the_papers():
    given_N1H = vectors(3, 1, 6)
    head, plain = TextHead(6, 4, 2, generator()).double(), TextHead(6, None, 2, generator()).double()
    assert head.weight is not None
    assert head.bias is not None
    hidden = sigmoid(array(given_N1H[:, 0]) @ array(head.weight).T + array(head.bias))
    np.testing.assert_allclose(array(head(given_N1H)), hidden @ array(head.class_weight).T, rtol=1e-12)
    expected = array(given_N1H[:, 0]) @ array(plain.class_weight).T
    np.testing.assert_allclose(array(plain(given_N1H)), expected, rtol=1e-12)
    assert {name for name, _ in plain.named_parameters()} == {"class_weight", "class_bias"}


def test_initial_values_are_glorots_and_the_generators():
    state = torch.random.get_rng_state()
    head, again = (PairHead(50, 30, 5, generator()) for _ in range(2))
    assert torch.equal(state, torch.random.get_rng_state())
    for one, other in zip(head.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    for weight, bound in ((head.weight, (6 / 130) ** 0.5), (head.class_weight, (6 / 35) ** 0.5)):
        assert 0.9 * bound < weight.abs().max() <= bound
    assert not head.bias.any()
    assert not head.class_bias.any()


@pytest.mark.parametrize("sure_of", [0, 3])
def test_gradients_stay_finite_where_a_prediction_is_certain(sure_of):
    logits = torch.zeros(1, 5)
    logits[0, sure_of] = 1e4  # the softmax of the others is 0, and its logarithm infinite
    logits.requires_grad_()
    loss = similarity_loss(logits, score_targets(torch.tensor([4.0]), 1, 5))
    loss.sum().backward()
    assert loss.item() == pytest.approx(0 if sure_of == 3 else 1e4)
    assert logits.grad is not None
    right = [0.0] * 5
    right[sure_of] += 1
    right[3] -= 1
    assert logits.grad[0].tolist() == right  # p̂ - p


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize(("task", "num_texts", "asked"), [("turney", 7, 2), ("semeval2013", 3, 1)])
def test_the_contrastive_loss_is_zhous(similarity, task, num_texts, asked):
    given_NMH, margin = vectors(4, num_texts, 6), 0.7
    head = ChoiceHead(task, similarity, margin)
    outputs = head(given_NMH)
    texts = array(given_NMH)
    if similarity == "cosine":
        texts = texts / np.linalg.norm(texts, axis=2, keepdims=True)
    for example, found, loss in zip(texts, array(outputs), array(head.losses(outputs)), strict=True):
        options = [question @ option for question in example[:asked] for option in example[asked:]]
        np.testing.assert_allclose(found, options, rtol=1e-12)
        contrasts = (max(0, margin - options[0] + wrong) for wrong in options[1:])
        np.testing.assert_allclose(loss, sum(contrasts), rtol=1e-12)
    assert not list(head.parameters())


def test_choices_are_judged_by_the_suites_rules():
    bigram, word = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    question = torch.stack([bigram, bigram, bigram, word, word, word, word])[None]  # blind to order
    other = torch.stack([bigram, word, word, bigram, word, word, word])[None]
    ten = ChoiceHead("turney", "cosine", 1)(torch.cat([question, other])).numpy()
    assert first_place(ten)[1].tolist() == [1 / 2, 0]  # the reversed bigram shares the first place; a wrong word
    assert first_place(ten[:, :5])[1].tolist() == [1, 0]
    pairs = torch.stack([torch.stack([bigram, bigram]), torch.stack([bigram, word])])
    cosines = ChoiceHead("semeval2013", "cosine", 1)(pairs).numpy()[:, 0].astype(np.float64)
    assert best_threshold(cosines, np.array([1.0, 0.0])) == 0.5


def test_who_shares_the_first_place_is_right_by_his_share(tiny_words):
    model = Supervised(
        Encoder(AvgConfig(), tiny_words, "space"), Kind("turney", "turney", (), 0), options_of(SupervisedRecipe())
    )
    outputs = torch.tensor([[0.5] * 10, [0.9] + [0.2] * 9, [0.9, 0.9] + [0.2] * 8, [0.2] + [0.9] * 9])
    assert model.num_right(outputs, torch.zeros(4)).item() == pytest.approx(1 / 10 + 1 + 1 / 2)
    assert first_place(outputs.numpy())[1].sum() == pytest.approx(1 / 10 + 1 + 1 / 2)


def test_a_zero_vector_has_a_finite_gradient():
    texts = torch.zeros(1, 3, 4, requires_grad=True)
    head = ChoiceHead("semeval2013", "cosine", 1)
    head.losses(head(texts)).sum().backward()
    assert texts.grad is not None
    assert torch.isfinite(texts.grad).all()
