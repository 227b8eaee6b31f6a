"""Teaching on Ray: what a student learns, stages that are shared, and jobs that are killed at every stage."""

import json
import shutil
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise, product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from paraembed import checkpoint
from paraembed.cluster import teach as stages
from paraembed.cluster.embed import embed
from paraembed.cluster.shard import shard_pairs
from paraembed.distillation import texts as distillation
from paraembed.distillation.estimate import dry_run
from paraembed.distillation.settings import STUDENT, TeachSettings
from paraembed.distillation.stages import StudentRequest
from paraembed.embedding.output import Embeddings
from paraembed.embedding.settings import Settings
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig, ProjConfig
from paraembed.evaluation.report import known_metadata
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import read_json, sha256_of
from paraembed.loading import open_encoder
from paraembed.pairs.settings import ShardSettings
from paraembed.settings import Gpus, Inference
from paraembed.text.bigrams import TAB
from paraembed.text.vocabulary import UNKNOWN, Words
from paraembed.training.data import Pairs
from paraembed.training.loop import train
from paraembed.training.pairs import pairs_to_ids
from tests.encoders.models import TAUGHT, minilm, save_transformer, subword_tokenizer
from tests.jobs import digests, interrupted, job_command, run_job

pytestmark = pytest.mark.usefixtures("in_store")

teach = partial(stages.teach, workers=1)  # a second worker takes as long to start as all the work
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
STAGES = ["texts", "units", "vectors", "alone", "prior", "ridge", "student"]
EXACT = TeachSettings(l2=1e-4, steps=60, min_count=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A teacher that weights words by their vectors' lengths, and 2,000 texts of its words."""
    folder = tmp_path_factory.mktemp("teach")
    draw = np.random.default_rng(0)
    names = [f"w{number}" for number in range(150)]
    matrix = draw.standard_normal((151, 100), dtype=np.float32) * draw.random((151, 1), np.float32)
    teacher = Encoder(AvgConfig(), Words(pa.array([UNKNOWN, *names]), matrix), "space")
    checkpoint.save(teacher, folder / "teacher", recipe={}, provenance={}, model_card="")
    texts = [" ".join(draw.choice(names, draw.integers(2, 12))) for _ in range(2000)]
    (folder / "texts.txt").write_text("\n".join(texts))
    (folder / "set.tsv").write_text(f"5\t{texts[0].upper()}\t{texts[7]}!\n")
    pairs = [f"{first}\t{first} {second}\n" for first, second in pairwise(texts[:400])]
    (folder / "pairs.tsv").write_text("".join(pairs))
    return folder


@pytest.fixture(scope="module")
def shards(data, ray_cluster):
    shard_pairs([data / "pairs.tsv"], data / "pairs", ShardSettings(tokenizer="space"))
    return data / "pairs"


def request(data, settings=EXACT, **more):
    return StudentRequest(
        str(data / "teacher"), [str(data / "texts.txt")], leave_out=(data / "set.tsv",), settings=settings, **more
    )


@pytest.fixture(scope="module")
def taught(data, ray_cluster):
    """A student, its stages, and its record."""
    record, was_finished = teach(request(data), data / "student", data / "stages", workers=1)
    assert not was_finished
    return data / "student", data / "stages", record


@pytest.fixture
def work(taught, tmp_path):
    """A copy of the stages of ``taught``."""
    shutil.copytree(taught[1], tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.timeout(900)
def test_a_student_learns_an_average_and_workers_do_not_change_a_byte(data, taught, tmp_path, capsys):
    folder, stages_of_1, record = taught
    distinct = set((data / "texts.txt").read_text().splitlines())
    assert (record["texts"], record["left_out"], record["units"]) == (len(distinct) - 2, 2, 151)
    assert record["explained"] > 0.999
    teach(request(data), tmp_path / "2", tmp_path / "work2", workers=2)
    assert digests(folder) == digests(tmp_path / "2")
    teacher, student = checkpoint.load(data / "teacher"), checkpoint.load(folder)
    texts = (data / "texts.txt").read_text().splitlines()
    expected, found = teacher.encode(texts), student.encode(texts)
    expected -= expected.mean(axis=0)
    cosines = (expected * found).sum(1) / np.linalg.norm(expected, axis=1) / np.linalg.norm(found, axis=1)
    assert cosines.min() > 0.99
    assert teach(request(data), folder, stages_of_1) == (record, True)
    assert f"{folder} is already finished" in capsys.readouterr().err
    (tmp_path / "2" / "notes.md").write_text("dear")
    assert teach(request(data), tmp_path / "2", tmp_path / "work2")[1]
    with pytest.raises(ValueError, match=r"paraembed did not write: notes\.md"):
        teach(request(data, replace(EXACT, l2=1e-3)), tmp_path / "2", tmp_path / "work2", overwrite=True)
    seconds = read_json(stages_of_1 / "_seconds.json", dict[str, float])
    assert {name.partition("-")[0] for name in seconds} == {*STAGES}
    assert min(seconds.values()) > 0


def test_a_student_is_trained_on_pairs_that_no_evaluation_set_has(data, shards, taught, work, tmp_path, capsys):
    recipe = replace(STUDENT, batch_size=40, learning_rate=0.01)
    wanted = request(data, pairs=shards, recipe=recipe)
    before = {path.name for path in work.iterdir()}
    record, _ = teach(wanted, tmp_path / "1", work)
    dry_run(wanted)
    assert "(assumes 19,968 pairs/s)" in capsys.readouterr().out  # 5,200 at 384 dimensions; the teacher has 100
    assert (record["pairs"], record["pairs_left_out"]) == (397, 2)  # of the texts 0 and 7, the first of one pair each
    added = sorted(path.name.partition("-")[0] for path in work.iterdir() if path.name not in before)
    assert added == ["pairs", "shards", "start", "trained"]

    encoder = checkpoint.load(next(work.glob("start-*")))
    table = pq.read_table([*shards.glob("pairs-*")], columns=["first", "second"]).to_pylist()
    evaluation = {
        " ".join(cell.lower().split()) for cell in (data / "set.tsv").read_text().replace("!", "").split("\t")
    }
    kept = [pair for pair in table if not evaluation & {*pair.values()}]
    train(encoder, pairs_to_ids([pa.Table.from_pylist(kept)], encoder.vocabulary), recipe)
    texts = [row["first"] for row in table[:50]]
    expected, found = encoder.encode(texts), checkpoint.load(tmp_path / "1").encode(texts)
    np.testing.assert_allclose(unit(expected), unit(found), atol=1e-5)
    assert np.abs(unit(found) - unit(checkpoint.load(taught[0]).encode(texts))).max() > 0.05
    config = checkpoint.read_config(tmp_path / "1")
    assert config["recipe"] == recipe.to_dict()
    assert config["provenance"]["training"] == {"pairs": sha256_of(shards / "manifest.json")}
    cards = [known_metadata((folder / "README.md").read_text()) for folder in (tmp_path / "1", taught[0])]
    sources = [*read_json(shards / "manifest.json")["sources"]]
    assert [(card["language"], card.get("datasets")) for card in cards] == [("en", sources), ("en", None)]
    for change, message in (
        ({"max_tokens": 5}, "has max_tokens 5; allowed: None"),
        ({"encoder": ProjConfig()}, r"has encoder ProjConfig\(.*; allowed: AvgConfig"),
        ({"batch_size": 500}, "there are only 399"),
    ):
        with pytest.raises(ValueError, match=message):
            dry_run(replace(wanted, recipe=replace(recipe, **change)))


@pytest.mark.slow
def test_words_of_pairs_are_those_of_the_student_whatever_tokenizer_the_shards_have(data, taught, work, tmp_path):
    lines = (data / "pairs.tsv").read_text().splitlines()
    (tmp_path / "pairs.tsv").write_text("".join(f"({line.upper()}, w0's)!\n" for line in lines))
    recipe, found, tables, plain = replace(STUDENT, batch_size=40), {}, [], replace(EXACT, normalize="none")
    assert checkpoint.load(taught[0]).tokenizer == "ptb-v1+nfkc"  # by default
    teach(request(data, plain), tmp_path / "taught", work)
    (tmp_path / "words.txt").write_text("".join(f"w{row} {row} 1\n" for row in range(150)))
    for tokenizer in ("space", "ptb-v1"):
        shards = tmp_path / tokenizer
        shard_pairs([tmp_path / "pairs.tsv"], shards, ShardSettings(tokenizer=tokenizer))
        teach(request(data, plain, pairs=shards, recipe=recipe), tmp_path / f"student-{tokenizer}", work)
        tables.append(checkpoint.load(tmp_path / f"student-{tokenizer}").matrix)
        for name, words in (("encoder", tmp_path / "taught"), ("file", tmp_path / "words.txt")):
            pairs = Pairs(recipe, shards, words)
            encoder, coverage = pairs.untrained()
            ids, _, _ = pairs.read(encoder)
            found[name, tokenizer] = ids.ids.tobytes(), coverage.covered
            is_changed = name == "encoder" and tokenizer == "space"  # by ptb-v1, which keeps its own tokens
            assert pairs.inputs().get("tokenizer") == ("ptb-v1" if is_changed else None)
    assert torch.equal(*tables)
    assert found["encoder", "space"] == found["encoder", "ptb-v1"]
    assert found["file", "space"] != found["file", "ptb-v1"]  # the shards' tokens


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_student_with_bigrams_learns_the_order_of_words(ray_cluster, tmp_path):
    draw = np.random.default_rng(0)
    names = [f"w{number}" for number in range(20)]
    vocabulary = pa.array([UNKNOWN, *names, *(TAB.join(halves) for halves in product(names, repeat=2))])
    words = Words(vocabulary, draw.standard_normal((len(vocabulary), 30), dtype=np.float32))
    teacher = Encoder(AvgConfig(), words, "space")
    checkpoint.save(teacher, tmp_path / "teacher", recipe={}, provenance={}, model_card="")
    texts = [" ".join(draw.choice(names, draw.integers(2, 6))) for _ in range(4000)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    (tmp_path / "pairs.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in pairwise(texts[:200])))
    shard_pairs([tmp_path / "pairs.tsv"], tmp_path / "pairs", ShardSettings(tokenizer="space"))
    alone = StudentRequest(str(tmp_path / "teacher"), [str(tmp_path / "texts.txt")], settings=EXACT)
    ordered = replace(alone, settings=replace(EXACT, bigrams=3))
    work, expected = tmp_path / "work", teacher.encode(texts)
    cosines, explained = [], []
    for name, wanted in {"alone": alone, "ordered": ordered}.items():
        explained.append(teach(wanted, tmp_path / name, work)[0]["explained"])
        student = checkpoint.load(tmp_path / name)
        cosines.append((unit(expected - expected.mean(axis=0)) * unit(student.encode(texts))).sum(1).mean())
    assert explained[0] < 0.7
    assert explained[1] > 0.85
    assert cosines[1] - cosines[0] > 0.1
    stages = sorted(path.name.partition("-")[0] for path in work.glob("*-*"))
    assert stages == ["alone", "bigrams", *["prior"] * 2, *["ridge"] * 2, "texts", "units", "vectors"]
    trained = replace(ordered, pairs=tmp_path / "pairs", recipe=replace(STUDENT, batch_size=40))
    for number, folder in enumerate((work, tmp_path / "other")):
        teach(trained, tmp_path / str(number), folder, workers=1 + number)
    assert digests(tmp_path / "0") == digests(tmp_path / "1")
    assert checkpoint.load(tmp_path / "0").vocabulary.to_pylist() == student.vocabulary.to_pylist()


def test_other_settings_share_the_stages(data, taught, work, tmp_path):
    few = replace(EXACT, dim=7, dtype="int8")
    shutil.copytree(taught[0], tmp_path / "all")
    before = {path.name for path in work.iterdir()}
    with pytest.raises(ValueError, match=r"all .* settings.dim .*; settings.dtype .*`overwrite`"):
        teach(request(data, few), tmp_path / "all", work)
    teach(request(data, few), tmp_path / "all", work, overwrite=True)
    assert {path.name for path in work.iterdir()} == before
    before.remove("_seconds.json")
    assert sorted(name.partition("-")[0] for name in before) == ["alone", "prior", "ridge", "texts", "units", "vectors"]
    student = checkpoint.load(tmp_path / "all")
    assert (student.width, student.oov) == (7, "hashed")
    assert load_file(tmp_path / "all" / "model.safetensors")["matrix"].dtype == torch.int8
    assert np.abs(student.encode("unheard") - student.encode("of")).max() > 0.01
    for name in ("prior", "ridge"):
        (folder,) = work.glob(f"{name}-*")
        assert checkpoint.load(folder).encode("w3 w5").shape == (100,)
    (part,) = work.glob("texts-*/part-*")
    part.write_bytes(b"")
    with pytest.raises(ValueError, match=r"part-00000.parquet is missing or damaged; remove .*texts-"):
        teach(request(data), tmp_path / "other", work)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # of sentence-transformers
def test_token_states_become_the_prior(ray_cluster, data, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "_PART_ROWS", 25)
    monkeypatch.setattr(distillation, "_GROUP_ROWS", 25)
    words = ["cat", "dog", "river", "bank", "money", "unaffable"]
    texts = [" ".join(text) for text in islice(product(words, repeat=4), 7, 1207, 15)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    with_states = StudentRequest(
        f"st:{minilm()}", [str(tmp_path / "texts.txt")], settings=TeachSettings(alone_weight=1e-6)
    )
    teach(with_states, tmp_path / "1", tmp_path / "work1", workers=1)
    for stage in ("texts", "units", "alone"):
        (folder,) = (tmp_path / "work1").glob(f"{stage}-*")
        shutil.copytree(folder, tmp_path / "work2" / folder.name)
    teach(with_states, tmp_path / "2", tmp_path / "work2", workers=2)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    (states,) = (tmp_path / "work1").glob("states-*/states.npz")
    assert states.read_bytes() == next((tmp_path / "work2").glob("states-*/states.npz")).read_bytes()
    assert not list((tmp_path / "work1").glob(".*"))
    with np.load(states) as arrays:
        assert arrays["counts"].sum() == sum(2 * text.count("unaffable") for text in texts) + 4 * 80
    alone = replace(with_states, settings=TeachSettings(prior="alone"))
    teach(alone, tmp_path / "alone", tmp_path / "work1")
    priors = [checkpoint.load(folder) for folder in (tmp_path / "work1").glob("prior-*")]
    assert len(priors) == 2
    first, second = (prior.encode(words) for prior in priors)
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert cosines[:5].max() < 0.95
    assert cosines[5] > 0.999  # several tokens: the word alone, in both


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # of sentence-transformers
@pytest.mark.parametrize("kind", ["bytes", "unigram"])
def test_a_student_has_the_pieces_of_any_teacher(kind, ray_cluster, tmp_path):
    teacher, draw = save_transformer(subword_tokenizer(kind), tmp_path), np.random.default_rng(0)
    texts = [" ".join(draw.choice(" ".join(TAUGHT).split(), draw.integers(2, 9))) for _ in range(600)]
    texts += ["A\U0001f600 <s> \\ 漢", "é" * 3]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    settings, recipe = TeachSettings(units="subword", l2=1e-3, steps=40), replace(STUDENT, batch_size=40)
    wanted = StudentRequest(teacher, [str(tmp_path / "texts.txt")], settings=settings)
    with_pairs = kind == "unigram"
    if with_pairs:
        (tmp_path / "pairs.tsv").write_text("".join(f"{first}\t{second}\n" for first, second in pairwise(texts[:200])))
        shard_pairs([tmp_path / "pairs.tsv"], tmp_path / "pairs", ShardSettings(tokenizer="space"))
        smaller = replace(settings, dim=16, dtype="int8")
        wanted = replace(wanted, pairs=tmp_path / "pairs", recipe=recipe, settings=smaller)
    dry_run(wanted)
    record, _ = teach(wanted, tmp_path / "student", tmp_path / "work")
    assert record["explained"] > (0.7 if with_pairs else 0.9)  # 39 pieces, most of them characters; 317
    student = checkpoint.load(tmp_path / "student")
    assert (student.tokenizer, student.oov, student.width) == ("subword", "shared", 16 if with_pairs else 32)
    vectors = student.encode(texts)
    if with_pairs:
        untrained, coverage = Pairs(recipe, tmp_path / "pairs", tmp_path / "student").untrained()
        assert untrained.encode(texts).tobytes() == vectors.tobytes()
        assert coverage.covered > 0.9
        return
    expected = open_encoder(teacher).embed(pa.array(texts)).vectors
    assert (unit(expected - expected.mean(axis=0)) * unit(vectors)).sum(1).mean() > 0.9
    embed(str(tmp_path / "student"), [tmp_path / "texts.txt"], tmp_path / "out", Settings(part_rows=100))
    in_workers = np.concatenate([block.vectors for block in Embeddings(tmp_path / "out").blocks()])
    assert in_workers.tobytes() == vectors.tobytes()


@pytest.mark.gpu
@NO_GPU
@pytest.mark.filterwarnings("default")  # of sentence-transformers
def test_teacher_and_regression_on_a_gpu(ray_cluster, tmp_path, capsys):
    teacher, draw = save_transformer(subword_tokenizer("bytes"), tmp_path), np.random.default_rng(0)
    texts = [" ".join(draw.choice(" ".join(TAUGHT).split(), draw.integers(2, 9))) for _ in range(300)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    vectors = []
    for device, gpus in (("cpu", Gpus()), ("cuda", Gpus(gpus=1))):
        wanted = StudentRequest(teacher, [str(tmp_path / "texts.txt")], inference=Inference(device=device))
        dry_run(wanted, gpus=gpus)
        teach(wanted, tmp_path / device, tmp_path / "work", gpus=gpus)
        vectors.append(unit(checkpoint.load(tmp_path / device).encode(texts)))
    np.testing.assert_allclose(*vectors, rtol=0, atol=1e-3)
    on_gpu = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " 1 GPU " in line]
    assert on_gpu == ["vectors", "states", "alone", "ridge"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # of sentence-transformers
def test_a_student_of_pieces_and_one_of_words_become_one_encoder(ray_cluster, tmp_path):
    teacher, draw = save_transformer(subword_tokenizer("bytes"), tmp_path), np.random.default_rng(0)
    texts = [" ".join(draw.choice(" ".join(TAUGHT).split(), draw.integers(2, 9))) for _ in range(100)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    wanted = StudentRequest(
        teacher, [str(tmp_path / "texts.txt")], settings=TeachSettings(units="both", min_count=1, dim=5)
    )
    out, work = tmp_path / "out", tmp_path / "work"
    record, was_finished = teach(wanted, out, work)
    both = checkpoint.load_any(out)
    tokenizers = both.first.tokenizer, both.second.tokenizer
    assert (both.width, *tokenizers, was_finished) == (10, "subword", "ptb-v1+nfkc", False)
    assert all(units["units"] > 0 for units in record.values())
    assert {"avg", "concat"} <= {*known_metadata((out / "README.md").read_text())["tags"]}
    for units, part in (("subword", "first"), ("word", "second")):
        own = teach(replace(wanted, settings=replace(wanted.settings, units=units)), tmp_path / units, work)[0]
        assert own == record[units]
        assert digests(tmp_path / units) == digests(out / part)
    assert len(list(work.glob("vectors-*"))) == 1
    assert teach(wanted, out, work) == (record, True)
    other = replace(wanted, settings=replace(wanted.settings, dim=4))
    before = digests(work, "**/*")
    with pytest.raises(ValueError, match=r"student-subword .* settings.dim \(was 5, is 4\)"):
        teach(other, out, work)
    assert digests(work, "**/*") == before  # no student was taught
    teach(other, out, work, overwrite=True)
    assert checkpoint.load_any(out).width == 8
    with pytest.raises(ValueError, match=r"expected two encoders as one"):
        teach(other, tmp_path / "word", work)
    whole = replace(wanted, settings=replace(wanted.settings, dim=None, oov="pieces"))
    record, _ = teach(whole, tmp_path / "whole", work)
    both, unknown = checkpoint.load_any(tmp_path / "whole"), pa.array(["zyzzyva"])
    ours, of_pieces = (part.embed(unknown).vectors[0] for part in (both.second, both.first))
    assert ours @ of_pieces == pytest.approx(np.linalg.norm(ours) * np.linalg.norm(of_pieces), rel=1e-5)
    assert teach(whole, tmp_path / "whole", work) == (record, True)


def test_wrong_requests_change_nothing(data, tmp_path, capsys):
    for settings, message in (
        (TeachSettings(dim=101), "`dim` is 101, but the teacher's vectors have 100 dimensions"),
        (TeachSettings(units="subword"), "the teacher has no tokenizer.json; use `units` word"),
        (TeachSettings(prior="states"), "only st: transformers without a prompt have token states"),
    ):
        with pytest.raises(ValueError, match=message):
            teach(request(data, settings), tmp_path / "out", tmp_path / "work")
        with pytest.raises(ValueError, match=message):
            dry_run(request(data, settings))
    for settings in ({}, {"units": "both", "dim": 5}):
        with pytest.raises(ValueError, match=r"`oov` is pieces.*needs `units` both"):
            TeachSettings(oov="pieces", **settings)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("dear")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=r"no config.json; expected an encoder folder"):
            teach(request(data), tmp_path / "thesis", tmp_path / "work", overwrite=overwrite)
    with pytest.raises(ValueError, match=r"no config.json; expected an encoder folder"):  # before the teacher is read
        teach(request(data, TeachSettings(units="both")), tmp_path / "thesis", tmp_path / "work", overwrite=True)
    for gpus in (Gpus(gpus=1), Gpus(gpu_share=0.5)):
        with pytest.raises(ValueError, match=r"but the encoder computes on a CPU"):
            dry_run(request(data, inference=Inference(device="cpu")), gpus=gpus)
    dry_run(request(data))
    table = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[0] for line in table] == ["texts,", *STAGES[2:]]
    assert table[0][2] == "2,000"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_killed_at_every_stage_resumes_to_the_same_bytes(data, shards, tmp_path, capsys):
    recipe = replace(STUDENT, batch_size=40)
    write_json(tmp_path / "recipe.json", recipe.to_dict())
    settings = replace(EXACT, bigrams=2)
    teach(request(data, settings, pairs=shards, recipe=recipe), tmp_path / "unbroken", tmp_path / "other")
    inputs = ["--teacher", data / "teacher", "--texts", data / "texts.txt", "--leave-out", data / "set.tsv"]
    inputs += ["--pairs", shards, "--recipe", tmp_path / "recipe.json"]
    inputs += ["--l2", "1e-4", "--steps", "60", "--min-count", "1", "--bigrams", "2"]
    given = *inputs, "--work", tmp_path / "work", "--out", tmp_path / "out"
    stages = [f"{name}-*" for name in ("texts", "units", "bigrams", "pairs", "shards")]
    stages += ["vectors-*/_plan/inputs-000.arrow", "alone-*/data/part-*", "prior-*", ".ridge-*/sums-00000.npz"]
    stages += ["start-*", "trained-*.training/trained"]
    for awaited in stages:
        interrupted(job_command("teach", *given), lambda awaited=awaited: list((tmp_path / "work").glob(awaited)))
        assert not (tmp_path / "out").exists()
    capsys.readouterr()
    assert run_job("teach", *given, "--json") == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["pairs"], last["texts"] > 0) == (397, True)
    assert digests(tmp_path / "out") == digests(tmp_path / "unbroken")
    assert not list((tmp_path / "work").glob(".*"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("default")  # of sentence-transformers
def test_a_job_killed_while_it_sums_token_states_resumes_to_the_same_bytes(ray_cluster, tmp_path):
    draw, words = np.random.default_rng(0), ["cat", "dog", "river", "bank", "money", "unaffable"]
    texts = {" ".join(draw.choice(words, 6)) for _ in range(15_000)}  # two parts
    (tmp_path / "texts.txt").write_text("\n".join(sorted(texts)))
    teacher = save_transformer(subword_tokenizer("bytes"), tmp_path)
    settings = TeachSettings(units="subword")
    wanted = StudentRequest(teacher, [str(tmp_path / "texts.txt")], settings=settings)
    assert teach(wanted, tmp_path / "unbroken", tmp_path / "other")[0]["texts"] > 10_000
    given = "--teacher", teacher, "--texts", tmp_path / "texts.txt", "--units", "subword"
    given += "--work", tmp_path / "work", "--out", tmp_path / "out"
    for awaited in (".states-*.partial/*.npz", "vectors-*/data/part-*", "vectors-*/_SUCCESS", "*states-*/states.npz"):
        interrupted(job_command("teach", *given), lambda awaited=awaited: list((tmp_path / "work").glob(awaited)))
        assert not (tmp_path / "out").exists()
    assert run_job("teach", *given) == 0
    assert digests(tmp_path / "out") == digests(tmp_path / "unbroken")
    (states,) = (tmp_path / "work").glob("states-*/states.npz")
    assert states.read_bytes() == next((tmp_path / "other").glob("states-*/states.npz")).read_bytes()
    assert not list((tmp_path / "work").glob(".*"))
