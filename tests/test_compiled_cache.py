"""Machine code: where it is kept, and for which processor it is made."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import paraembed

compiled_cache = pytest.importorskip("paraembed.compiled_cache")  # needs numba


@pytest.mark.parametrize("changed", ["compiled.py", "pairs/hashing.py", "text/scan.py"])
def test_machine_code_is_kept_apart_for_every_state_of_the_source(changed, tmp_path):
    source, copy = Path(paraembed.__file__).parent, tmp_path / "paraembed"
    shutil.copytree(source, copy)
    digest_of = compiled_cache.digest_of.__wrapped__
    assert digest_of(copy) == digest_of(source)
    (copy / changed).write_text((copy / changed).read_text() + "\n# changed\n")
    assert digest_of(copy) != digest_of(source)


def test_loops_are_kept_in_the_folder_of_the_content_and_named_after_their_processor(tmp_path):
    """numba's locator and its settings of processors are not documented; see ``compiled_cache``."""
    program = (
        "import torch; import paraembed.text.scan; from paraembed.compiled import arithmetic; "
        "print(arithmetic(torch.device('cpu')))"
    )
    restricted = {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "x86-64-v2", "NUMBA_CPU_FEATURES": "+sse4.2"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **restricted}, capture_output=True, text=True, check=True
    )
    assert "processor x86-64-v2 +sse4.2 with" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == [
        f"paraembed-{compiled_cache.digest_of(Path(paraembed.__file__).parent)}"
    ]
