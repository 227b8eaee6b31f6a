import random
import sys

from paraembed.commands import verify as job
from paraembed.embedding.settings import Settings
from tests.embedding.without_ray import build

PART = "part-00001-of-00003.parquet"


def verify(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["jobs/verify.py", *map(str, arguments)])
    return job.command()


def flip(path):
    data = bytearray(path.read_bytes())
    data[random.Random(0).randrange(len(data))] ^= 1
    path.write_bytes(data)


def test_the_exit_status_tells_a_tampered_copy(tiny_encoder_folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "t.txt").write_text("the cat sat\na dog ran home\nthe mat .\n" * 3)
    out = tmp_path / "out"
    build(tiny_encoder_folder, tmp_path / "t.txt", Settings(part_rows=3), out)
    assert verify(monkeypatch, out, "--encoder", tiny_encoder_folder) == 1  # no row was compared
    assert verify(monkeypatch, out, "--input", tmp_path) == 2
    monkeypatch.chdir(tmp_path)
    assert verify(monkeypatch, out, "--encoder", tiny_encoder_folder, "--input", "") == 2  # not the working folder
    capsys.readouterr()
    assert verify(monkeypatch, out, "--encoder", tiny_encoder_folder, "--input", tmp_path) == 0
    table = capsys.readouterr().out
    assert "FAILED" not in table
    flip(out / PART)
    assert verify(monkeypatch, out) == 1
    printed = capsys.readouterr()
    found = {line.split()[0] for line in printed.out.splitlines() if " FAILED " in line}
    assert "sha256" in found
    assert printed.err.startswith(f"error: {len(found)} of 10 checks FAILED for {out}")
