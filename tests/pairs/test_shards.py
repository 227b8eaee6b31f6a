import gzip
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paraembed.pairs import deduplicate as duplicates
from paraembed.pairs import formats, parse, shards
from paraembed.pairs.deduplicate import find_repeats
from paraembed.pairs.outputs import settings_to_json
from paraembed.pairs.schema import PAIRS
from paraembed.pairs.selection import read_columns, write_columns
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import LENGTHS, WORDS, count_pairs, length_histogram, merge_counts, without_vector
from paraembed.pairs.source_parts import load_report, save_report
from paraembed.text.hashing import pair_keys
from paraembed.text.tokenize import tokenize
from tests.jobs import digests
from tests.pairs.damaged import damaged_lines

WORD = st.sampled_from(["a", "b", "c", "d"])
SOURCES = st.lists(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=30), min_size=1, max_size=3)


def make(folder, sources, partitions=1, **options):
    parsed, reports = [], []
    for number, rows in enumerate(sources):
        path = folder / f"in{number}.tsv"
        path.write_text("".join(f"{first}\t{second}\n" for first, second in rows))
        parsed.append(folder / f"parsed{number}.parquet")
        what = path, path.name, ShardSettings(tokenizer="space"), parsed[-1], partitions
        reports.append(parse.parse_source(*what, **options))
    return parsed, reports


def oracle(sources):
    """Best rank stays, then the first file; order of files, then of rows."""
    best = {}
    for number, rows in enumerate(sources):
        for rank, pair in enumerate(rows):
            key = tuple(sorted(pair))
            best[key] = min(best.get(key, (rank, number)), (rank, number))
    return [
        (first, second, rank, f"in{number}.tsv")
        for number, rows in enumerate(sources)
        for rank, (first, second) in enumerate(rows)
        if first != second and best[tuple(sorted((first, second)))] == (rank, number)
    ]


@given(
    sources=SOURCES,
    per_shard=st.integers(1, 20),
    group=st.integers(1, 10),
    partitions=st.integers(1, 7),
    collide=st.booleans(),
)
def test_shards_hold_each_unordered_pair_once_in_order(
    tmp_path_factory, sources, per_shard, group, partitions, collide
):
    folder = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_MOST_BUCKETS", 3)
        if collide:  # equal keys for pairs that are not equal
            patch.setattr(duplicates, "pair_keys", lambda table: pair_keys(table) % np.uint64(3))
        parsed, reports = make(folder, sources, partitions, rows_per_group=group)
        by_partition = [parse.partitions_of(path) for path in parsed]
        stays = {number: np.ones(report.parsed, bool) for number, report in enumerate(reports)}
        for bucket in range(duplicates.num_buckets(partitions)):
            found = find_repeats(by_partition, bucket, partitions, (), folder / "spill")
            for number, row in zip(*found, strict=True):
                assert stays[number][row]
                stays[number][row] = False
        plans = shards.plan_shards(reports, list(stays.values()), per_shard)
        entries = [shards.write_shard(plan, parsed, stays, folder, folder / plan.name[:-8]) for plan in plans]
    tables = [pq.read_table(folder / entry["name"]) for entry in entries]
    assert not (folder / "spill").exists()
    rows = [(row["first"], row["second"], row["rank"], row["source"]) for table in tables for row in table.to_pylist()]
    assert rows == oracle(sources)
    sizes = [entry["rows"] for entry in entries]
    assert sizes == [table.num_rows for table in tables]
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert all(size <= per_shard for size in sizes)
    assert all(table.schema.equals(PAIRS) for table in tables)
    for report, source in zip(reports, sources, strict=True):
        assert report.read == len(source) == report.parsed + sum(report.refused.values())


def test_texts_are_tokenised_by_their_format(tmp_path):
    (tmp_path / "p.tsv").write_text("Don't STOP.<::::> Go\tdo it\n ... \t<::::>\n")
    report = parse.parse_source(tmp_path / "p.tsv", "p", ShardSettings(remove=("<::::>",)), tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet")["first"].to_pylist() == ["do n't stop . go"]
    assert report.refused == {"empty text": 1}
    assert report.sample == [{"file": "p", "line": 2, "reason": "empty text", "text": " ... \t<::::>"}]
    (tmp_path / "p.gz").write_text("")
    (tmp_path / "ppdb").write_text("[NN] ||| do n't stop . ||| Go-ing ||| PPDB2.0Score=1 ||| 0-0 ||| Equivalence\n")
    parse.parse_source(tmp_path / "ppdb", "p", ShardSettings(), tmp_path / "q.parquet")
    (row,) = pq.read_table(tmp_path / "q.parquet").to_pylist()
    cells = ("do n't stop .", "go-ing", 1.0, 0, "Equivalence", "p", None, None)
    names = ["first", "second", "score", "rank", "relation", "source", "first_tree", "second_tree"]
    assert row == dict(zip(names, cells, strict=True))


def test_trees_come_along_and_bad_ones_are_counted(tmp_path):
    rows = [
        ("The black cat", "a cat", "((the black) cat)", "(NP (DT A) (NN cat))"),
        ("it don't matter", "no", "(it ((do n't) matter))", ""),
        ("a b", "c", "", ""),
        ("x y", "z", "(x y", "z"),
        ("x y", "z", "(x y)", "(NN q)"),
        ("x y", "x y", "(x z)", "(x y)"),  # the texts are judged first
        ("a c", "c a", "(a c)", "(S (X c) (X a) (X b))"),
    ]
    path = tmp_path / "p.tsv"
    path.write_text("sentence1\tsentence2\ttree1\ttree2\n" + "".join("\t".join(row) + "\n" for row in rows))
    report = parse.parse_source(path, "p", ShardSettings(), tmp_path / "p.parquet")
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.schema.equals(PAIRS)
    assert list(zip(*(table[name].to_pylist() for name in ("first", "first_tree", "second_tree")), strict=True)) == [
        ("the black cat", "((the black) cat)", "(NP (DT A) (NN cat))"),
        ("it do n't matter", "(it ((do n't) matter))", None),
        ("a b", None, None),
    ]
    assert (report.read, report.parsed) == (7, 3)
    assert len(report.refused) == 4
    assert [(one["line"], one["reason"]) for one in report.sample] == [
        (5, "tree with unbalanced brackets"), (6, "tree whose leaves are not the tokens"), (7, "equal texts"),
        (8, "tree with a node of more than two children"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "source", "expected"),
    [
        ({"tokenizer": "ptb-v1", "format": "words"}, {}, True),
        ({"tokenizer": "space"}, {}, False),
        ({}, {}, True),
        ({}, {"ppdb_version": "2.0"}, False),
        ({"format": "aligned"}, {}, True),
        ({"format": "words"}, {}, False),
        ({"format": "ppdb"}, {}, False),
    ],
)
def test_a_manifest_tells_the_tokens_of_ptb_from_others(options, source, expected):
    manifest = {"settings": settings_to_json(ShardSettings(**options)), "sources": {"tsv": {}, "other": source}}
    assert shards.has_ptb_tokens(manifest) == expected
    assert not shards.has_ptb_tokens({})
    assert "no_header" not in manifest["settings"]  # as before there was such a flag
    assert settings_to_json(ShardSettings(no_header=True))["no_header"]


@pytest.mark.parametrize("versions", [["1.0"], ["2.0"], ["1.0", "2.0"], []])
def test_the_version_of_ppdb_is_told_a_file_and_a_report_survives_its_file(tmp_path, versions):
    text = "".join(damaged_lines(version, 500, 1, 0.1) for version in versions) or "a\tb\n"
    (tmp_path / "pairs").write_bytes(text.encode("utf-8", "surrogateescape"))
    report = parse.parse_source(tmp_path / "pairs", "p", ShardSettings(), tmp_path / "p.parquet")
    assert report.version == {0: None, 1: versions and versions[0], 2: "mixed"}[len(versions)]
    assert sum(report.refused.values()) > 10 or not versions
    save_report(report, tmp_path / "report.json")
    assert load_report(tmp_path / "report.json") == report


@pytest.mark.parametrize("form", ["ppdb.gz", "x.tsv", "x.jsonl"])
def test_files_and_report_do_not_depend_on_threads_and_joined_blocks(tmp_path, monkeypatch, form):
    lines = damaged_lines("2.0", 12_000, 1, 0.3) if form == "ppdb.gz" else "Don't {0}\tx {0}\n\ta\n" * 9_000
    text = lines if form != "x.jsonl" else '{"first": "Go.", "second": "a b"}\n{"first": 1}\n' * 9_000
    data = text.encode("utf-8", "surrogateescape")
    (tmp_path / form).write_bytes(gzip.compress(data) if form == "ppdb.gz" else data)

    def parsed(name, threads):
        out = tmp_path / name / "parsed.parquet"
        out.parent.mkdir()
        size = {} if form == "ppdb.gz" else {"block_bytes": 20_000}
        report = parse.parse_source(tmp_path / form, "x", ShardSettings(), out, 3, threads=threads, **size)
        return report, digests(tmp_path / name, "*")

    expected = parsed("threads", 4)
    assert parsed("joined", 1) == expected
    assert expected[0].read >= 12_000
    assert len({row["reason"] for row in expected[0].sample}) > (2 if form == "ppdb.gz" else 0)
    monkeypatch.setattr(formats, "_pieces", lambda blocks, _: ([block] for block in blocks))
    assert parsed("as-read", 1) == expected


CELL = st.text(max_size=6) | st.sampled_from([" a", "a ", "a  b", "A b", "É", "a\tb", "\x1c", "\x7f", "a\xa0b"])


@given(st.lists(CELL, max_size=6), st.integers(0, 2), st.sampled_from([pa.string(), pa.large_string()]))
@example(["long enough", "", ""], 1, pa.large_string())  # whose offsets begin where the bytes of the slice end
def test_the_fast_way_to_join_tokens_says_the_same(texts, skip, kind):
    array = pa.array(texts, kind).slice(min(skip, len(texts))).cast(pa.string())
    assert parse.join_tokens(array, "space").to_pylist() == tokenize(array, "space").joined().to_pylist()


def test_a_source_of_which_nothing_is_kept_has_nothing_to_select(tmp_path):
    options = ShardSettings(tokenizer="space", top=1)
    (tmp_path / "bad.tsv").write_text("\tno first\n")
    report = parse.parse_source(tmp_path / "bad.tsv", "bad.tsv", options, tmp_path / "parsed", 1)
    assert (report.read, report.parsed) == (1, 0)
    write_columns(tmp_path / "parsed", np.zeros(0, bool), options, tmp_path / "empty")
    (parsed,), _ = make(tmp_path, [[("a b c", "d e f")]])
    write_columns(parsed, np.ones(1, bool), options, tmp_path / "row")
    assert [len(table) for table in read_columns([tmp_path / "empty", tmp_path / "row"])] == [1]


TEXT = st.lists(st.sampled_from(["a", "bc", "é", "3"]), min_size=1, max_size=12).map(" ".join)


def table(pairs):
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    return pa.table({"first": pa.array(first, pa.string()), "second": pa.array(second, pa.string())})


@given(pairs=st.lists(st.tuples(TEXT, TEXT), max_size=30), cuts=st.lists(st.integers(0, 30), max_size=3).map(sorted))
def test_counts_are_those_of_a_loop_for_any_blocks(pairs, cuts):
    ends = [0, *cuts, 30]
    parts = [count_pairs(table(pairs[start:stop])) for start, stop in pairwise(ends)]
    counts = merge_counts(parts)
    tokens = Counter(token for pair in pairs for text in pair for token in text.split())
    assert counts.words.to_pylist() == [
        {"word": word, "count": count} for word, count in sorted(tokens.items(), key=lambda item: (-item[1], item[0]))
    ]
    lengths = [tuple(len(text.split()) for text in pair) for pair in pairs]
    expected = {
        "first": Counter(str(first) for first, _ in lengths),
        "second": Counter(str(second) for _, second in lengths),
        "longer": Counter(str(max(pair)) for pair in lengths),
    }
    assert length_histogram(counts) == expected
    assert all([*side] == sorted(side, key=int) for side in length_histogram(counts).values())
    whole = merge_counts([count_pairs(table(pairs))])
    assert whole.words.equals(counts.words)
    assert whole.lengths.equals(counts.lengths)
    assert whole.lengths.schema.equals(LENGTHS)
    assert whole.words.schema.equals(WORDS)


def test_words_without_vector():
    counts = count_pairs(table([("a b b", "zz"), ("a", "zz yy")]))
    assert without_vector(counts, pa.array(["a", "b", "c"])) == {
        "words": {"all": 4, "without_vector": 2, "share": 0.5},
        "tokens": {"all": 7, "without_vector": 3, "share": pytest.approx(3 / 7)},
    }
    nothing = {"all": 0, "without_vector": 0, "share": 0.0}
    assert without_vector(merge_counts([]), pa.array(["a"])) == {"words": nothing, "tokens": nothing}
