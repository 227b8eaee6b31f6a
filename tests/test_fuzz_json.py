"""Fuzzing of what is read as JSON: mutations of files that this project writes, loaded as a job loads them."""

import copy
import json
import shutil
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from paraembed import checkpoint
from paraembed.embedding.manifest import read_run
from paraembed.embedding.records import INPUTS, arrow_bytes
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from paraembed.encoders import ENCODERS, Encoder
from paraembed.evaluation.candidates import named, trained
from paraembed.io.atomic import SUCCESS
from paraembed.io.fingerprint import digest_of, json_bytes, sha256_of
from paraembed.io.store import Folder
from paraembed.options import json_value
from paraembed.pairs.schema import SourceReport
from paraembed.pairs.shards import FORMAT, read_pair_manifest
from paraembed.pairs.source_parts import join_reports, load_report, save_report
from paraembed.recipe import Recipe, SupervisedRecipe, read_recipe
from paraembed.supervised import model as models
from paraembed.supervised.scores import saved_rows
from paraembed.text.subword import vocabulary_of, without_ends
from paraembed.text.vocabulary import Words
from paraembed.training.state import Counters, load_state, save_state
from paraembed.tuning.ledger import Epoch, Ledger, TrialRecord
from paraembed.tuning.points import Points
from tests import fuzz
from tests.embedding.arrow_files import read, sign
from tests.embedding.without_ray import build
from tests.encoders.models import subword_tokenizer
from tests.fuzz import run
from tune_spaces import SPACES


def odd(draw):
    """A value that most places cannot have."""
    numbers = [None, True, -1, 0, 1, 0.5, 2**63, -(2**63) - 1, 10**40, float("nan"), float("inf"), -1e308]
    texts = ["", "sideways", "../x", "/dev/zero", "a\0b", "\ud800", "é" * 500]
    containers = [[], {}, [[]], {"": {}}, [0] * 50, nested(120), nested(50)]
    return draw.choice([*numbers, *texts, *containers])


def put_json(path, value):
    """Write JSON without a flush to disk, which takes longer than a case."""
    path.write_bytes(json_bytes(value))


def nested(depth):
    value = 0
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def places(value):
    """Every place in a JSON value: its container and its key."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if type(value) is list else []
    return [place for key, inner in items for place in ((value, key), *places(inner))]


def mutate(value, draw):
    """A copy with one or two changes: a key lost, added or renamed, a list emptied or doubled, another value."""
    value = copy.deepcopy(value)
    for _ in range(draw.choice((1, 1, 2))):
        there = places(value)
        if not there:
            return odd(draw)
        container, key = draw.choice(there)
        match draw.randrange(8):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[draw.choice(("new", "stamp", "limits", ""))] = container.pop(key)
            case 2 if isinstance(container[key], list | dict):
                container[key].clear()
            case 3 if isinstance(container[key], list):
                container[key] *= 2
            case 4 if type(container[key]) in {int, float}:
                container[key] += draw.choice((-1, 1, 0.5, 1e9))
            case 5:
                other, name = draw.choice(there)
                container[key] = copy.deepcopy(other[name] if name in other or type(other) is list else None)
            case _:
                container[key] = odd(draw)
    return value


def text_of(value, draw):
    """JSON text, sometimes with a repeated key, cut off, or nested without end."""
    data = json.dumps(value, indent=draw.choice((None, 2))).encode()
    match draw.randrange(40):
        case 0:
            return fuzz.mutated(data, draw, (b"{", b"[", b'"', b"\\ud800", b"NaN", b"1e999", b"\xff", b"}", b","))
        case 1:
            return data.replace(b"{", b'{"format": 1, "format": 2, ', 1)
        case 2:
            return b'{"a":' * 100_000
        case 3:
            return data.decode().encode("utf-16")
    return data


def of_json(folder, name, load, sign=lambda value: value, end=b""):
    """Run a target: a file of a folder is mutated, signed as one would who knows the format, and loaded; it has an
    ``end``.
    """
    whole = (folder / name).read_bytes()
    value = json.loads(whole)

    def case(draw):
        changed = mutate(value, draw) if draw.randrange(50) else value
        try:
            data = text_of(sign(changed), draw)
        except (AttributeError, KeyError, TypeError, UnicodeEncodeError):  # nothing that can be signed
            data = text_of(changed, draw)
        (folder / name).write_bytes(data + end)
        load()
        return "read"

    load()  # what must be compiled takes longer than a case may
    ends = run(case)
    (folder / name).write_bytes(whole)
    if fuzz.CASES > 500:
        assert min(ends["read"], ends["refused"]) > 10, ends


def test_json_is_json(tmp_path):
    value = {"a": [1, 2.5, "x", None, True, {"b": [], "é": "\n"}], "c": {"d": 10**18}}

    def case(draw):
        changed = mutate(value, draw)
        data = text_of(changed, draw)
        read = json_value(data, "x.json")
        assert json_bytes(read) == json_bytes(json.loads(data))
        return "read"

    ends = run(case)
    assert min(ends["read"], ends["refused"]) > ends.total() / 50


def signed(*names):
    def sign(config):
        return {**config, "fingerprint": digest_of({name: config[name] for name in names})}

    return sign


def test_encoder_folders(tmp_path, tiny_words):
    encoder = Encoder(ENCODERS["lstm"](width=3), tiny_words, "ptb-v1")
    provenance = {
        "training": {"pairs": "ab", "gold": [{"task": "similarity", "data_set": "sick", "seed": 1}]},
        "selected": {"metric": "sts/mean", "scores": [[1, 0.5]]},
        "data": {"pairs": 7, "halvings": "none"},
    }
    checkpoint.save(encoder, tmp_path / "e", recipe={}, provenance=provenance, model_card="")

    def load():
        loaded = trained(tmp_path / "e").encoder
        assert loaded.encode(["the cat"]).shape == (1, 3)

    of_json(tmp_path / "e", "config.json", load, fuzz.sign)


@pytest.mark.parametrize("kind", ["bytes", "unigram", "cased"])
def test_tokenizers_of_encoder_folders(tmp_path, kind):
    """Contents of ``tokenizer.json`` under digests that fit."""
    tokenizer = without_ends(subword_tokenizer(kind).to_str().encode())
    vocabulary = vocabulary_of(tokenizer)
    words = Words(vocabulary, np.ones((len(vocabulary), 3), np.float32))
    folder = tmp_path / "e"
    checkpoint.save(Encoder(ENCODERS["avg"](), words, tokenizer), folder, recipe={}, provenance={}, model_card="")

    def load():
        fuzz.sign_files(folder)
        assert checkpoint.load(folder).encode(["the cat \U0001f600", "", "<s>\n[CLS]"]).shape == (3, 3)

    of_json(folder, "tokenizer.json", load)


def test_folders_of_two_encoders(tmp_path, tiny_words):
    encoder = Encoder(ENCODERS["avg"](), tiny_words, "ptb-v1")
    checkpoint.save(encoder, tmp_path / "a", recipe={}, provenance={}, model_card="")
    provenance = {"training": {"gold": [{"task": "similarity", "data_set": "sick", "seed": 1}]}}
    checkpoint.save_concat([tmp_path / "a"] * 2, tmp_path / "both", provenance=provenance, model_card="")

    def load():
        assert named(str(tmp_path / "both")).encoder.encode(["the cat"]).shape == (1, 8)

    of_json(tmp_path / "both", "config.json", load, signed("encoders", "files"))


def test_model_folders(tmp_path, tiny_words):
    encoder = Encoder(ENCODERS["avg"](), tiny_words, "space")
    kind = models.Kind("similarity", "sick", ("1", "2", "3"), 1)
    options = models.HeadOptions("sigmoid", 4, "cosine", 1.0, "paper")
    scores = {"values": {"pearson": 0.5}, "intervals": {"pearson": [0.1, 0.9]}, "examples": 3, "coverage": 1.0}
    provenance = {"scores": {"test": scores}, "published": {"pearson": {"Wieting 2016": 86.8}}}
    model = models.Supervised(encoder, kind, options)
    models.save(model, tmp_path / "m", recipe={"mode": "features"}, provenance=provenance, model_card="")

    def load():
        loaded = models.load(tmp_path / "m")
        loaded.predict(*([["the cat"]] * models.NUM_TEXTS[loaded.kind.task][0]))
        saved_rows(models.read_config(tmp_path / "m").get("provenance"), "m")

    of_json(tmp_path / "m", "config.json", load, signed("kind", "head", "files"))


@pytest.fixture
def embedded(tiny_encoder_folder, tmp_path):
    rows = [json.dumps({"text": text, "key": number}) for number, text in enumerate(("the cat", "a dog", "", "home"))]
    (tmp_path / "t.jsonl").write_text("\n".join([*rows, "{", *rows[:2]]) + "\n")
    build(tiny_encoder_folder, tmp_path / "t.jsonl", Settings("text", part_rows=4), tmp_path / "out")
    return tmp_path / "out"


def of_plan(embedded, load):
    """Run a target: the JSON in the metadata of a plan, or how its input is read, is mutated."""
    rows, _, about = read(embedded / INPUTS)
    path = embedded.parent / "plan.json"
    put_json(path, {"about": about, "read_as": rows[0]["read_as"]})

    def changed():
        text = path.read_bytes()
        value = json_value(text, "plan", dict[str, Any])
        table = pa.Table.from_pylist([{**rows[0], "read_as": str(value.get("read_as"))}], read(embedded / INPUTS)[1])
        (embedded / INPUTS).write_bytes(arrow_bytes(table, value.get("about")))
        load()

    of_json(path.parent, path.name, changed)


def test_plans(embedded):
    of_plan(embedded, lambda: read_run(Folder(embedded)))


def test_manifests_are_verified(embedded):
    def load():
        (embedded / SUCCESS).write_text(sha256_of(embedded / "_manifest.json"))
        if not all(check.ok for check in verify(embedded)):
            raise ValueError("found")

    of_json(embedded, "_manifest.json", load)


def test_plans_are_verified(embedded, tiny_encoder_folder):
    named = [str(embedded.parent / "t.jsonl")]

    def load():
        sample = verify(embedded, tiny_encoder_folder, named)[-1]
        if not sample.ok:
            raise ValueError(sample.detail)
        assert int(sample.detail.split()[0]) > 0

    of_plan(embedded, load)


def test_lists_of_rejected_rows(embedded):
    (name,) = (path.name for path in (embedded / "_rejected").iterdir())

    def with_digest(manifest):
        for part in manifest["parts"]:
            if part["n_rejected"]:
                part["rejected_sha256"] = sha256_of(embedded / "_rejected" / name)

    def load():
        sign(embedded, with_digest)
        if not all(check.ok for check in verify(embedded)):
            raise ValueError("found")

    of_json(embedded / "_rejected", name, load, end=b"\n")


def test_pair_shards(tmp_path):
    names = [f"pairs-0000{number}-of-00002.parquet" for number in range(2)]
    for name in names:
        pq.write_table(pa.table({"first": ["a b"] * 3, "second": ["c"] * 3}), tmp_path / name)
    entries = [{"name": name, "rows": 3, "sha256": sha256_of(tmp_path / name)} for name in names]
    counts = {"read": 7, "kept": 6, "refused": 1, "duplicates": 0, "reasons": {"short": 1}}
    sources = {"x.tsv": {"read": 7, "pairs": 6, "duplicates": 0, "refused": {"short": 1}}}
    settings = {"halvings": "none"}
    manifest = {"format": FORMAT, "settings": settings, "counts": counts, "sources": sources, "shards": entries}
    put_json(tmp_path / "manifest.json", manifest)

    def load():
        put_json(tmp_path / SUCCESS, {"manifest_sha256": sha256_of(tmp_path / "manifest.json")})
        shards = read_pair_manifest(tmp_path)
        num_rows = sum(shard["rows"] for shard in shards["shards"])
        assert not shards["shards"] or num_rows == shards["counts"]["kept"]
        assert all(value["pairs"] - value["duplicates"] < 2**64 for value in shards.get("sources", {}).values())

    of_json(tmp_path, "manifest.json", load)
    put_json(tmp_path / SUCCESS, {"manifest_sha256": sha256_of(tmp_path / "manifest.json")})
    of_json(tmp_path, SUCCESS, lambda: read_pair_manifest(tmp_path))


def test_reports_of_sources(tmp_path):
    sample = [{"file": "x", "line": 3, "reason": "short", "text": "a"}]
    save_report(SourceReport(4, 3, {"short": 1}, sample, [2, 1], 4, "2.0"), tmp_path / "r.json")
    of_json(tmp_path, "r.json", lambda: join_reports([load_report(tmp_path / "r.json")] * 2))


def test_training_states(tmp_path):
    counters = Counters(1, 5, 7, 12, 0, 1.5, 0.1, 0.2, 3, [(5, 10, 0.5, 0.1)], [(1, 2)], [(5, 10, 0.25), (6, 11, None)])
    tensors = {"encoder.matrix": torch.ones(3, 2), "best.matrix": torch.ones(3, 2)}
    decides = {"pairs": 10}
    save_state(tmp_path, counters, tensors, decides, 1)
    (folder,) = tmp_path.glob("step-*")

    def sign(body):
        body = {**body}
        body.pop("sha256", None)
        return {**body, "sha256": digest_of(body)}

    def load():
        loaded = load_state(tmp_path, decides, {"encoder.matrix": tensors["encoder.matrix"]})
        if loaded is None:
            raise ValueError("damaged")
        assert loaded[0].pairs_in_epoch < 10
        asdict(loaded[0])
        assert loaded[0].best is None or len(loaded[0].best) == 3

    of_json(folder, "state.json", load, sign)


def test_records_of_trials(tmp_path):
    points = Points("smoke", SPACES["smoke"])
    point = points.at(points.space.choices(0))
    curve = (Epoch(1, 0.5, 0.25, {"a": 0.5}, 1.0), Epoch(2, None, 0.25, {}, 2.0))
    record = TrialRecord(0, point.choices, point.recipe.to_dict(), 1.0, "finished", "", curve, 2.5, 1e9)
    Ledger(tmp_path).add(record)

    def load():
        ledger = Ledger(tmp_path)
        for loaded in ledger.in_order():
            points.check_record(loaded, points.space.size)
            points.shown(loaded.recipe, loaded.share)
        ledger.best()

    of_json(tmp_path, "00000.json", load)


@pytest.mark.parametrize("kind", [Recipe, SupervisedRecipe])
def test_recipes(tmp_path, kind):
    put_json(tmp_path / "recipe.json", kind().to_dict())

    def load():
        recipe = read_recipe(tmp_path / "recipe.json", kind)
        assert kind.from_dict(recipe.to_dict()) == recipe

    of_json(tmp_path, "recipe.json", load)


def test_weights(tmp_path, tiny_encoder_folder):
    """Bytes of safetensors files under digests that fit."""
    folder = tmp_path / "e"
    shutil.copytree(tiny_encoder_folder, folder)
    whole = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    dtypes = ("F64", "F16", "BF16", "I32", "U8", "BOOL", "F8_E4M3", "C64", "X")

    def case(draw):
        body = whole[8 + length :]
        match draw.randrange(5):
            case 0:
                data = fuzz.mutated(whole, draw, (b"\0\0\xc0\x7f", b"\0\0\x80\xff", b"{", b"]", b"F64"))
            case 1:
                changed = json.dumps(mutate(header, draw)).encode()
                data = len(changed).to_bytes(8, "little") + changed + body
            case 2:
                data = draw.choice((b"", b"\xff" * 8, (2**40).to_bytes(8, "little"), whole[:7])) + whole[8:]
            case 3:
                changed = json.dumps({**header, "matrix": {**header["matrix"], "dtype": draw.choice(dtypes)}}).encode()
                data = len(changed).to_bytes(8, "little") + changed + body
            case _:
                values = np.frombuffer(body, np.float32).copy()
                values[draw.randrange(len(values))] = draw.choice((np.nan, np.inf, -np.inf, 1e38, 0))
                data = whole[: 8 + length] + values.tobytes()
        (folder / "model.safetensors").write_bytes(data)
        fuzz.sign_files(folder)
        encoder = checkpoint.load(folder)
        assert bool(torch.isfinite(encoder.matrix).all())
        return "read"

    ends = run(case)
    assert min(ends["read"], ends["refused"]) > ends.total() / 50
