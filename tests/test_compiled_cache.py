import shutil
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
