import gzip
import json
import os
import re
import shutil
import signal
import threading
import time
from dataclasses import replace
from functools import partial

import psutil
import pytest
import ray
import torch
from mlflow.tracking import MlflowClient

from paraembed import checkpoint
from paraembed.cluster import embed as module_of_embed
from paraembed.cluster import embed_parts as module
from paraembed.cluster import embed_pool
from paraembed.cluster.embed_tracking import recorded
from paraembed.embedding.estimate import dry_run, workers_of
from paraembed.embedding.local import EmbeddingProgress
from paraembed.embedding.replace import staging_folder
from paraembed.embedding.settings import Limits, Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.encoders.devices import require_device
from paraembed.io.atomic import locked
from paraembed.io.store import Folder
from paraembed.loading import open_encoder
from paraembed.settings import Gpus, Inference
from paraembed.tracking.runs import tracked_run
from tests.embedding.arrow_files import sign
from tests.embedding.without_ray import build
from tests.jobs import digests, interrupted, job_command
from tests.mlflow_server import run_of

pytestmark = pytest.mark.usefixtures("in_store")

SMALL = Settings(part_rows=1000)
# A second worker takes longer to start than these tests take to embed.
embed = partial(module_of_embed.embed, workers=1, engine="ray")
local = partial(module_of_embed.embed, engine="local")


@pytest.fixture(scope="module")
def undisturbed(corpus, tiny_encoder_folder, tmp_path_factory, ray_cluster, in_store):
    """An output that nothing disturbed; MLflow has the training of its encoder."""
    out = tmp_path_factory.mktemp("unbroken") / "undisturbed"
    with tracked_run("train tiny", out.with_name("encoder")) as trained:
        trained.tags({"fingerprint": checkpoint.read_config(tiny_encoder_folder)["fingerprint"]})
    done = embed(tiny_encoder_folder, [corpus], out, SMALL)
    assert (done.rows, done.parts, done.embedded, done.was_finished) == (20_500, 21, 21, False)
    assert all(check.ok for check in verify(out))
    return out


@pytest.fixture(scope="module")
def unbroken(undisturbed):
    """Its digests."""
    return digests(undisturbed)


def test_workers_do_not_change_a_byte_and_a_finished_run_is_left_alone(corpus, tiny_encoder_folder, unbroken, tmp_path):
    out = tmp_path / "out"
    embed(tiny_encoder_folder, [corpus], out, SMALL, workers=2)
    assert digests(out) == unbroken
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert embed(tiny_encoder_folder, [corpus], out, SMALL, workers=3).was_finished
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


@pytest.mark.parametrize(
    "workers", [2, pytest.param(9, marks=pytest.mark.slow)], ids=["each reads one", "one reads for all"]
)
def test_compressed_files_of_several_parts(tiny_encoder_folder, tmp_path, ray_cluster, workers, capsys):
    """A worker that reads a file itself continues where it stopped; parts of the end of a file go to others, too."""
    folder, settings = tmp_path / "texts", Settings(part_rows=300)
    folder.mkdir()
    for name, rows in (("a", 4000), ("b", 700)):
        data = "".join(f"the cat {row} sat\n" for row in range(rows)).encode()
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(data))
    build(tiny_encoder_folder, folder, settings, tmp_path / "expected")
    done = embed(tiny_encoder_folder, [folder], tmp_path / "out", settings, workers=workers, engine="ray")
    assert (done.rows, done.parts) == (4700, 17)
    assert digests(tmp_path / "out") == digests(tmp_path / "expected")
    assert ("one worker reads it" in capsys.readouterr().err) == (workers == 9)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_a_worker_that_reads_for_all_is_killed_or_hangs(tiny_encoder_folder, tmp_path, monkeypatch, ray_cluster, how):
    """The others read the parts that it had begun from the start of the file; a further one reads for all."""
    monkeypatch.setattr(module, "_WARN_SECONDS", 5)
    died, out, settings = tmp_path / "died", tmp_path / "out", Settings(part_rows=300)
    data = "".join(f"the cat {row} sat\n" for row in range(6000)).encode()
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    build(tiny_encoder_folder, tmp_path / "a.txt.gz", settings, tmp_path / "expected")

    class Mortal(embed_pool.PartWorker):
        def read(self, source, piece):
            if piece.row >= 1500 and not died.exists():
                died.touch()
                os.kill(os.getpid(), how)
            return super().read(source, piece)

    monkeypatch.setattr(embed_pool, "PartWorker", Mortal)
    embed(tiny_encoder_folder, [tmp_path / "a.txt.gz"], out, settings, workers=5, engine="ray")
    assert died.exists()
    assert digests(out) == digests(tmp_path / "expected")


@pytest.mark.slow
def test_the_last_part_goes_to_a_worker_that_has_nothing_to_do_when_its_own_is_gone_for_good(
    corpus, tiny_encoder_folder, unbroken, tmp_path, monkeypatch, ray_cluster
):
    died, out = tmp_path / "died", tmp_path / "out"

    class Mortal(embed_pool.PartWorker):
        def __init__(self):
            if died.exists():  # its machine is gone, and no other has a CPU
                time.sleep(600)
            super().__init__()

        def embed(self, weights, source, part, *rest):
            if part.pieces[0].row == 20_000 and not died.exists():
                while len(list(out.glob("data/part-*.parquet"))) < 20:
                    time.sleep(0.01)
                time.sleep(0.5)
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().embed(weights, source, part, *rest)

    monkeypatch.setattr(embed_pool, "PartWorker", Mortal)
    started = time.monotonic()
    embed(tiny_encoder_folder, [corpus], out, SMALL, workers=2)
    assert died.exists()
    assert time.monotonic() - started < 300, "it waited for the worker that does not come back"
    assert digests(out) == unbroken


@pytest.mark.slow
def test_a_worker_that_hangs_is_named_and_its_parts_go_to_another(
    corpus, tiny_encoder_folder, unbroken, tmp_path, monkeypatch, ray_cluster, caplog
):
    """It is stopped, which Ray does not notice. Of the three others, one gets its part, and one at most waits."""
    hangs, alive = tmp_path / "hangs", tmp_path / "alive"

    def num_hanging():
        return sum(process.name().startswith("ray::Hanging") for process in psutil.process_iter())

    class Hanging(embed_pool.PartWorker):
        def embed(self, weights, source, part, *rest):
            if part.pieces[0].row == 5000 and not hangs.exists():
                hangs.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGSTOP)
            if part.pieces[0].row == 5000:
                (tmp_path / f"embeds-{os.getpid()}").touch()
                end = time.monotonic() + 30  # the process of an ended worker takes a moment on a busy machine
                while (number := num_hanging()) > 3 and time.monotonic() < end:
                    time.sleep(0.2)
                alive.write_text(str(number))
            return super().embed(weights, source, part, *rest)

    monkeypatch.setattr(embed_pool, "PartWorker", Hanging)
    monkeypatch.setattr(module, "_LATE_SECONDS", 3.0)
    embed(tiny_encoder_folder, [corpus], tmp_path / "out", SMALL, workers=4)
    assert digests(tmp_path / "out") == unbroken
    assert 2 <= int(alive.read_text()) <= 3, "a worker without a part did not end"
    named = re.findall(r"part-000-00000[45].parquet takes .* in process (\d+) of 127.0.0.1; another", caplog.text)
    # on a busy machine another worker may be late with the part first, and the one that hangs gets it as the second
    slow = {path.name.removeprefix("embeds-") for path in tmp_path.glob("embeds-*")}
    assert set(named) & {hangs.read_text(), *slow}


def test_the_only_part_goes_to_another_worker_if_its_own_hangs(
    corpus, tiny_encoder_folder, tmp_path, monkeypatch, ray_cluster, caplog
):
    class Hanging(embed_pool.PartWorker):
        def embed(self, *arguments):
            if not (tmp_path / "hangs").exists():
                (tmp_path / "hangs").touch()
                os.kill(os.getpid(), signal.SIGSTOP)
            return super().embed(*arguments)

    monkeypatch.setattr(embed_pool, "PartWorker", Hanging)
    monkeypatch.setattr(module, "_LATE_SECONDS", 3.0)
    monkeypatch.setattr(module, "_FIRST_SECONDS", 3.0)
    monkeypatch.setattr(module, "_WARN_SECONDS", 1)
    assert embed(tiny_encoder_folder, [corpus], tmp_path / "out", Settings(), workers=2).rows == 20_500
    assert re.search(r"data/part-000-000000.parquet has been running for . s in process \d+ of 127.0.0.1", caplog.text)


@pytest.mark.slow
def test_a_machine_on_which_workers_cannot_start_is_put_aside(
    corpus, tiny_encoder_folder, unbroken, tmp_path, monkeypatch, ray_cluster, caplog
):
    class Fragile(embed_pool.PartWorker):
        def ready(self, packed, *rest):
            try:
                if self._encoder is None:  # else it is called by ``embed``
                    (tmp_path / "first").touch(exist_ok=False)
            except FileExistsError:
                while len(list((tmp_path / "out").glob("data/part-*.parquet"))) < 2:  # the other one has started
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            return super().ready(packed, *rest)

        def embed(self, weights, source, part, *rest):
            time.sleep(0.2)
            return super().embed(weights, source, part, *rest)

    monkeypatch.setattr(embed_pool, "PartWorker", Fragile)
    embed(tiny_encoder_folder, [corpus], tmp_path / "out", SMALL, workers=2)
    assert digests(tmp_path / "out") == unbroken
    assert "a worker failed while it started" in caplog.text


def test_on_a_cluster_machines_are_waited_for(monkeypatch, ray_cluster, caplog):
    monkeypatch.setattr(module, "_WARN_SECONDS", 0)
    monkeypatch.setattr(module, "_GIVE_UP_SECONDS", 0)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    absence = module._Absence(0)
    for _ in range(3):
        absence.check(False)
    assert caplog.text.count("no worker for") == 3
    monkeypatch.delenv("RAY_ADDRESS")
    with pytest.raises(ChildProcessError, match="no worker for 0 s"):
        absence.check(False)


@pytest.mark.parametrize(
    ("count", "available", "message"),
    [(1, 0, "PyTorch finds no GPU"), (4, 1, "`gpus` is 4, but PyTorch finds only 1 on this machine")],
)
def test_gpus_that_a_machine_does_not_have(count, available, message, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: available)
    with pytest.raises(ValueError, match=message):
        require_device("cuda", count)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    require_device("cuda", count)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_job_for_gpus_ends_where_there_is_none(corpus, tiny_encoder_folder, tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    given = {"inference": Inference(device="cuda"), "gpus": Gpus(2, 0.5)}
    for call in (embed, dry_run):
        with pytest.raises(ValueError, match="PyTorch finds no GPU"):
            call(tiny_encoder_folder, [corpus], tmp_path / "out", SMALL, **given)
    for gpus, name in ((Gpus(2), "gpus"), (Gpus(gpu_share=0.5), "gpu_share")):
        with pytest.raises(ValueError, match=f"`{name}` is .* CPU; leave `{name}` out"):
            workers_of(open_encoder(str(tiny_encoder_folder)), 2, gpus)
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.2:6379")  # the workers' machines have them
    encoder = open_encoder(str(tiny_encoder_folder), given["inference"])
    assert workers_of(encoder, 8, given["gpus"]) == (4, 0.5)


@pytest.mark.slow
def test_a_part_that_kills_every_worker_is_an_error_in_words(
    corpus, tiny_encoder_folder, tmp_path, monkeypatch, ray_cluster
):
    class Killer(embed_pool.PartWorker):
        def embed(self, weights, source, part, *rest):
            if part.pieces[0].row == 3000:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().embed(weights, source, part, *rest)

    assert (module._TRIES, module._WARN_SECONDS, module._GIVE_UP_SECONDS) == (4, 60, 1800)  # as the guarantees say
    monkeypatch.setattr(embed_pool, "PartWorker", Killer)
    monkeypatch.setattr(module, "_TRIES", 2)  # each starts a process
    with pytest.raises(ChildProcessError, match="2 workers failed on the part"):
        embed(tiny_encoder_folder, [corpus], tmp_path / "out", SMALL, workers=1)
    assert len(list((tmp_path / "out").glob("data/part-*.parquet"))) >= 3


@pytest.mark.slow
def test_a_part_is_not_blamed_for_workers_that_fail_before_its_turn(
    corpus, tiny_encoder_folder, unbroken, tmp_path, monkeypatch, ray_cluster
):
    """Three failures of a part are allowed; the failure of the part before it is none of them."""
    left = [tmp_path / f"{row}-{number}" for row, count in ((0, 1), (1000, 3)) for number in range(count)]
    for path in left:
        path.touch()

    class Killer(embed_pool.PartWorker):
        def embed(self, weights, source, part, *rest):
            for path in left:
                if path.name.startswith(f"{part.pieces[0].row}-") and path.exists():
                    path.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
            return super().embed(weights, source, part, *rest)

    monkeypatch.setattr(embed_pool, "PartWorker", Killer)
    embed(tiny_encoder_folder, [corpus], tmp_path / "out", SMALL, workers=1)
    assert not any(path.exists() for path in left)
    assert digests(tmp_path / "out") == unbroken


def test_workers_that_cannot_start_are_an_error_in_words(
    corpus, tiny_encoder_folder, tmp_path, monkeypatch, ray_cluster
):
    class Broken(embed_pool.PartWorker):
        def __init__(self):
            import no_such_module  # noqa: F401, PLC0415

    monkeypatch.setattr(embed_pool, "PartWorker", Broken)
    with pytest.raises(ChildProcessError, match=r"fail while they start.*'no_such_module'"):
        embed(tiny_encoder_folder, [corpus], tmp_path / "out", SMALL, workers=1)


@pytest.mark.slow
def test_workers_for_which_there_is_no_cpu_are_waited_for_and_then_an_error_in_words(
    corpus, tiny_encoder_folder, tmp_path, monkeypatch, unbroken, caplog
):
    class Holder:
        """Another job."""

    cpus = ray.cluster_resources()["CPU"]
    holder = ray.remote(num_cpus=cpus)(Holder).remote()
    ray.get(holder.__ray_ready__.remote())
    waited = r"no worker for [3-6] s: each needs a CPU; free CPUs in the cluster: 0; .* again"
    with monkeypatch.context() as patch:
        patch.setattr(module, "_WARN_SECONDS", 1)
        patch.setattr(module, "_GIVE_UP_SECONDS", 3)
        with pytest.raises(ChildProcessError, match=waited):
            embed(tiny_encoder_folder, [corpus], tmp_path / "out", SMALL, workers=1)
    ray.kill(holder)
    assert "no worker for 1 s" in caplog.text
    embed(tiny_encoder_folder, [corpus], tmp_path / "out", SMALL, workers=1)
    assert digests(tmp_path / "out") == unbroken


def test_another_encoder_is_refused_and_overwrite_replaces(corpus, tiny_encoder_folder, tiny_words, unbroken, tmp_path):
    other = tmp_path / "other"
    checkpoint.save(Encoder(AvgConfig(), tiny_words, "space"), other, recipe={}, provenance={}, model_card="")
    out = tmp_path / "out"
    build(other, corpus, SMALL, out)
    before = digests(out)
    with pytest.raises(ValueError, match=r"another tokenizer \(was space, is ptb-v1\); encoder"):
        embed(tiny_encoder_folder, [corpus], out, SMALL)
    assert digests(out) == before
    assert local(tiny_encoder_folder, [corpus], out, SMALL, overwrite=True).embedded == 21
    assert digests(out) == unbroken
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]


def test_overwrite_leaves_alone_what_another_run_began_meanwhile(corpus, tiny_encoder_folder, unbroken, tmp_path):
    out, ended = tmp_path / "out", threading.Event()

    def other_run():
        while not staging_folder(out).exists():
            time.sleep(0.002)
        out.mkdir()
        with locked(out):
            ended.wait()

    other = threading.Thread(target=other_run)
    other.start()
    try:
        with pytest.raises(ValueError, match=r"another run is writing to .*/out;"):
            local(tiny_encoder_folder, [corpus], out, SMALL, overwrite=True)
        assert list(out.iterdir()) == []
    finally:
        ended.set()
        other.join()
    assert local(tiny_encoder_folder, [corpus], out, SMALL, overwrite=True).embedded == 0
    assert digests(out) == unbroken
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_mlflow_learns(corpus, undisturbed, store):
    client = MlflowClient(store)
    (run,) = client.search_runs(["1"], "attributes.run_name = 'embed undisturbed'")
    (trained,) = client.search_runs(["1"], "attributes.run_name = 'train tiny'")
    values, written = run.data, json.loads((undisturbed / "_manifest.json").read_text())
    assert (values.params["encoder"], values.params["dtype"]) == (trained.data.tags["fingerprint"], "float32")
    assert (values.params["parts"], values.tags["workers"]) == ("21", "1")
    assert values.tags["encoder_run"] == trained.info.run_id
    assert (values.metrics["rows"], values.metrics["n_unknown"]) == (20_500, written["n_unknown"])
    assert values.metrics["unknown_share"] == pytest.approx(written["n_unknown"] / written["n_tokens"])
    assert 0 < values.metrics["part_seconds/p50"] <= values.metrics["part_seconds/p100"]
    (data,) = run.inputs.dataset_inputs
    assert data.dataset.digest == written["fingerprints"]["inputs"][:36]
    assert json.loads(data.dataset.source) == [str(corpus)]
    assert {one.path for one in client.list_artifacts(run.info.run_id)} == {"_manifest.json", "part-seconds.json"}
    assert sum(json.loads((undisturbed / "_reports" / "part-seconds.json").read_text())["parts"]) == 21


def test_too_many_unreadable_rows_and_ids_that_repeat_stop_a_run_and_leave_what_was_done(
    tiny_encoder_folder, tmp_path, capsys
):
    rows = [json.dumps({"id": number, "body": "the cat"}) for number in range(5000)]
    rows[100], rows[4100], rows[4900] = "{", '{"id": 7, "body": "the dog"}', '{"id": null, "body": "a dog"}'
    source, out = tmp_path / "t.jsonl", tmp_path / "out"
    source.write_text("\n".join(rows))
    settings = Settings("body", "id", part_rows=1000)
    few = Limits(max_rejected=0)
    for _ in range(2):  # the second time, nothing is left to embed
        with pytest.raises(ValueError, match=r"1 of 5,000 .*`max_rejected` is 0; .*_rejected/part-000-000000"):
            local(tiny_encoder_folder, [source], tmp_path / "one", Settings("body"), limits=few)
    nested, most = tmp_path / "nested.jsonl", Limits(max_rejected_share=0.75)
    nested.write_text('{"doc": {"body": "the cat"}}\n' * 3 + '{"doc": "the dog"}\n')
    mostly = r"3 of 4 .*max_rejected_share` is 0.5; .*part-000-000000.jsonl: 'doc' is no string"
    with pytest.raises(ValueError, match=mostly):
        local(tiny_encoder_folder, [nested], tmp_path / "none", Settings("doc"))
    assert not {"_SUCCESS", "_manifest.json"} & {path.name for path in (tmp_path / "none").iterdir()}
    local(tiny_encoder_folder, [nested], tmp_path / "none", Settings("doc"), limits=most)
    with pytest.raises(ValueError, match=r"t\.jsonl, row 4,901: 'id' is null.*`on_duplicate_id`"):
        local(tiny_encoder_folder, [source], out, settings, limits=Limits(max_rejected=1))
    capsys.readouterr()
    done = local(tiny_encoder_folder, [source], out, settings, limits=Limits(1, "keep"))
    assert (done.rows, done.embedded < 5) == (4999, True)
    assert capsys.readouterr().err.splitlines()[-3:] == [
        "1 of 4,999 rows have no id",
        "1 of 4,999 rows repeat an id",
        f"1 rows of the input could not be read; the reasons are in {out / '_rejected'}",
    ]
    assert all(check.ok for check in verify(out, tiny_encoder_folder, [str(source)]))


def test_rows_of_unknown_tokens_are_reported(tiny_encoder_folder, tmp_path, capsys):
    for name, texts in {"a": ["the cat", "xyzzy", "", "the xyzzy"], "b": ["plugh xyzzy", "a dog"]}.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(texts))
    inputs = [tmp_path / "a.txt", tmp_path / "b.txt"]
    local(tiny_encoder_folder, inputs, tmp_path / "out", Settings(part_rows=2))
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("44.4% of the tokens are out of vocabulary; rows without other tokens: 2 (a.txt, row 2; b.t")
    (tmp_path / "a.txt").write_text("the cat\n" * 20 + "the xyzzy\n")  # less than 5 %
    local(tiny_encoder_folder, inputs[:1], tmp_path / "few", Settings())
    assert "vocabulary" not in capsys.readouterr().err


def test_what_a_run_left_to_do_that_was_killed_behind_its_commit_is_done(corpus, tiny_encoder_folder, tmp_path, store):
    out = tmp_path / "unrecorded"
    build(tiny_encoder_folder, corpus, SMALL, out)
    with pytest.raises(KeyboardInterrupt), recorded(Folder(out), Folder(out)):
        raise KeyboardInterrupt
    shutil.copytree(out, tmp_path / ".unrecorded.old")
    (tmp_path / ".unrecorded.old" / "_SUCCESS").unlink()
    client, before = MlflowClient(store), digests(out)
    run_id = run_of(client, out / "_reports" / "run.json").info.run_id
    assert not client.get_run(run_id).data.metrics
    for _ in range(2):
        assert embed(tiny_encoder_folder, [corpus], out, SMALL).was_finished
        run = client.get_run(run_id)
        assert (run.info.status, run.data.metrics["rows"]) == ("FINISHED", 20_500)
        assert len(client.get_metric_history(run_id, "rows")) == 1
        assert {one.path for one in client.list_artifacts(run_id)} == {"_manifest.json", "part-seconds.json"}
    assert digests(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["unrecorded"]


def test_a_manifest_that_is_not_of_the_parts_is_written_again(corpus, tiny_encoder_folder, tmp_path):
    """``verify`` says that the same command repairs it."""
    out = tmp_path / "out"
    build(tiny_encoder_folder, corpus, SMALL, out)
    before = digests(out)
    sign(out, lambda values: values["parts"][1].update(sha256="0" * 64))
    assert not all(check.ok for check in verify(out))
    assert embed(tiny_encoder_folder, [corpus], out, SMALL).embedded == 0
    assert digests(out) == before
    assert all(check.ok for check in verify(out))


def test_an_input_that_changes_meanwhile_is_not_committed(corpus, tiny_encoder_folder, tmp_path, monkeypatch):
    source, out = tmp_path / "t.txt", tmp_path / "out"
    shutil.copy(corpus, source)
    build(tiny_encoder_folder, source, SMALL, out)
    (out / "_SUCCESS").unlink()
    monkeypatch.setattr(module_of_embed, "_say_plan", lambda *_: os.utime(source))
    with pytest.raises(ValueError, match=r"t\.txt changed while .*`overwrite`"):
        embed(tiny_encoder_folder, [source], out, SMALL)
    assert not (out / "_SUCCESS").exists()


def test_bad_input_changes_nothing(corpus, tiny_encoder_folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    good = {"encoder": tiny_encoder_folder, "inputs": [corpus], "out": tmp_path / "out", "settings": SMALL}
    for change, kind, message in (
        ({"inputs": [tmp_path / "missing.txt"]}, FileNotFoundError, r"missing\.txt does not exist"),
        ({"inputs": [tmp_path / "mine"], "out": tmp_path / "mine" / "out"}, ValueError, "is inside of the input"),
        ({"inputs": [corpus], "out": corpus.parent}, ValueError, r"contains a file .*: t\.txt"),
        ({"encoder": tmp_path / "missing"}, FileNotFoundError, "expected an encoder folder"),
        ({"out": tmp_path / "mine"}, ValueError, r"contains a file .*: notes\.txt"),
        ({"out": tmp_path / "mine", "overwrite": True}, ValueError, r"contains a file .*: notes\.txt"),
        ({"out": corpus}, NotADirectoryError, "is a file"),
        ({"workers": 0}, ValueError, "`workers` is 0"),
        ({"settings": Settings(dim=5)}, ValueError, "`dim` is 5"),
    ):
        with pytest.raises(kind, match=message):
            embed(**(good | change))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_is_stopped_leaves_what_the_same_command_finishes(corpus, tiny_encoder_folder, tmp_path, how):
    out = tmp_path / "out"
    given = "--encoder", tiny_encoder_folder, "--input", corpus, "--out", out, "--part-rows", 100, "--engine", "ray"
    # The parts are tiny, and many: the signal must come before the last. A terminal sends it to the whole group.
    some = {"victims": lambda job: [*job.children(recursive=True), job]} if how == signal.SIGINT else {}
    status, said = interrupted(job_command("embed", *given), lambda: list(out.glob("data/part-*.parquet")), how, **some)
    assert status == 130
    lines = said.splitlines()  # a busy machine also shows what it waits for
    assert f"20,500 rows in 205 parts to {out}, workers: 2" in lines
    assert lines[-1] == "stopped; run the same command again to resume"
    assert "Traceback" not in said
    assert not (out / "_SUCCESS").exists()
    assert len(list(out.glob("data/part-*.parquet"))) < 205
    settings = replace(SMALL, part_rows=100)
    done = embed(tiny_encoder_folder, [corpus], out, settings, workers=2)
    assert 0 < done.embedded < 205
    embed(tiny_encoder_folder, [corpus], tmp_path / "unbroken", settings)
    assert digests(out) == digests(tmp_path / "unbroken")


def test_progress_in_words():
    progress = EmbeddingProgress(1000, 200)
    assert progress.line(1.0) == "200 of 1,000 rows  20%  0 rows/s  starting"
    progress.done += 400
    assert progress.line(4.0) == "600 of 1,000 rows  60%  100 rows/s  4 s left"
    progress.retried += 1
    assert progress.line(4.0) == "600 of 1,000 rows  60%  100 rows/s  4 s left  1 part failed, retried"
    progress.begun = 200  # of a part that is not finished
    assert progress.line(4.0).startswith("800 of 1,000 rows  80%  150 rows/s  1 s left")
    progress.begun = 250
    assert progress.line(14.5).split("  ")[2] == "5 rows/s"  # of the last ten seconds
