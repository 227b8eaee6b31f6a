"""Readers of labeled data on hostile files: every row of a file is an example of one part, or the file is refused."""

import math
import random

from paraembed.supervised.readers import read_task
from tests import fuzz
from tests.evaluation.test_fuzz import plain_lines, put, rows, semeval, text, turney, word

SICK = ("sick/SICK_train.txt", "sick/SICK_trial.txt", "sick/SICK_test_annotated.txt")
SST = ("sst/train.txt.gz", "sst/dev.txt.gz", "sst/test.txt.gz")
STS = ("sts/2012/MSRpar.tsv", "sts/2015/images.tsv.gz")
SEMEVAL = ("phrase/semeval2013_5a/en.trainSet", "phrase/semeval2013_5a/en.testSet")
TURNEY = ("phrase/turney2012_jair.data",)
FILES = {"similarity": SICK, "entailment": SICK, "sts": STS, "sentiment": SST, "semeval2013": SEMEVAL, "turney": TURNEY}
QUESTIONS = turney(random.Random(0)).split(b"\n")[0] + b"\n"


def sick(draw):
    def judgement(draw):
        return draw.choice(("NEUTRAL", "ENTAILMENT", "CONTRADICTION"))

    def score(draw):
        return draw.choice(("1", "5", "3.25", "1e0", " 2 "))

    return rows(draw, "\t", (word, text, text, score, judgement), "pair_ID\tA\tB\tscore\tjudgement")


def tree(draw, depth=0):
    label = draw.randrange(5)
    if depth > 5 or draw.random() < 0.3 + depth / 10:
        return f"({label} {draw.choice(('fine', 'né', '-LRB-', 'and', '2', '...'))})"
    return f"({label} {tree(draw, depth + 1)} {tree(draw, depth + 1)})"


def sst(draw):
    return "\n".join(["(4 (3 fine) (2 film))", *(tree(draw) for _ in range(draw.randrange(5)))]).encode()


def sts(draw):
    return rows(draw, "\t", (lambda draw: draw.choice(("0", "5", "2.5", "0.2")), text, text))


def nested(data, draw):
    """A file of trees with one that is nested deeper than a recursion goes, closed or not."""
    depth = draw.choice((1000, 30_000))
    if draw.random() < 0.3:
        return data + b"\n" + b"(2 (2 a) " * depth + b"(2 b)" + b")" * depth
    return data + b"\n" + b"(2 " * depth + b"(3 a) (2 b)" + b")" * draw.choice((depth, depth - 1, depth + 1, 0))


MAKERS = {"sts": sts, "sentiment": sst, "semeval2013": semeval, "turney": lambda draw: QUESTIONS * 681 + turney(draw)}


def read(name, folder, seed):
    return read_task("similarity" if name == "sts" else name, "sts" if name == "sts" else None, folder, seed)


def check(name, task, texts):
    parts = (task.train, task.dev, task.test)
    for part in parts:
        assert all(map(math.isfinite, part.labels))
        assert all(len(side) == len(part) for side in part.texts)
    sizes, lines = [len(part) for part in parts], [len(plain_lines(one)) for one in texts]
    if name in {"similarity", "entailment"}:
        assert sizes == [one - 1 for one in lines]
    elif name == "sts":
        headers = sum(plain_lines(one)[0].lower() == "score\tsentence1\tsentence2" for one in texts)
        assert sum(sizes) == sum(lines) - headers
    elif name == "sentiment":
        filled = [sum(bool(line.strip()) for line in plain_lines(one)) for one in texts]
        assert sizes[1] <= filled[1]
        assert sizes[2] <= filled[2]
        assert {*task.train.labels.tolist()} <= {0.0, 1.0}
    elif name == "semeval2013":
        assert task.threshold is not None
        assert len(task.threshold) + sizes[1] == lines[0] // 4
        assert sizes[2] == lines[1] // 4
    else:
        assert sum(sizes) == lines[0]


def test_every_row_is_an_example_of_one_part_or_the_file_is_refused(tmp_path):
    seen = set()

    def case(draw):
        name = draw.choices(list(FILES), (4, 4, 4, 8, 4, 1))[0]
        written = []
        for file in FILES[name]:
            data = MAKERS.get(name, sick)(draw)
            if name == "sentiment" and draw.random() < 0.02:
                data = nested(data, draw)
            written.append(put(tmp_path / file, data, draw, 0.4))
        try:
            task = read(name, tmp_path, draw.randrange(9))
        except ValueError as error:
            if name != "sentiment" and not any(mutated for _, mutated in written):
                raise AssertionError(f"valid files of {name} were refused") from error
            raise
        check(name, task, [data for data, _ in written])
        seen.add(name)
        return "read"

    assert fuzz.run(case)["read"] > 0
    assert seen == {*FILES}
