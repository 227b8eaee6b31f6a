"""Help, a wrong flag and a missing input are answered before anything is imported that takes seconds."""

import json
import re
import subprocess
import sys

import pytest

from paraembed.commands import JOBS

ARROW = {"numpy", "pyarrow"}  # 0.3 s
SLOW = {"ray", "mlflow", "torch", "scipy", "matplotlib", "numba", "optuna"}
MISSING = {
    "shard": "--input {}/pairs.txt --out {}/out",
    "train": "--pairs {}/pairs --words {}/words.txt --out {}/out",
    "tune": "acl2017/avg --pairs {}/pairs --words {}/words.txt --data {} --out {}/out",
    "evaluate": "--encoder {}/encoder --suite sts --data {} --out {}/out",
    "finetune": "--task similarity --data {}/data --words {}/words.txt --out {}/out",
    "weight": "--words {}/words.txt --out {}/out",
    "export": "--encoder {}/encoder --to word2vec --out {}/out",
    "embed": "--encoder {}/encoder --input {}/text.txt --out {}/out",
    "verify": "{}/embeddings",
    "search": "{}/embeddings --query cat",
    "teach": "--teacher {}/encoder --texts {}/text.txt --out {}/out",
    "mine": "{}/embeddings --out {}/out",
}
MISSING_TEXTS = {
    "embed": "--encoder small --input {}/text.txt --out {}/out",
    "teach": "--teacher small --texts {}/text.txt --out {}/out",
}
CODE = """
import json, sys
from paraembed.commands import main
name, *lines = json.loads(sys.argv[1])
statuses, imported = [], []
for line in lines:
    sys.argv[1:] = line
    try:
        statuses.append(main(name))
    except SystemExit as error:
        statuses.append(error.code)
    imported.append([*sys.modules])
print(json.dumps([statuses, imported]))
"""


@pytest.mark.parametrize("name", JOBS)
def test_help_and_mistakes_are_answered_without_slow_imports(name, tmp_path):
    lines = [["--help"], ["--no-such-flag"]]
    missing = [texts[name] for texts in (MISSING, MISSING_TEXTS) if name in texts]
    lines += [line.replace("{}", str(tmp_path)).split() for line in missing]
    code = [sys.executable, "-c", CODE, json.dumps([name, *lines])]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    statuses, imported = json.loads(done.stdout.splitlines()[-1])
    assert statuses == [0, *[2] * (len(lines) - 1)]
    errors = [line for line in done.stderr.splitlines() if f"error: {tmp_path}/" in line]
    assert [re.findall("does not exist", line) for line in errors] == [["does not exist"]] * len(missing)
    helped, *_, last = ({module.partition(".")[0] for module in modules} for modules in imported)
    assert not SLOW & last
    assert name == "sample" or not ARROW & helped
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("flags", ["embed --encoder small --input", "teach --teacher small --texts"])
def test_a_missing_column_is_answered_before_the_encoder_is_loaded(flags, tmp_path):
    (tmp_path / "t.csv").write_text("id,body\n1,a cat\n")
    name, *line = [*flags.split(), str(tmp_path / "t.csv"), "--text-column", "nope", "--out", str(tmp_path / "out")]
    code = [sys.executable, "-c", CODE, json.dumps([name, line])]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    (status,), (imported,) = json.loads(done.stdout.splitlines()[-1])
    assert status == 2
    assert f"{tmp_path / 't.csv'} has no column 'nope'; --text-column can be: id, body" in done.stderr
    assert not {"ray", "mlflow", "torch"} & {*imported}
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_encoders_are_named_without_pytorch_and_imported_when_asked_for():
    code = """
import sys
from paraembed import ENCODERS, RECIPES
assert "torch" not in sys.modules
from paraembed.encoders import Embedded, Encoder
print(Encoder.__module__, len(ENCODERS), "torch" in sys.modules)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["paraembed.encoders.base", "22", "True"]


def test_the_package_is_imported_at_once_and_leaves_logging_alone():
    code = """
import logging, sys, time
before = logging.root.handlers[:], logging.root.level
started = time.process_time()
import paraembed
print(time.process_time() - started, *{name.partition(".")[0] for name in sys.modules})
assert (logging.root.handlers, logging.root.level) == before
assert {"load", "train", "embed", "evaluate", "search"} <= {*dir(paraembed)}
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    seconds, *imported = printed.split()
    assert float(seconds) < 0.1
    assert not (SLOW | ARROW | {"tyro"}) & {*imported}
