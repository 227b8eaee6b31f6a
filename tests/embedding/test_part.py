import gzip
import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.embedding import part
from paraembed.embedding.part import PartReport, embed_part, stream_parts
from paraembed.embedding.plan import Settings, list_inputs, make_plan
from paraembed.encoders import Encoder
from paraembed.encoders.recursive import RecursiveConfig
from paraembed.text import tokenise

TEXTS = ["The cat sat on the mat.", "", "the zebra ran home", " ", "a dog", "ünïcödé, the dog", "x" * 50, "the " * 400]


@pytest.fixture
def encoder(tiny_encoder_folder):
    return checkpoint.load(tiny_encoder_folder)


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    (folder / part.REPORTS).mkdir(parents=True)
    return folder


def embed_all(encoder, paths, settings, out) -> pa.Table:
    made = make_plan(list_inputs(paths), settings)
    for number, source in enumerate(made.inputs):
        parts = [one for one in made.parts if one.file == number]
        for one, data in stream_parts(source, parts) if source.is_chain else ((one, None) for one in parts):
            embed_part(encoder, source, one, settings, out, data=data)
    return pa.concat_tables(pq.read_table(out / one.name) for one in made.parts)


def vectors(table: pa.Table) -> np.ndarray:
    return table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)


def loop(encoder, text: str) -> tuple[np.ndarray, int, int]:
    """Mean vector in float64, tokens and unknown tokens of one text, a token at a time."""
    words = encoder.vocabulary.to_pylist()
    matrix = encoder.matrix.numpy().astype(np.float64)
    tokens = tokenise(pa.array([text]), encoder.tokeniser).flat.to_pylist()
    rows = [words.index(token if token in words else "UUUNKKK") for token in tokens]
    mean = sum((matrix[row] for row in rows), np.zeros(4)) / max(1, len(rows))
    return mean, len(rows), rows.count(words.index("UUUNKKK"))


def test_text_agrees_with_a_loop_over_tokens(encoder, out, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    table = embed_all(encoder, [tmp_path / "t.txt"], Settings(keep=("text",), part_rows=3, batch_size=2), out)
    assert table.column_names == ["row", "text", "embedding", "n_tokens", "n_unknown"]
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 4)
    assert table["row"].to_pylist() == list(range(len(TEXTS)))
    assert table["text"].to_pylist() == TEXTS
    expected = [loop(encoder, text) for text in TEXTS]
    assert np.allclose(vectors(table), [one[0] for one in expected], atol=1e-6)
    assert table["n_tokens"].to_pylist() == [one[1] for one in expected]
    assert table["n_unknown"].to_pylist() == [one[2] for one in expected]


def test_gzipped_text_gives_the_same_bytes_also_when_parts_are_skipped(encoder, out, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS))
    (tmp_path / "z.txt.gz").write_bytes(gzip.compress((tmp_path / "t.txt").read_bytes()))
    settings = Settings(part_rows=2)
    embed_all(encoder, [tmp_path / "t.txt"], settings, out)
    plain = [path.read_bytes() for path in sorted(out.glob("*.parquet"))]
    (source,) = inputs = list_inputs([tmp_path / "z.txt.gz"])
    wanted = make_plan(inputs, settings).parts[1::2]
    for one, data in stream_parts(source, wanted):
        (out / one.name).unlink()
        embed_part(encoder, source, one, settings, out, data=data)
    assert [path.read_bytes() for path in sorted(out.glob("*.parquet"))] == plain


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_carries_ids_and_columns(encoder, out, tmp_path, kind):
    columns = {
        "key": pa.array([f"k{row}" for row in range(len(TEXTS))]),
        "body": pa.array([*TEXTS[:-1], None], pa.string()).cast(kind),
        "year": pa.array(range(1990, 1990 + len(TEXTS)), pa.int16()),
        "tags": pa.array([["x", None]] * len(TEXTS)),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=3)
    settings = Settings("body", "key", ("year", "tags", "body"), part_rows=4)
    table = embed_all(encoder, [tmp_path / "t.parquet"], settings, out)
    assert table.column_names == ["key", "year", "tags", "body", "embedding", "n_tokens", "n_unknown"]
    assert len(list(out.glob("*.parquet"))) == 3
    for name, column in columns.items():
        assert table[name].to_pylist() == column.to_pylist()
        assert table.schema.field(name).type == column.type
    assert np.allclose(vectors(table), [*(loop(encoder, text)[0] for text in TEXTS[:-1]), np.zeros(4)], atol=1e-6)
    assert table["n_tokens"].to_pylist()[-1] == 0


def test_batches_are_bounded_by_bytes(encoder, out, tmp_path, monkeypatch):
    monkeypatch.setattr(part, "BLOCK_BYTES", 1000)
    texts = ["the cat " * 200, *["a dog"] * 500, "the cat " * 200]
    pq.write_table(pa.table({"body": texts}), tmp_path / "t.parquet")
    (source,) = inputs = list_inputs([tmp_path / "t.parquet"])
    made = make_plan(inputs, Settings("body"))
    batches = [some.texts for some in part.read_part(source, made.parts[0], made.settings)]
    assert [text for some in batches for text in some.to_pylist()] == texts
    assert all(len(some) == 1 or sum(map(len, some.to_pylist())) <= 1000 for some in batches)
    assert vectors(embed_all(encoder, [tmp_path / "t.parquet"], made.settings, out)).shape == (502, 4)


def test_bytes_repeat_and_the_report_is_right(encoder, out, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS))
    (source,) = inputs = list_inputs([tmp_path / "t.txt"])
    made = make_plan(inputs, Settings())
    first = embed_part(encoder, source, made.parts[0], made.settings, out)
    data = (out / first.name).read_bytes()
    again = embed_part(encoder, source, made.parts[0], made.settings, out)
    assert (out / first.name).read_bytes() == data
    assert first.sha256 == again.sha256 == hashlib.sha256(data).hexdigest()
    table = pq.read_table(out / first.name)
    assert first.rows == len(TEXTS)
    assert first.n_tokens == sum(table["n_tokens"].to_pylist())
    assert first.n_unknown == sum(table["n_unknown"].to_pylist()) > 0
    assert first.n_cut == first.n_without_tree == 0
    assert again == PartReport(**json.loads((out / "_reports" / f"{first.name}.json").read_text()))


def write_trees(path, trees, texts):
    pq.write_table(pa.table({"key": range(len(texts)), "body": texts, "tree": trees}), path, row_group_size=3)


@pytest.mark.parametrize("block", [40, 8 << 20])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_trees_come_from_their_column(tiny_words, out, tmp_path, monkeypatch, kind, block):
    monkeypatch.setattr(part, "BLOCK_BYTES", block)
    encoder = Encoder(RecursiveConfig(), tiny_words, "ptb-v1", max_tokens=5)
    texts = ["The cat sat", "the cat sat", "a dog", None, "the dog ran home .", "a dog ran home on the mat", "cat"]
    trees = [
        "((the cat) sat)",
        None,
        " ",
        "",
        "((the dog) ((ran home) .))",
        "((a dog) (ran (home (on (the mat)))))",
        "X",
    ]
    trees[-1] = "(NN cat)"
    write_trees(tmp_path / "t.parquet", pa.array(trees).cast(kind), pa.array(texts))
    settings = Settings("body", "key", batch_size=2, tree_column="tree")
    table = embed_all(encoder, [tmp_path / "t.parquet"], settings, out)
    expected = encoder.encode([text or "" for text in texts], trees=trees)
    assert np.allclose(vectors(table), expected, atol=1e-6)
    assert table.column_names == ["key", "embedding", "n_tokens", "n_unknown"]
    reports = [json.loads(path.read_text()) for path in (out / "_reports").iterdir()]
    assert [sum(report[name] for report in reports) for name in ("rows", "n_cut", "n_without_tree")] == [7, 1, 1]


@pytest.mark.parametrize("batch_size", [1, 100])
def test_a_tree_that_does_not_fit_names_its_row(tiny_words, out, tmp_path, batch_size):
    encoder = Encoder(RecursiveConfig(), tiny_words, "space")
    settings = Settings("body", part_rows=3, batch_size=batch_size, tree_column="tree")
    for tree, message in (("(a cat)", "the leaves of its tree are 'a cat', its tokens 'a dog'"), ("(a", "unbalanced")):
        write_trees(tmp_path / "t.parquet", [None, "a", "a", "a", tree], ["a dog", "a", "a", "a", "a dog"])
        with pytest.raises(ValueError, match=rf"t\.parquet, row 5: .*{message}.*; give the binary tree of its tokens"):
            embed_all(encoder, [tmp_path / "t.parquet"], settings, out)


def test_text_without_trees_is_counted(tiny_words, out, tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    encoder = Encoder(RecursiveConfig(), tiny_words, "ptb-v1")
    table = embed_all(encoder, [tmp_path / "t.txt"], Settings(), out)
    assert np.allclose(vectors(table), encoder.encode(TEXTS), atol=1e-6)
    (report,) = (json.loads(path.read_text()) for path in (out / "_reports").iterdir())
    assert (report["n_cut"], report["n_without_tree"]) == (0, 4)


@pytest.mark.parametrize("zipped", [False, True])
def test_invalid_utf8_names_the_line_and_leaves_nothing(encoder, out, tmp_path, zipped):
    lines = [b"fine"] * 7
    lines[5] = b"caf\xe9"
    path = tmp_path / ("t.txt.gz" if zipped else "t.txt")
    path.write_bytes((gzip.compress if zipped else bytes)(b"\n".join(lines)))
    with pytest.raises(ValueError, match=r"t\.txt.*, line 6: not UTF-8"):
        embed_all(encoder, [path], Settings(part_rows=3), out)
    assert [one.name for one in out.iterdir() if one.name != "_reports"] == ["part-00000-of-00003.parquet"]
    assert len(list((out / "_reports").iterdir())) == 1


def test_a_null_id_is_refused(encoder, out, tmp_path):
    pq.write_table(pa.table({"key": [1, 2, None], "body": ["a"] * 3}), tmp_path / "t.parquet", row_group_size=2)
    with pytest.raises(ValueError, match=r"row 3: 'key' is null"):
        embed_all(encoder, [tmp_path / "t.parquet"], Settings("body", "key"), out)


def test_an_input_that_shrank_is_noticed(encoder, out, tmp_path):
    (tmp_path / "t.txt").write_text("a\nb\nc\n")
    (source,) = inputs = list_inputs([tmp_path / "t.txt"])
    made = make_plan(inputs, Settings())
    (tmp_path / "t.txt").write_text("a\n")
    with pytest.raises(ValueError, match="1 rows of 3"):
        embed_part(encoder, source, made.parts[0], made.settings, out)
    assert not list(out.glob("*part*"))


def test_a_byte_order_mark_is_no_text(encoder, out, tmp_path):
    (tmp_path / "t.txt").write_text("a\nb\n", encoding="utf-8-sig")
    table = embed_all(encoder, [tmp_path / "t.txt"], Settings(keep=("text",)), out)
    assert table["text"].to_pylist() == ["a", "b"]


def test_worker_refuses_another_encoder(tiny_encoder_folder):
    with pytest.raises(ValueError, match="changed while it was in use"):
        part.PartWorker(str(tiny_encoder_folder), "another").ready()
