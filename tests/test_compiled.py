"""Machine code: where it is kept, and for which processor it is made."""

import copy
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from llvmlite.binding import get_host_cpu_name

import paraembed
from paraembed.io.scan import scan
from paraembed.late import Late
from paraembed.machine_code import digest_of
from tests.jobs import ran


@pytest.mark.parametrize("changed", ["compiled.py", "text/hashing.py", "text/scan.py"])
def test_machine_code_is_kept_apart_for_every_state_of_the_source(changed, tmp_path):
    source, copy = Path(paraembed.__file__).parent, tmp_path / "paraembed"
    shutil.copytree(source, copy)
    digest = digest_of.__wrapped__
    assert digest(copy) == digest(source)
    (copy / changed).write_text((copy / changed).read_text() + "\n# changed\n")
    assert digest(copy) != digest(source)


def run(program, **environment):
    return ran(sys.executable, "-c", program, env={**os.environ, **environment}).stdout


def test_machine_code_is_kept_in_a_folder_of_the_content(tmp_path):
    """How numba finds its locators is not documented; see ``ByContent``."""
    run(
        "from paraembed.text.hashing import hash_strings; import pyarrow as pa; hash_strings(pa.array(['a']))",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    folder = f"paraembed-{digest_of(Path(paraembed.__file__).parent)}"
    assert [path.name for path in tmp_path.iterdir()] == [folder]


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "processor HOST with"),
        pytest.param({"NUMBA_CPU_NAME": "x86-64-v2"}, "processor x86-64-v2 on HOST with", marks=pytest.mark.slow),
        pytest.param(
            {"NUMBA_CPU_FEATURES": "+sse4.2"}, "processor HOST with features +sse4.2 with", marks=pytest.mark.slow
        ),
        ({"NUMBA_CPU_NAME": "generic"}, "processor generic on HOST with features none with"),
    ],
)
def test_the_arithmetic_names_restrictions_of_the_processor(environment, named):
    program = "import torch; from paraembed.compiled import arithmetic; print(arithmetic(torch.device('cpu')))"
    assert named.replace("HOST", get_host_cpu_name()) in run(program, **environment)


def test_loops_and_late_modules_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(scan)) is scan
    assert vars(copy.copy(Late("json"))) == {"_name": "json"}


def test_the_first_calls_of_several_threads_leave_the_settings_of_numba(tmp_path):
    (tmp_path / "loops.py").write_text("""
from concurrent.futures import ThreadPoolExecutor
import numba
from paraembed.machine_code import compile_loop
before = numba.config.CACHE_LOCATOR_CLASSES
def place(_):
    return compile_loop(lambda value: value + 1, {}).stats.cache_path
with ThreadPoolExecutor(8) as pool:
    places = {*pool.map(place, range(400))}
assert numba.config.CACHE_LOCATOR_CLASSES == before
print(*places)
""")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    (folder,) = ran(sys.executable, tmp_path / "loops.py", env=environment).stdout.split()
    assert Path(folder).name.startswith("paraembed-")


def test_a_loop_gives_the_same_in_python_as_compiled():
    """The header of a table is read in Python, as long as numba is not imported."""
    program = """
import random, sys
import numpy as np
from paraembed.compiled import interpreted
from paraembed.io.scan import scan

def headers():
    drawn = random.Random(1)
    for _ in range(500):
        octets = np.array(drawn.choices(list(b'a,"; \\n\\r\\t'), k=drawn.randrange(1, 60)), np.uint8)
        ends, found = np.zeros(61, np.int64), (np.zeros(61, np.uint8), *np.zeros((2, 61), np.int32))
        with interpreted(True):
            count = scan(octets, ord(","), ord('"'), -1, False, 0, 0, 9, 50, True, True, ends, *found)
        yield count, ends[:count].tolist(), *(values[:count].tolist() for values in found)

in_python = [*headers()]
assert "numba" not in sys.modules
import numba
assert in_python == [*headers()]
print(len({*map(str, in_python)}))
"""
    assert int(run(program)) > 50
