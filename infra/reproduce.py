"""Recompute numbers of docs/reproduce.md and compare them with the page, which keeps them:
``python infra/reproduce.py [--cheap] --inputs FOLDER --data EVAL --work FOLDER``.

``--inputs`` has the files of the page's section "Inputs", ``--data`` the evaluation suites. With ``--cheap``, each
command takes under two minutes (2 cores), all together 45; the others train recurrent encoders for hours. Jobs that are
finished in ``--work`` are not repeated. The exit status is 1 if a number differs from the page by more than
``TOLERANCE``.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paraembed.console import show

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproduce.md"
TOLERANCE = 0.15
"""Allowed difference from a printed score: one in its last digit, as another processor's rounding may give."""
SEEDS = (1, 2, 3)
SHARDS = {
    "real": "--input quora.tsv parabank.csv wikianswers.csv parasci.tsv simpwiki.tsv --nested-subsets random",
    "simpwiki": "--input simpwiki.tsv --training-set acl2017/simpwiki",
    "words": "--input ppdb-xl-lexical.txt.gz --format words --training-set tacl2015/words --words glove25.txt.gz",
    "words300": "--input ppdb-xl-lexical.txt.gz --format words --training-set tacl2015/words --words w2v.txt.gz",
    "tests": "--input tests.tsv --no-header",
    "phrases": "--input phrases.tsv --no-header --leave-out tests",
    "pgru": "--input phrases.tsv --no-header --leave-out tests --training-set pgru2017 --words w2v.txt.gz",
}
"""Pair shards → arguments of jobs/shard.py."""
PAIRS = {
    "real": "real/1-of-1",
    "simpwiki": "simpwiki",
    "words": "words",
    "phrases": "phrases",
    "pgru/train": "pgru/train",
}
"""Name in the page's table of pairs → folder."""
_REAL, _W2V = "--pairs real/1-of-1 --words w2v.txt.gz", "--words w2v.txt.gz"
_NEW = "--new-words random --new-words-min-count 2"
_SLOW = "--recipe iclr2016/avg --learning-rate 0.001 --epochs 5"
_SELECT = "--evaluate sts --data {data} --eval-every 0.25 --select sts/2016/mean"
_SIMPLE = f"--pairs simpwiki {_W2V} {_NEW} {_SELECT}"
_FORMS, _PARTS = ("lasagne", "torch"), (32, 16, 8, 4, 2, 1)
_OF_SIMPLE = ("lstm", "lstm_avg", "bilstm_avg", "gran", "gran2", "gran3", "gran4", "gran5", "bigran")
_RATES = {
    "gran": ("--encoder-learning-rate 0.0002", "--encoder-learning-rate 0.00005", "--learning-rate 0.0002"),
    "lstm_avg": ("--encoder-learning-rate 0.0002",),
}
_GRU = "--pairs pgru/train --words w2v.txt.gz --recipe pgru2017/{} --contrast-phrases 9 --epochs 5 --dropout {}"
TRAININGS = {
    "real-slow": f"{_REAL} {_NEW} {_SLOW}",
    "real-slow-known": f"{_REAL} {_SLOW}",
    **{
        f"real-{name}": f"{_REAL} {_NEW} --recipe iclr2016/{name}"
        for name in ("avg", "proj", "dan", "irnn", "rnn", "lstm")
    },
    **{
        f"adagrad-{name}-{form}": f"--pairs real/{arguments} --adagrad-form {form} {_W2V}"
        for form in _FORMS
        for name, arguments in {
            "avg": "1-of-8 --recipe iclr2016/avg-xxl --epochs 1",
            "dan": "1-of-8 --recipe iclr2016/dan --epochs 1",
            "new": f"1-of-2 --recipe iclr2016/avg-xxl {_NEW}",
            "half": "1-of-2 --recipe iclr2016/avg-xxl",
            "all": "1-of-1 --recipe iclr2016/avg-xxl",
        }.items()
    },
    **{
        f"curve-{name}-{parts}": f"--pairs real/1-of-{parts} {_W2V} {_NEW} {_SELECT} --recipe acl2017/{name}"
        for name in ("avg", "lstm_avg", "gran")
        for parts in _PARTS
    },
    **{f"simple-{name}": f"{_SIMPLE} --recipe acl2017/{name}" for name in ("avg", *_OF_SIMPLE)},
    **{
        f"simple-{name}-released": f"{_SIMPLE} --recipe acl2017/{name} --as-released"
        for name in ("avg", "gran", "lstm_avg")
    },
    **{
        f"rate-{name}-{number}": f"--pairs real/1-of-2 {_W2V} {_NEW} {_SELECT} --recipe acl2017/{name} {rate}"
        for name, rates in _RATES.items()
        for number, rate in enumerate(rates)
    },
    "word": "--pairs words --words glove25.txt.gz --recipe tacl2015/word",
    "constraints": "--pairs words --words glove25.txt.gz --recipe tacl2015/word-constraints",
    "paragram300": "--pairs words300 --words w2v.txt.gz --recipe tacl2015/paragram300",
    "recursive": "--pairs phrases --words word-{seed}.txt.gz --recipe tacl2015/recursive",
    "avg": _GRU.format("gru", 0) + " --encoder avg",
    **{
        f"gru-{words}-{dropout}": _GRU.format(recipe, dropout)
        for words, recipe in (("trained", "gru"), ("frozen", "gru-frozen-words"))
        for dropout in (0, 0.5)
    },
    "gru-dot": _GRU.format("gru-dot", 0),
    "gru-sampling": _GRU.format("gru-negative-sampling", 0),
}
"""Encoder → arguments of jobs/train.py."""
_SICK, _SICK_CLASSES = "--task similarity", "--task entailment"
_SST = f"--task sentiment {_W2V} {_NEW}"
FINETUNINGS = {
    "sick-known": f"{_SICK} {_W2V} --recipe iclr2016/supervised-avg",
    **{f"sick-{name}": f"{_SICK} {_W2V} {_NEW} --recipe iclr2016/supervised-{name}" for name in ("avg", "proj", "dan")},
    "classes-known": f"{_SICK_CLASSES} {_W2V} --recipe iclr2016/supervised-avg-entailment",
    **{
        f"classes-{name}": f"{_SICK_CLASSES} {_W2V} {_NEW} --recipe iclr2016/supervised-{name}"
        for name in ("avg-entailment", "proj", "dan")
    },
    **{
        f"{task}-{name}": f"--task {kind} --pretrained real-slow-{{seed}} --recipe iclr2016/{recipe}{new}"
        for task, kind in (("sick", "similarity"), ("classes", "entailment"))
        for name, recipe, new in (
            ("universal", "universal-avg", ""),
            ("universal-new", "universal-avg", f" {_NEW}"),
            ("features", "features", ""),
        )
    },
    "sst-avg": f"{_SST} --recipe iclr2016/supervised-avg --word-l2 1e-6 --head-width 300",
    "sst-lstm": f"{_SST} --recipe iclr2016/supervised-lstm",
    "sst-cnn": f"{_SST} --recipe tacl2015/cnn",
    "sts-avg": f"{_SICK} --data-set sts {_W2V} {_NEW} --recipe iclr2016/supervised-avg",
    "sts-universal": f"{_SICK} --data-set sts --pretrained real-slow-{{seed}} --recipe iclr2016/universal-avg {_NEW}",
}
"""Model → arguments of jobs/finetune.py."""
_WORDS = tuple(f"words/{name}:spearman_covered" for name in ("simlex999", "ws353", "ws353-sim", "ws353-rel"))
_BIGRAMS = (*(f"bigrams/{kind}:spearman" for kind in ("JN", "NN", "VN")), "phrases/annotated-ppdb:spearman")
_CHOICES = ("semeval2013:accuracy", "turney/5:accuracy", "turney/10:accuracy", "choose/100:accuracy")
_SETS = (*(f"sts/{year}/mean" for year in range(2012, 2017)), "sick/test", "pit2015/test", "papers-22/mean")
_STS = tuple(f"{name}:pearson" for name in _SETS)
_YEARS = (*_STS[:5], _STS[-1])
_AT_WORDS, _AT_BIGRAMS = "--suite words", "--suite bigrams phrases"
_AT_CHOICES = "--suite semeval2013 turney --held-out pgru/test"


@dataclass(frozen=True)
class Row:
    """One row of scores on the page, and how they are computed."""

    table: str  # first cell of the table's head
    cells: tuple[str, ...]  # first cells of the row
    arguments: str  # of jobs/evaluate.py; {seed} makes it three evaluations
    label: str  # of the encoder in scores.json; {seed} is replaced
    scores: tuple[str, ...]  # score and measure of the cells that follow
    is_cheap: bool = True  # whether each of its commands takes under two minutes


@dataclass(frozen=True)
class Models:
    """One row of scores of which each is of another model."""

    table: str
    cells: tuple[str, ...]
    # Of ``FINETUNINGS``, also with a seed, or of ``TRAININGS`` with a seed, for the cells that follow; "" for one that
    # is not computed.
    models: tuple[str, ...]
    score: str = ""  # and measure, of encoders; of fine-tuned models that of the test part
    is_cheap: bool = True


def _trained(
    table: str,
    cells: Sequence[str],
    name: str,
    words: str,
    suites: str,
    scores: tuple[str, ...],
    seed: str = "{seed}",
    *,
    is_cheap: bool = True,
) -> Row:
    label = f"{name}-{seed}"
    return Row(table, tuple(cells), f"--encoder {label} --words {words} {suites}", label, scores, is_cheap)


def _real(cell: str, name: str, seed: str = "{seed}", *, is_cheap: bool = True) -> Row:
    suites = "--suite sts sick pit2015"
    return _trained(_ALL, [cell], f"real-{name}", "w2v.txt.gz", suites, _STS, seed, is_cheap=is_cheap)


def _simple(cell: str, name: str, *, is_cheap: bool = False) -> Row:
    suites = "--suite sts sick pit2015"
    return _trained(_SIMPWIKI, [cell], f"simple-{name}", "w2v.txt.gz", suites, _YEARS, is_cheap=is_cheap)


def _untrained(table: str, cells: Sequence[str], words: str, suites: str, scores: tuple[str, ...]) -> Row:
    return Row(table, tuple(cells), f"--words {words} {suites}", "untrained", scores)


_ALL, _WORD, _PHRASE, _GRUS = "on `real` +new", "word vectors", "Spearman, all pairs, 25 dimensions", ""
_SIMPWIKI, _LABELED, _SCRATCH, _FORM = "`simpwiki`, 16,769 pairs", "`avg`", "from scratch", "AdaGrad's form"
ROWS = (
    _untrained(_ALL, ["word vectors, untrained average"], "w2v.txt.gz", "--suite sts sick pit2015", _STS),
    _real("`avg`, recipe", "avg"),
    _real("`avg`, learning rate 0.001, 5 epochs", "slow"),
    _real("`proj`, recipe", "proj"),
    _real("`dan`, recipe", "dan"),
    _real("`irnn`, recipe", "irnn", is_cheap=False),
    _real("`rnn`, recipe", "rnn", is_cheap=False),
    _real("`lstm`, recipe", "lstm", "1", is_cheap=False),
    *(
        _trained(
            _ALL,
            [f"`acl2017/{name}` (3 epochs)"],
            *(f"curve-{name}-1", "w2v.txt.gz", "--suite sts sick pit2015", _STS, "1"),
            is_cheap=False,
        )
        for name in ("lstm_avg", "gran")
    ),
    _real("`avg`, learning rate 0.001, without +new", "slow-known"),
    _untrained(_SIMPWIKI, ["word vectors, untrained average"], "w2v.txt.gz", "--suite sts sick pit2015", _YEARS),
    _simple("`avg`", "avg", is_cheap=True),
    _simple("`avg --as-released`", "avg-released", is_cheap=True),
    *(_simple(f"`{name}`", name) for name in _OF_SIMPLE),
    *(_simple(f"`{name} --as-released`", f"{name}-released") for name in ("gran", "lstm_avg")),
    *(
        Models(_FORM, (cell, pairs), tuple(f"adagrad-{name}-{form}-{seed}" for form in _FORMS), "sts/mean:pearson")
        for cell, pairs, name, seed in (
            ("`avg-xxl`", "17,381, 1", "avg", "{seed}"),
            ("`dan`", "17,381, 1", "dan", "{seed}"),
            ("`avg-xxl` +new", "69,527, 10", "new", "{seed}"),
            ("`avg-xxl`", "69,527, 10", "half", "1"),
            ("`avg-xxl`", "139,055, 10", "all", "1"),
        )
    ),
    *(
        Models("pairs", (f"`{name}`",), tuple(f"curve-{name}-{parts}-1" for parts in _PARTS), _STS[-1], name == "avg")
        for name in ("avg", "lstm_avg", "gran")
    ),
    Models(_LABELED, ("scratch",), ("sick-known", "classes-known", "")),
    Models(_LABELED, ("scratch +new",), ("sick-avg", "classes-avg-entailment", "sst-avg")),
    Models(_LABELED, ("universal",), ("sick-universal", "classes-universal", "")),
    Models(_LABELED, ("universal +new",), ("sick-universal-new", "classes-universal-new", "")),
    Models(_LABELED, ("features",), ("sick-features", "classes-features", "")),
    Models(_SCRATCH, ("`proj` +new",), ("sick-proj", "classes-proj", "")),
    Models(_SCRATCH, ("`dan` +new",), ("sick-dan", "classes-dan", "")),
    Models(_SCRATCH, ("`cnn` +new",), ("", "", "sst-cnn-1"), is_cheap=False),
    Models(_SCRATCH, ("`lstm` +new",), ("", "", "sst-lstm"), is_cheap=False),
    Models("`avg` +new", ("STS, 16 of 20 sets",), ("sts-avg-1", "sts-universal-1")),
    *(
        Models("", (f"`{name}`, `{rate}`",), (f"rate-{name}-{number}-1",), _STS[-1], is_cheap=False)
        for name, rates in _RATES.items()
        for number, rate in enumerate(rates)
    ),
    _untrained(_WORD, ["GloVe Twitter, 25 dimensions, untrained"], "glove25.txt.gz", _AT_WORDS, _WORDS),
    _trained(_WORD, ["`word`"], "word", "glove25.txt.gz", _AT_WORDS, _WORDS),
    _trained(_WORD, ["`word-constraints`"], "constraints", "glove25.txt.gz", _AT_WORDS, _WORDS),
    _untrained(_WORD, ["word2vec, 300 dimensions, untrained"], "w2v.txt.gz", _AT_WORDS, _WORDS),
    _trained(_WORD, ["`paragram300` on word2vec"], "paragram300", "w2v.txt.gz", _AT_WORDS, _WORDS),
    _untrained(_PHRASE, ["GloVe Twitter, untrained"], "glove25.txt.gz", _AT_BIGRAMS, _BIGRAMS),
    _untrained(
        _PHRASE,
        ['PARAGRAM +: vectors of `word`, column "untrained" of the last command'],
        *("word-{seed}.txt.gz", _AT_BIGRAMS, _BIGRAMS),
    ),
    _untrained(
        _PHRASE,
        ["PARAGRAM + with the vectors of `word-constraints`"],
        *("constraints-{seed}.txt.gz", _AT_BIGRAMS, _BIGRAMS),
    ),
    _trained(
        _PHRASE, ["`recursive` from the vectors of `word`"], "recursive", "word-{seed}.txt.gz", _AT_BIGRAMS, _BIGRAMS
    ),
    _untrained(_GRUS, ["average, untrained", "frozen", "–"], "w2v.txt.gz", _AT_CHOICES, _CHOICES),
    _trained(_GRUS, ["average (`--encoder avg`)", "trained", "0"], "avg", "w2v.txt.gz", _AT_CHOICES, _CHOICES),
    _trained(_GRUS, ["GRU (`gru-dot`)", "trained", "0"], "gru-dot", "w2v.txt.gz", _AT_CHOICES, _CHOICES),
    _trained(_GRUS, ["GRU, negative sampling", "trained", "0"], "gru-sampling", "w2v.txt.gz", _AT_CHOICES, _CHOICES),
    *(
        _trained(_GRUS, ["GRU", words, dropout], f"gru-{words}-{dropout}", "w2v.txt.gz", _AT_CHOICES, _CHOICES)
        for dropout in ("0", "0.5")
        for words in ("trained", "frozen")
    ),
)


def tables(page: str) -> Iterator[list[list[str]]]:
    """Yield the cells of each table of a page, row by row, the head first."""
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


def printed(page: str, table: str, cells: Sequence[str]) -> list[str]:
    """Return the cells that follow the first ``cells`` of a row; ValueError unless exactly one row begins with them."""
    rows = [row for rows in tables(page) if rows[0][0] == table for row in rows[1:] if row[: len(cells)] == [*cells]]
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows of tables {table!r} begin with {[*cells]}; expected one")
    return rows[0][len(cells) :]


def expected_of(page: str, row: Row | Models) -> list[list[float]]:
    """Return the numbers that the page has in a row, of the cells that are computed."""
    computed = row.scores if isinstance(row, Row) else row.models
    cells = printed(page, row.table, row.cells)[: len(computed)]
    return [numbers(cell) for cell, name in zip(cells, computed, strict=True) if name]


def numbers(cell: str) -> list[float]:
    """Return the mean and, if it is printed, the standard deviation of a cell such as ``47.0 ± 1.0``."""
    return [float(value.replace(",", "")) for value in cell.split(" ± ")]


def measured(values: Sequence[float]) -> list[float]:
    """Return the mean of the seeds' values and, of several, their standard deviation, as the page prints them."""
    spread = [statistics.stdev(values)] if len(values) > 1 else []
    return [round(value, 1) for value in (statistics.fmean(values), *spread)]


class Runs:
    """The jobs, in a folder with links to the inputs."""

    def __init__(self, inputs: Path, data: Path, work: Path) -> None:
        self.data, self.work, self._finished = data.resolve(), work, set[str]()
        work.mkdir(parents=True, exist_ok=True)
        for file in inputs.resolve().iterdir():
            if not (work / file.name).is_symlink():
                (work / file.name).symlink_to(file)

    def job(self, name: str, arguments: str, out: str, *more: str) -> Path:
        """Run a job unless its output is finished; return the output. Raise CalledProcessError if it fails."""
        result = self.work / out / "scores.json" if name == "evaluate" else self.work / out
        if out not in self._finished and not (name in {"evaluate", "export"} and result.exists()):
            show(f"$ python jobs/{name}.py {' '.join([arguments, *more])} --out {out}")
            environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{self.work.resolve()}/mlflow.db"}
            command = [sys.executable, ROOT / "jobs" / f"{name}.py", *arguments.split(), *more, "--out", out]
            with (self.work / "log.txt").open("a") as log:
                subprocess.run(command, cwd=self.work, env=environment, check=True, stdout=log, stderr=log)  # noqa: S603 - our own command lines
        self._finished.add(out)
        return self.work / out

    def pairs(self, folder: str) -> int:
        """Return the number of pairs of a folder of shards, which is written first."""
        name = folder.partition("/")[0]
        if "--leave-out tests" in SHARDS[name]:
            self.job("shard", SHARDS["tests"], "tests")
        self.job("shard", SHARDS[name], name)
        return int(json.loads((self.work / folder / "manifest.json").read_text())["counts"]["kept"])

    def scores(self, row: Row | Models) -> list[list[float]]:
        """Return the numbers of a row of scores, as ``measured`` does."""
        if isinstance(row, Models):
            return [self._of_model(model, row.score) for model in filter(None, row.models)]
        is_repeated = "{seed}" in row.arguments
        values_by_seed = [self._scores(row, seed) for seed in (SEEDS if is_repeated else SEEDS[:1])]
        return [measured(values) for values in zip(*values_by_seed, strict=True)]

    def _scores(self, row: Row, seed: int) -> list[float]:
        arguments, label = (text.format(seed=seed) for text in (row.arguments, row.label))
        for name in re.findall(r"\S+", arguments):
            self._train(name.removesuffix(".txt.gz"), is_file=name.endswith(".txt.gz"))
        if "--held-out" in arguments:
            self.pairs("pgru/test")
        out = "scores-" + hashlib.sha256(arguments.encode()).hexdigest()[:12]
        more = "--data", str(self.data), "--resamples", "0", "--no-analyses"
        report = json.loads((self.job("evaluate", arguments, out, *more) / "scores.json").read_text())
        (scores,) = (column["scores"] for column in report["encoders"] if column["label"] == label)
        return [100 * scores[name][measure] for name, measure in (score.split(":") for score in row.scores)]

    def _of_model(self, name: str, score: str) -> list[float]:
        base, _, seed = name.rpartition("-")
        if name in FINETUNINGS or base in FINETUNINGS:
            seeds = SEEDS if name in FINETUNINGS else (int(seed),)
            return measured([self._test_score(name if name in FINETUNINGS else base, seed) for seed in seeds])
        arguments = f"--encoder {name} --words w2v.txt.gz --suite sts sick pit2015"
        (numbers,) = self.scores(Row("", (), arguments, name, (score,)))
        return numbers

    def _test_score(self, name: str, seed: int) -> float:
        arguments = FINETUNINGS[name].format(seed=seed)
        for encoder in re.findall(r"--pretrained (\S+)", arguments):
            self._train(encoder, is_file=False)
        folder = self.job("finetune", f"{arguments} --seed {seed}", f"{name}-{seed}", "--data", str(self.data))
        values = json.loads((folder / "config.json").read_text())["provenance"]["scores"]["test"]["values"]
        return 100 * float(values["pearson" if _SICK in arguments else "accuracy"])

    def _train(self, name: str, *, is_file: bool) -> None:
        """Train an encoder ``NAME-SEED``, and write its vectors if a file is needed; other words are no encoders."""
        base, _, seed = name.rpartition("-")
        if base not in TRAININGS or seed not in map(str, SEEDS):
            return
        arguments = TRAININGS[base].format(seed=seed, data=self.data)
        needed = arguments.split()
        self.pairs(needed[needed.index("--pairs") + 1])
        self._train(needed[needed.index("--words") + 1].removesuffix(".txt.gz"), is_file=True)
        self.job("train", f"{arguments} --seed {seed}", name)
        if is_file:
            self.job("export", f"--encoder {name} --to word2vec", f"{name}.txt.gz")


def compare(name: str, page: Sequence[Sequence[float]], here: Sequence[Sequence[float]], tolerance: float) -> bool:
    """Print the numbers of the page and those computed here; return whether they agree."""
    is_equal = len(page) == len(here) and all(
        len(left) == len(right) and all(abs(a - b) <= tolerance for a, b in zip(left, right, strict=True))
        for left, right in zip(page, here, strict=True)
    )
    shown = [", ".join(" ± ".join(f"{value:,g}" for value in cell) for cell in cells) for cells in (page, here)]
    show(f"{'equal ' if is_equal else 'DIFFERS'} {name}: page {shown[0]}; here {shown[1]}")
    return is_equal


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare what can be computed cheaply; return the exit status."""
    parser = argparse.ArgumentParser("reproduce.py", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--cheap", action="store_true", help="only commands of under two minutes")
    for flag, text in (("inputs", "files of the page's section Inputs"), ("data", "suites"), ("work", "outputs")):
        parser.add_argument(f"--{flag}", type=Path, required=True, help=f"folder of the {text}", metavar="FOLDER")
    flags = parser.parse_args(arguments)
    page, runs = PAGE.read_text(), Runs(flags.inputs, flags.data, flags.work)
    agree = []
    (digests,) = (rows[1:] for rows in tables(page) if rows[0][0] == "file")
    for name, *_, digest in digests:
        with (flags.inputs / name.strip("`")).open("rb") as file:
            is_equal = hashlib.file_digest(file, "sha256").hexdigest().startswith(digest.strip("`"))
        show(f"{'equal ' if is_equal else 'DIFFERS'} {name}")
        agree.append(is_equal)
    for name, folder in PAIRS.items():
        count = numbers(printed(page, "name below", [f"`{name}`"])[1])
        agree.append(compare(f"pairs of {name}", [count], [[runs.pairs(folder)]], 0))
    for row in ROWS:
        if flags.cheap and not row.is_cheap:
            continue
        expected = expected_of(page, row)
        agree.append(compare(", ".join(row.cells), expected, runs.scores(row), TOLERANCE))
    show(f"{agree.count(True)} of {len(agree)} are as on the page")
    return 0 if all(agree) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: status {error.returncode} of this command, whose output ends log.txt: {error.cmd}")
