import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.killed_runs import KILLS

REPORTS = [100, 101, 200, 202, 300, 303]
SCORES = [14, 27, 40, 53, 66, 79, 92, 106, 119, 132, 145, 158, 171, 184, 197]
"""Every 0.13 epochs of 2,007 pairs; the best is that of step 40, and twelve that are no better end the run."""


@pytest.mark.parametrize(
    ("recipe", "seed", "steps"),
    [
        ("avg", 1, REPORTS),
        pytest.param("mega", 2, REPORTS, marks=pytest.mark.slow),
        pytest.param("proj", 3, REPORTS, marks=pytest.mark.slow),
        pytest.param("best", 4, sorted([*SCORES, 100, 101, 197]), marks=pytest.mark.slow),
    ],
)
def test_killed_runs_end_with_the_bits_of_an_unbroken_one(tmp_path, recipe, seed, steps):
    """Real SIGKILLs, 20 of them: at seeded times, and just before seeded writes of a checkpoint."""
    script = Path(__file__).with_name("killed_runs.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path, str(seed), recipe], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["killed"] == KILLS
    assert found["in_writes"] >= 1
    assert [step for step, _, _ in found["unbroken"]["curve"]] == steps
    assert all(one == found["unbroken"] for one in found["broken"])
