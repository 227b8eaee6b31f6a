"""Wrong texts, paths and settings are a TypeError, ValueError or OSError of the Python API, with its own message."""

import linecache
import traceback

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import paraembed
from paraembed import checkpoint
from paraembed.encoders.concat import Concat
from paraembed.export.folder import write_folder
from paraembed.settings import Inference

NO_TEXTS = {
    **{str(type(value)): value for value in (None, 3, 1.5, True, object(), str, pa.scalar("a"))},
    **{str(value): value for value in (b"a", bytearray(b"a"), {"a": 1}, [b"a"], ["a", 3], [["a"]], [True], {b"a"})},
    "numbers": np.arange(3),
    "matrix": np.array([["a", "b"]]),
    "no dimension": np.array("a"),
    "bytes of NumPy": np.array([b"a"]),
    "objects": np.array(["a", 3], object),
    "infinite": [float("inf")],
    "table": pa.table({"a": ["b"]}),
    "frame": pd.DataFrame({"a": ["b"]}),
    "series": pd.Series([1, 2]),
    "Arrow": pa.array([1]),
    "Arrow lists": pa.array([["a"]]),
    "Arrow bytes": pa.array([b"a"]),
    "chunks": pa.chunked_array([[1]]),
    "no chunk": pa.chunked_array([], pa.int64()),
}
TEXTS = {
    "list": ["the cat", None, float("nan"), "zebra"],
    "tuple": ("the cat", np.float32("nan"), None, "zebra"),
    "array": np.array(["the cat", "", "", "zebra"]),
    "objects": np.array(["the cat", None, np.nan, "zebra"], object),
    "series": pd.Series(["the cat", None, pd.NA, "zebra"], [3, 1, 2, 0]),
    "strings of pandas": pd.Series(["the cat", None, pd.NA, "zebra"], dtype="string"),
    "categories": pd.Series(["the cat", None, None, "zebra"], dtype="category"),
    "Arrow": pa.array(["the cat", None, "", "zebra"]),
    "large": pa.array(["the cat", None, "", "zebra"], pa.large_string()),
    "dictionary": pa.array(["the cat", None, "", "zebra"]).dictionary_encode(),
    "slice": pa.array(["x", "the cat", None, "", "zebra"])[1:],
    "chunks": pa.chunked_array([["the cat", None], [], ["", "zebra"]]),
}
NUMBERS = (0, -1, "3", None, 1.5, True, float("nan"))
CALLS = {  # of each function, with arguments that are right, those that are wrong
    "load": ((), {"name": (None, 3, b"e", "", "nowhere", "a\0b", "\ud800", ["e"], {}, "m2v:nowhere", "models:/x")}),
    "load ": (("encoder",), {"inference": (None, "cuda", 3, {})}),
    "search": (("out", "a"), {"top": (0, "3", None, 1.5), "encoder": (3,), "prompt": (3,), "trust_remote_code": (1,)}),
    "search ": (("out",), {"queries": (None, 3, b"x", [1], {})}),
    "search  ": ((), {"folder": (None, 3, "nowhere", "encoder")}),
    "evaluate": ((), {"encoders": (None, 3, [], [3], "nowhere")}),
    "evaluate ": (("encoder",), {"pairs": (None, 3, "no.tsv", [b"p.tsv"]), "suites": (3,), "held_out": (3,)}),
    "evaluate  ": (("encoder",), {"resamples": ("x", 1.5, float("nan"), -1), "inference": ("cpu",), "words": (3,)}),
    "embed": (("encoder", "t.txt"), {"out": (None, 3, b"o", "t.txt", "encoder/out")}),
    "embed ": (("encoder",), {"inputs": (None, 3, [], b"t.txt", [1], "no.txt", {"t.txt": 1})}),
    "embed  ": (("encoder", "t.txt", "o"), {"workers": NUMBERS, "limits": (3,), "gpus": (1,), "overwrite": ("yes",)}),
    "embed   ": (
        ("encoder", "t.txt", "o"),
        {"part_rows": NUMBERS, "dtype": ("int4", 3), "keep": (3,), "colum": ("x",)},
    ),
    "train": (("no", "w"), {"out": (None, 3)}),
    "train ": (
        ("no", "w", "o"),
        {"recipe": (None, 3, "nope"), "register": (3,), "min_coverage": ("x", 2, float("nan"))},
    ),
    "train  ": (("no", "w", "o"), {"epochs": ("x", 0, float("nan")), "learning_rate": (float("nan"), "x")}),
    "train   ": (("no", "w", "o"), {"placement": (3,), "selection": (3,), "encoder": ("nope", 3)}),
}
WRONG = [
    (function.strip(), right, name, value)
    for function, (right, wrongs) in CALLS.items()
    for name, values in wrongs.items()
    for value in values
]


@pytest.fixture
def place(tmp_path, monkeypatch, tiny_encoder_folder):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "encoder").symlink_to(tiny_encoder_folder)
    (tmp_path / "t.txt").write_text("the cat\n")
    return tmp_path


@pytest.fixture(scope="module")
def encoders(tiny_encoder_folder, tmp_path_factory):
    encoder = paraembed.load(tiny_encoder_folder)
    pytest.importorskip("model2vec")
    folder = tmp_path_factory.mktemp("exported") / "model"
    write_folder(checkpoint.load(tiny_encoder_folder), "model2vec", folder)
    return {"avg": encoder, "concat": Concat(encoder, encoder), "m2v": paraembed.load(f"m2v:{folder}")}


def raised(function, *arguments, **named):
    """Call a function, which must raise an error that a person wrote; return the error."""
    with pytest.raises((TypeError, ValueError, OSError)) as caught:
        function(*arguments, **named)
    if not isinstance(caught.value, OSError):
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert "paraembed" in last.filename
        assert linecache.getline(last.filename, last.lineno).lstrip().startswith("raise")
    return caught.value


@pytest.mark.parametrize("kind", ["avg", "concat", "m2v"])
def test_what_is_no_text_is_a_type_error(encoders, kind):
    for name, value in NO_TEXTS.items():
        assert isinstance(raised(encoders[kind].encode, value), TypeError), name
    for value in ("a\ud800", ["the", "\udfff"]):
        assert isinstance(raised(encoders[kind].encode, value), ValueError)


@pytest.mark.parametrize("kind", ["avg", "concat", "m2v"])
def test_texts_come_in_any_form_and_what_is_missing_is_empty(encoders, kind):
    encode = encoders[kind].encode
    expected = encode(["the cat", "", "", "zebra"])
    assert not expected[1].any()
    assert expected[0].any()
    for name, texts in TEXTS.items():
        np.testing.assert_array_equal(encode(texts), expected, name)
    np.testing.assert_array_equal(encode(text for text in ["the cat", None, "", "zebra"]), expected)
    np.testing.assert_array_equal(encode("the cat"), expected[0])
    for empty in (
        [],
        iter(()),
        np.array([], str),
        pa.array([], pa.string()),
        pa.array([]),
        pa.chunked_array([], pa.string()),
    ):
        assert encode(empty).shape == (0, expected.shape[1])


def test_batch_sizes_and_trees(encoders):
    for kind in ("avg", "concat"):
        for size in NUMBERS:
            raised(encoders[kind].encode, "the", batch_size=size)
    for trees in ("x", ["x"], [b"x"], 3, ["a", "b"], {"a": 1}):
        raised(encoders["avg"].encode, ["the"], trees=trees)
    for encoder in encoders.values():
        for value in (None, 3, b"a", [1], ["the", 5], pa.array([1])):
            assert isinstance(raised(encoder.embed, value), TypeError)


@pytest.mark.parametrize(("function", "right", "name", "value"), WRONG)
def test_misuses(place, function, right, name, value):
    before = sorted(place.rglob("*"))
    more = {"pairs": "p.tsv"} if function == "evaluate" and name in {"encoders", "resamples", "inference"} else {}
    more |= {"evaluate_pairs": "p.tsv"} if name == "selection" else {"queries": "a"} if name == "folder" else {}
    more |= {"out": "o"} if name == "inputs" else {}
    raised(getattr(paraembed, function), *right, **more, **{name: value})
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    "setting",
    [{"device": "gpu"}, {"precision": None}, {"prompt": 3}, {"batch_tokens": -1}, {"backend": 3}, {"pooling": "x"}],
    ids=str,
)
def test_wrong_settings_of_inference(place, setting):
    raised(lambda: paraembed.load("encoder", Inference(**setting)))


def test_numbers_of_numpy_are_numbers(place):
    (place / "p.tsv").write_text("1\tthe\tcat\n2\tcat\tcat\n3\tthe\tthe cat\n")
    report = paraembed.evaluate(iter(["encoder"]), pairs=("p.tsv",), resamples=np.int64(0))
    assert report.metrics().keys() == {"pairs/p/pearson", "pairs/p/spearman"}
