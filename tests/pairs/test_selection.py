import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paraembed.pairs import selection
from paraembed.pairs.selection import Selected, select, selection_columns, selects
from paraembed.pairs.settings import FilterOptions
from paraembed.text.hashing import hash_strings, mixed, pair_keys

WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=5).map(" ".join)
PAIRS = st.lists(st.tuples(WORDS, WORDS), max_size=60, unique_by=lambda pair: tuple(sorted(pair)))


def table(pairs):
    columns = {name: pa.array([pair[side] for pair in pairs], pa.string()) for side, name in enumerate(NAMES)}
    return pa.table(columns)


NAMES = ("first", "second")


def numbered(count):
    return [(f"a{number}", f"b {number}") for number in range(count)]


def run(options, pairs):
    """The rows of each output; checks that rows and counts are all there is."""
    selected = selected_of(options, [selection_columns(table(pairs), options)])
    for output in selected:
        assert output.rows.sum() + sum(output.counts.values()) == len(output.rows) == len(pairs)
        assert 0 not in output.counts.values()
    assert len({output.name for output in selected}) == len(selected)
    return rows_of(selected)


def selected_of(options, tables):
    return list(select(options, lambda: tables, sum(map(len, tables))))


def rows_of(selected):
    return {output.name: np.flatnonzero(output.rows).tolist() for output in selected}


def shards(folder, *files):
    folder.mkdir()
    names = [f"pairs-{number}.parquet" for number in range(len(files))]
    for name, pairs in zip(names, files, strict=True):
        pq.write_table(table(pairs), folder / name)
    (folder / "manifest.json").write_text(json.dumps({"shards": [{"name": name} for name in names]}))
    (folder / "_SUCCESS").write_text("{}")
    return str(folder)


SIZES = {"top": st.none() | st.integers(1, 70), "sample": st.none() | st.integers(1, 70)}
NESTED = {"nested_subsets": st.sampled_from(["none", "ordered", "random"])}
BINNED = ("tacl2015/phrases", "tacl2015/annotated")
SETS = st.sampled_from([None, "iclr2016", "tacl2015/phrases"])
SPLITS = {"training_set": st.just("pgru2017"), "split": st.sampled_from(["train", "dev", "test"])}
OPTIONS = st.one_of(
    st.builds(FilterOptions, training_set=SETS, sample_seed=st.integers(0, 3), **SIZES, **NESTED),
    st.builds(FilterOptions, training_set=st.just("pgru2017"), **SIZES),
    st.builds(FilterOptions, **SPLITS, **NESTED),
)


def by_sorting(options, pairs):
    columns = selection_columns(table(pairs), options)
    keys, rows = columns["key"].to_numpy(), np.arange(len(pairs))
    draws = mixed(keys ^ mixed(np.array([options.sample_seed], np.uint64)))

    def drawn(rows):
        return rows[np.argsort(draws[rows], kind="stable")]

    def resized(rows):
        if "effective_size" in columns.column_names:
            sizes = np.minimum(columns["effective_size"].to_numpy(), 5)
            bins = [rows[sizes[rows] == size][: options.top and options.top // 3] for size in (3, 4, 5)]
            each = min((options.sample or options.top or 60_000) // 3, *map(len, bins))
            return np.concatenate(
                [(bins if options.sample is None else [*map(drawn, bins)])[size][:each] for size in range(3)]
            )
        rows = rows[: options.top]
        return rows if options.sample is None else drawn(rows)[: options.sample]

    tenth = mixed(keys, 801010) % np.uint64(10)
    splits = {"train": rows[tenth < 8], "dev": rows[tenth == 8], "test": rows[tenth == 9]}
    parts = splits if options.training_set == "pgru2017" else {"": rows}
    parts = parts if options.split == "all" else {"": splits[options.split]}
    outputs = {name: resized(rows) for name, rows in parts.items()}
    if options.nested_subsets != "none":
        rows = np.sort(outputs[""]) if options.nested_subsets == "ordered" else drawn(np.sort(outputs[""]))
        sizes = [len(rows) >> level for level in range(max(1, len(rows).bit_length()))]
        last = next((level for level, size in enumerate(sizes) if size < 10), len(sizes))
        outputs = {f"1-of-{1 << level}": rows[:size] for level, size in enumerate(sizes[: last + 1])}
    return {name: sorted(rows.tolist()) for name, rows in outputs.items()}


@given(options=OPTIONS, pairs=PAIRS, repeats=st.integers(1, 3), bits=st.integers(1, 16), cut=st.integers(0, 60))
@example(FilterOptions(top=50, sample=20), numbered(60), 2, 2, 7)
@example(FilterOptions(training_set="pgru2017", sample=15), numbered(60), 2, 1, 7)
@example(FilterOptions(nested_subsets="random"), numbered(60), 1, 3, 7)
def test_selections_are_those_by_sorting_all_rows_in_any_blocks(options, pairs, repeats, bits, cut):
    pairs = pairs * repeats  # whose draws are equal
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "_BIN_BITS", bits)
        patch.setattr(selection, "_PIECE", 7)
        expected = by_sorting(options, pairs)
        assert run(options, pairs) == expected
        parts = [selection_columns(part, options) for part in (table(pairs).slice(0, cut), table(pairs).slice(cut))]
        assert rows_of(selected_of(options, parts)) == expected


@given(pairs=PAIRS)
def test_a_pair_and_its_swap_are_in_one_part_of_the_split_whatever_else_is_there(pairs):
    options = FilterOptions(training_set="pgru2017")
    both = [*pairs, *((second, first) for first, second in pairs)]
    parts = run(options, both)
    assert sorted(row for rows in parts.values() for row in rows) == list(range(len(both)))
    for rows in parts.values():
        assert [row + len(pairs) for row in rows if row < len(pairs)] == [row for row in rows if row >= len(pairs)]
    for name in ("train", "dev", "test"):
        assert run(FilterOptions(training_set="pgru2017", split=name), both) == {"": parts[name]}
    alone = run(options, pairs[:1])
    assert all(row in parts[name] for name, rows in alone.items() for row in rows)


def test_the_split_is_80_10_10():
    whole = run(FilterOptions(training_set="pgru2017"), numbered(20_000))
    shares = {name: len(rows) / 20_000 for name, rows in whole.items()}
    assert shares == pytest.approx({"train": 0.8, "dev": 0.1, "test": 0.1}, abs=0.01)


PHRASES = [  # by effective size
    *((f"aa bb cc{number}", "dd") for number in range(6)),
    *((f"aa bb cc dd{number} e", "f") for number in range(4)),
    *((f"aa bb cc dd ee{number}", "f") for number in range(2)),
    *(("f", f"aa bb cc dd ee ff{number}") for number in range(3)),
]


def test_phrases_are_as_many_of_each_effective_size():
    options = FilterOptions(training_set="tacl2015/phrases")
    assert run(options, PHRASES) == {"": [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13]}
    assert run(options, PHRASES[:6]) == {"": []}
    assert run(FilterOptions(training_set="tacl2015/phrases", top=7), PHRASES) == {"": [0, 1, 6, 7, 10, 11]}
    drawn = run(FilterOptions(training_set="tacl2015/phrases", sample=9, sample_seed=5), PHRASES)[""]
    assert [sum(low <= row < high for row in drawn) for low, high in ((0, 6), (6, 10), (10, 15))] == [3, 3, 3]
    assert drawn != [0, 1, 2, 6, 7, 8, 10, 11, 12]
    (output,) = selected_of(options, [selection_columns(table(PHRASES), options)])
    assert output.counts == {"bin of its effective size is full": 3}


ANNOTATED = {"training_set": "tacl2015/annotated"}


def test_pairs_to_be_rated_are_drawn_from_ten_chunks_and_three_bins_without_a_repeated_text():
    sizes = np.tile([3, 3, 3, 3, 3, 3, 4, 4, 5, 9], 6_000)
    keys = np.arange(len(sizes), dtype=np.uint64)
    texts = [pa.array(10**6 * side + keys // 3) for side in (1, 2)]  # three pairs share each text
    columns = pa.table({"key": keys, "effective_size": sizes, "first": texts[0], "second": texts[1]})
    chunk, size = np.arange(len(sizes)) // 6_000, np.minimum(sizes, 5)
    ends = {}
    for seed in (1, 2):
        (output,) = selected_of(FilterOptions(sample_seed=seed, **ANNOTATED), [columns.slice(0, 7), columns.slice(7)])
        rows = np.flatnonzero(output.rows)
        assert len(rows) == len({*(keys[rows] // 3).tolist()}) == 3_000
        each = np.histogram2d(chunk[rows], size[rows], [10, [3, 4, 5, 6]])[0]
        # 3,000 of 15,000, of 500 in each bin of each chunk
        assert each.min() > 60, each
        assert each.max() < 140, each
        ends[seed] = rows.tolist()
    assert ends[1] != ends[2]
    # Without repeated texts, all of 500 from every bin of every chunk.
    unique = columns.set_column(2, "first", pa.array(keys)).set_column(3, "second", pa.array(keys + np.uint64(10**6)))
    (output,) = selected_of(FilterOptions(sample=15_000, **ANNOTATED), [unique])
    assert np.unique(chunk[output.rows] * 10 + size[output.rows], return_counts=True)[1].tolist() == [500] * 30


@given(pairs=PAIRS)
def test_pairs_to_be_rated_repeat_no_text_and_are_as_many_as_can_be_added(pairs):
    options = FilterOptions(**ANNOTATED)
    (rows,) = run(options, pairs).values()
    size = selection_columns(table(pairs), options)["effective_size"].to_pylist()
    taken = [text for row in rows for text in {*pairs[row]}]
    assert len(taken) == len({*taken})
    rest = [row for row in range(len(pairs)) if size[row] >= 3 and not {*pairs[row]} & {*taken}]
    assert not rest


def matched(folder, top=None):
    return FilterOptions(training_set="acl2017/ppdb-matched", match_tokens_of=folder, top=top)


def test_matched_pairs_have_the_tokens_of_other_shards(tmp_path):
    folder = shards(tmp_path / "simpwiki", [("a b c d", "a b c"), ("a", "a")], [("a b c", "d")], [])
    pairs = numbered(50)  # of three tokens each
    (rows,) = run(matched(folder), pairs).values()
    assert len(rows) == 5  # 15 tokens, the fewest that reach 13
    assert rows == run(FilterOptions(sample=5), pairs)[""]
    assert max(run(matched(folder, top=6), pairs)[""]) < 6
    exact = shards(tmp_path / "exact", numbered(7))
    assert len(run(matched(exact), pairs)[""]) == 7
    with pytest.raises(ValueError, match=r"4 pairs .*12 tokens, .*simpwiki has 13"):
        run(matched(folder), pairs[:4])
    with pytest.raises(ValueError, match="0 pairs have 0 tokens"):
        run(matched(folder), [])


def test_pairs_of_other_shards_are_left_out_in_either_order(tmp_path):
    dev = shards(tmp_path / "dev", [("b 3", "a3")], [("a5", "b 5"), ("x", "y")])
    test = shards(tmp_path / "test", [("a0", "b 0")])
    options = FilterOptions(leave_out=(dev, test), top=5)
    assert run(options, numbered(10)) == {"": [1, 2, 4, 6, 7]}
    (output,) = selected_of(options, [selection_columns(table(numbered(10)), options)])
    assert output.counts == {"left out": 3, "below the top": 2}
    with pytest.raises(FileNotFoundError, match=r"none .*finished pair shards; .*jobs/shard"):
        run(FilterOptions(leave_out=(str(tmp_path / "none"),)), numbered(3))


def test_nothing_is_selected_where_nothing_is_asked():
    assert run(FilterOptions(), numbered(4)) == {"": [0, 1, 2, 3]}
    assert not selects(FilterOptions(training_set="iclr2016", min_score=1.0, max_length=5))
    asked = [matched("shards"), *(FilterOptions(training_set=name) for name in ("pgru2017", *BINNED))]
    asked += [FilterOptions(top=1), FilterOptions(sample=1), FilterOptions(nested_subsets="ordered")]
    asked.append(FilterOptions(leave_out=("dev",)))
    assert all(map(selects, asked))
    assert Selected("", np.ones(3, bool)).counts == {}


TEXT = st.text("ab é\0", max_size=6)


@given(pairs=st.lists(st.tuples(TEXT, TEXT), max_size=30), start=st.integers(0, 5))
def test_keys_are_equal_exactly_for_equal_unordered_pairs(pairs, start):
    table = pa.table({"first": pa.array([p[0] for p in pairs], pa.string()), "second": [p[1] for p in pairs]})
    keys = pair_keys(table.slice(start)).tolist()
    unordered = [tuple(sorted(pair)) for pair in pairs[start:]]
    assert len(keys) == len(unordered)
    for key, pair in zip(keys, unordered, strict=True):
        assert [other == key for other in keys] == [other == pair for other in unordered]


def test_hashes_are_the_same_on_every_machine():
    """Splits and samples of runs that are told about hang on these numbers."""
    texts = ["", "a", "ab", "snow 雪", "eight by", "nine byte", "a longer text of several words"]
    expected = [hash_of(text) for text in texts]
    assert hash_strings(pa.array(texts)).tolist() == expected
    assert hash_strings(pa.array(["x", *texts, "y"]).slice(1, len(texts))).tolist() == expected
    assert expected[1:3] == [A, AB]
    assert pair_keys(pa.table({"first": ["ab"], "second": ["a"]})).tolist() == [split_mix((A + AB) % 2**64)]
    assert mixed(hash_strings(pa.array(["a"])), 7).tolist() == [split_mix(A, 7)]


A, AB = 15295030668532515345, 18286230994722859428


def hash_of(text):
    octets = text.encode()
    words = [int.from_bytes(octets[start : start + 8], "little") for start in range(0, len(octets), 8)]
    total = sum(split_mix(word + place * 0x9E3779B97F4A7C15) for place, word in enumerate(words))
    return split_mix(total + len(octets))


def split_mix(bits, seed=0):
    bits = (bits + 0x9E3779B97F4A7C15 * (seed + 1)) % 2**64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)
