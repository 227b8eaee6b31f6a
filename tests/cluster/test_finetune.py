"""jobs/finetune.py on small generated sets: every task and mode, resume, workers, bad input."""

import json
from dataclasses import replace

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

import paraembed
from paraembed import checkpoint
from paraembed.cluster.train import Training, train_model
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.evaluation.candidates import trained
from paraembed.evaluation.choose import check_held_out
from paraembed.evaluation.report import known_metadata
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import sha256_of
from paraembed.papers import find_supervised_recipe
from paraembed.recipe import SupervisedRecipe
from paraembed.settings import Workers
from paraembed.supervised.labels import read_labels
from paraembed.supervised.model import load, read_config
from paraembed.text.vocabulary import read_words
from tests.jobs import interrupted, job_command, run_job

pytestmark = pytest.mark.usefixtures("in_store")

RECIPE = SupervisedRecipe(tokenizer="space", epochs=4, batch_size=20, learning_rate=0.02, head_width=10)
POSITIVE, NEGATIVE = [f"good{one}" for one in range(20)], [f"bad{one}" for one in range(20)]
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


def write_sick(path, num, seed):
    """Pairs that share 0 to 4 of their 4 words; score and class follow from how many."""
    generator, words = np.random.default_rng(seed), [*POSITIVE, *NEGATIVE]
    lines = []
    for number in range(num):
        drawn = generator.permutation(words)[:8]
        shared = int(generator.integers(0, 5))
        other = [*drawn[:shared], *drawn[4 : 8 - shared]]
        label = "ENTAILMENT" if shared > 3 else "NEUTRAL" if shared > 1 else "CONTRADICTION"
        lines.append(f"{number}\t{' '.join(drawn[:4])}\t{' '.join(other)}\t{1 + shared}\t{label}\n")
    path.write_text(SICK + "".join(lines))


def write_gold(folder, *nums):
    """Sets in the form of SICK, training, development and test, and word vectors."""
    (folder / "sick").mkdir(parents=True)
    for seed, (name, num) in enumerate(zip(("SICK_train", "SICK_trial", "SICK_test_annotated"), nums, strict=True)):
        write_sick(folder / "sick" / f"{name}.txt", num, seed)
    generator = np.random.default_rng(5)
    rows = [f"{word} {' '.join(map(str, generator.normal(size=12).round(4)))}\n" for word in [*POSITIVE, *NEGATIVE]]
    (folder / "words.txt").write_text("".join(rows))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Generated sets in the form of SICK, and word vectors."""
    folder = tmp_path_factory.mktemp("gold")
    write_gold(folder, 300, 80, 150)
    return folder


def labels(data, task="similarity", **more):
    plain = {"recipe": RECIPE, "data_set": None, "words": data / "words.txt"}
    return read_labels(task=task, folder=data, **{**plain, **more})


def finetune(
    data,
    out,
    task="similarity",
    name="test",
    placement=Workers(),  # noqa: B008
    overwrite=False,
    **more,
):
    return train_model(Training(name, labels(data, task, **more), out, placement), overwrite=overwrite)


def test_two_tasks_from_words_then_universal_then_features(data, tmp_path, store, capsys):
    for task, least in {"similarity": 0.3, "entailment": 0.5}.items():
        done = finetune(data, tmp_path / task, task)
        assert done.table is not None
        scores = read_config(tmp_path / task)["provenance"]["scores"]
        assert next(iter(scores["test"]["values"].values())) > least, task
        assert scores["test"]["coverage"] == 1.0
        assert [row[0] for row in done.table[1]][-1] == "test"
        assert not (tmp_path / task / "split.json").exists()
        assert finetune(data, tmp_path / task, task).was_finished
        assert "is already finished; nothing to do" in capsys.readouterr().err
    pretrained = tmp_path / "entailment" / "encoder"
    for mode in ("universal", "features"):
        recipe = replace(RECIPE, mode=mode, word_l2=0.1)
        out = tmp_path / mode
        finetune(data, out, "entailment", recipe=recipe, words=None, pretrained=pretrained)
        same = sha256_of(out / "encoder" / "model.safetensors") == sha256_of(pretrained / "model.safetensors")
        assert same == (mode == "features")
    model = load(tmp_path / "similarity")
    assert model.predict(["good1 good2"], ["good1 good2"]).dtype == np.float32
    assert paraembed.load(tmp_path / "similarity" / "encoder").encode("good1").shape == (12,)
    for task, kind in (("entailment", "text-classification"), ("similarity", "sentence-similarity")):
        scores = read_config(tmp_path / task)["provenance"]["scores"]["test"]["values"]
        about, own = (known_metadata((tmp_path / task / name / "README.md").read_text()) for name in ("", "encoder"))
        (result,) = about["model-index"][0]["results"]
        (metric,) = result["metrics"]
        assert (about["pipeline_tag"], result["task"]["type"], about["datasets"]) == (kind, kind, ["sick"])
        assert metric["value"] == pytest.approx(scores[metric["type"]], abs=5e-5)
        assert own["library_name"] == "paraembed"
        assert not {*own} & {"model-index", "language", "license"}  # the tokenizer is space
    client = MlflowClient(store)
    runs = client.search_runs(["1"], "attributes.run_name = 'finetune similarity'")
    assert runs[0].data.metrics["test/pearson"] == pytest.approx(
        read_config(tmp_path / "similarity")["provenance"]["scores"]["test"]["values"]["pearson"]
    )
    assert (runs[0].data.params["task"], runs[0].data.tags["recipe"]) == ("similarity", "test")
    logged = mlflow.pyfunc.load_model(f"runs:/{runs[0].info.run_id}/model")
    assert [column["name"] for column in logged.metadata.get_input_schema().to_dict()] == ["text_1", "text_2"]
    examples = [["good1 good2", "bad1"], ["good1 good3", "good2"]]
    np.testing.assert_array_equal(
        logged.predict(pd.DataFrame({"text_1": examples[0], "text_2": examples[1]})),
        load(tmp_path / "similarity").predict(*examples),
    )


@pytest.mark.parametrize("mode", ["universal", "features"])
def test_the_encoder_is_refused_on_the_pairs_of_its_prior(data, tmp_path, mode):
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    (pairs / "manifest.json").write_text("{}")
    trained_on = {"training": {"pairs": sha256_of(pairs / "manifest.json")}}
    chosen = {"selected": {"metric": "sts/2016/mean", "scores": [[10, 0.5]]}}
    few = read_words(data / "words.txt", max_words=30)  # so that universal adds words
    pretrained = Encoder(AvgConfig(), few, "space", 3)
    checkpoint.save(pretrained, tmp_path / "pretrained", recipe={}, provenance={**trained_on, **chosen}, model_card="")
    recipe = replace(RECIPE, mode=mode, new_words="random")
    finetune(data, tmp_path / "m", recipe=recipe, words=None, pretrained=tmp_path / "pretrained")
    encoder = trained(tmp_path / "m" / "encoder")
    assert len(encoder.encoder.vocabulary) > len(few.vocabulary) or mode == "features"
    with pytest.raises(ValueError, match=r"pairs contains the training pairs of encoder"):
        check_held_out(pairs, [encoder])
    assert encoder.chosen_by == "sts/2016/mean"
    assert encoder.gold == (("sick",) if mode == "universal" else ())  # features: it stays as it is
    if mode == "universal":
        again, pretrained = replace(recipe, mode="features"), tmp_path / "m" / "encoder"
        finetune(data, tmp_path / "n", "entailment", recipe=again, words=None, pretrained=pretrained)
        training = checkpoint.read_config(tmp_path / "n" / "encoder")["provenance"]["training"]
        assert training["pairs"] == trained_on["training"]["pairs"]
        assert training["gold"] == [{"task": "similarity", "data_set": "sick", "seed": RECIPE.seed}]


def test_a_prior_that_knows_another_draw_of_the_set_is_refused(data, tmp_path):
    (tmp_path / "sts" / "2012").mkdir(parents=True)
    rows = (f"{number % 6}\t{POSITIVE[number % 20]}\t{NEGATIVE[number % 19]}\n" for number in range(300))
    (tmp_path / "sts" / "2012" / "MSRpar.tsv").write_text("".join(rows))
    gold = {"gold": [{"task": "similarity", "data_set": "sts", "seed": 1}]}
    pretrained = Encoder(AvgConfig(), read_words(data / "words.txt"), "space", 3)
    checkpoint.save(pretrained, tmp_path / "pretrained", recipe={}, provenance={"training": gold}, model_card="")
    recipe = replace(RECIPE, mode="universal", seed=2)
    plain = {"data_set": "sts", "words": None, "pretrained": tmp_path / "pretrained"}
    with pytest.raises(ValueError, match=r"seed 1, but seed is 2.*`seed` 1"):
        finetune(tmp_path, tmp_path / "m", recipe=recipe, **plain)
    assert not (tmp_path / "m.training").exists()
    finetune(tmp_path, tmp_path / "m", recipe=replace(recipe, seed=1, epochs=1), **plain)
    assert (tmp_path / "m" / "split.json").is_file()
    assert models_gold(tmp_path / "m") == gold["gold"] * 2


def models_gold(folder):
    """What a model's encoder says that it was trained on."""
    return checkpoint.read_config(folder / "encoder")["provenance"]["training"]["gold"]


@pytest.mark.slow
def test_two_workers_see_every_example(data, ray_cluster, tmp_path):
    finetune(data, tmp_path / "two", placement=Workers(workers=2))
    config = read_config(tmp_path / "two")
    assert config["provenance"]["workers_from_step"] == [[1, 2]]
    assert config["provenance"]["steps"] == 4 * 8  # 300 examples, 40 a step
    assert config["provenance"]["scores"]["test"]["values"]["pearson"] > 0.3


@pytest.mark.slow
def test_a_killed_job_goes_on_and_ends_with_the_same_bytes(data, tmp_path, capsys):
    recipe = replace(find_supervised_recipe("iclr2016/supervised-avg"), tokenizer="space", epochs=60)
    finetune(data, tmp_path / "whole", "entailment", name="iclr2016/supervised-avg", recipe=recipe)
    out = tmp_path / "cut"
    given = ["--task", "entailment", "--data", data, "--words", data / "words.txt", "--out", out]
    given += ["--tokenizer", "space", "--checkpoint-steps", 5, "--epochs", 60]
    interrupted(job_command("finetune", *given), lambda: list(tmp_path.glob("cut.training/checkpoints/step-*")))
    assert not out.exists()
    capsys.readouterr()
    assert run_job("finetune", *given) == 0
    said = capsys.readouterr().err
    assert "resuming the work in" in said
    assert f"wrote {out}; its README.md shows how to use it; its encoder is {out / 'encoder'}" in said.splitlines()
    for name in ("encoder/model.safetensors", "head.safetensors"):
        assert sha256_of(tmp_path / "cut" / name) == sha256_of(tmp_path / "whole" / name)
    configs = [json.loads((tmp_path / one / "config.json").read_text()) for one in ("cut", "whole")]
    assert configs[0] == configs[1]


@pytest.fixture
def call(capsys):
    """Run the job, which must fail; gives what it said."""

    def call(*arguments):
        capsys.readouterr()
        assert run_job("finetune", *arguments) == 2
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return said.splitlines()[-1]

    return call


PLAIN = "--task similarity --data {data} --out {tmp}/out"
OF_WORDS, OF_ENCODER = f"{PLAIN} --words {{data}}/words.txt", f"{PLAIN} --mode universal --pretrained {{tiny}}"
MISTAKES = {
    PLAIN: "starts from word vectors; give --words VECTORS",
    f"{OF_WORDS} --mode universal": "give --pretrained ENCODER",
    f"{PLAIN} --pretrained {{tmp}}/no --mode features": "does not exist; expected an encoder folder",
    f"{PLAIN} --recipe iclr2016/avg": "unknown recipe 'iclr2016/avg'; allowed: tacl2015/cnn",
    "--task entailment --data {tmp} --out {tmp}/out --words {data}/words.txt": "sick/SICK_train.txt",
    f"{OF_WORDS} --batch-size 5000": "batch_size is 5000; use a smaller",
    f"{PLAIN} --words {{tmp}}/bad.txt": "larger --max-bad-words",
    f"{OF_ENCODER} --max-tokens 3": "max_tokens is 3, but --pretrained sets it to None; leave it out",
    f"{OF_ENCODER} --encoder lstm": "the recipe trains the encoder lstm, but --pretrained is avg",
}


@pytest.mark.parametrize(("line", "message"), MISTAKES.items())
def test_a_mistake_is_one_line_before_anything_is_written(data, tmp_path, call, tiny_encoder_folder, line, message):
    (tmp_path / "bad.txt").write_text((data / "words.txt").read_text() + "bad\n" * 6)
    assert message in call(*line.format(data=data, tmp=tmp_path, tiny=tiny_encoder_folder).split())
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]


def test_bad_words_are_skipped_and_files_of_others_stay(data, tmp_path, call):
    (tmp_path / "bad.txt").write_text((data / "words.txt").read_text() + "bad\n" * 6)
    assert labels(data, words=tmp_path / "bad.txt", max_bad_words=0.5).untrained()[1].covered > 0
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    line = OF_WORDS.format(data=data, tmp=tmp_path)
    assert "has no config.json; expected a model folder" in call(*line.split())
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


def test_what_could_not_be_scored_is_refused_before_training(data, tmp_path, call):
    (tmp_path / "sick").mkdir()
    for name, num in (("SICK_train", 300), ("SICK_trial", 1), ("SICK_test_annotated", 150)):
        write_sick(tmp_path / "sick" / f"{name}.txt", num, 3)
    plain = ("--task", "similarity", "--data", tmp_path, "--out", tmp_path / "out")
    words = ("--words", data / "words.txt")
    assert "similarity (sick) has 1 example, so its score is undefined" in call(*plain, *words)
    write_sick(tmp_path / "sick" / "SICK_trial.txt", 20, 4)
    train = (tmp_path / "sick" / "SICK_train.txt").read_text().splitlines()
    blank = ["\t".join([*row.split("\t")[:2], " ", *row.split("\t")[3:]]) for row in train[1:]]
    (tmp_path / "sick" / "SICK_train.txt").write_text("\n".join([train[0], *blank]) + "\n")
    assert "only 0 of 300 training examples can be used (the others have a text without a token)" in call(
        *plain, *words
    )
    assert [path.name for path in tmp_path.iterdir()] == ["sick"]


def test_a_run_killed_behind_its_end_leaves_nothing_and_another_recipe_is_refused_by_name(data, tmp_path):
    first = finetune(data, tmp_path / "m")
    work = tmp_path / "m.training"
    work.mkdir()
    identity = read_config(tmp_path / "m")["provenance"]["training"]
    write_json(work / "identity.json", identity)
    again = finetune(data, tmp_path / "m")
    assert again.was_finished
    assert again.table == first.table
    assert again.table is not None
    assert {row[0] for row in again.table[1]} == {"dev", "test"}
    assert not work.exists()
    other = replace(RECIPE, head_width=11, epochs=1)
    with pytest.raises(ValueError, match=r"; recipe\.head_width \(was 10, is 11\)"):
        finetune(data, tmp_path / "m", recipe=other)
    assert not finetune(data, tmp_path / "m", recipe=other, overwrite=True).was_finished
    assert read_config(tmp_path / "m")["recipe"]["epochs"] == 1
