"""What is killed at any moment costs nothing: the same command ends with the bytes of a run that nobody disturbed."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paraembed import checkpoint
from paraembed.cluster.embed import embed
from paraembed.embedding.plan import part_name
from paraembed.embedding.settings import Limits, Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.process import RAY
from tests.embedding.without_ray import build
from tests.jobs import digests, job_command

pytestmark = pytest.mark.usefixtures("in_store")

HERE = Path(__file__).parent
WORKER_MOMENTS = ["open {}", "write {}", "rename {}"]
FILES = "parts-000.arrow", "inputs-000.arrow", "000-000000.arrow", "entries-000.arrow", "_manifest.json", "_SUCCESS"


@pytest.fixture(scope="module")
def unbroken(corpus, tiny_encoder_folder, tmp_path_factory):
    """Digests of an output by ``part_rows``, of a run without Ray, in one process."""

    @cache
    def of_rows(part_rows):
        out = tmp_path_factory.mktemp("unbroken") / "out"
        build(tiny_encoder_folder, corpus, Settings(part_rows=part_rows), out)
        return digests(out)

    return of_rows


def _file(number):
    """The file name of a part."""
    return Path(part_name(number)).name


def start(encoder, corpus, out, *more, crashes=None):
    engine = () if "--engine" in more else ("--engine", "ray")
    command = job_command("embed", "--encoder", encoder, "--input", corpus, "--out", out, *engine, *more)
    environment = dict(os.environ)
    if crashes is not None:
        environment |= {"PYTHONPATH": f"{HERE / 'crash'}{os.pathsep}{HERE.parents[1]}", "CRASHES": str(crashes)}
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=out.parent, env=environment
    )


@contextmanager
def watched(out):
    """Meanwhile a reader reads the parts that it sees, all the time."""
    bad, ended, reads = [], threading.Event(), [0]

    def look():
        while not ended.wait(0.05):
            there = sorted(out.glob("data/part-*.parquet"), key=lambda path: path.stat().st_mtime_ns)
            for path in there[-5:] + random.sample(there, min(5, len(there))):  # the newest, and some
                try:
                    with pq.ParquetFile(path) as file:
                        file.read()
                    reads[0] += 1
                except Exception as error:  # noqa: BLE001 - whatever it is, a reader must not see it
                    bad.append((path.name, error))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()
    assert not bad
    assert reads[0]


def run_until_done(*arguments, more, crashes, seconds=200):
    """The same command until it ends well; how often it was killed."""
    killed = 0
    while not run_to_its_end(*arguments, more=more, crashes=crashes, seconds=seconds):
        killed += 1
    return killed


def run_to_its_end(*arguments, more, crashes, seconds=200):
    """Whether the command ended well; else it was killed."""
    process = start(*arguments, *more, crashes=crashes)
    said = process.communicate(timeout=seconds)[1]
    assert process.returncode in {0, -signal.SIGKILL}, said
    return process.returncode == 0


def moments(folder, *names):
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


@pytest.mark.slow
def test_threads_that_feed_a_gpu(corpus, tiny_encoder_folder, unbroken, tmp_path):
    """On a CPU: three threads read, tokenize and write parts while one of them encodes."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom paraembed.embedding.settings import Settings\n"
        "from tests.embedding.without_ray import build\n"
        "build(sys.argv[1], Path(sys.argv[2]), Settings(part_rows=1000), Path(sys.argv[3]), threads=3)"
    )
    command = [sys.executable, "-c", code, *map(str, (tiny_encoder_folder, corpus, tmp_path / "out"))]
    crashes = moments(tmp_path / "crashes", f"open {_file(1)}", f"rename {_file(5)}", "rename _manifest.json")
    paths = os.pathsep.join([str(HERE / "crash"), str(HERE.parents[1])])
    environment = os.environ | {"PYTHONPATH": paths, "CRASHES": str(crashes)}
    ends = [subprocess.run(command, env=environment, check=False).returncode for _ in range(4)]
    assert ends == [-signal.SIGKILL] * 3 + [0]
    assert digests(tmp_path / "out") == unbroken(1000)


@pytest.mark.parametrize(
    ("of_workers", "of_driver"),
    [
        (WORKER_MOMENTS[::2], ["rename _manifest.json"]),
        pytest.param(
            WORKER_MOMENTS, [f"{what} {name}" for what in ("open", "rename") for name in FILES], marks=pytest.mark.slow
        ),
    ],
    ids=["few", "all"],
)
def test_every_crash_point(corpus, tiny_encoder_folder, unbroken, tmp_path, of_workers, of_driver):
    """Workers and driver die just before they make, write or put in place a file of every kind."""
    parts = random.Random(0).sample([_file(number) for number in range(21)], len(of_workers))
    at_parts = [moment.format(part) for moment, part in zip(of_workers, parts, strict=True)]
    crashes = moments(tmp_path / "crashes", *at_parts, *of_driver)
    out, more = tmp_path / "out", ("--part-rows", "1000")
    with watched(out):
        for _ in of_driver:
            assert not run_to_its_end(tiny_encoder_folder, corpus, out, more=more, crashes=crashes)
        embed(tiny_encoder_folder, [corpus], out, Settings(part_rows=1000))
    assert not list(crashes.iterdir())
    assert digests(out) == unbroken(1000)
    assert all(check.ok for check in verify(out, tiny_encoder_folder, [str(corpus)]))


@pytest.mark.slow
def test_every_crash_point_of_one_process(corpus, tiny_encoder_folder, unbroken, tmp_path):
    """The engine of one process dies where workers and driver die; now and then workers of Ray go on."""
    parts = [_file(number) for number in (2, 5, 13)]
    at_parts = [moment.format(part) for moment, part in zip(WORKER_MOMENTS, parts, strict=False)]
    whole = ["rename inputs-000.arrow", "open 000-000000.arrow", "rename entries-000.arrow", "rename _manifest.json"]
    whole += ["open _manifest.json", "rename _SUCCESS"]
    crashes = moments(tmp_path / "crashes", *at_parts, *whole)
    out, more = tmp_path / "out", ("--part-rows", "1000", "--engine", "local")
    assert not run_to_its_end(tiny_encoder_folder, corpus, tmp_path / "mixed", more=more, crashes=crashes)
    embed(tiny_encoder_folder, [corpus], tmp_path / "mixed", Settings(part_rows=1000), engine="ray")
    with watched(out):
        killed = run_until_done(tiny_encoder_folder, corpus, out, more=more, crashes=crashes)
    assert killed == len(at_parts) + len(whole) - 1
    assert not list(crashes.iterdir())
    assert digests(out) == digests(tmp_path / "mixed") == unbroken(1000)


@pytest.mark.slow
def test_hashes_of_ids_survive_every_crash_point(tiny_encoder_folder, tmp_path):
    """Killed while a part writes its hashes, and before the commit; and some are missing."""
    keys, table, expected = [f"key {row % 970}" for row in range(1000)], tmp_path / "t.parquet", tmp_path / "expected"
    pq.write_table(pa.table({"key": keys, "body": ["the cat"] * 1000}), table)
    build(tiny_encoder_folder, table, Settings("body", "key", part_rows=100), expected, "keep")
    hashes = sorted(path.name for path in (expected / "_ids").iterdir())[2:5]
    crashes = moments(
        *(tmp_path / "crashes", f"open {hashes[0]}", f"rename {hashes[1]}", f"write {hashes[2]}"),
        *("open _manifest.json", "rename _SUCCESS"),
    )
    out, columns = tmp_path / "out", ("--text-column", "body", "--id-column", "key", "--on-duplicate-id", "keep")
    more = (*columns, "--part-rows", "100", "--engine", "local")
    for _ in range(3):
        assert not run_to_its_end(tiny_encoder_folder, table, out, more=more, crashes=crashes)
    assert sorted(path.name for path in crashes.iterdir()) == ["open _manifest.json", "rename _SUCCESS"]
    assert run_until_done(tiny_encoder_folder, table, out, more=more, crashes=crashes) == 2
    assert digests(out) == digests(expected)
    for name in (part_name(0), "_manifest.json", "_SUCCESS"):
        (out / name).unlink()
    shutil.rmtree(out / "_ids")  # one part is embedded, and tasks of Ray hash the others
    settings, limits = Settings("body", "key", part_rows=100), Limits(on_duplicate_id="keep")
    assert embed(tiny_encoder_folder, [table], out, settings, engine="ray", workers=1, limits=limits).embedded == 1
    assert digests(out) == digests(expected)
    assert digests(out, "_ids/*") == digests(expected, "_ids/*")
    assert all(check.ok for check in verify(out))


@pytest.mark.slow
def test_an_output_that_is_replaced_is_there_until_the_new_one_is(
    corpus, tiny_encoder_folder, tiny_words, unbroken, tmp_path
):
    """Kills before the new output is complete, and between the swap and the removal of the old one."""
    other, out = tmp_path / "other", tmp_path / "out"
    checkpoint.save(Encoder(AvgConfig(), tiny_words, "space"), other, recipe={}, provenance={}, model_card="")
    build(other, corpus, Settings(part_rows=5000), out)
    crashes = moments(tmp_path / "crashes", f"rename {_file(7)}", "rmtree _reports")
    missing, ended = [], threading.Event()

    def look():
        while not ended.wait(0.0005):
            if not (out / "_SUCCESS").exists():
                missing.append(time.time())

    reader = threading.Thread(target=look)
    reader.start()
    more = ("--part-rows", "1000", "--overwrite")
    try:
        killed = run_until_done(tiny_encoder_folder, corpus, out, more=more, crashes=crashes)
    finally:
        ended.set()
        reader.join()
    assert (killed, missing, list(crashes.iterdir())) == (1, [], [])
    assert digests(out) == unbroken(1000)
    assert not (tmp_path / ".out.new").exists()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_workers_killed_at_seeded_moments(corpus, tiny_encoder_folder, unbroken, tmp_path, seed):
    """Fifteen kills a run, three at each crash point."""
    draw = random.Random(seed)
    parts = draw.sample([_file(number) for number in range(205)], 3 * len(WORKER_MOMENTS))
    names = [moment.format(part) for moment, part in zip(WORKER_MOMENTS * 3, parts, strict=True)]
    crashes = moments(tmp_path / "crashes", *names)
    out = tmp_path / "out"
    more = "--part-rows", "100", "--workers", str(seed)
    with watched(out):
        assert run_until_done(tiny_encoder_folder, corpus, out, more=more, crashes=crashes) == 0
    assert not list(crashes.iterdir())
    assert digests(out) == unbroken(100)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("victim", "kills", "seed"), [("driver", 10, 3), ("ray::PartWorker", 6, 4), ("raylet", 3, 5)])
def test_processes_killed_at_random_times(corpus, tiny_encoder_folder, unbroken, tmp_path, victim, kills, seed):
    """SIGKILL at a seeded time after a seeded number of new parts; with its raylet a driver ends, in words."""
    draw, killed, rounds = random.Random(seed), 0, 0
    while killed < kills:
        out = tmp_path / f"out-{rounds}"
        rounds += 1
        with watched(out):
            returned = None
            while returned != 0:
                process = start(tiny_encoder_folder, corpus, out, "--part-rows", "100")
                killed += kill_one(process, victim, out, draw) if killed < kills else 0
                said = process.communicate(timeout=200)[1]
                returned = process.returncode
                assert "Traceback" not in said
        assert digests(out) == unbroken(100)


def kill_one(process, victim, out, draw):
    """Kill a process of a run, unless it ends before; returns how many."""
    wanted, delay = len(list(out.glob("data/part-*.parquet"))) + draw.randrange(1, 12), draw.uniform(0, 0.1)
    while len(list(out.glob("data/part-*.parquet"))) < wanted and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    try:
        driver = psutil.Process(process.pid)
        family = [driver] if victim == "driver" else driver.children(recursive=True)
        victims = [one for one in family if victim == "driver" or one.name().startswith(victim)]
        victims[0].kill()
    except (psutil.NoSuchProcess, IndexError):
        return 0
    return 1


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("losses", "part_rows", "how", "more"),
    [
        (0, 100, "kill", {}),
        (5, 100, "kill", {}),
        # Calls to the lost machine fail long before Ray knows that it is lost.
        (1, 10, "kill", {"RAY_health_check_period_ms": "10000"}),
        (1, 10, "vanish", {"RAY_health_check_period_ms": "10000"}),
    ],
)
def test_three_machines_and_some_that_die(
    corpus, tiny_encoder_folder, unbroken, tmp_path, losses, part_rows, how, more
):
    """Three local Ray nodes; two are lost again and again, and started anew, or one is lost."""
    command = [sys.executable, HERE / "lost_nodes.py", "embed", how, tiny_encoder_folder, corpus, tmp_path / "out"]
    command += [losses, part_rows]
    # The session's Ray, where there is one, has set the mode to token; Ray reads it when it is imported.
    options = {"env": {**os.environ, "RAY_AUTH_MODE": "disabled", **more}, "cwd": tmp_path, "timeout": 600}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    outs = list((tmp_path / "out").iterdir())
    assert outs
    for out in outs:
        assert digests(out) == unbroken(part_rows)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["kill", "vanish"])
def test_tasks_of_a_machine_that_is_lost_run_on_others(tmp_path, how):
    """Those of shard, mine and teach: every result once, long before the 7 minutes of Ray's own keepalive."""
    environment = {**os.environ, **RAY, "RAY_AUTH_MODE": "disabled", "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, str(HERE / "lost_nodes.py"), "tasks", how]
    options = {"env": environment, "cwd": tmp_path, "timeout": 500}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    (seconds,) = re.findall(r"^\d+$", done.stdout, re.MULTILINE)  # among lines of Ray, which may be the last ones
    assert int(seconds) < 300
