"""jobs/tune.py on gold labels: a small supervised space through Ray, the JSON recipe, what is refused."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from mlflow.tracking import MlflowClient

import paraembed
from paraembed import checkpoint
from paraembed.cluster.train import Training, train_model
from paraembed.cluster.tune import Sweep, begun, trial_inputs
from paraembed.commands.tune import Tune
from paraembed.commands.tune import main as tune
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, ProjConfig
from paraembed.papers import find_supervised_recipe
from paraembed.settings import Placement, SearchSettings
from paraembed.supervised.labels import read_labels
from paraembed.supervised.model import read_config
from paraembed.text.vocabulary import read_words
from paraembed.tuning.choosing import read_labels_for, without_idle_axes
from paraembed.tuning.points import Points
from tests.cluster.test_finetune import write_gold
from tests.cluster.test_tune import kill_after_a_trial
from tests.jobs import job_command, run_job
from tests.mlflow_server import run_of
from tune_spaces import SPACES

NAME = "iclr2016/supervised-avg"

pytestmark = pytest.mark.usefixtures("in_store")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Generated pairs in the form of SICK, word vectors, and an encoder of each of two kinds."""
    folder = tmp_path_factory.mktemp("gold")
    write_gold(folder, 200, 80, 100)
    for name, config in {"avg": AvgConfig(), "proj": ProjConfig(width=20)}.items():
        encoder = Encoder(config, read_words(folder / "words.txt"), "space", 3, max_tokens=50)
        checkpoint.save(encoder, folder / name, recipe={}, provenance={}, model_card="tiny\n")
    return folder


def flags(data, out):
    begins = {"words": data / "words.txt", "data": data, "task": "similarity", "out": out}
    few = SearchSettings("random", 4)
    return Tune(NAME, **begins, settings=few, fixed=("tokenizer=space",), epochs=3, concurrent=2)


def table(out):
    return pq.read_table(out / "results.parquet").to_pylist()


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_on_gold_labels_its_recipe_and_its_protocol(data, tmp_path, store, ray_cluster, capsys):
    out = tmp_path / "sweep"
    whole = replace(flags(data, out), protocol=True, final_epochs=2, register="gold")
    tune(whole)
    said = capsys.readouterr()
    assert "4 trials of 3 epochs on 200 examples, " in said.err
    rows = table(out)
    assert [row["status"] for row in rows] == ["finished"] * 4
    best = json.loads((out / "best.json").read_text())
    assert best["score"] == best["metrics"]["dev/pearson"] == max(row["score"] for row in rows)
    recipe = find_supervised_recipe(str(out / "best-recipe.json"))
    assert recipe.epochs == 3
    words, model = data / "words.txt", tmp_path / "model"
    train_model(Training("best", read_labels(recipe, "similarity", None, data, words), model))
    scores = read_config(model)["provenance"]["scores"]
    assert scores["dev"]["values"]["pearson"] == pytest.approx(best["score"], abs=1e-6)
    winner = read_config(out / "model")
    assert winner["recipe"] == {**best["recipe"], "epochs": 2}
    assert f"{100 * winner['provenance']['scores']['test']['values']['pearson']:.2f}" in said.out
    client = MlflowClient(store)
    version = client.get_model_version_by_alias("gold", "champion")
    assert version.tags["fingerprint"] == paraembed.load(out / "model" / "encoder").fingerprint
    parent = run_of(client, out / "run.json").info.run_id
    children = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{parent}'")
    (training,) = (run for run in children if "trial" not in run.data.tags)
    assert training.data.tags["fingerprint"] == winner["fingerprint"]
    assert {run.data.params["task"] for run in (client.get_run(parent), training)} == {"similarity"}
    tune(whole)
    assert "is already finished; nothing to do" in capsys.readouterr().err


def test_a_sweep_goes_on_only_with_its_own_task_data_and_encoder(data, tmp_path, tmp_path_factory):
    points = Points("iclr2016/universal-avg", SPACES["iclr2016/universal-avg"])

    def begin(pretrained, task="similarity", folder=data):
        labels, of_prior = read_labels_for(points, task, None, folder, None, pretrained)
        begun(Sweep(of_prior, points.space.selection, labels, tmp_path, concurrent=1), overwrite=False)

    begin(data / "avg")
    begin(data / "avg")
    with pytest.raises(ValueError, match=r"another task \(was similarity, is entailment\)"):
        begin(data / "avg", "entailment")
    other = tmp_path_factory.mktemp("other")
    encoder = Encoder(AvgConfig(), read_words(data / "words.txt"), "space", 4)
    checkpoint.save(encoder, other / "avg", recipe={}, provenance={}, model_card="tiny\n")
    with pytest.raises(ValueError, match=r"another pretrained \(was [0-9a-f]{12}…, is [0-9a-f]{12}…\)"):
        begin(other / "avg")
    (other / "sick").mkdir()
    for path in (data / "sick").iterdir():
        lines = path.read_text().splitlines(keepends=True)
        (other / "sick" / path.name).write_text("".join(lines[:150]))
    with pytest.raises(ValueError, match=r"another data \(was [0-9a-f]{12}…, is [0-9a-f]{12}…\)"):
        begin(data / "avg", folder=other)


def test_what_the_prior_decides_is_in_every_recipe(data, tmp_path):
    points = Points("iclr2016/features-proj", SPACES["iclr2016/features-proj"])
    given = "similarity", None, data, None
    _, of_prior = read_labels_for(points, *given, data / "proj")
    for number in range(points.space.size):
        recipe = of_prior.at(points.space.choices(number)).recipe
        assert (recipe.encoder, recipe.tokenizer, recipe.max_tokens) == (ProjConfig(width=20), "space", 50)
    with pytest.raises(ValueError, match=r"tokenizer is determined by .*`pretrained`;.*`fixed`"):
        read_labels_for(replace(points, fixed={"tokenizer": "ptb-v1"}), *given, data / "proj")
    with pytest.raises(ValueError, match="encoder proj, but `pretrained` is avg"):
        read_labels_for(points, *given, data / "avg")


def test_wrong_combinations_are_said_before_anything_runs(data, tmp_path):
    good, universal, turney = flags(data, tmp_path / "out"), "iclr2016/universal-avg", "acl2017/supervised-gran"
    for changes, match in (
        ({"task": None}, r"trains on labeled examples; add --task, one of similarity, entailment, "),
        ({"pairs": data}, r"--pairs does not apply, because the space .* trains on labeled examples"),
        ({"final_pairs": data}, r"--final-pairs does not apply"),
        ({"sample": 100}, r"--sample does not apply, .* all of a task's training set"),
        ({"metric": "sts/mean"}, r"--metric does not apply, .* by its dev set"),
        ({"space": "acl2017/avg"}, r"--task does not apply, .* acl2017/avg trains on pairs"),
        ({"words": None}, r"the mode scratch starts from word vectors; give `words` VECTORS"),
        ({"pretrained": data / "avg"}, r"give `words` VECTORS, and no `pretrained`"),
        ({"space": universal}, r"the mode universal needs a trained encoder; give `pretrained`"),
        ({"data": None}, r"--data is missing; add it, or use --dry-run"),
        ({"data": tmp_path}, r"sick/SICK_train.txt does not exist, but the task 'similarity' needs"),
        ({"data_set": "sst"}, r"the task 'similarity' has no data set 'sst'; allowed: sick, sts"),
        ({"fixed": ("eval_every=100",)}, r"eval_every is 100, but trials are always scored on the dev set"),
        ({"space": turney, "task": "turney"}, r"the space .*: scramble is 0\.\d+, but the answer of turney"),
        ({"fixed": ("head_layer=none",)}, r"head_layer is none, but the task similarity needs a"),
        ({"placement": Placement(profile=True)}, r"--profile does not apply"),
        ({"final_epochs": 3}, r"--final-epochs is for the training after the search; add --protocol"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=match):
            tune(replace(good, **changes))
        assert not (tmp_path / "out").exists()
    given = "similarity", None, data, data / "words.txt", None
    labels, points = read_labels_for(Points(NAME, SPACES[NAME]), *given)
    with pytest.raises(ValueError, match=r"trials at a time need .* GiB"):
        trial_inputs(labels, points, concurrent=10**9)


def test_axes_that_decide_nothing_for_a_task_are_not_searched(capsys):
    points = Points(NAME, SPACES[NAME])
    assert without_idle_axes(points, "similarity") is points
    assert capsys.readouterr().err == ""
    space = without_idle_axes(points, "turney").space
    assert points.space.axes.keys() - space.axes.keys() == {"head_width", "head_l2"}
    assert points.space.size == space.size * len(points.space.axes["head_width"]) * len(points.space.axes["head_l2"])
    assert "not searched, because it has no effect for the task turney: head_width, head_l2" in capsys.readouterr().err


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_driver_goes_on_to_the_same_table(data, tmp_path, store, capsys, ray_cluster):
    def whole_job(out):
        paths = "--words", data / "words.txt", "--data", data, "--out", out
        search = "--search", "tpe", "--trials", 4, "--asha", "--epochs", 150, "--concurrent", 1
        return "tune", NAME, "--task", "similarity", *paths, *search, "--set", "tokenizer=space"

    cut, trials = tmp_path / "cut", tmp_path / "cut" / "trials"
    kill_after_a_trial(job_command(*whole_job(cut)), cut)
    before = {path.name: path.stat().st_mtime_ns for path in trials.iterdir()}
    assert 1 <= len(before) < 4
    assert not (cut / "results.parquet").exists()
    for out in (cut, tmp_path / "whole"):
        capsys.readouterr()
        assert run_job(*whole_job(out)) == 0
        said = capsys.readouterr().err
        assert ("resuming the work in" in said) == (out == cut)
        assert f"{4 - len(before) if out == cut else 4} trials of 150 epochs" in said
    assert before.items() <= {path.name: path.stat().st_mtime_ns for path in trials.iterdir()}.items()
    tables = [pq.read_table(out / "results.parquet").drop_columns(["seconds"]) for out in (cut, tmp_path / "whole")]
    assert tables[0].num_rows == 4
    assert tables[0].equals(tables[1])
    best = [(out / "best-recipe.json").read_bytes() for out in (cut, tmp_path / "whole")]
    assert best[0] == best[1]
    parent = run_of(MlflowClient(store), cut / "run.json").info.run_id
    children = MlflowClient(store).search_runs(["1"], f"tags.`mlflow.parentRunId` = '{parent}'")
    assert sorted(child.data.tags["trial"] for child in children) == ["0", "1", "2", "3"]
