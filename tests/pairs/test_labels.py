"""Labels of pair files: which rows are kept and which are rejected, by format."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.pairs.parse import parse_source, reading_of
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.source_parts import read_heads

PAWS = "id\tsentence1\tsentence2\tlabel\n1\ta b\tb a\t1\n2\tc\td\t0\n3\te\tf\t1\n"
QUORA = 'id,qid1,qid2,question1,question2,is_duplicate\n1,1,2,"a, b",c,1\n2,3,4,c,d,0\n3,5,6,e,f,\n'
MRPC = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t1\t2\ta, "b\tc\n0\t3\t4\td, "e\tf\n'
NLI = "".join(
    f'{{"gold_label": {label}, "sentence1": {label}, "sentence2": "b", "annotator_labels": []}}\n'
    for label in ('"-"', '"contradiction"', '"neutral"', '"entailment"')
)
NUMBERS = "premise\thypothesis\tlabel\na\tb\t0\nc\td\t2\ne\tf\t1\n"
LINE = "[X] ||| a {0} ||| b ||| PPDB2.0Score=1 ||| 0-0 ||| {0}\n"
PPDB = "".join(map(LINE.format, ("Equivalence", "ForwardEntailment", "Exclusion", "Independent", "OtherRelated")))
OLD = "[X] ||| c d ||| e f ||| Abstract=0 ||| 0-0\n"  # PPDB 1.0
KEPT = {"Equivalence": 1, "ForwardEntailment": 1, "OtherRelated": 1}
CASES = {  # file, text, settings, kept rows of each label, rejected rows by reason
    "PAWS": ("p.tsv", PAWS, {}, {"1": 2}, {"label 0": 1}),
    "Quora": ("p.csv", QUORA, {}, {"1": 1}, {"label 0": 1, "no label": 1}),
    "floats": (
        "p.csv", QUORA.replace(",0\n", ",0.0\n"), {"keep_labels": ("0",)}, {"0.0": 1}, {"label 1": 1, "no label": 1},
    ),
    "MRPC": ("p.txt", MRPC, {}, {"1": 1}, {"label 0": 1}),
    "NLI": ("p.jsonl", NLI, {}, {"entailment": 1}, {"label -": 1, "label contradiction": 1, "label neutral": 1}),
    "NLI, numbers": ("p.tsv", NUMBERS, {"keep_labels": ("0",)}, {"0": 1}, {"label 1": 1, "label 2": 1}),
    "booleans": (
        "p.jsonl", '{"first": "a", "second": "b", "label": true}\n{"first": "c", "second": "d", "label": false}\n', {},
        {"True": 1}, {"label False": 1},
    ),
    "columns by flag": (
        "p.tsv", "a b\tb a\tpara\nc\td\tnot\n", {"columns": ("first", "second", "relation"), "keep_labels": ("PARA",)},
        {"para": 1}, {"label not": 1},
    ),
    "PPDB": ("p", PPDB + OLD, {}, KEPT, {"label Exclusion": 1, "label Independent": 1}),
    "PPDB, one entailment": (
        "p", PPDB + OLD, {"keep_labels": ("exclusion",)}, {"Exclusion": 1},
        {f"label {name}": 1 for name in (*KEPT, "Independent")},
    ),
    "PPDB, training set": ("p", PPDB + OLD, {"training_set": "iclr2016"}, {}, {}),
    "PPDB 1.0": ("p", OLD, {}, {}, {}),
    "empty labels": ("p.tsv", "source\ttarget\tlabel\na\tb\t\nc\td\t\n", {}, {}, {}),
}  # fmt: skip


def report_of(path, **options):
    settings = ShardSettings(**options)
    (head,) = read_heads([path], reading_of(settings))
    out = path.with_name("parsed.parquet")
    return parse_source(path, "p", settings, out, is_labeled=head.is_labeled, block_bytes=200)


@pytest.mark.parametrize(("name", "text", "options", "kept", "refused"), CASES.values(), ids=CASES)
def test_rows_of_other_labels_are_rejected_and_counted(tmp_path, name, text, options, kept, refused):
    (tmp_path / name).write_text(text, encoding="utf-8")
    report = report_of(tmp_path / name, **options)
    assert report.labels == kept
    assert report.refused == refused
    assert report.parsed + sum(refused.values()) == report.read
    relations = pq.read_table(tmp_path / "parsed.parquet")["relation"].to_pylist()
    assert not kept or {relation for relation in relations if relation} == {*kept}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (NUMBERS, "'label' has the labels 0, 1, 2;"),
        (PAWS.replace("\t0\n", "\t3.8\n"), "'label' has the labels 1, 3.8;"),
        (LINE.format("Equivalent"), "entailment has the labels Equivalent;"),
    ],
)
def test_an_unknown_label_is_an_error(tmp_path, text, message):
    (tmp_path / "p.tsv").write_text(text)
    with pytest.raises(ValueError, match=f"{message} .*`keep_labels`"):
        report_of(tmp_path / "p.tsv")


def test_parquet(tmp_path):
    """Labels of any type; and shards without labels, read again."""
    texts = {"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"]}
    for column, counts in (([1, 0, None], ({"1": 1}, {"label 0": 1, "no label": 1})), ([None] * 3, ({}, {}))):
        pq.write_table(pa.table({**texts, "label": pa.array(column, pa.int64())}), tmp_path / "p")
        report = report_of(tmp_path / "p")
        assert (report.labels, report.refused) == counts
