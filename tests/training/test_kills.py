import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("recipe", "seed"), [("avg", 1), ("mega", 2), ("proj", 3)])
def test_killed_runs_end_with_the_bits_of_an_unbroken_one(tmp_path: Path, recipe: str, seed: int) -> None:
    """Real SIGKILLs, 24 of them: at seeded times, and just before seeded writes of a checkpoint."""
    script = Path(__file__).with_name("killed_runs.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path, str(seed), recipe], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] == 8
    assert found["in_writes"] >= 1
    assert [step for step, _, _ in found["unbroken"]["curve"]] == [100, 101, 200, 202, 300, 303]
    assert all(one == found["unbroken"] for one in found["broken"])
