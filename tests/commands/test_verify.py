import random

from paraembed.embedding.settings import Settings
from tests.embedding.without_ray import build
from tests.jobs import run_job

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
