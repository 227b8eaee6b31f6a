"""What SECURITY.md promises, tried out; what one module promises of itself stands in that module's tests."""

import ast
import bz2
import gzip
import importlib.metadata
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from paraembed import checkpoint
from paraembed.embedding.plan import make_plan, plan_from_json, settings_json
from paraembed.embedding.settings import Settings
from paraembed.io import inflate
from paraembed.io.atomic import write_json
from paraembed.io.fingerprint import sha256_of
from paraembed.io.lines import read_lines
from paraembed.pairs.formats import sources_of
from paraembed.pairs.parse import parse_source
from paraembed.pairs.public.fetch import unpack
from paraembed.pairs.sample import write_sample
from paraembed.pairs.settings import ShardSettings
from paraembed.pairs.shards import read_pair_manifest
from paraembed.pairs.source_parts import save_report
from paraembed.text.vocabulary import read_words
from tests.embedding.without_ray import list_inputs
from tests.fuzz import Bomb, sign
from tests.jobs import job_command, ran

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("paraembed/**/*.py"), *ROOT.glob("jobs/*.py"), *ROOT.glob("infra/**/*.py")])
RUNS_CODE = {"pickle", "cloudpickle", "joblib", "dill", "shelve", "marshal", "yaml", "skops"}
CALLS = {
    *("torch.load", "torch.save", "torch.jit.load", "torch.hub.load", "np.load", "numpy.load", "pd.read_pickle"),
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen"),
}
SAFE = {"mmap_mode": "'r'", "allow_pickle": "False"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_read_that_could_run_code(path):
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & RUNS_CODE
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name, given = ast.unparse(call.func), {one.arg: ast.unparse(one.value) for one in call.keywords}
        if name in {"np.load", "numpy.load"}:  # refuses pickles unless it is told otherwise
            assert given.items() <= SAFE.items(), f"line {call.lineno}"
        else:
            assert name not in CALLS, f"line {call.lineno}: {name}"
        assert given.get("shell") in {None, "False"}, f"line {call.lineno}: a shell"
        trusted = given.get("trust_remote_code", "False").rpartition(".")[2]
        assert trusted in {"False", "trust_remote_code"}, f"line {call.lineno}: code of strangers"  # or the user's flag
        assert given.get("verify") != "False", f"line {call.lineno}: a certificate that is not looked at"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.safetensors", "words.txt", "config.json"])
@pytest.mark.parametrize("dump", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_an_encoder_folder_with_a_pickle_is_refused_or_it_is_not_opened(tiny_encoder_folder, tmp_path, name, dump):
    folder, trace = tmp_path / "encoder", tmp_path / "trace"
    folder.mkdir()
    config = json.loads((tiny_encoder_folder / "config.json").read_text())
    if name == "config.json":
        (folder / "model.safetensors").write_bytes((tiny_encoder_folder / "model.safetensors").read_bytes())
    if name in {"words.txt", "model.safetensors"}:
        other = next(iter({"words.txt", "model.safetensors"} - {name}))
        (folder / other).write_bytes((tiny_encoder_folder / other).read_bytes())
    with (folder / name).open("wb") as file:
        dump({"matrix": Bomb(trace)}, file)
    if name != "config.json":
        config["files"] = {one: sha256_of(folder / one) for one in config["files"] if (folder / one).exists()} | (
            {name: sha256_of(folder / name)}
        )
        write_json(folder / "config.json", sign(config))
    message = "is not a safetensors file" if name == "model.safetensors" else None
    with pytest.raises((ValueError, OSError), match=message):
        checkpoint.load(folder)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["vectors.bin", "vectors.txt", "vectors.txt.gz"])
def test_word_vectors_that_are_a_pickle_are_refused(tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        torch.save({"matrix": Bomb(tmp_path / "trace")}, file)
    with pytest.raises(ValueError, match=re.escape(name)):
        read_words(tmp_path / name)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["../pairs.parquet", "/etc/passwd", "a/b.parquet", "..", "", 7, None])
def test_a_manifest_of_pairs_cannot_name_a_file_outside(tmp_path, name):
    folder = tmp_path / "pairs"
    folder.mkdir()
    (tmp_path / "pairs.parquet").write_bytes(b"outside")
    entry = {"name": name, "rows": 1, "sha256": sha256_of(tmp_path / "pairs.parquet")}
    write_json(folder / "manifest.json", {"format": "paraembed-pairs-1", "shards": [entry], "counts": {"kept": 1}})
    write_json(folder / "_SUCCESS", {"manifest_sha256": sha256_of(folder / "manifest.json")})
    with pytest.raises((ValueError, OSError), match=r"outside|folder|exist|expected str"):
        read_pair_manifest(folder)


@pytest.mark.parametrize("name", ["../part.parquet", "/tmp/part.parquet", "part-00001-of-00001.parquet", 3])
def test_a_plan_of_format_2_cannot_name_a_part_outside(tmp_path, name):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    plan = make_plan(list_inputs([tmp_path / "a.txt"]), Settings())  # in format 3 parts have no names
    part = {"name": "part-00000-of-00001.parquet", **asdict(plan.parts[0].pieces[0])}
    value = {"inputs": [plan.inputs[0].to_json()], "settings": settings_json(plan.settings, 2), "parts": [part]}
    assert plan_from_json(value).rows == 2
    part["name"] = name
    with pytest.raises(ValueError, match=rf"the name {re.escape(repr(name))}; expected part-0|name is 3"):
        plan_from_json(value)


@pytest.fixture
def low_limit(monkeypatch):
    monkeypatch.setattr(inflate, "ALWAYS_INFLATED", 8 << 20)


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """Ten gigabytes each: one line and lines of 64 KiB (10.4 and 10.7 MB), texts of Parquet (0.5 MB)."""
    folder = tmp_path_factory.mktemp("bombs")
    for name, piece in (("line", b"a" * (64 << 20)), ("lines", (b"a" * 65_535 + b"\n") * 1024)):
        (folder / f"{name}.txt.gz").write_bytes(gzip.compress(piece, 9) * 160)
    schema = pa.schema([("first", pa.string()), ("second", pa.string())])
    texts = pa.table({"first": ["a" * (1 << 20)] * 128, "second": ["b"] * 128}, schema)
    options = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    with pq.ParquetWriter(folder / "texts.parquet", schema, **options) as writer:
        for _ in range(80):
            writer.write_table(texts)
    assert max(path.stat().st_size for path in folder.iterdir()) < 11_000_000
    return folder


PEAK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
sys.exit(code)
"""
"""Runs a command, then prints the most MiB that it held."""

PARSE = """
import sys
from paraembed.pairs.formats import ReadLimits, Reading, read_pairs
limits = ReadLimits(max_inflation=int(sys.argv[2]))
try:
    for block in read_pairs(sys.argv[1], Reading("words" if ".gz" in sys.argv[1] else "auto", limits=limits)):
        print(set(block.pairs.refused.to_pylist()))
except ValueError as error:
    sys.exit(str(error))
"""
"""What a worker of jobs/shard.py reads of a file."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "most", "embedded", "sharded"),
    [
        ("line.txt.gz", 200, "longer than --max-line-bytes", "200 times its size"),
        ("line.txt.gz", 10_000, "longer than --max-line-bytes", "{'longer than --max-line-bytes'}"),
        ("lines.txt.gz", 200, "200 times its size", "200 times its size"),
        ("texts.parquet", 200, "200 times its size", "200 times its size"),
    ],
)
def test_ten_gigabytes_from_ten_megabytes_are_refused(
    bombs, name, most, embedded, sharded, tmp_path, tiny_encoder_folder
):
    embed = ["jobs/embed.py", "--encoder", tiny_encoder_folder, "--input", bombs / name, "--out", tmp_path]
    embed += ["--max-inflation", most, *(["--text-column", "first"] if name == "texts.parquet" else [])]
    for command, said, failed in ((embed, embedded, 2), (["-c", PARSE, bombs / name, most], sharded, 1)):
        whole = [sys.executable, "-c", PEAK, sys.executable, *map(str, command)]
        done = subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False)
        assert said in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == (0 if said.startswith("{") else failed)
        assert int(done.stdout.splitlines()[-1]) < 1000


@pytest.mark.parametrize("pack", ["gz", "bz2", "zst"])
def test_bombs_of_every_kind_are_refused_and_plain_files_are_not(tmp_path, low_limit, pack):
    lines = (b"a" * 1023 + b"\n") * (16 << 10)
    packed = {
        "gz": lambda: gzip.compress(lines),
        "bz2": lambda: bz2.compress(lines),
        "zst": lambda: pa.compress(lines, codec="zstd", asbytes=True),
    }[pack]()
    assert len(packed) * inflate.MAX_INFLATION < len(lines)
    (tmp_path / f"lines.{pack}").write_bytes(packed)
    with pytest.raises(ValueError, match=rf"lines\.{pack} has [\d,]+ bytes but inflates to"):
        for _ in read_lines(tmp_path / f"lines.{pack}"):
            pass
    (tmp_path / "lines").write_bytes(lines)
    assert sum(map(len, read_lines(tmp_path / "lines"))) == 16 << 10


def test_a_text_that_repeats_itself_is_no_bomb(tmp_path, low_limit):
    rows = "".join(f"{number} the same words in every line\t{number}\n" for number in range(500_000)).encode()
    (tmp_path / "rows.gz").write_bytes(gzip.compress(rows))
    assert len(rows) > 16 << 20
    assert sum(map(len, read_lines(tmp_path / "rows.gz"))) == 500_000


def test_an_archive_that_is_a_bomb_is_refused(tmp_path, low_limit):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        for number in range(4):
            zipped.writestr(f"{number}.txt", b"a" * (4 << 20))
    with pytest.raises(ValueError, match=r"bomb\.zip has [\d,]+ bytes but inflates to"):
        unpack(tmp_path / "bomb.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("sampled", [0, 1])
def test_refused_rows_are_shown_only_as_often_as_asked(tmp_path, sampled):
    (tmp_path / "pairs.tsv").write_text(f"one\tuno\n{WORD}\n{WORD} again\n")
    (source,) = sources_of([tmp_path / "pairs.tsv"], "auto")
    what = source, "pairs.tsv", ShardSettings(), tmp_path / "parsed"
    report = parse_source(*what, sampled=sampled)
    assert sum(report.refused.values()) == 2
    assert len(report.sample) == sampled
    save_report(report, tmp_path / "report.json")
    assert (WORD in (tmp_path / "report.json").read_text()) == bool(sampled)


FLOORS = {"torch": (2, 10), "mlflow": (3, 11), "ray": (2, 59)}
"""Below these each has a known way in: torch.load with weights_only, MLflow's server, Ray's dashboard without token."""


@pytest.mark.parametrize("name", FLOORS)
def test_no_version_with_a_known_hole_can_be_installed(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (asked,) = (one for one in project["dependencies"] if re.match(rf"{name}\b", one))
    (lowest,) = re.findall(r"[>=]=\s*(\d+)\.(\d+)", asked)
    (pinned,) = re.findall(rf"^{name}==(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    installed = importlib.metadata.version(name).split(".")[:2]
    for version in (lowest, pinned, installed):
        assert tuple(map(int, version)) >= FLOORS[name]


SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "plantedsecret-aws-41c6",
    "HF_TOKEN": "plantedsecret-hf-9d02",
    "MLFLOW_TRACKING_PASSWORD": "plantedsecret-mlflow-77e3",
    "PARAEMBED_ANYTHING": "plantedsecret-any-5b1a",
}
WORD = "qzxplantedword"
"""Stands in the texts of the user, good rows and bad ones."""


@pytest.fixture
def jobs(tmp_path):
    """Runs a job with secrets in its environment, in ``tmp_path``; returns what it said."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as logs:  # short: the path of a socket
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "MLFLOW_"))}
        environment |= {**SECRETS, "RAY_TMPDIR": logs, "PYTHONPATH": str(ROOT)}

        def run(job, *arguments):
            done = ran(*job_command(job, *arguments), env=environment, cwd=tmp_path)
            said = done.stdout + done.stderr
            assert not found(Path(logs), *SECRETS.values(), WORD), "in Ray's logs"
            return said

        yield run


def found(folder, *words):
    """Files in which one of the words stands."""
    hits = []
    for path in sorted(one for one in folder.rglob("*") if one.is_file() and not one.is_symlink()):
        data = path.read_bytes()
        hits += [f"{path.relative_to(folder)}: {word}" for word in words if word.encode() in data]
    return hits


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_secrets_are_nowhere_and_texts_only_in_the_data(tmp_path, jobs):
    sample, source = tmp_path / "in" / "sample", tmp_path / "in"
    write_sample(sample, lines=1500, dimension=8, sentences=200, test_pairs=50, ppdb_version="2.0")
    # Over half of the tokens have a vector; below that, messages name the most frequent words without one.
    known = "the old cat and the dog", "the cat and the old dog"
    pairs = "".join(f"{known[0]} {number} {WORD}\t{known[1]} {number} {WORD}\n" for number in range(300))
    (source / "pairs.tsv").write_text(f"{pairs}only one cell {WORD}\n{WORD}\t\n" + "\udcff".join([WORD, "x\ty\n"]),
                                      errors="surrogateescape")  # fmt: skip
    texts = [f"{WORD} number {number}" for number in range(200)]
    (source / "corpus.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts) + f'{{"text": {WORD}\n' + f'["{WORD}"]\n'
    )
    said = jobs("shard", "--input", source / "pairs.tsv", "--out", "pairs", "--no-rejected-sample")
    vectors = sample / "vectors.txt.gz"
    said += jobs("train", "--pairs", "pairs", "--words", vectors, "--out", "encoder", "--epochs", "1")
    said += jobs("embed", "--encoder", "encoder", "--input", source / "corpus.jsonl", "--text-column", "text",
                 "--out", "embeddings")  # fmt: skip
    assert not [word for word in (*SECRETS.values(), WORD) if word in said], said
    assert not found(tmp_path, *SECRETS.values())
    assert json.loads((tmp_path / "pairs" / "manifest.json").read_text())["counts"]["refused"] == 3
    assert not (tmp_path / "pairs" / "rejected-sample.jsonl").exists()
    data = {"in", "pairs", "encoder"}  # the input; pair shards and their words; the encoder's words
    assert not [one for one in found(tmp_path, WORD) if one.split("/")[0] not in data]
    assert not found(tmp_path / "mlruns", WORD)
    held = {one.split(":")[0] for one in found(tmp_path / "pairs", WORD) + found(tmp_path / "encoder", WORD)}
    assert held <= {"words.txt", "vocabulary.parquet", *(f"pairs-{n:05d}-of-00001.parquet" for n in range(1))}
