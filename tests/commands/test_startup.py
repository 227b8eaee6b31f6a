"""Help, a wrong flag and a missing input are answered before anything is imported that takes seconds."""

import json
import re
import sys

from paraembed.commands import JOBS
from tests.jobs import job_command, ran

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
    "status": "{}/embeddings",
    "verify": "{}/embeddings",
    "compact": "{}/embeddings",
    "search": "{}/embeddings --query cat",
    "load": "{}/embeddings --to duckdb:{}/vectors.duckdb",
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
for name, *line in json.loads(sys.argv[1]):
    sys.argv[1:] = line
    try:
        status = main(name)
    except SystemExit as error:
        status = error.code
    print(json.dumps([name, status, [*sys.modules]]))
"""


def answers(*lines):
    """Name, status and imported packages of each command, all run in one process, and what they print as errors."""
    done = ran(sys.executable, "-c", CODE, json.dumps([line.split() for line in lines]))
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    assert len(printed) == len(lines), done.stderr
    packages = [{module.partition(".")[0] for module in modules} for *_, modules in printed]
    return [(name, status, found) for (name, status, _), found in zip(printed, packages, strict=True)], done.stderr


def test_help_is_printed_without_slow_imports():
    names = sorted(JOBS, key="sample".__eq__)  # which imports Arrow, last
    said, _ = answers(*(f"{name} --help" for name in names))
    assert [(name, status, found & SLOW) for name, status, found in said] == [(name, 0, set()) for name in names]
    assert not {name for name, _, found in said if found & ARROW} - {"sample"}


def test_mistakes_are_answered_without_slow_imports(tmp_path):
    missing = [f"{name} {flags}" for texts in (MISSING, MISSING_TEXTS) for name, flags in texts.items()]
    lines = [*(f"{name} --no-such-flag" for name in JOBS), *missing]
    said, errors = answers(*(line.replace("{}", str(tmp_path)) for line in lines))
    assert [(name, status, found & SLOW) for name, status, found in said] == [
        (line.split()[0], 2, set()) for line in lines
    ]
    absent = [line for line in errors.splitlines() if f"error: {tmp_path}/" in line]
    assert [re.findall("does not exist", line) for line in absent] == [["does not exist"]] * len(missing)
    assert not [*tmp_path.iterdir()]


def test_json_answers_wrong_flags_and_lists():
    for line in ("--no-such-flag 1", "--part-rows many"):
        command = *job_command("embed"), *line.split(), "--json", "--quiet"
        outcome = json.loads(ran(*command, status=2).stdout)
        assert (outcome["job"], outcome["status"]) == ("embed", 2)
    listed = ran(*job_command("train"), "--list", "--json").stdout.splitlines()
    assert json.loads(listed[-1])["status"] == 0


def test_a_missing_column_is_answered_before_the_encoder_is_loaded(tmp_path):
    (tmp_path / "t.csv").write_text("id,body\n1,a cat\n")
    jobs = "embed --encoder small --input", "teach --teacher small --texts"
    said, errors = answers(*(f"{job} {tmp_path}/t.csv --text-column nope --out {tmp_path}/out" for job in jobs))
    assert [status for _, status, _ in said] == [2, 2]
    assert errors.count(f"{tmp_path / 't.csv'} has no column 'nope'; --text-column can be: id, body") == 2
    assert not {"ray", "mlflow", "torch"} & said[-1][2]
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_a_finished_output_is_recognized_without_slow_imports(tmp_path):
    (tmp_path / "t.txt").write_text("a cat\na dog\n")
    job = f"embed --encoder small --input {tmp_path}/t.txt --out {tmp_path}/out"
    first, _ = answers(job)
    again, said = answers(job)
    assert [first[0][1], again[0][1]] == [0, 0]
    assert "already finished, 2 rows; nothing to do" in said
    assert not {"ray", "torch"} & first[0][2]
    assert not (SLOW | {"pandas"}) & again[0][2]
    used, _ = answers(f"search {tmp_path}/out --query cat", f"verify {tmp_path}/out --encoder small --input {tmp_path}")
    assert [(status, found & {"ray", "mlflow", "torch"}) for _, status, found in used] == [(0, set())] * 2


def test_encoders_are_named_without_pytorch_and_imported_when_asked_for():
    code = """
import sys
from paraembed import ENCODERS, RECIPES
assert "torch" not in sys.modules
from paraembed.encoders import Embedded, Encoder
print(Encoder.__module__, len(ENCODERS), "torch" in sys.modules)
"""
    printed = ran(sys.executable, "-c", code).stdout
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
    printed = ran(sys.executable, "-c", code).stdout
    seconds, *imported = printed.split()
    assert float(seconds) < 0.1
    assert not (SLOW | ARROW | {"tyro"}) & {*imported}
