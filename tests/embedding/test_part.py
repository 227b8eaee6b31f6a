import gzip
import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paraembed import checkpoint
from paraembed.embedding import part
from paraembed.embedding.columns import finish
from paraembed.embedding.part import FOOTER, embed_part
from paraembed.embedding.plan import make_plan
from paraembed.embedding.rows import stream_parts
from paraembed.embedding.settings import Settings, check_dim
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, DanConfig, LstmAvgConfig, RecursiveConfig, SumConfig, WordConfig
from paraembed.io.store import Folder
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.embedding.without_ray import build, list_inputs
from tests.jobs import digests

WORDS = [UNKNOWN, *(f"w{number}" for number in range(60))]

TEXTS = ["The cat sat.", "", "the zebra ran home", " ", "a\0dog", "ünïcödé, \ufffd", "x" * 9_999, "the " * 400]


@pytest.fixture
def encoder(tiny_encoder_folder):
    return checkpoint.load(tiny_encoder_folder)


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    (folder / "data").mkdir(parents=True)
    return folder


def embed_all(encoder, paths, settings, out, **options):
    made = make_plan(list_inputs(paths, **options), settings)
    for source, one, data in stream_parts(made, made.parts):
        embed_part(encoder, source, one, settings, Folder(out), data=data)
    return pa.concat_tables(pq.read_table(out / one.name) for one in made.parts)


def vectors(table):
    return table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)


def test_gzipped_text_and_several_files(tiny_encoder_folder, tmp_path):
    """Parts that are embedded later have the same bytes, and those of plain text the same rows."""
    second, small = tmp_path / "b.txt", Settings(part_rows=100)
    second.write_text("".join(f"{text}\n" for text in TEXTS * 120))
    parts = []
    for name, pack in (("a.txt.gz", gzip.compress), ("a.txt", bytes)):
        first, out = tmp_path / name, tmp_path / f"of {name}"
        first.write_bytes(pack("".join(f"{text}\n" for text in TEXTS * 130).encode()))
        build(tiny_encoder_folder, [first, second], small, out)
        assert all(check.ok for check in verify(out))
        for path in sorted(out.glob("data/*.parquet"))[3:12:2]:
            path.unlink()
        before = digests(out)
        assert len(build(tiny_encoder_folder, [first, second], small, out)) == 5
        assert digests(out).items() >= before.items()
        assert pq.read_table(sorted(out.glob("data/*.parquet")))["row"].to_pylist() == list(range(2000))
        parts.append([pq.read_table(path) for path in sorted(out.glob("data/*.parquet"))])
    assert parts[0] == parts[1]


KINDS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())]


def write_trees(path, trees, texts):
    pq.write_table(pa.table({"key": range(len(texts)), "body": texts, "tree": trees}), path, row_group_size=3)


@pytest.mark.parametrize(("kind", "block"), [*zip(KINDS, [40, 8 << 20, 40], strict=True)])
def test_trees_come_from_their_column(tiny_words, out, tmp_path, kind, block):
    encoder = Encoder(RecursiveConfig(), tiny_words, "ptb-v1", max_tokens=5)
    trees = {
        "The cat sat": "((the cat) sat)",
        "the cat sat": None,
        "a dog": " ",
        None: "",
        "the dog ran home .": "((the dog) ((ran home) .))",
        "a dog ran home on the mat": "((a dog) (ran (home (on (the mat)))))",
        "cat": "(NN cat)",
    }
    write_trees(tmp_path / "t.parquet", pa.array(trees.values()).cast(kind), pa.array(trees))
    settings = Settings("body", "key", batch_size=2, tree_column="tree")
    table = embed_all(encoder, [tmp_path / "t.parquet"], settings, out, block_bytes=block)
    expected = encoder.encode([text or "" for text in trees], trees=[*trees.values()])
    assert np.allclose(vectors(table), expected, atol=1e-6)
    assert table.column_names == ["key", "embedding", "n_tokens", "n_unknown"]
    assert counts(out) == [7, 1, 1]
    (tmp_path / "t.txt").write_text("\n".join(TEXTS), encoding="utf-8")  # which has none
    table = embed_all(encoder, [tmp_path / "t.txt"], Settings(), out)
    assert np.allclose(vectors(table), encoder.encode(TEXTS), atol=1e-6)
    assert counts(out) == [8, 1, 4]


def footer_of(path):
    return json.loads(pq.read_metadata(path).metadata[FOOTER.encode()])


def counts(out):
    reports = [footer_of(path) for path in (out / "data").iterdir()]
    return [sum(report[name] for report in reports) for name in ("rows", "n_cut", "n_without_tree")]


def test_an_input_that_shrank_is_noticed(encoder, out, tmp_path):
    (tmp_path / "t.txt").write_text("a\nb\nc\n")
    inputs = list_inputs([tmp_path / "t.txt"])
    made = make_plan(inputs, Settings())
    (tmp_path / "t.txt").write_text("a\n")
    with pytest.raises(ValueError, match="has 1 of its rows"):
        embed_part(encoder, inputs, made.parts[0], made.settings, Folder(out))
    assert not list(out.glob("*part*"))


@pytest.mark.parametrize(
    ("dtype", "compression", "compact"),
    [("float32", "zstd", False), ("float32", "zstd", True), ("float16", "snappy", True), ("int8", "none", False)],
)
def test_number_formats_are_read_by_others(encoder, out, tmp_path, dtype, compression, compact):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    settings = Settings(dtype=dtype, compression=compression, normalize=True, dim=3, compact=compact)
    table = embed_all(encoder, [tmp_path / "t.txt"], settings, out)
    assert table.schema.field("embedding").type == pa.list_(
        pa.field("element", pa.type_for_alias(dtype), nullable=False), 3
    )
    made = vectors(table).astype(np.float64)
    if dtype == "int8":
        made *= table["scale"].to_numpy()[:, None]
    expected = encoder.encode(TEXTS)[:, :3].astype(np.float64)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    expected = np.divide(expected, lengths, out=np.zeros_like(expected), where=lengths > 0)
    assert np.allclose(made, expected, atol={"float32": 1e-6, "float16": 5e-4, "int8": 4e-3}[dtype])
    found = duckdb.sql(f"SELECT embedding::FLOAT[] FROM '{out}/data/*.parquet' ORDER BY row").fetchall()
    assert np.array_equal([row[0] for row in found], vectors(table).astype(np.float64))
    (path,) = out.glob("data/*.parquet")
    column = pq.read_metadata(path).row_group(0).column(1)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert ("BYTE_STREAM_SPLIT" in column.encodings) == (compact and dtype == "float32")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join), min_size=1, max_size=30),
    config=st.sampled_from([AvgConfig(), SumConfig(), WordConfig(), DanConfig(), LstmAvgConfig()]),
    dtype=st.sampled_from(["float32", "int8"]),
    batch_size=st.integers(1, 40),
    part_rows=st.integers(1, 40),
    block=st.integers(1, 200),
    order=st.randoms(use_true_random=False),
)
def test_a_vector_depends_on_text_encoder_and_dtype_alone(
    texts, config, dtype, batch_size, part_rows, block, order, tmp_path_factory
):
    """Over batches, parts, blocks and the order of rows: to the last bit for sums over words, else to 1e-6."""
    encoder = Encoder(config, wide_words(), "space")
    tmp_path = tmp_path_factory.mktemp("rows")
    shuffled = order.sample(range(len(texts)), len(texts))
    made = []
    for name, taken, chosen, size in (
        ("whole", range(len(texts)), Settings(dtype=dtype, normalize=True), 8 << 20),
        ("cut", shuffled, Settings(part_rows=part_rows, batch_size=batch_size, dtype=dtype, normalize=True), block),
    ):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / f"{name}.txt").write_text("".join(f"{texts[row]}\n" for row in taken))
        table = embed_all(encoder, [tmp_path / f"{name}.txt"], chosen, tmp_path / name, block_bytes=size)
        numbers = vectors(table) if dtype == "float32" else vectors(table) * table["scale"].to_numpy()[:, None]
        made.append(numbers[np.argsort(taken)])
    if isinstance(config, AvgConfig | SumConfig | WordConfig):
        assert np.array_equal(*made)
    else:
        assert np.allclose(*made, atol=1e-6 if dtype == "float32" else 1e-2)


def wide_words():
    """A vocabulary whose vectors are as long as real ones, so that sums come in many orders."""
    matrix = np.random.default_rng(1).standard_normal((len(WORDS), 300), dtype=np.float32)
    return Words(pa.array(WORDS), matrix)


def test_every_line_of_a_csv_file_is_in_the_output_once(encoder, out, tmp_path):
    lines = ["id,text", "0,a cat", '1,"two', 'lines"', '2,"stray', "3,a dog", '4,"three', "", 'lines"', "5", "6,the"]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    table = embed_all(encoder, [tmp_path / "t.csv"], Settings("text", "id", part_rows=2), out)
    assert table["id"].to_pylist() == ["0", "1", "3", "4", "6"]
    reports = [footer_of(path) for path in sorted((out / "data").iterdir())]
    paths = sorted((out / part.REJECTED).iterdir())
    rejected = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    assert [(one["row"], one["line"]) for one in rejected] == [(2, 5), (5, 10)]
    assert len(lines) == 1 + sum(one["rows"] + one["n_rejected"] + one["n_line_breaks"] for one in reports)
    assert sum(one["n_multi_line"] for one in reports) == 2
    assert max((one["longest_lines"], one["longest_first"]) for one in reports) == (3, 7)


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_vectors_that_are_not_finite_are_refused_with_their_row(number, tiny_words, out, tmp_path):
    matrix = tiny_words.matrix.copy()
    matrix[tiny_words.vocabulary.index("dog").as_py(), 1] = number
    encoder = Encoder(AvgConfig(), Words(tiny_words.vocabulary, matrix), "ptb-v1")
    (tmp_path / "t.txt").write_text("a cat\n" * 5 + "a dog\n" + "the cat\n")
    for dtype in ("float32", "float16", "int8"):
        with pytest.raises(ValueError, match=r"t\.txt, row 6: .*NaN or infinity"):
            embed_all(encoder, [tmp_path / "t.txt"], Settings(dtype=dtype, batch_size=2), out)
        assert not list(out.glob("data/*.parquet"))
    assert len(embed_all(encoder, [tmp_path / "t.txt"], Settings(dim=1), out)) == 7  # of numbers that are kept


FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
VECTORS = arrays(np.float32, st.tuples(st.integers(0, 5), st.integers(1, 6)), elements=FLOATS)


def numbers(chosen, vectors):
    """Stored numbers [n, d] and, scaled, the vectors that they stand for, in float64; rows that were clipped."""
    (column, *scales), num_clipped = finish(vectors, chosen)
    stored = column.flatten().to_numpy(zero_copy_only=False).reshape(len(vectors), column.type.list_size)
    scale = scales[0].to_numpy()[:, None].astype(np.float64) if chosen.dtype == "int8" else 1.0
    return stored, stored.astype(np.float64) * scale, num_clipped


@example(np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 1e-45], [0, 0], [65503, 65521]], np.float32), True, None)
@example(np.array([[3e30, 4e30], [3e-30, 4e-30], [0, 1e-45], [0, 0], [65503, 65521]], np.float32), False, None)
@given(VECTORS, st.booleans(), st.none() | st.integers(1, 6))
def test_what_is_stored_stands_for_the_vector(vectors, normalize, dim):
    expected = vectors.astype(np.float64)[:, :dim]
    if normalize:
        largest = np.abs(expected).max(axis=1, keepdims=True, initial=0)
        scaled = np.divide(expected, largest, out=np.zeros_like(expected), where=largest > 0)
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        expected = np.divide(scaled, lengths, out=np.zeros_like(scaled), where=lengths > 0)
    for dtype in ("float32", "float16", "int8"):
        stored, meant, num_clipped = numbers(Settings(dtype=dtype, normalize=normalize, dim=dim), vectors)
        assert stored.dtype == np.dtype(dtype)
        assert np.isfinite(meant).all()
        largest = np.abs(expected).max(axis=1, keepdims=True, initial=0)
        if dtype == "float32":
            assert np.allclose(meant, expected, rtol=1e-6, atol=1e-44)
        elif dtype == "float16":
            assert np.allclose(meant, np.clip(expected, -65504, 65504), rtol=5e-4, atol=3e-8)
            assert num_clipped == (largest > 65504).sum()
        else:
            assert (np.abs(meant - expected) <= largest / 253 + 1e-43).all()
            assert not (stored == -128).any()
        assert not meant[~expected.any(axis=1)].any()


def test_no_more_numbers_than_there_are():
    check_dim(Settings(dim=4), 4)
    check_dim(Settings(), 4)
    with pytest.raises(ValueError, match=r"`dim` is 5, .* 4 dimensions"):
        check_dim(Settings(dim=5), 4)


@pytest.mark.parametrize("batch_size", [1, 100])
def test_a_tree_that_does_not_fit_names_its_row(tiny_words, out, tmp_path, batch_size):
    encoder = Encoder(RecursiveConfig(), tiny_words, "space")
    settings = Settings("body", part_rows=3, batch_size=batch_size, tree_column="tree")
    for tree, message in (
        ("(a cat)", "the leaves of its tree are 'a cat', but its tokens are 'a dog'"),
        ("(a", "unbalanced"),
    ):
        write_trees(tmp_path / "t.parquet", [None, "a", "a", "a", tree], ["a dog", "a", "a", "a", "a dog"])
        with pytest.raises(ValueError, match=rf"t\.parquet, row 5: .*{message}.*; .*binary tree"):
            embed_all(encoder, [tmp_path / "t.parquet"], settings, out)
