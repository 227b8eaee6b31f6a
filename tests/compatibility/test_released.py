"""What an earlier version wrote is read, resumed, verified and found finished; see ``released.py``."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import paraembed
from paraembed.embedding.status import status_of
from paraembed.io.fingerprint import sha256_of
from tests.compatibility.released import COMMANDS, RELEASED
from tests.jobs import run_job

pytestmark = pytest.mark.ray

FEW = ["embeddings/csv"]
AS_RECORDED = ["finetuned"]  # the recipe of this name has other settings now
BEFORE_LABELS = ["shards/ppdb"]  # kept all entailments of PPDB
FINISHED = [
    pytest.param(output, marks=[] if output in FEW else pytest.mark.slow)
    for output in COMMANDS
    if output not in AS_RECORDED + BEFORE_LABELS
]
SHARDS, EMBEDDINGS = ([name for name in COMMANDS if name.startswith(kind)] for kind in ("shards/", "embeddings/"))


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("released")
    with tarfile.open(RELEASED) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(autouse=True)
def _store(released, ray_cluster, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{released}/mlflow.db")
    monkeypatch.chdir(released)


def run(output, out=None, flags=()):
    """Run the command of an output; return its exit status."""
    job, *given = COMMANDS[output].split()
    return run_job(Path(job).stem, *given, "--out", out or output, *flags)


def state(folder):
    """Digest and time of every file."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (sha256_of(path), path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize("output", FINISHED)
def test_what_is_finished_is_left_alone(released, output):
    folder = released / output / "trials" if output == "sweep" else released / output  # its tables are written again
    tables = ("results.csv", "best.json", "best-recipe.json")
    before, tables_before = state(folder), [(released / "sweep" / name).read_bytes() for name in tables]
    assert run(output) == 0
    assert state(folder) == before
    tables_after = [(released / "sweep" / name).read_bytes() for name in tables]
    first = [table[0].replace(b'"p",', b"").replace(b",,1,", b",1,") for table in (tables_before, tables_after)]
    assert first[0] == first[1], "except for the new column p, which is empty here"
    assert tables_before[1:] == tables_after[1:]


@pytest.mark.slow
@pytest.mark.parametrize("output", BEFORE_LABELS)
def test_an_output_with_other_labels_is_refused_and_keeps_its_bytes(released, output, capsys):
    before = state(released / output)
    assert run(output) == 2
    assert "settings.keep_labels (was not set, is default)" in capsys.readouterr().err
    assert state(released / output) == before


@pytest.mark.slow
@pytest.mark.parametrize("output", AS_RECORDED)
def test_a_recorded_recipe_is_read_with_the_forms_of_0_1(released, output, capsys):
    folder = released / output
    before = state(folder)
    recipe = released / f"{output}.json"
    recipe.write_text(json.dumps(json.loads((folder / "config.json").read_text())["recipe"]))
    assert run(output, flags=["--recipe", recipe.name]) == 0
    assert state(folder) == before
    assert run(output) == 2
    assert "recipe.optimizer (was adagrad, is adam)" in capsys.readouterr().err


def test_an_encoder_of_every_family_gives_the_same_vectors(released):
    texts = (released / "inputs" / "texts.txt").read_text().splitlines()[:20]
    for name, expected in json.loads((released / "encoders" / "vectors.json").read_text()).items():
        encoder = paraembed.load(released / "encoders" / name)
        assert encoder.fingerprint == expected["fingerprint"]
        np.testing.assert_allclose(encoder.encode(texts), expected["vectors"], atol=2e-6)


def test_the_status_of_both_is_shown(released):
    half, done = (status_of(released / "embeddings" / name) for name in ("txt.half", "csv"))
    assert (half.state, half.parts_done < half.parts == 20) == ("stopped", True)
    assert (done.state, done.parts_done, done.generation, done.error) == ("finished", 20, 0, None)


def test_a_half_done_embedding_is_resumed(released):
    half, whole = released / "embeddings" / "txt.half", released / "embeddings" / "txt"
    before = {name: value for name, value in state(half).items() if name.endswith(".parquet")}
    assert 1 < len(before) < 20
    assert run("embeddings/txt", "embeddings/txt.half") == 0
    after = {name: value for name, value in state(half).items() if name.endswith(".parquet")}
    assert before.items() <= after.items()
    assert {name: digest for name, (digest, _) in after.items()} == {
        path.name: sha256_of(path) for path in whole.glob("*.parquet")
    }


@pytest.mark.slow
def test_a_stopped_training_is_resumed_to_the_same_weights(released, capsys):
    assert run("encoders/stopped", "encoders/stopped.half") == 0
    assert "encoders/stopped.half.training" in capsys.readouterr().err  # named only where the run is resumed
    resumed, whole = (
        load_file(released / "encoders" / name / "model.safetensors") for name in ("stopped.half", "stopped")
    )
    assert resumed.keys() == whole.keys()
    for name, tensor in whole.items():
        # The fixture comes from another processor: there and here, an uninterrupted training differs by 4.5e-5.
        np.testing.assert_allclose(resumed[name], tensor, atol=1e-4)


def test_a_finished_embedding_is_verified(released):
    assert run_job("verify", released / "embeddings" / "csv") == 0


@pytest.mark.slow
@pytest.mark.parametrize("output", SHARDS)
def test_new_shards_have_the_same_bytes(released, output):
    assert run(output, f"{output}.new") == 0
    left_out = ("manifest.json", "_SUCCESS") if output in BEFORE_LABELS else ()  # the manifest counts labels
    new, old = (
        {name: digest for name, (digest, _) in state(released / folder).items() if name not in left_out}
        for folder in (f"{output}.new", output)
    )
    assert new == old


@pytest.mark.slow
@pytest.mark.parametrize("output", EMBEDDINGS)
def test_new_embeddings_have_the_same_rows(released, output):
    """In their order; earlier versions did not split row groups, so other parts have them."""
    assert run(output, f"{output}.new") == 0
    folders = released / f"{output}.new" / "data", released / output
    new, old = ([row for path in sorted(folder.glob("part-*")) for row in rows(path)] for folder in folders)
    assert new == old


def rows(path):
    return pq.read_table(path).to_pylist()
