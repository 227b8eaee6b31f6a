"""A training with its output on an object store: whole or not there, and resumable on another machine."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paraembed.cluster.train import Training, remove_other, train_model
from paraembed.commands.evaluate import Evaluate
from paraembed.commands.evaluate import main as evaluate
from paraembed.commands.finetune import Finetune
from paraembed.commands.finetune import main as finetune
from paraembed.commands.train import Train
from paraembed.commands.train import main as train
from paraembed.recipe import Recipe, SupervisedRecipe
from paraembed.settings import Placement
from paraembed.training.data import Pairs
from tests.cluster.test_finetune import write_gold
from tests.object_store import GoneError, kill_client, serving

pytestmark = pytest.mark.usefixtures("in_store")

JOBS = Path(__file__).parents[2] / "jobs"
RECIPE = Recipe(tokenizer="space", epochs=3, learning_rate=0.01, batch_size=50)


def training(sample, folder, uri=None, **more):
    folder.mkdir(exist_ok=True)
    pairs = Pairs(RECIPE, sample / "pairs", sample / "sample" / "vectors.txt.gz")
    return Training("test", pairs, folder / "avg", Placement(**more), uri)


def objects(server, prefix):
    return {key.removeprefix(prefix): data for key, data in server.objects.items() if key.startswith(prefix) and data}


@pytest.fixture(scope="module")
def stored(sample, in_store, tmp_path_factory):
    """The objects of an encoder that was trained where the work of another training was."""
    with serving() as first:
        first.objects["avg.training/checkpoints/step-9/state.json"] = b"{}"  # its identity.json is already removed
        done = train_model(training(sample, tmp_path_factory.mktemp("stored") / "copy", first.uri("avg")))
        assert not done.was_finished
        return dict(first.objects)


def test_an_encoder_on_an_object_store_is_that_of_a_folder(sample, stored, tmp_path, server):
    train_model(training(sample, tmp_path / "folder"))
    server.objects |= stored
    encoder = objects(server, "avg/")
    assert {name: (tmp_path / "folder" / "avg" / name).read_bytes() for name in ("model.safetensors", "words.txt")} == {
        name: encoder[name] for name in ("model.safetensors", "words.txt")
    }
    assert encoder.keys() == {path.name for path in (tmp_path / "folder" / "avg").iterdir()}
    assert objects(server, "avg.training/") == {}
    before = dict(server.objects)
    assert train_model(training(sample, tmp_path / "elsewhere", server.uri("avg"))).was_finished
    assert server.objects == before
    server.objects["avg.training/letter.txt"] = b"dear"
    with pytest.raises(ValueError, match=r"s3://bucket/avg\.training.* did not write: letter\.txt"):
        train_model(training(sample, tmp_path / "again", server.uri("avg")))
    assert objects(server, "avg.training/") == {"letter.txt": b"dear"}


def test_what_an_object_store_cannot_do_is_refused_before_anything_is_written(sample, tmp_path, server):
    server.objects["avg/letter.txt"] = b"dear"
    with pytest.raises(ValueError, match=r"s3://bucket/avg.* jobs/train\.py did not write: letter"):
        train_model(training(sample, tmp_path / "a", server.uri("avg")))
    assert server.objects == {"avg/letter.txt": b"dear"}


@pytest.mark.parametrize(
    "flags", [{"overwrite": True}, {"placement": Placement(profile=True)}, {"evaluate": ("sts",)}, {"recipe": "none"}]
)
def test_nothing_is_downloaded_for_flags_that_cannot_be(server, flags):
    server.objects |= {"pairs/manifest.json": b"{}", "words.txt": b"a 1"}
    allowed = r"`overwrite` needs|`profile` writes|--evaluate and --data|unknown recipe"
    with pytest.raises(ValueError, match=allowed) as caught:
        train(Train(server.uri("pairs"), server.uri("words.txt"), server.uri("avg"), **flags))
    assert "secret" not in str(caught.value)
    assert not [request for request in server.asked if re.match("(GET|HEAD) (pairs|words)", request)]


def test_the_sweeps_own_encoder_is_replaced_on_an_object_store(sample, stored, tmp_path, server):
    server.objects |= stored
    before, own = objects(server, "avg/"), training(sample, tmp_path / "same", server.uri("avg"))
    remove_other(own)
    assert objects(server, "avg/") == before
    remove_other(replace(own, data=own.data.with_recipe(replace(RECIPE, margin=0.9)), out=tmp_path / "other" / "avg"))
    assert objects(server, "avg/") == {}


def test_a_model_is_fine_tuned_and_scored_from_and_to_an_object_store(ray_cluster, tmp_path, server, capsys):
    write_gold(tmp_path / "gold", 100, 100, 100)
    for path in tmp_path.rglob("*.txt"):
        server.objects[str(path.relative_to(tmp_path))] = path.read_bytes()
    server.objects["pairs.tsv"] = b"5\tgood1 bad2\tgood1 bad2\n1\tgood1 good2\tbad3 bad4\n3\tgood5\tgood5 bad1\n"
    settings = SupervisedRecipe(tokenizer="space", epochs=2, batch_size=20, head_width=10)
    places = {"data": server.uri("gold"), "out": server.uri("model"), "words": server.uri("gold/words.txt")}
    flags = Finetune("similarity", **places, settings=settings)
    finetune(flags)
    assert re.search(r"its encoder is s3://bucket/model/encoder\?", capsys.readouterr().err)
    model = objects(server, "model/")
    assert {"config.json", "encoder/config.json", "encoder/model.safetensors"} <= model.keys()
    assert objects(server, "model.training/") == {}
    before = dict(server.objects)
    finetune(flags)
    assert server.objects == before
    features = replace(settings, mode="features")
    pretrained = {"words": None, "pretrained": server.uri("model/encoder"), "settings": features}
    finetune(replace(flags, out=server.uri("features"), **pretrained))
    encoder = objects(server, "features/encoder/")
    assert encoder["model.safetensors"] == model["encoder/model.safetensors"]
    scored = {"pairs": (server.uri("pairs.tsv"),), "out": server.uri("scores")}
    evaluate(Evaluate((server.uri("model/encoder"),), **scored, resamples=0))
    scores = objects(server, "scores/")
    assert b"encoder,avg,pairs/pairs,spearman,1.0," in scores["scores.csv"]
    assert not any(b"secret" in data for data in scores.values())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_training_killed_around_its_uploads_resumes_elsewhere_to_the_same_bytes(sample, tmp_path, server):
    """Killed before a mark is there and after, with another temporary folder each time."""
    moments = {"PUT avg.training/identity.json", "PUT avg.training/run.json done", "PUT avg/config.json"}
    steps = len({*moments})
    checkpoint = []

    def hook(moment, port):
        is_state = moment.startswith("PUT avg.training/checkpoints/") and moment.endswith("state.json done")
        if moment not in moments and not (is_state and not checkpoint):
            return
        moments.discard(moment)
        checkpoint.extend([moment] if is_state else [])
        kill_client(port)
        if not moment.endswith(" done"):
            raise GoneError

    server.hook = hook
    command = [sys.executable, JOBS / "train.py", "--pairs", sample / "pairs", "--out", server.uri("avg")]
    command += ["--words", sample / "sample" / "vectors.txt.gz", "--tokenizer", "space", "--epochs", 3]
    killed = 0
    while True:
        temporary = tmp_path / f"machine-{killed}"
        temporary.mkdir()
        environment = {**os.environ, "TMPDIR": str(temporary)}
        done = subprocess.run(
            list(map(str, command)), env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        killed += 1
    assert (killed, moments, len(checkpoint)) == (steps + 1, set(), 1)
    server.hook = lambda *_: None
    alone = [tmp_path / "alone" if str(one) == server.uri("avg") else one for one in command]
    subprocess.run(list(map(str, alone)), cwd=tmp_path, check=True, capture_output=True)
    weights = objects(server, "avg/")["model.safetensors"]
    assert weights == (tmp_path / "alone" / "model.safetensors").read_bytes()
    assert objects(server, "avg.training/") == {}
