"""Workers embed the parts of files that are planned while others are read: the output is that of any other run."""

import gzip
import os
import shutil
import signal
import subprocess
import sys

import pytest

from paraembed.cluster import embed as engine
from paraembed.cluster.embed import embed
from paraembed.embedding.manifest import UNPLANNED, check_folder
from paraembed.embedding.settings import Limits, Settings
from paraembed.embedding.verify import verify
from paraembed.io.store import Folder
from tests.cluster.early import embed_early, num_parts
from tests.cluster.test_embed_kills import HERE, moments
from tests.embedding.without_ray import build
from tests.jobs import contents, digests

pytestmark = pytest.mark.usefixtures("in_store")
SETTINGS = Settings(part_rows=1000)
EARLY, ALL = 6, 13  # parts of the first file, of all: three small files share one


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    """Two files of 5,500 rows; and three of ten rows, of which one is read later than the others."""
    folder, lines = tmp_path_factory.mktemp("folder"), corpus.read_text().splitlines(keepends=True)
    for name, start, stop in (("a", 0, 5500), ("b", 5500, 5510), ("c", 5510, 5520), ("d", 5520, 5530)):
        (folder / f"{name}.txt").write_text("".join(lines[start:stop]))
    (folder / "e.txt").write_text("".join(lines[6000:11_500]))
    return folder


@pytest.fixture(scope="module")
def expected(folder, tiny_encoder_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("expected") / "out"
    build(tiny_encoder_folder, sorted(folder.iterdir()), SETTINGS, out)
    return digests(out)


def test_parts_are_embedded_before_all_files_are_read(folder, tiny_encoder_folder, expected, tmp_path, ray_cluster):
    out = tmp_path / "out"
    result = embed_early(tiny_encoder_folder, folder, out, EARLY, SETTINGS)
    assert (result.parts, result.embedded, result.was_finished) == (ALL, ALL, False)
    assert digests(out) == expected
    assert sorted(path.name for path in (out / "_plan").iterdir()) == ["inputs-000.arrow", "parts-000.arrow"]
    assert all(check.ok for check in verify(out, tiny_encoder_folder, [*map(str, sorted(folder.iterdir()))]))
    assert embed_early(tiny_encoder_folder, folder, out, ALL, SETTINGS).was_finished


def test_tasks_of_ray_plan_compressed_files_and_one_that_is_damaged(
    folder, tiny_encoder_folder, tmp_path, ray_cluster, monkeypatch
):
    """Tasks without a CPU of their own, as all CPUs are those of the workers."""
    copies, limits, whole = tmp_path / "copies", Limits(max_bad_files=1), gzip.compress(b"the cat\n" * 2500)
    shutil.copytree(folder, copies)
    (copies / "f.txt.gz").write_bytes(whole)
    (copies / "g.txt.gz").write_bytes(whole[:-20])
    inputs = sorted(copies.iterdir())
    alone = embed(tiny_encoder_folder, inputs, tmp_path / "alone", SETTINGS, engine="local", limits=limits)
    monkeypatch.setattr(engine, "_EARLY_BYTES", 0)
    monkeypatch.setattr(engine, "_MANY_BYTES", 0)
    result = embed(tiny_encoder_folder, inputs, tmp_path / "out", SETTINGS, engine="ray", limits=limits)
    assert (result.rows, result.embedded, result.bad_files) == (alone.rows, alone.parts, 1)
    assert digests(tmp_path / "out") == digests(tmp_path / "alone")


@pytest.mark.slow
def test_parts_in_an_object_store(folder, tiny_encoder_folder, tmp_path, server, ray_cluster):
    embed_early(tiny_encoder_folder, folder, server.uri("out"), EARLY, SETTINGS)
    build(tiny_encoder_folder, sorted(folder.iterdir()), SETTINGS, tmp_path / "alone")
    of_a_run = {"_reports", "_done"}  # with times
    written = {key[4:]: data for key, data in server.objects.items() if key.split("/")[1] not in of_a_run and data}
    assert written == contents(tmp_path / "alone")
    assert f"out/{UNPLANNED}" not in server.objects
    server.objects["other/_plan/unplanned"] = b"another run"
    with pytest.raises(ValueError, match="parts of another run"):
        embed_early(tiny_encoder_folder, folder, server.uri("other"), EARLY, SETTINGS)


@pytest.mark.parametrize(
    "settings", [SETTINGS, pytest.param(Settings(part_rows=3000), marks=pytest.mark.slow)], ids=["same", "other"]
)
def test_killed_before_the_plan_is_written(folder, tiny_encoder_folder, tmp_path, ray_cluster, settings):
    """A worker dies, too. The same command keeps the parts; another one, which has fewer, removes them."""
    out, crashes = (
        tmp_path / "out",
        moments(tmp_path / "crashes", "rename part-000-000001.parquet", "open parts-000.arrow"),
    )
    paths = f"{HERE / 'crash'}{os.pathsep}{HERE.parents[1]}"
    command = [sys.executable, "-m", "tests.cluster.early", tiny_encoder_folder, folder, out, EARLY]
    ended = subprocess.run(
        [*map(str, command)], env=os.environ | {"PYTHONPATH": paths, "CRASHES": str(crashes)}, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert not list(crashes.iterdir())
    assert (out / UNPLANNED).exists()
    assert not check_folder(Folder(out))
    inputs = sorted(folder.iterdir())
    result = embed(tiny_encoder_folder, inputs, out, settings, engine="ray")
    if settings == SETTINGS:
        assert result.embedded <= ALL - EARLY  # a worker may have gone on without its driver
    build(tiny_encoder_folder, inputs, settings, tmp_path / "alone")
    assert digests(out) == digests(tmp_path / "alone")
    assert not (out / UNPLANNED).exists()


def test_a_file_that_cannot_be_read_is_found_later(folder, tiny_encoder_folder, tmp_path, ray_cluster):
    """The run ends with the error, and is repeated with the corrected file."""
    copies, out = tmp_path / "copies", tmp_path / "out"
    shutil.copytree(folder, copies)
    last, whole = copies / "f.txt.gz", gzip.compress(b"the cat\n" * 1500)
    last.write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"f\.txt\.gz"):
        embed_early(tiny_encoder_folder, copies, out, EARLY, SETTINGS)
    assert num_parts(out) >= EARLY
    last.write_bytes(whole)
    assert embed_early(tiny_encoder_folder, copies, out, EARLY, SETTINGS).embedded == ALL + 2
    build(tiny_encoder_folder, sorted(copies.iterdir()), SETTINGS, tmp_path / "alone")
    assert digests(out) == digests(tmp_path / "alone")
