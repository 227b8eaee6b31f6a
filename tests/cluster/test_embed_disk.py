"""Places that cannot be written: a clear error, nothing lost. They are mounts, since root is stopped by no mode."""

import errno
import random

import pytest

from paraembed.cluster.embed import embed
from paraembed.commands.job import user_error
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.io.fingerprint import sha256_of
from tests.embedding.without_ray import build
from tests.jobs import digests

pytestmark = pytest.mark.usefixtures("in_store")

SETTINGS = Settings(part_rows=1000, keep=("text",), compression="none")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("corpus") / "t.txt"
    path.write_text("".join(" ".join(draw.choices(["the", "cat", "zebra"], k=40)) + "\n" for _ in range(20_000)))
    return path


def test_a_full_disk_keeps_what_is_done_and_the_same_command_goes_on(
    corpus, tiny_encoder_folder, tmp_path, disk, ray_cluster, monkeypatch
):
    out = disk("size=2m") / "out"
    with pytest.raises(Exception, match="No space left") as caught:
        embed(tiny_encoder_folder, [corpus], out, SETTINGS, workers=1)
    cause = user_error(caught.value)
    assert isinstance(cause, OSError)
    assert cause.errno == errno.ENOSPC
    parts = sorted(out.glob("data/part-*.parquet"))
    before = {f"data/{path.name}": sha256_of(path) for path in parts}
    assert 1 <= len(parts) < 20
    assert not (out / "_SUCCESS").exists()
    disk("size=64m")
    assert embed(tiny_encoder_folder, [corpus], out, SETTINGS, workers=1).embedded <= 20 - len(parts) + 1
    build(tiny_encoder_folder, corpus, SETTINGS, tmp_path / "unbroken")
    assert digests(out) == digests(tmp_path / "unbroken")
    assert digests(out).items() >= before.items()
    assert all(check.ok for check in verify(out, tiny_encoder_folder, [str(corpus)]))


def test_a_read_only_place_is_said_in_words(corpus, tiny_encoder_folder, disk):
    folder = disk("size=8m")
    build(tiny_encoder_folder, corpus, SETTINGS, folder / "old")
    before = digests(folder / "old")
    disk("ro")
    for out, overwrite in (("new", False), ("old", True)):
        with pytest.raises(OSError, match=rf"Read-only file system: .*{out}") as caught:
            embed(tiny_encoder_folder, [corpus], folder / out, SETTINGS, overwrite=overwrite)
        assert user_error(caught.value) is caught.value
    assert embed(tiny_encoder_folder, [corpus], folder / "old", SETTINGS).was_finished
    assert digests(folder / "old") == before
