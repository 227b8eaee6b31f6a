"""Chunks of long texts, and texts from several columns."""

import json
import shutil
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from paraembed.embedding.chunks import cut
from paraembed.embedding.output import Embeddings
from paraembed.embedding.plan import make_plan
from paraembed.embedding.repeated import DistinctTexts
from paraembed.embedding.rows import read_part
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.encoders.protocol import NO_LOCK, no_progress
from paraembed.loading import open_encoder
from paraembed.text import WORDPIECE
from paraembed.text.vocabulary import UNKNOWN, Words
from tests.embedding.without_ray import build, list_inputs
from tests.encoders.models import save_tiny, save_transformer, subword_tokenizer
from tests.jobs import digests, run_job

VOCABULARY = {
    "ptb-v1": [UNKNOWN, "the", "cat", "dog", ".", "。", "n't"],
    WORDPIECE: [UNKNOWN, "the", "cat", "##s", "d", "##o", "##g", ".", "。"],
    "space": [UNKNOWN, "the", "cat", "dog.", "。"],
}
BOOK = [
    "The cat sat. The dog ran home!\n\nDon't ask the cat. " * 40,
    None,
    "",
    " ",
    "dog " * 300,
    "猫。犬！" * 60,
    "x" * 99,
]
TEXTS = st.lists(
    st.lists(
        st.sampled_from(
            ["the", "cats", "Dog.", "isn't.", *"  。猫é\u200b", "\n\n", "\u00a0\n\n", "ab" * 9, "# h\n", "- "]
        )
    )
    .map("".join)
    .filter(lambda text: len(text.encode()) < 400),
    max_size=5,
)


@cache
def encoder(tokenizer):
    words = VOCABULARY[tokenizer.partition("+")[0]]
    matrix = np.random.default_rng(0).standard_normal((len(words), 4), dtype=np.float32)
    return Encoder(AvgConfig(), Words(pa.array(words), matrix), tokenizer)


def texts_of(chunks):
    return chunks.texts(0, len(chunks)).to_pylist()


def check(encoder, texts, settings):
    """Check the chunks of texts against their definition; return them."""
    chunks = cut(encoder, pa.array(texts, pa.string()), settings)
    assert [text or "" for text in texts] == [
        "".join(
            texts_of(chunks)[c][max(0, int(chunks.ends[c - 1] - chunks.starts[c])) if chunks.numbers[c] else 0 :]
            for c in np.flatnonzero(chunks.rows == row)
        )
        for row in range(len(texts))
    ]
    counts = encoder.embed(pc.utf8_rtrim_whitespace(chunks.texts(0, len(chunks)))).num_tokens
    for c, text in enumerate(texts_of(chunks)):
        assert (texts[chunks.rows[c]] or "")[chunks.starts[c] : chunks.ends[c]] == text
        assert counts[c] <= settings.chunk_tokens or len(text.strip()) == 1
    for before, after in pairwise(range(len(chunks))):
        if chunks.numbers[after]:
            assert chunks.numbers[after] == chunks.numbers[before] + 1
            assert chunks.starts[before] < chunks.starts[after] <= chunks.ends[before] < chunks.ends[after]
            assert settings.chunk_overlap or chunks.starts[after] == chunks.ends[before]
            shared = texts[chunks.rows[after]][chunks.starts[after] : chunks.ends[before]].rstrip()
            assert encoder.embed(pa.array([shared])).num_tokens[0] <= settings.chunk_overlap
    return chunks


def embedded_chunks(encoder, chunks):
    return DistinctTexts(encoder).embed(
        chunks.read(0, len(chunks)), None, NO_LOCK, no_progress, chunks.known(0, len(chunks))
    )


@given(
    st.sampled_from([*VOCABULARY]),
    TEXTS,
    st.integers(1, 12),
    st.integers(0, 6),
    st.sampled_from(["sentence", "token", "markdown"]),
)
def test_chunks_cover_each_text_and_have_the_vectors_of_their_texts(tokenizer, texts, limit, overlap, by):
    settings = Settings(chunk_tokens=limit, chunk_overlap=min(overlap, limit - 1), chunk_by=by)
    chunks = check(encoder(tokenizer), texts, settings)
    from_texts = encoder(tokenizer).embed(chunks.texts(0, len(chunks)))
    embedded = embedded_chunks(encoder(tokenizer), chunks)
    assert np.array_equal(embedded.vectors, from_texts.vectors)
    assert np.array_equal(embedded.num_tokens, from_texts.num_tokens)
    alone = [cut(encoder(tokenizer), pa.array([text], pa.string()), settings) for text in texts]
    assert [texts_of(chunks_of_one) for chunks_of_one in alone] == [
        [text for text, row in zip(texts_of(chunks), chunks.rows, strict=True) if row == number]
        for number in range(len(texts))
    ]


@pytest.mark.filterwarnings("default")  # of the libraries
@pytest.mark.parametrize("kind", ["m2v", "onnx", pytest.param("st", marks=pytest.mark.slow), "unigram"])
def test_chunks_of_other_libraries_fit_their_tokenizers(kind, tmp_path):
    is_tiny = kind != "unigram"
    model = save_tiny(kind, tmp_path / "m") if is_tiny else save_transformer(subword_tokenizer(kind), tmp_path)
    model = open_encoder(model)
    for by, limit, overlap in (("sentence", 16, 5), ("token", 8, 0)):
        check(model, BOOK, Settings(chunk_tokens=limit, chunk_overlap=overlap, chunk_by=by))


def test_normalization_may_join_the_tokens_of_two_pieces():
    normalizing = encoder("ptb-v1+nfkc")
    for limit in (3, 4, 8):
        chunks = cut(normalizing, pa.array(["http://a.b/c！left it"]), Settings(chunk_tokens=limit))
        counts = normalizing.embed(chunks.texts(0, len(chunks))).num_tokens
        assert np.array_equal(embedded_chunks(normalizing, chunks).num_tokens, counts)


def test_kept_columns_of_any_type_count_to_the_bytes_of_a_chunk():
    settings = Settings(chunk_tokens=1, keep=("k", "text"))
    chunks = cut(encoder("space"), pa.array(["the cat", "cat"]), settings)
    for kept in ([["x" * 1000, None], [""]], [{"a": ["x" * 1000]}, {"a": [""]}], ["x" * 1000, ""]):
        sizes = chunks.sizes([pa.array([0, 1]), pa.array(kept), pa.array(["x" * 1000] * 2)], settings)
        assert [*(sizes > 1000), len(sizes)] == [True, True, False, 3]


def chunked(tmp_path, encoder, **settings):
    """Embed ``BOOK``, two row groups to a part."""
    pq.write_table(pa.table({"id": range(7), "body": BOOK}), tmp_path / "t.parquet", row_group_size=1)
    settings = {"text_column": "body", "id_column": "id", "part_rows": 2, **settings}
    build(encoder, tmp_path / "t.parquet", Settings(**settings), tmp_path / "out")
    return pq.read_table(tmp_path / "out/data")


@pytest.mark.parametrize("id_column", ["id", None])
def test_an_output_of_chunks_is_verified_and_repaired(tiny_encoder_folder, tmp_path, id_column):
    keep = ("text", "document", "body")
    table = chunked(tmp_path, tiny_encoder_folder, keep=keep, chunk_tokens=20, chunk_overlap=5, id_column=id_column)
    assert table.column_names[:7] == ["id" if id_column else "row", "chunk", "start", "end", *keep]
    for row in table.to_pylist():
        assert BOOK[row["id" if id_column else "row"]] == row["document"] == row["body"]
        assert (row["document"] or "")[row["start"] : row["end"]] == row["text"]
    assert {row["chunk"] for row in table.to_pylist()} > {0, 1, 2}
    assert all(check.ok for check in verify(tmp_path / "out", tiny_encoder_folder, [str(tmp_path)]))
    assert Embeddings(tmp_path / "out").carried == ["chunk", "start", "end", *keep]
    first, before = next((tmp_path / "out/data").glob("*.parquet")), digests(tmp_path / "out")
    first.unlink()
    chunked(tmp_path, tiny_encoder_folder, keep=keep, chunk_tokens=20, chunk_overlap=5, id_column=id_column)
    assert digests(tmp_path / "out") == before
    part = pq.read_table(first)
    for name, wrong in (("chunk", 7), ("start", 3)):
        column = pa.array([*part[name].to_pylist()[:-1], wrong], pa.int32())
        index = part.schema.get_field_index(name)
        pq.write_table(part.set_column(index, part.schema.field(index), column), first)
        assert "chunks" in [check.name for check in verify(tmp_path / "out") if not check.ok]


def test_ids_that_repeat_are_those_of_rows_not_of_chunks(tiny_encoder_folder, tmp_path):
    pq.write_table(pa.table({"id": ["a", "b", "a", None], "body": BOOK[:1] * 4}), tmp_path / "t.parquet")
    settings = Settings("body", id_column="id", chunk_tokens=20)
    build(tiny_encoder_folder, tmp_path / "t.parquet", settings, tmp_path / "out", "keep")
    manifest = json.loads((tmp_path / "out/_manifest.json").read_text())
    assert (manifest["n_duplicate_ids"], manifest["n_null_ids"], manifest["rows"] % 4) == (1, 1, 0)
    assert all(check.ok for check in verify(tmp_path / "out"))


def test_the_mean_of_chunks_is_weighted_by_their_tokens(tiny_encoder_folder, tmp_path):
    rows = chunked(tmp_path, tiny_encoder_folder, chunk_tokens=20).to_pylist()
    shutil.rmtree(tmp_path / "out")
    for batch_size in (1000, 3):
        pooled = chunked(tmp_path, tiny_encoder_folder, chunk_tokens=20, pool="mean", dim=3, batch_size=batch_size)
        for mean in pooled.to_pylist():
            own = [row for row in rows if row["id"] == mean["id"]]
            counts = np.array([row["n_tokens"] for row in own])
            sums = np.array([row["embedding"] for row in own]).T @ counts
            assert np.allclose(mean["embedding"], sums[:3] / max(1, counts.sum()), atol=1e-6)
            assert mean["n_tokens"] == counts.sum()
        assert all(check.ok for check in verify(tmp_path / "out", tiny_encoder_folder, [str(tmp_path)]))
        shutil.rmtree(tmp_path / "out")


LISTS = st.lists(
    st.none() | st.lists(st.none() | st.sampled_from(["the cat", " dog ", "", "猫。", "a b " * 9]), max_size=4)
)


@given(st.sampled_from(["list_", "large_list", "jsonl"]), LISTS.filter(len), st.integers(1, 9))
@examples(max_examples=20)
def test_exploded_lists_have_the_vectors_of_their_elements_as_rows(tiny_encoder_folder, kind, lists, batch_size):
    elements = [element for texts in lists for element in texts or [None]]
    names = [number for number, texts in enumerate(lists) for _ in texts or [None]]
    with TemporaryDirectory() as folder:
        place, source = Path(folder), Path(folder, "t.jsonl" if kind == "jsonl" else "t.parquet")
        if kind == "jsonl":
            source.write_text(
                "".join(json.dumps({"name": str(n), "body": body}) + "\n" for n, body in enumerate(lists))
            )
        else:
            columns = {
                "name": [str(n) for n in range(len(lists))],
                "body": pa.array(lists, getattr(pa, kind)(pa.string())),
            }
            pq.write_table(pa.table(columns), source, row_group_size=3)
        pq.write_table(pa.table({"body": pa.array(elements, pa.string())}), place / "rows.parquet")
        options = {"batch_size": batch_size, "part_rows": 2, "id_column": "name", "keep": ("text", "document")}
        build(tiny_encoder_folder, source, Settings("body", explode=True, **options), place / "out")
        build(tiny_encoder_folder, place / "rows.parquet", Settings("body"), place / "alone")
        assert all(check.ok for check in verify(place / "out", tiny_encoder_folder, [folder]))
        exploded, alone = (pq.read_table(place / out / "data").combine_chunks() for out in ("out", "alone"))
    for name in ("embedding", "n_tokens", "n_unknown"):
        assert exploded[name].equals(alone[name])
    assert exploded["name"].to_pylist() == list(map(str, names))
    assert exploded["text"].to_pylist() == [element or "" for element in elements]
    for row in exploded.to_pylist():
        assert (row["document"] or "")[row["start"] : row["end"]] == row["text"]
    firsts = np.flatnonzero(np.diff(names, prepend=-1))
    assert (
        exploded["chunk"].to_pylist()
        == (np.arange(len(names)) - np.repeat(firsts, np.diff([*firsts, len(names)]))).tolist()
    )


def test_elements_are_cut_further_and_have_a_mean(tiny_encoder_folder, tmp_path):
    texts = [*BOOK[:1], None, "", *BOOK[4:]]
    pq.write_table(pa.table({"body": [texts[:2], [], texts[2:]]}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"body": texts}), tmp_path / "alone.parquet")
    for out, settings in (("out", {"explode": True}), ("alone", {})):
        source = tmp_path / f"{'t' if settings else out}.parquet"
        keep = ("text", "document")
        build(tiny_encoder_folder, source, Settings("body", chunk_tokens=20, keep=keep, **settings), tmp_path / out)
        assert all(check.ok for check in verify(tmp_path / out, tiny_encoder_folder, [str(tmp_path)]))
    exploded, alone = (pq.read_table(tmp_path / out / "data").to_pylist() for out in ("out", "alone"))
    exploded = [row for row in exploded if row["row"] != 1]
    assert [(row["text"], row["embedding"]) for row in exploded] == [(row["text"], row["embedding"]) for row in alone]
    assert [row["chunk"] for row in exploded if row["row"] == 2] == list(range(sum(row["row"] > 1 for row in alone)))
    assert all(row["document"][row["start"] : row["end"]] == row["text"] for row in exploded)
    build(tiny_encoder_folder, tmp_path / "t.parquet", Settings("body", explode=True, pool="mean"), tmp_path / "pooled")
    pooled = pq.read_table(tmp_path / "pooled/data")
    assert pooled.column_names == ["row", "embedding", "n_tokens", "n_unknown"]
    assert len(pooled) == 3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--chunk-overlap 3", "give --chunk-tokens"),
        ("--chunk-tokens 3 --chunk-overlap 3", "allowed: 0 to 2"),
        ("--text {body} --text-column body", "give only one"),
        ("--text body", "has no column"),
        ("--text {body:>3}", "'body' has a format or a conversion, '>3'"),
        ("--text {body!r}", "'body' has a format or a conversion, 'r'"),
        ("--text {}", "a brace has no column"),
        ("--text-column body --chunk-tokens 3 --keep all", "'text' is not that column"),
        ("--text {body}{nothing}", "no column 'nothing'; --text can be: body"),
        ("--text-column body --explode", "with --explode, --text-column 'body' is string; it can be: lists"),
        ("--text {lists} --explode", "give --text-column"),
        ("--text-column body --chunk-tokens 3 --keep start chunk", "column 'chunk' would appear twice"),
    ],
)
def test_settings_that_do_not_fit_are_errors(tiny_encoder_folder, tmp_path, capsys, flags, message):
    pq.write_table(
        pa.table({"body": ["a"], "chunk": [1], "start": [1], "text": [1], "lists": [["a"]]}), tmp_path / "t.parquet"
    )
    given = ("--encoder", tiny_encoder_folder, "--input", tmp_path / "t.parquet", "--out", tmp_path / "out")
    assert run_job("embed", *given, *flags.split()) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_more_tokens_than_the_encoder_reads_are_an_error(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("a cat\n")
    given = "--encoder", save_tiny("onnx", tmp_path / "model"), "--input", tmp_path / "t.txt", "--out", tmp_path / "out"
    assert run_job("embed", *given, "--chunk-tokens", "513") == 2
    assert "give at most 512" in capsys.readouterr().err


SEPARATORS = st.sampled_from([". ", " - ", "\n", ", ", " | "])


@examples(max_examples=30)
@given(st.lists(st.tuples(SEPARATORS, st.sampled_from(["", "By: ", "(", "<b>"])), min_size=1, max_size=3))
def test_a_template_has_no_separator_without_its_values(tmp_path_factory, parts):
    around = [(separator, label, {"(": ")", "<b>": "</b>"}.get(label, "")) for separator, label in parts]
    template = "".join(
        f"{separator if number else ''}{before}{{c{number}}}{after}"
        for number, (separator, before, after) in enumerate(around)
    )
    values = [*product([None, "", "a", "b c"], repeat=len(parts))]
    path = tmp_path_factory.mktemp("template") / "t.parquet"
    pq.write_table(
        pa.table({f"c{n}": pa.array(column, pa.string()) for n, column in enumerate(zip(*values, strict=True))}), path
    )
    plan = make_plan(list_inputs([path]), Settings(text=template))
    (block,) = read_part(plan.inputs, plan.parts[0], plan.settings)
    for row, text in zip(values, block.texts.to_pylist(), strict=True):
        filled = [(separator, f"{a}{value}{b}") for (separator, a, b), value in zip(around, row, strict=True) if value]
        expected = "".join(f"{separator if number else ''}{own}" for number, (separator, own) in enumerate(filled))
        assert text == (expected or None)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_texts_of_several_columns(tmp_path, suffix):
    rows = [
        {"doc": {"title": "The cat"}, "body": "a dog"},
        {"doc": {"title": None}, "body": "the mat"},
        {"body": "cat"},
    ]
    path, name = tmp_path / "lang=en" / f"t{suffix}", "doc.title"
    path.parent.mkdir()
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, {"other": 1}]))
    else:
        path.write_text("title,body\nThe cat,a dog\n,the mat\n,cat\n")
        name = "title"
    for template, expected in (
        (f"{{{name}}}: {{body}} (x)", ["The cat: a dog (x)", "the mat (x)", "cat (x)"]),
        ("{body}", ["a dog", "the mat", "cat"]),
        ("{lang} {body}", ["en a dog", "en the mat", "en cat"]),  # the folder is a column
    ):
        plan = make_plan(list_inputs([tmp_path]), Settings(text=template))
        (block,) = read_part(plan.inputs, plan.parts[0], plan.settings)
        assert block.texts.to_pylist() == expected
