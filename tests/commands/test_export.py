"""jobs/export.py, also --to encoder, and jobs/weight.py as a user runs them."""

import json
import sys
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

import paraembed
from paraembed import checkpoint
from paraembed.evaluation.baselines import Sources, baseline
from paraembed.evaluation.report import known_metadata
from paraembed.loading import open_encoder
from paraembed.text.vocabulary import START, UNKNOWN, read_words
from tests.export.test_smaller import TEXTS, saved

VOCABULARY = [START, "the", "cat", UNKNOWN]


def save(name, folder, vocabulary=VOCABULARY):
    options = {"tokenizer": "space", "bos_eos_tokens": "start" if START in vocabulary else "none"}
    return checkpoint.load(saved(folder, name=name, words=vocabulary, width=3, **options))


@pytest.fixture
def export(run_job, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    return partial(run_job, "export")


def test_word2vec_text_that_train_reads(export, tmp_path, capsys):
    encoder = save("lstm", tmp_path / "encoder")
    assert export("--encoder encoder --to word2vec --out deep/vectors.txt.gz --json") == 0
    printed = capsys.readouterr()
    last, told = json.loads(printed.out.splitlines()[-1]), printed.err
    assert (last["written"], last["words"], last["width"]) == (["deep/vectors.txt.gz"], 4, 3)
    assert "wrote deep/vectors.txt.gz: 4 word vectors of width 3; <unk> is UUUNKKK" in told
    assert "left out: the layers of lstm, so the word vectors alone" in told
    read = read_words(tmp_path / "deep" / "vectors.txt.gz")
    assert read.vocabulary.to_pylist() == ["<s>", *VOCABULARY[1:]]
    np.testing.assert_array_equal(read.matrix, encoder.matrix.detach().numpy())

    assert export("--encoder encoder --to word2vec --out deep/vectors.txt.gz") == 2
    other = save("avg", tmp_path / "other", ["a", UNKNOWN])
    assert export("--encoder other --to word2vec --out deep/vectors.txt.gz --overwrite") == 0
    assert "left out" not in capsys.readouterr().err
    np.testing.assert_array_equal(
        read_words(tmp_path / "deep" / "vectors.txt.gz").matrix, other.matrix.detach().numpy()
    )


def test_a_hub_folder_has_a_card(export, run_job, tmp_path):
    save("avg", tmp_path / "encoder", ["the", "cat", UNKNOWN])
    (tmp_path / "pairs.tsv").write_text("1\tthe cat\tcat\n5\tthe\tthe\n2\tcat\tthe the cat\n")
    assert run_job("evaluate", "--encoder encoder --pairs pairs.tsv --out scored --no-analyses") == 0
    line = "--encoder encoder --to hub --out model --overwrite"
    assert export(f"{line} --license apache-2.0 --scores scored/scores.json") == 0
    _, head, body = (tmp_path / "model" / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(head)
    assert (about["license"], about["library_name"]) == ("apache-2.0", "sentence-transformers")
    result = about["model-index"][0]["results"][0]
    scores = json.loads((tmp_path / "scored" / "scores.json").read_text())["encoders"][0]["scores"]
    name = result["dataset"]["name"]
    assert result["metrics"] == [{"type": "pearson", "value": round(scores[name]["pearson"], 4)}]
    assert "SentenceTransformer" in body
    assert (tmp_path / "model" / "modules.json").is_file()

    assert export(line) == 0
    assert set(yaml.safe_load((tmp_path / "model" / "README.md").read_text().split("---\n")[1])) & {"license"} == set()


PAIRS = """\
5\tthe cat's on the mat\tthe cat is on the mat
1\ta dog ran home\tthe mat
4\ta dog ran\tdogs ran home
2\tthe cat sat\ta zebra ran, it did
0\thome\tthe cat sat on a mat
3\ton the mat\ta cat
"""


@pytest.mark.slow
def test_an_exported_encoder_has_the_same_scores(export, run_job, tmp_path):
    for name in ("sentence_transformers", "model2vec", "onnx", "onnxruntime"):
        pytest.importorskip(name)
    words = sorted(set(PAIRS.split()) - {*"012345", "zebra", "home"})  # two words are OOV
    save("proj", tmp_path / "encoder", [UNKNOWN, *words])
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    forms = {"st": "sentence-transformers", "m2v": "model2vec", "onnx": "onnx"}
    for prefix, to in forms.items():
        assert export(f"--encoder encoder --to {to} --out {prefix}") == 0
    encoders = " ".join(["encoder", *(f"{prefix}:{prefix}" for prefix in forms)])
    line = f"--encoder {encoders} --pairs pairs.tsv --out scores --no-analyses --resamples 0"
    assert run_job("evaluate", line) == 0
    columns = json.loads((tmp_path / "scores" / "scores.json").read_text())["encoders"]
    scores = [round(column["scores"]["pairs/pairs"]["pearson"], 4) for column in columns]
    assert len(scores) == 4
    assert len({*scores}) == 1
    assert 0 < abs(scores[0]) < 1


@pytest.mark.parametrize("package", ["tokenizers", "onnx"])
def test_a_missing_package_is_named_and_nothing_is_written(export, tmp_path, capsys, monkeypatch, package):
    for needed in ("tokenizers", "onnx"):
        pytest.importorskip(needed)
    save("lstm", tmp_path / "encoder")
    monkeypatch.setitem(sys.modules, package, None)  # an import of it raises ModuleNotFoundError
    assert export("--encoder encoder --to onnx --out model") == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert line.endswith(f"needs the package {package}; run pip install {package}")
    assert not (tmp_path / "model").exists()


def test_a_smaller_encoder_that_embed_takes(export, run_job, tmp_path, capsys):
    for seed, name in enumerate("ab"):
        saved(tmp_path / name, seed=seed)
    line = "--encoder a b --to encoder --out deep/small --texts texts.txt --max-words 3 --dim 2 --dtype int8"
    assert export(f"{line} --json") == 0
    out, printed = capsys.readouterr()
    assert json.loads(out.splitlines()[-1]).items() >= {"words": 6, "width": 2}.items()
    assert "51.61% of the tokens are out of vocabulary, before 12.90%" in printed
    assert run_job("embed", "--encoder deep/small --input texts.txt --out vectors --engine local") == 0
    vectors = pq.read_table(next((tmp_path / "vectors").rglob("*.parquet")))["embedding"].combine_chunks()
    expected = checkpoint.load(tmp_path / "deep" / "small").encode(TEXTS)
    np.testing.assert_array_equal(vectors.flatten().to_numpy().reshape(-1, 2), expected)

    assert export(line) == 2
    assert "contains an encoder; choose another --out, or replace it with --overwrite" in capsys.readouterr().err
    assert export(f"{line.replace('--dim 2', '--dim 3')} --overwrite") == 0
    assert checkpoint.load(tmp_path / "deep" / "small").width == 3
    (tmp_path / "deep" / "small" / "notes.md").write_text("dear")
    assert export(f"{line} --overwrite") == 2
    assert "a file that paraembed did not write: notes.md" in capsys.readouterr().err
    assert (tmp_path / "deep" / "small" / "notes.md").read_text() == "dear"


@pytest.fixture
def weight(run_job, tmp_path):
    (tmp_path / "vectors").write_text("UUUNKKK 1 0 0\nthe 0 1 0\ncat 0 0 1\ndog -1 2 1\n")
    (tmp_path / "counts").write_text("the 90\ncat 7\ndog 3\n")
    return partial(run_job, "weight")


def test_an_encoder_that_embeds_as_the_baseline_does(weight, tmp_path):
    assert weight("--words vectors --counts counts --weighting sif --out sif") == 0
    expected = baseline("sif", Sources(tmp_path / "vectors", tmp_path / "counts"))
    texts = ["the cat", "the dog", ""]
    np.testing.assert_array_equal(paraembed.load("sif").encode(texts), expected.encoder.encode(texts))
    card = (tmp_path / "sif/README.md").read_text()
    assert "weighted by a / (a + p(w)), a = 0.001, with p(w) from counts" in card
    about = known_metadata(card)
    assert (about["library_name"], about["language"], about["tags"][-1]) == ("paraembed", "en", "sif")
    assert weight("--words vectors --weighting avg --out sif --overwrite") == 0
    np.testing.assert_array_equal(paraembed.load("sif").encode("the cat"), [0, 0.5, 0.5])


@pytest.mark.ray
@pytest.mark.slow
def test_two_encoders_as_one_that_evaluate_embed_and_verify_take(ray_cluster, export, run_job, tmp_path, capsys):
    saved(tmp_path / "a", seed=1)
    line = "--encoder a small --to concat --out deep/both"
    assert export(f"{line} --json") == 0
    out, printed = capsys.readouterr()
    assert "wrote deep/both: avg of width 4 and avg of width 256 as one encoder" in printed
    assert json.loads(out.splitlines()[-1])["width"] == 260
    (tmp_path / "pairs.tsv").write_text("1\tthe cat\tcat\n5\tthe\tthe\n2\tcat home\tthe the cat\n")
    assert run_job("evaluate", "--encoder deep/both a --pairs pairs.tsv --out scored --resamples 0") == 0
    assert (
        "pearson"
        in json.loads((tmp_path / "scored" / "scores.json").read_text())["encoders"][0]["scores"]["pairs/pairs"]
    )
    assert run_job("embed", "--encoder deep/both --input texts.txt --out vectors --workers 1") == 0
    vectors = pq.read_table(next((tmp_path / "vectors").rglob("*.parquet")))["embedding"].combine_chunks()
    expected = open_encoder(str(tmp_path / "deep" / "both")).encode(TEXTS)
    np.testing.assert_array_equal(vectors.flatten().to_numpy().reshape(-1, 260), expected)
    assert run_job("verify", "vectors --encoder deep/both --input texts.txt") == 0
    capsys.readouterr()

    assert export(line) == 2
    assert "contains an encoder; choose another --out, or replace it with --overwrite" in capsys.readouterr().err
    assert export(f"{line} --overwrite") == 0
    for line, message in [
        ("--encoder a --out one", "concat takes two encoders, got 1; give --encoder two folders"),
        ("--encoder a deep/both --out both", "deep/both holds two encoders as one"),
        ("--encoder a small --out a --overwrite", "a is, contains or is inside of the input a"),
        ("--encoder a small --out a/both", "a/both is, contains or is inside of the input a"),
        ("--encoder a small --out both --dim 2", "--dtype and --oov-pieces are for --to encoder, not concat"),
        ("--encoder a small --out both --check texts.txt", "--check compares tokens"),
    ]:
        assert export(f"{line} --to concat") == 2, line
        assert message in capsys.readouterr().err, line
    assert not (tmp_path / "both").exists()
