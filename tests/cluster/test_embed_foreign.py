"""Models of other libraries keep the promises of embedding: every row once, equal bytes, no other model on resume."""

import json
import random
import shutil
from dataclasses import replace

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from paraembed.cluster.embed import embed
from paraembed.embedding.records import INPUTS
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.settings import Inference
from tests.embedding.arrow_files import change_plan, read
from tests.embedding.without_ray import build
from tests.encoders.models import minilm, save_onnx, save_tiny
from tests.jobs import answers, digests

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("in_store")]  # the libraries warn

SENTENCES = ["A man is playing a guitar.", "", "Two dogs run through the snow.", "It rains.", "The cat sat on a mat."]
SMALL = Settings(part_rows=40)


@pytest.fixture
def corpus(tmp_path):
    draw, path = random.Random(0), tmp_path / "t.txt"
    path.write_text("".join(" ".join(draw.choices(SENTENCES, k=draw.randrange(4))) + "\n" for _ in range(120)))
    return path


@pytest.mark.slow
def test_a_transformer_on_any_number_of_workers(corpus, tmp_path, ray_cluster):
    model, out = f"st:{minilm()}", tmp_path / "out"
    build(model, corpus, SMALL, tmp_path / "alone")
    assert embed(model, [corpus], out, SMALL, workers=2).rows == 120
    assert digests(out) == digests(tmp_path / "alone")
    assert embed(model, [corpus], out, SMALL, workers=1).was_finished
    manifest = json.loads((out / "_manifest.json").read_text())
    assert (manifest["model"]["same_bytes"], manifest["model"]["max_tokens"]) == (True, 254)
    assert manifest["n_tokens"] == pc.sum(pq.read_table(sorted(out.glob("data/part-*")))["n_tokens"]).as_py()
    assert all(check.ok for check in verify(out, model, [str(corpus)]))


@pytest.mark.parametrize(("kind", "library"), [("st", "transformers"), ("m2v", "model2vec"), ("onnx", "onnxruntime")])
def test_another_model_does_not_resume(corpus, tmp_path, kind, library):
    """Of other settings of inference, of another version of its library, or with a changed file."""
    model, out = save_tiny(kind, tmp_path / "model"), tmp_path / "out"
    build(model, corpus, SMALL, out)
    for inference, field in (
        (Inference(prompt="query: "), r"model.prompt \(was , is query: \)"),
        (Inference(precision="bfloat16"), r"model.precision \(was float32, is bfloat16\)"),
        (Inference(batch_tokens=256), r"model.batch_tokens \(was 2048, is 256\)"),
    ):
        if kind == "st":
            with pytest.raises(ValueError, match=rf"started with another .*{field}"):
                embed(model, [corpus], out, SMALL, inference=inference)
    saved, (_, _, plan) = (out / INPUTS).read_bytes(), read(out / INPUTS)
    installed = plan["model"]["libraries"][library]
    change_plan(out, inputs=lambda _, about: about["model"]["libraries"].update({library: "0.0.1"}))
    with pytest.raises(ValueError, match=rf"another model\.libraries\.{library} \(was 0\.0\.1, is {installed}\)"):
        embed(model, [corpus], out, SMALL)
    (out / INPUTS).write_bytes(saved)
    shutil.copytree(tmp_path / "model", tmp_path / "moved")
    (tmp_path / "moved" / "README.md").write_text("another card\n")
    assert build(f"{kind}:{tmp_path / 'moved'}", corpus, SMALL, out) == {}
    tokenizer = tmp_path / "moved" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")
    with pytest.raises(ValueError, match=r"started with another model\.files\.tokenizer\.json"):
        build(f"{kind}:{tmp_path / 'moved'}", corpus, SMALL, out)
    checks = verify(out, f"{kind}:{tmp_path / 'moved'}", [str(corpus)])
    assert [check.name for check in checks if not check.ok] == ["sample"]
    assert all(check.ok for check in verify(out, model, [str(corpus)]))


@pytest.mark.slow
def test_a_finished_output_is_recognized_without_pytorch(corpus, tmp_path):
    model, out = save_tiny("st", tmp_path / "model"), tmp_path / "out"
    build(model, corpus, replace(SMALL, id_kind="file-row"), out)
    line = f"embed --encoder {model} --input {corpus} --part-rows 40 --id-kind file-row --out {out}"
    (again,), said = answers(line)
    assert (again[1], again[2] & {"torch", "transformers"}) == (0, set())
    assert "nothing to do" in said
    tokenizer = shutil.copytree(tmp_path / "model", tmp_path / "other") / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")
    (other,), said = answers(f"{line.replace(model, f'st:{tmp_path}/other')} --append")
    assert (other[1], "another model.files.tokenizer.json" in said) == (2, True)
    config = tmp_path / "model" / "config_sentence_transformers.json"
    prompted = json.loads(config.read_text()) | {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    config.write_text(json.dumps(prompted))
    (other,), said = answers(line)
    assert (other[1], "model.prompt (was , is query: )" in said) == (2, True)


def test_verify_takes_the_pooling_from_the_output(corpus, tmp_path):
    save_onnx(tmp_path / "model", pooling=None)
    model, out = f"onnx:{tmp_path / 'model'}", tmp_path / "out"
    build(model, corpus, SMALL, out, inference=Inference(pooling="cls"))
    assert all(check.ok for check in verify(out, model, [str(corpus)]))
    with pytest.raises(ValueError, match=r"another model\.pooling \(was cls, is mean\)"):
        build(model, corpus, SMALL, out, inference=Inference(pooling="mean"))
