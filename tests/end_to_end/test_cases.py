"""Inputs after public bug reports, one folder each in ../shared/cases: what the jobs make of them.

A case is a job with its flags, where ``{}`` is the folder of the case, and what it gives: rows (or words, or pairs) and
rejected rows, the texts if they are few, or words of its error.
"""

import json
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import paraembed
from paraembed.text.tokenize import tokenize
from tests.jobs import run_job

FOLDER = Path(__file__).parents[3] / "shared" / "cases"


class Case(NamedTuple):
    """A job and what it gives."""

    flags: str
    rows: int = 0
    rejected: int = 0
    texts: tuple[str, ...] | None = None
    error: str = ""  # words of the error
    notes: str = ""  # words of a warning
    job: str = "embed"


def table(name, more="", *values, **named):
    """A case of ``embed`` whose texts are in the column ``text``."""
    return Case(f"--input {{}}/{name} --text-column text --keep text {more}", *values, **named)


def pairs(name, more="", *values, **named):
    return Case(f"--input {{}}/{name} {more}", *values, **named, job="shard")


def words(name, rows, notes="", **named):
    """A case of ``weight``, of the words of a file."""
    return [Case(f"--words {{}}/{name} --weighting avg", rows, notes=notes, **named, job="weight")]


def scored(name, more="", *values, **named):
    """A case of ``evaluate``, of scored pairs."""
    return Case(f"--pairs {{}}/{name} {more}", *values, **named, job="evaluate")


KETTLE = ("the kettle is boiling over", "rain is expected in the north")
KETTLE += ("she repaired the old bicycle", "the library closes at nine")
SPARK = 'he said "come in" and left', "plain words here", 'a comma, and "quotes", together', "last row"
LATIN = "un café à la crème", "Größe und Maß", "plain words"
TWO = "one row", "two rows"
CASES = {
    "01-parquet-binary-text": [Case("--input {} --text-column body --id-column id", 4)],
    "02-null-typed-part": [table("", "tag", 4)],
    "03-string-types-differ": [table("", "--id-column id", 4)],
    "03b-polars-pandas-mixed": [table("", "cat --id-column id", 4)],
    "04-column-missing-in-part": [table("", "lang", 4)],
    "05-delta-table": [Case("--input {} --text-column text", 3)],
    "05b-delta-table-plain-strings": [Case("--input {} --text-column text", 3)],
    "06-hive-partitions": [table("", "lang", 4), Case("--input {} --text-column text --keep all", 4)],
    "07-spark-json": [table("", "", 4, texts=KETTLE)],
    "07c-json-gz": [table("a.json.gz", "", 4, texts=KETTLE)],
    **{
        name: [table("", "--id-column id", 4)]
        for name in (
            *("08-uuid-id", "08b-binary16-id", "09-id-categorical", "09b-id-timestamp", "09c-id-float-from-nan"),
            *("09d-id-uint64-big", "09e-id-decimal"),
        )
    },
    "10-keep-every-type": [
        Case("--input {} --text-column text --keep all", error="column 'fsl' cannot be read"),
        table("", "u js ts tss dec dec256 f16 ls st mp bin dict t64 date lstr bool nul dur sv ll", 4),
    ],
    "11-csv-backslash-quotes": [
        table("*.csv", r"--csv-escape '\'", 4, texts=SPARK),
        table("*.csv", "", 2, 2),
        table("*.csv", "--max-rejected-share 0.4", error="set --csv-escape"),
    ],
    "12-csv-latin1": [
        table("a.csv", "--encoding latin-1", 3, texts=LATIN),
        table(
            "a.csv", "", 3, texts=("un caf\ufffd \ufffd la cr\ufffdme", "Gr\ufffd\ufffde und Ma\ufffd", "plain words")
        ),
    ],
    "12b-csv-utf16": [
        table("a.csv", "--encoding utf-16", 2, texts=("un café", "plain words")),
        table("a.csv", error="give --encoding utf-16"),
    ],
    "12c-txt-cp1252": [
        Case("--input {} --encoding cp1252 --keep text", 2, texts=("it’s a “quoted” phrase – really", "plain words"))
    ],
    "13-csv-semicolon": [
        table("a.csv", "--csv-delimiter ';'", 2, texts=("the first row, with a comma", "the second row")),
        table("a.csv", error="give --csv-delimiter ';'"),
    ],
    "15-nested-text": [
        Case("--input {} --text-column doc.body --keep doc.lang", 2),
        Case("--input {} --text-column chunks", 2),
        Case("--input {} --text-column chunks --explode --keep text", 3, texts=KETTLE[:3]),
        Case("--input {} --text-column doc", error="it can be: doc.body, doc.lang, chunks"),
    ],
    "15b-nested-json": [
        Case("--input {} --text-column doc.body", 4),
        Case("--input {} --text-column doc", error="'doc' is no string"),
    ],
    "16-title-and-body": [Case("--input {} --text '{title}. {body}'", 2)],
    "17-other-scripts": [Case("--input {}/a.txt", 12, notes="rows without other tokens: 3")],
    "18-lookalike-text": [Case("--input {}/a.txt", 24)],
    "19-line-separators": [Case("--input {}/a.txt", 7)],
    "19b-cr-only": [Case("--input {}/a.txt --keep text", 3, texts=("first text", "second text", "third text"))],
    "20-jsonl-oddities": [
        table("a.jsonl", "--id-column id --max-rejected-share 0.6", 5, 6),
        table("a.jsonl", error="'text' is no string"),
    ],
    "21-gz-members": [Case("--input {}/a.txt.gz", 4)],
    "22-spark-empty-parts": [table("", "--id-column id", 2, texts=TWO)],
    "22b-parquet-empty-part": [table("", "", 2)],
    "22c-csv-header-only-part": [table("", "", 2, texts=TWO)],
    "24-csv-unnamed-columns": [table("a.csv", "", 2, texts=("first row", "second row"))],
    "24b-csv-space-after-comma": [
        table("a.csv", "--csv-skip-blanks", 2, texts=("a quoted, cell", "plain")),
        table("a.csv", error="has no column 'text'"),
    ],
    "25-append-new-file": [Case("--input {}", 4)],
    "26-duplicate-texts": [Case("--input {}", 6)],
    "27-glove-words-with-spaces": words("glove.txt", 15),
    "28b-glove-nel-only": words("glove.twitter.txt", 14),
    "29-fasttext-vec": words("wiki.vec", 14),
    "29b-fasttext-header-off-by-dups": words("wiki.vec", 11, "header counts 2 more words"),
    "30-word2vec-bin-cut-utf8": words("v.bin", 11, "1 of 11 rows are not word vectors"),
    "30b-word2vec-text-latin1": words("v.txt", 11, "1 of 11 rows are not word vectors"),
    "31-glove-unk-row": words("v.txt", 11, "is that of the row '<unk>'"),
    "32-fasttext-bin": words("cc.bin", 0, error="use the .vec file of its vectors"),  # its header counts no words
    "33-glove-zip": words("glove.6B.zip", 11),
    "34-vectors-with-tabs": words("v.txt", 11),
    "35-vectors-crlf": words("v.txt", 11),
    "36-numberbatch": words("numberbatch.txt", 11),
    "37-hf-save-to-disk": [table("", "", 4, texts=KETTLE)],
    "38-column-case": [table("a.csv", error="--text-column can be: ID, Text")],
    "39-column-names": [Case("--input {}/a.parquet --text-column doc.text --id-column 'my id'", 4)],
    "40-kept-column-clash": [table("", "row", error="column 'row' would appear twice"), table("", "", 4)],
    "41-null-fixed-size-list": [table("", "vec", error="column 'vec' cannot be read"), table("", "", 4)],
    "42-null-and-repeated-ids": [
        table("", "--id-column id", error="'id' is null"),
        table("", "--id-column id --on-duplicate-id keep", 4),
    ],
    "43-long-texts": [Case("--input {}", 3)],
    "44-file-names": [Case("--input {}/ --id-kind file-row --keep text", 3, texts=("one", "two", "three"))],
    "45-json-array": [table("a.jsonl", "", 4, texts=KETTLE)],
    "46-csv-leading-zero-ids": [table("a.csv", "--id-column id", 3, texts=("one row", "two rows", "three"))],
    "47-jsonl-id-int-and-string": [
        table("a.jsonl", "--id-column id", error="--on-duplicate-id keep"),
        table("a.jsonl", "--id-column id --on-duplicate-id keep", 4),
    ],
    "48-html-text": [table("a.jsonl", "", 4)],
    "49-mixed-kinds": [table("", error="of several kinds (csv, jsonl)"), table("*.csv", "", 1)],
    "50-pandas-index-as-id": [table("", "--id-column doc_id", 4)],
    "51-csv-cr-only": [table("a.csv", "", 2, texts=("first row", "second row"))],
    "52-csv-sep-line": [table("a.csv", "--id-column id", 1, texts=("first row",))],
    "53-paragram-like": words("paragram.txt", 6, "2 of 7 rows are not word vectors"),
    "53b-paragram-leading-spaces": words("paragram.txt", 6),
    "60-ppdb-odd-lines": [pairs("ppdb.txt", "", 14, 7)],
    "60b-ppdb-crlf": [pairs("ppdb.txt", "", 5)],
    "60c-ppdb-1.0": [pairs("ppdb.txt", "", 5)],
    "61-paws-labels": [pairs("train.tsv", "", 2, 2)],
    "61b-qqp-labels": [pairs("train.csv", "", 2, 2)],
    "61c-mrpc-bom-quotes": [pairs("msr.txt", "", 2, 2)],
    "61e-hf-pair-parquet": [pairs("pairs.parquet", "", 4)],
    "61f-triplets": [pairs("t.jsonl", "", 4)],
    "61g-paranmt": [
        pairs("para-nmt.txt", "--columns first second score", 4),
        pairs("para-nmt.txt", error="--columns first second score"),
    ],
    "61h-tapaco-sets": [pairs("tapaco.tsv", error="name the columns with --columns")],
    "62-sts-quotes": [scored("sts-dev.tsv", "", 4)],
    "62b-stsb-glue": [
        scored("dev.tsv", "--pair-columns sentence1 sentence2 score", 4),
        scored("dev.tsv", error="--pair-columns"),
    ],
    "62c-stsb-raw": [scored("sts-dev.csv", "--pair-columns 6 7 5", 4)],
    "62d-constant-gold": [scored("p.tsv", error="4 gold scores are all 3")],
    "62e-sts-blank-gold": [scored("p.tsv", error="p.tsv, line 2: the score is ''")],
}
EXCEPTIONS = {"70-consumers": "it has no input: scripts of consumers, which are in test_consumers.py"}
"""Case → why it is not in the table."""


@pytest.fixture(scope="module", autouse=True)
def in_store(empty_store, tmp_path_factory):
    """An MLflow store of these tests."""
    if not FOLDER.is_dir():
        pytest.skip(f"the cases are not there: {FOLDER}")
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cases")
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(empty_store, folder)}")
        patch.chdir(folder)
        yield


def test_every_case_is_in_the_table_or_is_an_exception():
    names = {path.name for path in FOLDER.iterdir() if path.is_dir()}
    assert names == CASES.keys() | EXCEPTIONS.keys()


def test_texts_that_look_alike_have_the_same_tokens():
    lines = (FOLDER / "18-lookalike-text/a.txt").read_text().splitlines()
    tokens = tokenize(pa.array(lines), "ptb-v1+nfkc").joined().to_pylist()
    other = [text for text, look_alike in zip(tokens[::2], tokens[1::2], strict=True) if text != look_alike]
    assert other == ["well - known facts", "bread & butter", "straße"]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_case_gives_what_is_expected(name, tmp_path, capsys):
    for number, case in enumerate(CASES[name]):
        out = tmp_path / str(number)
        flags = shlex.split(case.flags.replace("{}", shlex.quote(str(FOLDER / name))))
        encoder = ("--encoder", "small") if case.job in {"embed", "evaluate"} else ()
        engine = ("--engine", "local") if case.job in {"embed", "shard"} else ()
        status = run_job(case.job, *encoder, *flags, *engine, "--out", out)
        printed = capsys.readouterr().err
        assert (status > 0) == bool(case.error), printed
        assert case.notes in printed
        if case.error:
            assert case.error in printed
            assert not (out / "_SUCCESS").exists()
        elif case.job == "embed":
            files = sorted(out.glob("**/part-*.parquet"))
            embedded = ds.dataset(files).to_table()
            rejected = [line for path in out.glob("_rejected/*") for line in path.read_text().splitlines()]
            assert (len(embedded), len(rejected)) == (case.rows, case.rejected), printed
            assert case.texts in {None, tuple(embedded["text"].to_pylist() if case.texts else ())}
        elif case.job == "weight":
            assert len(paraembed.load(out).vocabulary) == case.rows
        elif case.job == "evaluate":
            (found,) = json.loads((out / "scores.json").read_text())["encoders"][0]["scores"].values()
            assert found["num_pairs"] == case.rows
        else:
            counts = json.loads((out / "manifest.json").read_text())["counts"]
            assert (counts["kept"], counts["refused"]) == (case.rows, case.rejected), printed
            assert counts["read"] == counts["kept"] + counts["refused"] + counts["duplicates"]
