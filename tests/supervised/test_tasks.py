"""Tasks: what is read from small files, how it is parted, and the counts of the published files."""

import gzip
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.measures import first_place
from paraembed.recipe import SupervisedRecipe
from paraembed.supervised.heads import ChoiceHead, ClassifierHead, score_targets, similarity_loss
from paraembed.supervised.model import Kind, Supervised, options_of
from paraembed.supervised.readers import read_task
from paraembed.supervised.tasks import drawn_parts
from paraembed.text.tokenize import tokenize
from paraembed.text.trees import read_trees
from tests.evaluation.collection import PUBLISHED

real = pytest.mark.skipif(not PUBLISHED.is_dir(), reason=f"the published sets are not there: {PUBLISHED}")

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
SICK_ROWS = '1\ta "cat\tthe dog\t1.5\tNEUTRAL\n2\ta cat\ta cat\t5\tENTAILMENT\n3\ta\tno a\t3\tCONTRADICTION\n'
TREES = """(4 (3 (4 lovely) (2 films)) (2 (2 -LRB-) (2 (2 and\\/or) (2 -RRB-))))
(2 (1 dull) (2 ones))
(0 (1 Dull) (1 (2 of) (3 (2 2\xa01\\/2) (3 (4 lovely) (2 films)))))
"""
SEMEVAL_TRAIN = "\n".join(
    f"{one}\tJJ\n{two}\tNN\n{word}\n{label}"
    for one, two, word, label in [
        ("sudden", "rush", "spate", 1),
        ("old", "car", "spate", 0),
        ("big", "boat", "spate", 0),
        ("big", "boat", "ship", 1),
        ("small", "cup", "mug", 0),
        *(("good", f"thing{n}", f"word{n}", label) for n in range(17) for label in (1, 0)),
    ]
)
FILES = {
    "sick/SICK_train.txt": SICK + SICK_ROWS,
    "sick/SICK_trial.txt": SICK + SICK_ROWS,
    "sick/SICK_test_annotated.txt": SICK + SICK_ROWS,
    "sst/train.txt.gz": TREES,
    "sst/dev.txt.gz": TREES,
    "sst/test.txt.gz": TREES,
    "sts/2012/MSRpar.tsv": "score\tsentence1\tsentence2\n" + "".join(f"{n / 4}\ta{n}\tb{n}\n" for n in range(20)),
    "sts/2015/images.tsv": "".join(f"{n / 8}\tc{n}\td{n}\n" for n in range(39)),
    "sts/2016/headlines.tsv": "5\tnot\tread\n",
    "phrase/semeval2013_5a/en.trainSet": SEMEVAL_TRAIN + "\n",
    "phrase/semeval2013_5a/en.testSet": "bomb\tNN\nblast\tNN\nboom\n1\n",
    "phrase/turney2012_jair.data": "".join(
        f"m{n} h{n} | right{n} | m{n} | h{n} | a{n} | b{n} | c{n} | d{n}\n" for n in range(700)
    ),
}


@pytest.fixture
def data(tmp_path):
    for name, text in FILES.items():
        put(tmp_path / name, text)
    return tmp_path


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def rows(examples):
    return [*zip(*(one.to_pylist() for one in examples.texts), examples.labels.tolist(), strict=True)]


def test_sick(data):
    similarity, entailment = read_task("similarity", None, data, 0), read_task("entailment", None, data, 0)
    assert rows(similarity.train) == [('a "cat', "the dog", 1.5), ("a cat", "a cat", 5), ("a", "no a", 3)]
    assert (similarity.data_set, similarity.classes, similarity.low) == ("sick", ("1", "2", "3", "4", "5"), 1)
    assert [entailment.classes[int(label)] for label in entailment.test.labels] == [
        "NEUTRAL", "ENTAILMENT", "CONTRADICTION"
    ]  # fmt: skip
    assert (similarity.measure, entailment.measure, entailment.low) == ("pearson", "accuracy", 0)
    assert "sick/SICK_train.txt, sick/SICK_trial.txt" in similarity.notes[0]
    assert similarity.split is None


def test_sst_constituents_of_the_sentences_that_are_not_neutral(data):
    task = read_task("sentiment", None, data, 0)
    assert rows(task.train) == [
        ("lovely", 1),
        ("lovely films", 1),
        ("lovely films ( and/or )", 1),
        ("Dull", 0),
        ("2 1/2 lovely films", 1),
        ("of 2 1/2 lovely films", 0),
        ("Dull of 2 1/2 lovely films", 0),
    ]
    assert rows(task.dev) == rows(task.test) == [("lovely films ( and/or )", 1), ("Dull of 2 1/2 lovely films", 0)]
    assert task.classes == ("negative", "positive")
    assert_trees_fit(task)


def assert_trees_fit(task):
    for part in (task.train, task.dev, task.test):
        assert part.trees is not None
        read = read_trees(part.trees[0], tokenize(part.texts[0], "space"))
        assert read.refused.null_count == len(part)
        assert read.is_missing.sum() == 0


def test_semeval_contrasts_the_phrases_of_a_word(data):
    task = read_task("semeval2013", None, data, 0)
    assert task.threshold is not None
    dev, left = set(task.dev.texts[0].to_pylist()), set(task.threshold.texts[0].to_pylist())
    assert (len(dev), len(left)) == (2, 18)  # a tenth of 20 words, with all their pairs
    assert not dev & left
    assert len(task.dev) + len(task.threshold) == 39
    train = rows(task.train)
    assert train[:2] == [("spate", "sudden rush", "old car", 0), ("spate", "sudden rush", "big boat", 0)]
    assert not {"ship", "mug"} & {word for word, *_ in train}  # one has no wrong phrase, the other no right one
    assert {word for word, *_ in train} == left - {"ship", "mug"}
    assert rows(task.test) == [("boom", "bomb blast", 1)]


def test_turney_parts_are_the_first_680_and_the_rest(data):
    task = read_task("turney", None, data, 0)
    assert [len(part) for part in (task.train, task.dev, task.test)] == [612, 68, 20]
    assert rows(task.test)[0] == ("m680 h680", "h680 m680", "right680", "a680", "b680", "c680", "d680", 0)
    assert task.split is not None
    (split,) = task.split.values()
    assert sorted(split["train"] + split["dev"]) == list(range(680))
    assert rows(task.dev)[0][0] == f"m{split['dev'][0]} h{split['dev'][0]}"


def test_sts_split_of_each_set_does_not_depend_on_the_others(data):
    task = read_task("similarity", "sts", data, 3)
    assert [len(part) for part in (task.train, task.dev, task.test)] == [8 + 15, 2 + 3, 10 + 21]
    assert (task.classes, task.low) == (("0", "1", "2", "3", "4", "5"), 0)
    assert task.split is not None
    assert [*task.split] == ["2012/MSRpar", "2015/images"]  # not 2016
    expected = [(f"a{row}", f"b{row}", row / 4) for row in task.split["2012/MSRpar"]["train"]]
    expected += [(f"c{row}", f"d{row}", row / 8) for row in task.split["2015/images"]["train"]]
    assert rows(task.train) == expected
    assert "2012/MSRvid" in task.notes[0]
    assert "23, 5 and 31 pairs of 2 sets" in task.notes[1]
    assert "of these 0 of dev and 0 of test are also in train" in task.notes[2]

    put(data / "sts/2012/MSRvid.tsv", FILES["sts/2012/MSRpar.tsv"])
    more, other = read_task("similarity", "sts", data, 3), read_task("similarity", "sts", data, 4)
    assert more.split is not None
    assert other.split is not None
    assert {name: more.split[name] for name in task.split} == task.split
    assert more.split["2012/MSRvid"] != more.split["2012/MSRpar"]
    parts = [{row[:2] for row in rows(part)} for part in (more.train, more.dev, more.test)]
    twice = [sum(row[:2] in parts[0] for row in rows(part)) for part in (more.dev, more.test)]
    assert min(twice) > 0
    assert f"of these {twice[0]} of dev and {twice[1]} of test are also in train" in more.notes[2]
    assert other.split["2012/MSRpar"] != task.split["2012/MSRpar"]


@given(st.integers(0, 2000), st.integers(0, 2**32), st.sampled_from(["", "sts/2012/MSRpar", "é"]))
def test_drawn_parts_are_disjoint_and_cover(num, seed, name):
    parts = drawn_parts(num, (0.4, 0.1), name, seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(num))
    assert [len(part) for part in parts[:2]] == [num * 4 // 10, num // 10]
    assert all((np.diff(part) > 0).all() for part in parts)
    assert all(np.array_equal(*both) for both in zip(parts, drawn_parts(num, (0.4, 0.1), name, seed), strict=True))


FILE = {
    "train": "sick/SICK_train.txt",
    "trial": "sick/SICK_trial.txt",
    "sst dev": "sst/dev.txt.gz",
    "sst test": "sst/test.txt.gz",
    "par": "sts/2012/MSRpar.tsv",
    "images": "sts/2015/images.tsv",
    "turney": "phrase/turney2012_jair.data",
    "semeval": "phrase/semeval2013_5a/en.testSet",
}
NEEDED = "the task '{}' needs it"
BAD = {
    "score": ("similarity", "sick", "trial", lambda t: t.replace("1.5", "5.5"), "line 2: .* 5.5; .*1 to 5"),
    "number": ("similarity", "sick", "train", lambda t: t.replace("1.5", "x"), "line 2: the score is 'x'"),
    "judgement": ("entailment", None, "train", lambda t: t.replace("\tENT", "\tX"), "line 3: .*'XAILMENT'"),
    "a header": ("similarity", "sts", "par", lambda t: t.replace("4.5\t", "-1\t"), "line 20: .* -1; .*0 to 5"),
    "no header": ("similarity", "sts", "images", lambda t: t.replace("4.5\t", "6\t"), "line 37: .* 6; .*0 to 5"),
    "label": ("sentiment", None, "sst dev", lambda t: t.replace("(1 dull)", "(5 dull)"), "line 2: the label is '5'"),
    "no label": ("sentiment", None, "sst dev", lambda t: t + "((2 a) (2 b))\n", "line 4: the label is ''"),
    "open": ("sentiment", None, "sst dev", lambda t: t + "(3 (2 a) (2 b)\n", "line 4: tree with unbalanced brackets"),
    "closed": ("sentiment", None, "sst dev", lambda t: t + "(3 a))\n", "line 4: tree with unbalanced brackets"),
    "neutral": ("sentiment", None, "sst test", lambda _: "(2 a)\n", "no non-neutral sentences"),
    "few": ("turney", None, "turney", lambda t: t[: t.index("m680")], "has 680 questions"),
    "0 or 1": ("semeval2013", None, "semeval", lambda t: t.replace("1", "2"), "line 4: the label is '2'"),
    "no SICK": ("entailment", None, "trial", None, NEEDED.format("entailment")),
    "no SST": ("sentiment", None, "sst test", None, NEEDED.format("sentiment")),
    "no SemEval": ("semeval2013", None, "semeval", None, NEEDED.format("semeval2013")),
    "no questions": ("turney", None, "turney", None, NEEDED.format("turney")),
}


@pytest.mark.parametrize(("task", "data_set", "file", "change", "message"), BAD.values(), ids=BAD)
def test_bad_and_missing_files(data, task, data_set, file, change, message):
    path = data / FILE[file]
    if change is None:
        path.unlink()
    else:
        put(path, change(FILES[FILE[file]]))
    with pytest.raises(FileNotFoundError if change is None else ValueError, match=message) as error:
        read_task(task, data_set, data, 0)
    assert str(path) in str(error.value)


def test_what_is_not_allowed_is_said(data):
    with pytest.raises(ValueError, match="task 'glue'; allowed: similarity, entailment, sentiment, semeval2013"):
        read_task("glue", None, data, 0)
    with pytest.raises(ValueError, match=r"'similarity' .* 'sst'; allowed: sick, sts"):
        read_task("similarity", "sst", data, 0)
    for path in (data / "sts").glob("201[25]/*"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"no <year>/<set>\.tsv of 2012 to 2015, .*'similarity'"):
        read_task("similarity", "sts", data, 0)


def test_the_published_parts(collection):
    """The generated files repeat no pair, and have a right and a wrong phrase for each word of SemEval 2013."""
    tasks = {
        (name, data_set): read_task(name, data_set, collection, 0)
        for name, data_set in itertools.chain(
            (("similarity", one) for one in ("sick", "sts")),
            ((one, None) for one in ("entailment", "semeval2013", "turney")),
        )
    }
    counts = {name: tuple(len(part) for part in (task.train, task.dev, task.test)) for name, task in tasks.items()}
    assert counts == {
        ("similarity", "sick"): (4500, 500, 4927),
        ("similarity", "sts"): (4016, 1002, 5026),  # 16 of the paper's 20 sets, of which it has 4,481, 1,207, 6,060
        ("entailment", None): (4500, 500, 4927),
        ("semeval2013", None): (7007, 1115, 7490) if collection == PUBLISHED else (5029, 1116, 7490),
        ("turney", None): (612, 68, 1500),
    }
    repeated = (37, 203) if collection == PUBLISHED else (0, 0)
    assert "of these {} of dev and {} of test".format(*repeated) in tasks["similarity", "sts"].notes[2]
    assert any("known files" in note for task in tasks.values() for note in task.notes) == (collection != PUBLISHED)


@real
@pytest.mark.slow
def test_sentiment_constituents_are_the_authors():
    """The test of three hand-written trees runs on every machine; the counts are the authors' of SST."""
    task = read_task("sentiment", None, PUBLISHED, 0)
    assert [len(part) for part in (task.train, task.dev, task.test)] == [67_349, 872, 1821]
    assert task.notes == ()
    assert_trees_fit(task)
    with gzip.open(PUBLISHED / "wieting_form/sentiment-train.gz", "rt", encoding="utf-8") as file:
        cells = [line.rstrip("\n").split("\t") for line in file]
    assert len(cells) == len(task.train)
    theirs = {(text.strip(), float(label)) for text, label in cells}
    ours = {(text.lower(), label) for text, label in rows(task.train) if isinstance(text, str)}
    assert task.train.labels.sum() == sum(label == "1" for _, label in cells)
    # They spell as Americans do, and "gon na": 240 of 66,983 lower-cased texts.
    assert len(ours & theirs) >= len(theirs) - 240


def generator():
    return torch.Generator().manual_seed(7)


def vectors(*shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def array(tensor):
    return tensor.detach().numpy().astype(np.float64)


@given(st.lists(st.floats(1, 5) | st.integers(1, 5), min_size=1), st.sampled_from([0, 1]))
def test_targets_are_the_two_nearest_scores_by_their_distance(scores, low):
    targets = score_targets(torch.tensor(scores, dtype=torch.float64), low, 5)
    assert targets.dtype == torch.float32
    expected = np.maximum(0, 1 - np.abs(np.array(scores)[:, None] - np.arange(low, 6)))
    np.testing.assert_allclose(targets.numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("score", [0.9, 5.1, float("nan")])
def test_a_score_beyond_the_range_is_refused(score):
    with pytest.raises(ValueError, match=r"score 1 is .*allowed: 1 to 5"):
        score_targets(torch.tensor([3.0, score]), 1, 5)


def test_the_sentiment_head_without_a_hidden_layer_is_the_papers():
    """``tests/parity`` compares the one with a hidden layer."""
    given_N1H, head = vectors(3, 1, 6), ClassifierHead(1, 6, None, 2, generator()).double()
    np.testing.assert_allclose(array(head(given_N1H)), array(given_N1H[:, 0]) @ array(head.class_weight).T, rtol=1e-12)
    assert {name for name, _ in head.named_parameters()} == {"class_weight", "class_bias"}


def test_initial_values_are_glorots_and_the_generators():
    state = torch.random.get_rng_state()
    head, again = (ClassifierHead(2, 50, 30, 5, generator()) for _ in range(2))
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
