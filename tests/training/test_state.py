import os
import re
import resource
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from paraembed.encoders.configs import ProjConfig
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import read_json
from paraembed.recipe import Recipe
from paraembed.training.best import Evaluation
from paraembed.training.loop import train
from paraembed.training.state import Checkpoints, Counters, load_state, save_state
from tests.jobs import digests
from tests.training.conftest import encoder_of

RECIPE = Recipe(encoder=ProjConfig(), batch_size=10, epochs=2, learning_rate=0.01)
DECIDES = {"recipe": {"margin": 0.4}}


def save(folder, step, keep=2):
    save_state(folder, Counters(epoch=1, step=step), {"weights": torch.full((1000,), float(step))}, DECIDES, keep)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def with_other_counters(folder):
    state = read_json(folder / "state.json")
    state["counters"]["step"] += 1
    write_json(folder / "state.json", state)


DAMAGES = {
    "a bit of the tensors": lambda folder: flip(folder / "state.safetensors", -1),
    "a bit of their header": lambda folder: flip(folder / "state.safetensors", 9),
    "truncated tensors": lambda folder: os.truncate(folder / "state.safetensors", 3000),
    "no tensors": lambda folder: (folder / "state.safetensors").unlink(),
    "other counters": with_other_counters,
    "a bit of the counters": lambda folder: flip(folder / "state.json", 40),
    "truncated counters": lambda folder: os.truncate(folder / "state.json", 50),
    "empty counters": lambda folder: os.truncate(folder / "state.json", 0),
    "no counters": lambda folder: (folder / "state.json").unlink(),
    "a number": lambda folder: (folder / "state.json").write_text("5"),
    "counters of another kind": lambda folder: (folder / "state.json").write_text('["sha256"]'),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, caplog, damage):
    save(tmp_path, 1)
    save(tmp_path, 2)
    damage(tmp_path / "step-0000000002")
    loaded = load_state(tmp_path, DECIDES)
    assert loaded is not None
    assert (loaded[0].step, float(loaded[1]["weights"][0])) == (1, 1.0)
    assert re.search(r"damaged.* step-0000000002 \(.+\);.* step-0000000001", caplog.text)
    assert load_state(tmp_path / "none", DECIDES) is None


def test_damaged_checkpoints_never_push_out_whole_ones(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 9)
    with_other_counters(tmp_path / "step-0000000009")
    save(tmp_path, 2, keep=1)
    assert names(tmp_path) == ["step-0000000002"]
    assert load_state(tmp_path, DECIDES) is not None


def test_the_last_checkpoints_are_kept(pairs, tmp_path):
    (tmp_path / ".step-0000000007.tmp").mkdir(parents=True)  # of a run that was killed
    train(encoder_of(RECIPE), pairs.slice(0, 340), RECIPE, checkpoints=Checkpoints(tmp_path, steps=7, keep=3))
    assert names(tmp_path) == ["step-0000000021", "step-0000000028", "step-0000000034"]


BEGUN = Evaluation(lambda _: (0.5, {}), every=0.1, decides={"sets": "ones"})


@pytest.mark.parametrize(
    ("recipe", "num_pairs", "evaluation", "message"),
    [
        (replace(RECIPE, margin=0.5), 20, BEGUN, r"recipe\.margin \(was 0\.4, is 0\.5\)"),
        (RECIPE, 19, BEGUN, r"pairs \(was 20, is 19\)"),
        (RECIPE, 20, replace(BEGUN, every=0.5), r"evaluation\.every \(was 0\.1, is 0\.5\)"),
        (RECIPE, 20, replace(BEGUN, patience=4), r"evaluation\.patience \(was not set, is 4\)"),
        (RECIPE, 20, replace(BEGUN, decides={"sets": "other"}), r"evaluation\.sets \(was ones, is other\)"),
        (RECIPE, 20, None, r"evaluation\.every \(was 0\.1, is not set\)"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(pairs, tmp_path, recipe, num_pairs, evaluation, message):
    folder = Checkpoints(tmp_path)
    train(encoder_of(RECIPE), pairs.slice(0, 40), RECIPE, checkpoints=folder, evaluation=BEGUN)
    before, pairs = digests(tmp_path, "**/*"), pairs.slice(0, 2 * num_pairs)
    with pytest.raises(ValueError, match=f"another training: {message}"):
        train(encoder_of(RECIPE), pairs, recipe, checkpoints=folder, evaluation=evaluation)
    assert digests(tmp_path, "**/*") == before


def test_where_all_checkpoints_are_damaged_the_run_begins_anew(pairs, tmp_path, caplog):
    first, second, pairs = encoder_of(RECIPE), encoder_of(RECIPE), pairs.slice(0, 200)
    train(first, pairs, RECIPE, checkpoints=Checkpoints(tmp_path))
    for path in tmp_path.iterdir():
        flip(path / "state.safetensors", -1)
    counters = train(second, pairs, RECIPE, checkpoints=Checkpoints(tmp_path))
    assert "is intact, so the training starts over" in caplog.text
    assert torch.equal(first.matrix, second.matrix)
    assert counters.step == 20


@contextmanager
def files_up_to(size):
    """No file of this process grows beyond ``size`` bytes; the write fails, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_run_whose_checkpoints_cannot_be_written_goes_on(pairs, tmp_path, caplog):
    """A run is stopped at step 100, goes on to its end while nothing can be written, and once more from step 100."""
    unbroken, stopped, limited, after = (encoder_of(RECIPE) for _ in range(4))
    train(unbroken, pairs, RECIPE)
    checkpoints = Checkpoints(tmp_path, steps=10)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, pairs, RECIPE, checkpoints=checkpoints, on_report=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    whole = digests(tmp_path, "**/*")
    assert names(tmp_path) == ["step-0000000090", "step-0000000100"]
    with files_up_to(1500):
        train(limited, pairs, RECIPE, checkpoints=checkpoints)
    assert digests(tmp_path, "**/*") == whole
    (message,) = caplog.messages
    assert "the checkpoint of step 103 could not be written" in message
    assert "training continues, and earlier checkpoints are kept" in message
    train(after, pairs, RECIPE, checkpoints=checkpoints)
    assert names(tmp_path) == ["step-0000000200", "step-0000000206"]
    assert torch.equal(limited.matrix, unbroken.matrix)
    assert torch.equal(after.matrix, unbroken.matrix)
