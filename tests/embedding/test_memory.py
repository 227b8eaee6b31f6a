import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

FEW, MANY = 12_000, 48_000
PROGRAM = """
import json, resource, sys
from dataclasses import replace
from pathlib import Path
import numpy as np, pyarrow as pa, torch
from paraembed.embedding import part
from paraembed.embedding.identity import hash_inputs
from paraembed.embedding.inputs import find_inputs
from paraembed.embedding.plan import make_plan
from paraembed.embedding.settings import Settings
from paraembed.io.store import Folder
from paraembed.encoders import Encoder
from paraembed.encoders.configs import AvgConfig
from paraembed.text.vocabulary import UNKNOWN, Words

torch.set_num_threads(1)  # as in a worker
part.ROW_GROUP_BYTES = 1 << 21
pa.set_cpu_count(1)
words = Words(pa.array([UNKNOWN, "the", "cat"]), np.ones((3, 512), np.float32))
encoder, out = Encoder(AvgConfig(), words, "space"), Path(sys.argv[1])
for path in sys.argv[2:]:
    files = hash_inputs([replace(file, block_bytes=1 << 18) for file in find_inputs([path])])
    plan = make_plan(files, Settings("body", part_rows=1_000_000, batch_size=500))
    (one,) = plan.parts
    part.embed_part(encoder, plan.inputs, one, plan.settings, Folder(out))
    print(json.dumps([one.rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_a_part(tmp_path):
    """Four times the rows: 74 MB more of vectors and 11 MB of text, of which none may stay; the rest is noise."""
    (tmp_path / "_reports").mkdir()
    (tmp_path / "data").mkdir()
    rows = [f"the cat {row:06} " + "x" * 300 for row in range(MANY)]
    paths = []
    for count in (FEW, MANY):
        csv, table = tmp_path / f"{count}.csv", tmp_path / f"{count}.parquet"
        csv.write_text("\n".join(["body", *rows[:count], ""]))
        pq.write_table(pa.table({"body": rows[:count]}), table, use_dictionary=False)
        paths += [csv, table]
    made = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, *paths], capture_output=True, text=True, check=True)
    peaks = [json.loads(line) for line in made.stdout.splitlines()]
    assert [count for count, _ in peaks] == [FEW, FEW, MANY, MANY]
    assert peaks[3][1] - peaks[1][1] < 24 << 10, peaks  # KiB
