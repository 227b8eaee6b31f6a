"""Mining on Ray: the same bytes for any number of workers, killed and resumed; what is finished is left alone."""

import json
from dataclasses import replace
from itertools import cycle

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from paraembed.cluster.mine import mine
from paraembed.cluster.shard import shard_pairs
from paraembed.pairs.settings import ShardSettings
from paraembed.settings import MineSettings
from tests.embedding.output_of import encoder_of, output_of
from tests.jobs import digests, interrupted, job_command, run_job

pytestmark = pytest.mark.usefixtures("in_store")

SETTINGS = MineSettings(0.6, 3, block_rows=40, part_pairs=100)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Two finished outputs of one encoder, of 300 and 90 rows; their rows repeat."""
    folder = tmp_path_factory.mktemp("outputs")
    draw = np.random.default_rng(0)
    encoder = encoder_of(draw.standard_normal((200, 8), dtype=np.float32), folder / "encoder")
    options = {"keep": ("text",), "part_rows": 50}
    return [
        output_of(encoder, draw.integers(0, 200, rows).tolist(), folder / f"{rows}", **options) for rows in (300, 90)
    ]


def rows_of(folder):
    table = duckdb.sql(f"SELECT first_id, second_id, score, first, second FROM '{folder}/*.parquet'").fetchall()
    return [(first, second) for first, second, *_ in table], table


def test_workers_do_not_change_a_byte_and_what_is_finished_is_left_alone(ray_cluster, outputs, tmp_path, capsys):
    settings = replace(SETTINGS, groups=True)
    manifest, before = mine(outputs[0], tmp_path / "1", settings, workers=1)
    assert not before
    mine(outputs[0], tmp_path / "2", settings, workers=2)
    assert digests(tmp_path / "1", "**/*") == digests(tmp_path / "2", "**/*")
    assert not list(tmp_path.glob(".*"))
    pairs, table = rows_of(tmp_path / "1")
    assert len(pairs) == manifest["pairs"] == len(set(pairs)) > 200
    assert all(first < second for first, second in pairs)
    assert pairs == sorted(pairs, key=lambda pair: pair[0])
    assert len(manifest["parts"]) == -(-len(pairs) // 100)
    (tmp_path / ".1.partial").mkdir()  # of a run that was killed as it ended
    identity = {key: manifest[key] for key in ("format", "settings", "embeddings", "other")}
    (tmp_path / ".1.partial" / "identity.json").write_text(json.dumps(identity))
    assert mine(outputs[0], tmp_path / "1", settings) == (manifest, True)
    assert not (tmp_path / ".1.partial").exists()
    assert f"{tmp_path}/1 is already finished, {len(pairs):,} pairs; nothing to do" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"settings.top \(was 3, is 4\); .* `overwrite`"):
        mine(outputs[0], tmp_path / "1", replace(settings, top=4))
    for entry in (manifest["parts"][1], manifest["groups"]):
        path = tmp_path / "1" / entry["name"]
        content = path.read_bytes()
        path.write_bytes(b"")
        with pytest.raises(ValueError, match=rf"{entry['name']} is missing or damaged; start over"):
            mine(outputs[0], tmp_path / "1", settings)
        path.write_bytes(content)
    path.write_bytes(b"")
    distinct, _ = mine(outputs[0], tmp_path / "1", replace(settings, distinct=True), overwrite=True)
    assert rows_of(tmp_path / "1")[1] == [row for row in table if row[-2] != row[-1]]
    assert distinct["pairs"] + distinct["equal_texts"] == manifest["pairs"]
    assert distinct["groups"] == manifest["groups"]
    assert digests(tmp_path / "1", "_groups/*") == digests(tmp_path / "2", "_groups/*")


def test_shard_reads_the_pairs_between_two_outputs(ray_cluster, outputs, tmp_path):
    manifest, _ = mine(outputs[0], tmp_path / "out", replace(SETTINGS, threshold=0.9), other=outputs[1])
    pairs, table = rows_of(tmp_path / "out")
    assert max(first for first, _ in pairs) > 90
    assert any(first > second for first, second in pairs)
    different = {frozenset(texts) for *_, first, second in table if len(texts := {first, second}) == 2}
    parts = sorted((tmp_path / "out").glob("*.parquet"))
    sharded, _ = shard_pairs(parts, tmp_path / "pairs", ShardSettings(tokenizer="space"))
    assert sharded["counts"]["read"] == manifest["pairs"]
    assert sharded["counts"]["kept"] == len(different)
    scores = pq.read_table(tmp_path / "pairs" / sharded["shards"][0]["name"])["score"]
    assert min(scores.to_pylist()) >= 0.9


def test_no_pair_and_foreign_files(ray_cluster, outputs, tmp_path):
    few = output_of(outputs[0].parent / "encoder", [0, 1], tmp_path / "few", keep=("text",))
    manifest, _ = mine(few, tmp_path / "out", replace(SETTINGS, threshold=1.0))
    assert (manifest["pairs"], [part["rows"] for part in manifest["parts"]]) == (0, [0])
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("dear")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=r"a file that jobs/mine\.py did not write"):
            mine(few, tmp_path / "thesis", SETTINGS, overwrite=overwrite)
    assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "dear"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_driver_killed_at_any_step_resumes_to_the_same_bytes(ray_cluster, outputs, tmp_path, capsys):
    mine(outputs[0], tmp_path / "unbroken", replace(SETTINGS, distinct=True, groups=True))
    flags = ["--threshold", "0.6", "--top", "3", "--block-rows", "40", "--part-pairs", "100", "--distinct", "--groups"]
    given, work = (outputs[0], "--out", tmp_path / "out", *flags), tmp_path / ".out.partial"
    steps = "pairs-00003.npy", "last-first.npy", "kept-00002.npy", "result/part-00001-*", "result/_groups"
    for awaited, engine in zip(steps, cycle(["local", "ray"]), strict=False):
        job = job_command("mine", *given, "--engine", engine)
        interrupted(job, lambda awaited=awaited: list(work.glob(awaited)))
        assert not (tmp_path / "out").exists()
    capsys.readouterr()
    assert run_job("mine", *given) == 0
    stderr = capsys.readouterr().err
    assert "blocks are already done" in stderr
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert f" pairs to {tmp_path}/out, without {manifest['equal_texts']:,} pairs of equal texts; next:" in stderr
    groups = manifest["groups"]
    assert f"; the {groups['rows'] - groups['groups']:,} rows to remove have keep = false in {tmp_path}/out" in stderr
    assert digests(tmp_path / "out", "**/*") == digests(tmp_path / "unbroken", "**/*")
    assert not work.exists()
