"""Labels of pair files: which rows are kept and which are rejected, by format."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed.pairs.parse import parse_source, reading_of
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.source_parts import read_heads

CASES = [json.loads(line) for line in Path(__file__).with_name("labels.jsonl").read_text().splitlines()]


def report_of(path, **options):
    settings = ShardSettings(**{name: tuple(v) if isinstance(v, list) else v for name, v in options.items()})
    (head,) = read_heads([path], reading_of(settings))
    out = path.with_name("parsed.parquet")
    return parse_source(path, "p", settings, out, is_labeled=head.is_labeled, block_bytes=200)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_rows_of_other_labels_are_rejected_and_counted(tmp_path, case):
    (tmp_path / case["file"]).write_text(case["text"], encoding="utf-8")
    report = report_of(tmp_path / case["file"], **case.get("options", {}))
    assert (report.labels, report.refused) == (case["kept"], case["rejected"])
    assert report.parsed + sum(report.refused.values()) == report.read
    relations = pq.read_table(tmp_path / "parsed.parquet")["relation"].to_pylist()
    assert not report.labels or {relation for relation in relations if relation} == {*report.labels}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("premise\thypothesis\tlabel\na\tb\t0\nc\td\t2\ne\tf\t1\n", "'label' has the labels 0, 1, 2;"),
        ("id\tsentence1\tsentence2\tlabel\n1\ta\tb\t1\n2\tc\td\t3.8\n", "'label' has the labels 1, 3.8;"),
        ("[X] ||| a ||| b ||| PPDB2.0Score=1 ||| 0-0 ||| Equivalent\n", "entailment has the labels Equivalent;"),
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
