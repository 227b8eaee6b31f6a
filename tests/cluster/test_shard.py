import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from paraembed.cluster.shard import shard_pairs
from paraembed.data.schemas import PAIRS
from paraembed.data.shards import ShardSettings
from paraembed.files import sha256_of, work_folder

JOBS = Path(__file__).parents[2] / "jobs"
SETTINGS = ShardSettings(rows_per_shard=40)
SETTINGS_LARGE = ShardSettings(rows_per_shard=100_000)


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
    manifest, before = shard_pairs(inputs, out, SETTINGS, workers=2)
    assert not before
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
        "first_tree": None, "second_tree": None,
    }  # fmt: skip
    for shard in manifest["shards"]:
        assert sha256_of(out / shard["name"]) == shard["sha256"]
    refused = [json.loads(line) for line in (out / "rejected-sample.jsonl").read_text().splitlines()]
    assert refused == [{"file": "ppdb", "line": 61, "reason": "too few fields", "text": "[NP] ||| cut"}]
    assert json.loads((out / "_SUCCESS").read_text()) == {"manifest_sha256": sha256_of(out / "manifest.json")}
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.ray
def test_bytes_do_not_depend_on_workers(ray_cluster: None, inputs: list[Path], tmp_path: Path) -> None:
    shard_pairs(inputs, tmp_path / "one", SETTINGS, workers=1)
    shard_pairs(inputs, tmp_path / "three", SETTINGS, workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


@pytest.mark.ray
def test_a_killed_driver_goes_on_from_the_files_that_are_parsed(ray_cluster: None, tmp_path: Path) -> None:
    inputs = []
    for number in range(12):
        inputs.append(tmp_path / f"{number}.tsv")
        rows = (f"{number} {row} a b c d e f\t{number} {row % 4000} x\n" for row in range(30_000))
        inputs[-1].write_text("".join(rows))
    shard_pairs(inputs, tmp_path / "unbroken", SETTINGS_LARGE)
    job = [
        sys.executable,
        JOBS / "shard.py",
        "--input",
        *inputs,
        "--out",
        tmp_path / "out",
        "--rows-per-shard",
        "100000",
    ]
    process = subprocess.Popen(list(map(str, job)), stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not list(tmp_path.glob(".out.partial/parsed-*.json")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert not (tmp_path / "out").exists()
    done = subprocess.run(list(map(str, job)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 1 <= done.stderr.count("(parsed before)") < 12
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")


@pytest.mark.ray
def test_two_runs_at_once_and_unusable_inputs_are_refused(
    ray_cluster: None, inputs: list[Path], tmp_path: Path
) -> None:
    with (
        work_folder(tmp_path / ".out.partial"),
        pytest.raises(ValueError, match=r"another run is writing to .*; wait for it, or stop it"),
    ):
        shard_pairs(inputs, tmp_path / "out", SETTINGS)
    with pytest.raises(ValueError, match="an input is given twice"):
        shard_pairs([*inputs, inputs[0]], tmp_path / "out", SETTINGS)
    (tmp_path / "quoted.csv").write_text('a,b\nc,"d\ne,f\n')
    with pytest.raises(ValueError, match=r"quoted.csv, line \d: wrong quoting .*; mend it, or give --format tsv"):
        shard_pairs([tmp_path / "quoted.csv"], tmp_path / "out", SETTINGS)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / inputs[0].name).write_text("x\ty\n")
    manifest, _ = shard_pairs([*inputs, tmp_path / "more" / inputs[0].name], tmp_path / "out", SETTINGS)
    assert list(manifest["sources"]) == ["0/pairs.tsv", "1/ppdb", "2/pairs.tsv"]


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
