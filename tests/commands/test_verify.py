import json
import random
from contextlib import nullcontext

import pytest

from paraembed.embedding import verify as module
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from tests.embedding.test_ids import shuffled
from tests.embedding.without_ray import build
from tests.jobs import digests, run_job

PART = "data/part-000-000001.parquet"


def flip(path):
    data = bytearray(path.read_bytes())
    data[random.Random(0).randrange(len(data))] ^= 1
    path.write_bytes(data)


def test_the_exit_status_tells_a_tampered_copy(tiny_encoder_folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "t.txt").write_text("the cat sat\na dog ran home\nthe mat .\n" * 3)
    out = tmp_path / "out"
    build(tiny_encoder_folder, tmp_path / "t.txt", Settings(part_rows=3), out)
    assert run_job("verify", out, "--encoder", tiny_encoder_folder) == 1  # no row was compared
    assert run_job("verify", out, "--input", tmp_path) == 2
    monkeypatch.chdir(tmp_path)
    assert run_job("verify", out, "--encoder", tiny_encoder_folder, "--input", "") == 2  # not the working folder
    capsys.readouterr()
    assert run_job("verify", out, "--encoder", tiny_encoder_folder, "--input", tmp_path) == 0
    table = capsys.readouterr().out
    assert "FAILED" not in table
    flip(out / PART)
    assert run_job("verify", out) == 1
    printed = capsys.readouterr()
    found = {line.split()[0] for line in printed.out.splitlines() if " FAILED " in line}
    assert "sha256" in found
    assert printed.err.startswith(f"error: {len(found)} of 10 checks FAILED for {out}")


@pytest.fixture(scope="module")
def out(tiny_encoder_folder, tmp_path_factory):
    """Ten parts of three rows, two of them damaged, with ids of the input and two rejected rows."""
    folder = tmp_path_factory.mktemp("verify")
    lines = [json.dumps({"key": f"key {row}", "body": "the cat sat"}) for row in range(28)]
    (folder / "t.jsonl").write_text("\n".join([*lines[:5], "{", *lines[5:], "{"]))
    build(tiny_encoder_folder, folder / "t.jsonl", Settings("body", "key", part_rows=3), folder / "out")
    for number in (3, 7):
        flip(folder / f"out/data/part-000-{number:06d}.parquet")
    return folder / "out"


def test_the_order_of_the_tasks_does_not_change_the_result(out, monkeypatch):
    expected, before = verify(out), digests(out, "**/*")
    assert {check.name for check in expected if not check.ok} >= {"sha256"}
    for rows in (1, 7):
        monkeypatch.setattr(module, "_TASK_ROWS", rows)
        assert verify(out, started=lambda _: nullcontext(shuffled)) == expected
    assert digests(out, "**/*") == before


def test_tasks_of_ray_find_what_this_process_finds(out, ray_cluster, capsys):
    printed = []
    for engine in ("local", "ray"):
        assert run_job("verify", out, "--engine", engine, "--quiet") == 1
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.parametrize("number", [1, 2, 4, 10, 99])
def test_a_spot_check_reads_evenly_spaced_parts(out, number, capsys):
    """Of ten parts, 4 are the first, the fourth (which is damaged), the seventh and the last."""
    checks = {check.name: check for check in verify(out, sample_parts=number)}
    assert checks["sha256"].ok == (number < 4)
    assert run_job("verify", out, "--sample-parts", number) == (number > 2)
    assert (f"{number} of them were read" in capsys.readouterr().out) == (number < 10)
    assert run_job("verify", out, "--sample-parts", "0") == 2
