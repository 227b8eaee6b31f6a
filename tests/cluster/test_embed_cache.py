"""Runs with a cache, in this process and in workers, killed and two at a time."""

import json
import subprocess

import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.cluster.embed import embed
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import LstmConfig
from tests.cluster.test_embed_kills import moments, run_until_done
from tests.jobs import digests, job_command, run_job

pytestmark = pytest.mark.usefixtures("in_store")

SETTINGS = Settings(part_rows=100)


@pytest.fixture(scope="module")
def lstm(tiny_words, tmp_path_factory):
    """An encoder that computes a vector more slowly than it is read."""
    folder = tmp_path_factory.mktemp("lstm") / "lstm"
    checkpoint.save(Encoder(LstmConfig(), tiny_words, "space"), folder, recipe={}, provenance={}, model_card="")
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "home"]
    lines = [f"{first} {second} {third}\n" for first in words for second in words for third in words]
    (folder / "some.txt").write_text("".join(lines[:300]))
    (folder / "all.txt").write_text("".join(lines[:50] + lines))
    return folder


def test_a_grown_corpus_and_other_columns(lstm, texts, tmp_path):
    """Only new texts are computed; the output of an empty cache has the bytes of a run without."""
    cache, local, on_ray = tmp_path / "cache", {"engine": "local"}, {"engine": "ray", "workers": 1}
    embed(lstm, [texts / "some.txt"], tmp_path / "off", SETTINGS, **local)
    done = embed(lstm, [texts / "some.txt"], tmp_path / "first", SETTINGS, cache=cache, **local)
    assert done.cached == 0
    assert digests(tmp_path / "first") == digests(tmp_path / "off")
    done = embed(lstm, [texts / "some.txt"], tmp_path / "again", SETTINGS, cache=cache, **local)
    assert done.cached == 300
    assert digests(tmp_path / "again") == digests(tmp_path / "off")
    other = Settings(part_rows=77, normalize=True, dtype="float16", keep=("text",))
    done = embed(lstm, [texts / "all.txt"], tmp_path / "grown", other, cache=cache, **on_ray)
    assert (done.rows, done.cached) == (779, 323)  # 27 are repeated in their part
    assert all(check.ok for check in verify(tmp_path / "grown", lstm, [str(texts)]))
    embed(lstm, [texts / "all.txt"], tmp_path / "alone", other, **local)
    left, right = (pq.read_table(tmp_path / name / "data")["embedding"] for name in ("grown", "alone"))
    assert left.type == right.type
    assert (
        max(
            abs(a - b)
            for x, y in zip(left.to_pylist(), right.to_pylist(), strict=True)
            for a, b in zip(x, y, strict=True)
        )
        < 2e-3
    )


@pytest.mark.slow
def test_killed_while_a_file_of_the_cache_is_written(lstm, texts, tmp_path):
    cache, out = tmp_path / "cache", tmp_path / "out"
    embed(lstm, [texts / "some.txt"], tmp_path / "off", SETTINGS, engine="local", cache=tmp_path / "other")
    names = [path.name for path in (tmp_path / "other").glob("*/*.parquet")]
    crashes = moments(
        tmp_path / "crashes", *(f"{what} {name}" for what, name in zip(("open", "rename"), names, strict=False))
    )
    more = ("--part-rows", "100", "--engine", "local", "--cache", cache)
    assert run_until_done(lstm, texts / "some.txt", out, more=more, crashes=crashes) == 2
    assert digests(out) == digests(tmp_path / "off")
    done = embed(lstm, [texts / "some.txt"], tmp_path / "again", SETTINGS, engine="local", cache=cache)
    assert done.cached == 300


@pytest.mark.slow
def test_two_runs_write_at_a_time(lstm, texts, tmp_path):
    given = "--encoder", lstm, "--input", texts / "all.txt", "--part-rows", "50", "--cache", tmp_path / "cache"
    commands = [job_command("embed", *given, "--out", tmp_path / name, "--engine", "local") for name in ("a", "b")]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path) for command in commands]
    errors = [process.communicate(timeout=200)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], errors
    assert len(list((tmp_path / "cache").glob("*/*.parquet"))) >= 15
    settings, cache = Settings(part_rows=1000), tmp_path / "cache"
    done = embed(lstm, [texts / "all.txt"], tmp_path / "c", settings, engine="local", cache=cache)
    assert done.cached == 729


@pytest.mark.slow
def test_the_job(lstm, tiny_encoder_folder, texts, tmp_path, capfd):
    flags = "--input", texts / "some.txt", "--out", tmp_path / "out", "--cache", tmp_path / "cache"
    assert run_job("embed", "--encoder", tiny_encoder_folder, *flags) == 2  # an average
    assert "--cache is given" in capfd.readouterr().err
    assert run_job("embed", "--encoder", lstm, *flags, "--dry-run") == 0
    assert "0% of the texts" in capfd.readouterr().out
    assert not (tmp_path / "cache").exists()
    assert run_job("embed", "--encoder", lstm, *flags) == 0
    flags = *flags[:3], tmp_path / "other", *flags[4:]
    capfd.readouterr()
    assert run_job("embed", "--encoder", lstm, *flags, "--dry-run") == 0
    assert "100% of the texts" in capfd.readouterr().out
    assert run_job("embed", "--encoder", lstm, *flags, "--json") == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["cached"] == 300
    assert "300 texts took their vectors from the cache" in printed.err
