"""jobs/export.py --to encoder as a user runs it."""

import json
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.loading import open_encoder
from tests.export.test_smaller import TEXTS, saved


@pytest.fixture
def export(run_job, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    return partial(run_job, "export")


@pytest.mark.ray
def test_a_smaller_encoder_that_evaluate_and_embed_take(ray_cluster, export, run_job, tmp_path, capsys):
    for seed, name in enumerate("ab"):
        saved(tmp_path / name, seed=seed)
    line = "--encoder a b --to encoder --out deep/small --texts texts.txt --max-words 3 --dim 2 --dtype int8"
    assert export(f"{line} --json") == 0
    out, printed = capsys.readouterr()
    assert json.loads(out.splitlines()[-1]).items() >= {"words": 6, "width": 2}.items()
    assert "wrote deep/small: 6 word vectors of width 2 in int8, 0.0 MB; " in printed
    assert "of the squared length of the text vectors is in these dimensions; 51.61% of the tokens are" in printed
    assert "out of vocabulary, before 12.90%" in printed
    assert "next: python jobs/evaluate.py --encoder deep/small …" in printed

    (tmp_path / "pairs.tsv").write_text("1\tthe cat\tcat\n5\tthe\tthe\n2\tcat home\tthe the cat\n")
    assert run_job("evaluate", "--encoder deep/small --pairs pairs.tsv --out scored --no-analyses --resamples 0") == 0
    column = json.loads((tmp_path / "scored" / "scores.json").read_text())["encoders"][0]
    assert -1 <= column["scores"]["pairs/pairs"]["pearson"] <= 1
    assert run_job("embed", "--encoder deep/small --input texts.txt --out vectors --workers 1") == 0
    vectors = pq.read_table(next((tmp_path / "vectors").rglob("*.parquet")))["embedding"].combine_chunks()
    expected = checkpoint.load(tmp_path / "deep" / "small").encode(TEXTS)
    np.testing.assert_array_equal(vectors.flatten().to_numpy().reshape(-1, 2), expected)

    assert export(line) == 2
    assert "contains an encoder; choose another --out, or replace it with --overwrite" in capsys.readouterr().err
    assert export(f"{line.replace('--dim 2', '--dim 3')} --overwrite") == 0
    assert checkpoint.load(tmp_path / "deep" / "small").width == 3
    assert "number of tokens" not in capsys.readouterr().err
    (tmp_path / "deep" / "small" / "notes.md").write_text("dear")
    assert export(f"{line} --overwrite") == 2
    assert "a file that paraembed did not write: notes.md" in capsys.readouterr().err
    assert (tmp_path / "deep" / "small" / "notes.md").read_text() == "dear"


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


def test_the_encoder_in_the_package_by_its_name(export, tmp_path, capsys):
    assert export("--encoder small --to encoder --out tiny --texts texts.txt --max-words 3 --dim 3") == 0
    printed = capsys.readouterr().err
    assert "of width 3 in float32" in printed
    assert "0.00% of the tokens are out of vocabulary, before 0.00%; the number of tokens changes by +" in printed
    assert np.isfinite(checkpoint.load(tmp_path / "tiny").encode(TEXTS)).all()
