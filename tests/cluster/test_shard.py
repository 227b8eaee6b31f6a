import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from paraembed.cluster.shard import shard_pairs
from paraembed.data.schemas import PAIRS
from paraembed.data.shards import ShardSettings
from paraembed.files import sha256_of

SETTINGS = ShardSettings(rows_per_shard=40)


@pytest.fixture(autouse=True)
def _own_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """A TSV file of 90 pairs and a PPDB-format file that repeats 30 of them, swapped, and has two bad lines."""
    tsv, ppdb = tmp_path / "pairs.tsv", tmp_path / "ppdb"
    tsv.write_text("".join(f"one {number}\tuno {number}\n" for number in range(90)))
    lines = [
        f"[NP] ||| uno {number} ||| one {number} ||| PPDB2.0Score={number} ||| 0-0 ||| Equivalence"
        for number in range(60, 120)
    ]
    ppdb.write_text("\n".join([*lines, "[NP] ||| cut", ""]))
    return [tsv, ppdb]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in folder.iterdir()}


@pytest.mark.ray
def test_shards_manifest_and_success(ray_cluster: None, inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = shard_pairs(inputs, out, SETTINGS, workers=2)
    # Of the 30 pairs that are in both files the lower rank stays: those of the second file.
    assert manifest["counts"] == {
        "read": 151,
        "kept": 120,
        "refused": 1,
        "duplicates": 30,
        "reasons": {"too few fields": 1},
    }
    assert manifest["sources"]["pairs.tsv"] == {"read": 90, "pairs": 90, "duplicates": 30, "refused": {}}
    tables = [pq.read_table(out / shard["name"]) for shard in manifest["shards"]]
    assert [table.num_rows for table in tables] == [40, 40, 40]
    assert all(table.schema.equals(PAIRS) for table in tables)
    rows = [row for table in tables for row in table.to_pylist()]
    assert [(row["source"], row["rank"]) for row in rows] == [
        *(("pairs.tsv", rank) for rank in range(60)),
        *(("ppdb", rank) for rank in range(60)),
    ]
    assert rows[60] == {
        "first": "uno 60", "second": "one 60", "score": 60.0, "rank": 0, "relation": "Equivalence", "source": "ppdb",
    }  # fmt: skip
    for shard in manifest["shards"]:
        assert sha256_of(out / shard["name"]) == shard["sha256"]
    refused = [json.loads(line) for line in (out / "rejected-sample.jsonl").read_text().splitlines()]
    assert refused == [{"file": "ppdb", "line": 61, "reason": "too few fields", "text": "[NP] ||| cut"}]
    assert json.loads((out / "_SUCCESS").read_text()) == {"manifest_sha256": sha256_of(out / "manifest.json")}
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.ray
def test_bytes_do_not_depend_on_workers_or_interruptions(ray_cluster: None, inputs: list[Path], tmp_path: Path) -> None:
    shard_pairs(inputs, tmp_path / "one", SETTINGS, workers=1)
    shard_pairs(inputs, tmp_path / "three", SETTINGS, workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")
    # A run that ended after one file was parsed: the other file's damage is mended, then the same call goes on.
    whole = inputs[1].read_bytes()
    broken = tmp_path / "broken"
    inputs[1].write_text("[NP] ||| cut")
    with pytest.raises(ValueError, match="no pair is left of 1 rows: 1 too few fields"):
        shard_pairs([inputs[1]], broken, ShardSettings(format="ppdb"))
    assert not broken.exists()
    inputs[1].write_bytes(whole)
    shard_pairs(inputs, broken, SETTINGS)
    assert contents(tmp_path / "one") == contents(broken)


@pytest.mark.ray
def test_finished_output_is_kept_or_replaced_only_on_request(
    ray_cluster: None, inputs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shard_pairs(inputs, out, SETTINGS)
    before = contents(out)
    shard_pairs(inputs, out, SETTINGS)
    assert "is complete already (120 pairs); nothing to do" in capsys.readouterr().err
    other = ShardSettings(rows_per_shard=41)
    with pytest.raises(ValueError, match=r"settings.rows_per_shard \(was 40, is 41\); .* --overwrite"):
        shard_pairs(inputs, out, other)
    assert contents(out) == before
    shard_pairs(inputs, out, other, overwrite=True)
    assert contents(out) != before


def test_foreign_folders_are_left_alone(inputs: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "thesis"
    out.mkdir()
    (out / "chapter1.txt").write_text("dear")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=r"holds something that jobs/shard.py did not write"):
            shard_pairs(inputs, out, SETTINGS, overwrite=overwrite)
    assert (out / "chapter1.txt").read_text() == "dear"
