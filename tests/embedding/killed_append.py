"""Kill an append before each change of the file system, and finish it by the same command; or run it when asked."""

import os
import shutil
import signal
import sys
from pathlib import Path

from paraembed.embedding.output import Embeddings
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from tests.embedding.without_ray import build
from tests.jobs import contents

SETTINGS = Settings("text", "key", part_rows=2, stamp_column="at")
CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree"}


def embed(encoder, inputs, out, moment):
    """Add the inputs in a process that is killed before its change with this number; return whether it ended."""
    process = os.fork()
    if not process:
        changes = iter(range(moment))

        def hook(event, _arguments):
            if event in CHANGES and next(changes, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            if moment >= 0:
                sys.addaudithook(hook)
            build(encoder, inputs, SETTINGS, out, append=True)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - of any kind, it goes to the test
            print(error, file=sys.stderr, flush=True)
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in {0, -signal.SIGKILL}, status
    return status == 0


def main(encoder, folder, uri=""):
    """Print the number of moments."""
    folder = Path(folder)
    first, second = folder / "1.csv", folder / "2.csv"
    first.write_text("key,text,at\na,the cat,1\nb,the dog,1\nc,sat,1\n")
    second.write_text("key,text,at\na,the dog,2\nd,the cat,1\ntoo,many,cells,here\ne,sat,1\n")
    begun, inputs = folder / "begun", [str(first), str(second)]
    build(encoder, inputs[:1], SETTINGS, begun)  # in this process, which then has loaded and compiled everything
    if uri:  # for each line of the input, embed one file or both; the test kills the process
        for line in sys.stdin:
            print(embed(encoder, inputs[: int(line)], uri, -1), flush=True)
        return
    shutil.copytree(begun, folder / "whole")
    assert embed(encoder, inputs, folder / "whole", -1)
    unbroken, out, moment = contents(folder / "whole"), folder / "out", 0
    while True:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(begun, out)
        if embed(encoder, inputs, out, moment):
            break
        rows = len(rows_of(out))
        assert rows in {0, 3, 6}, rows  # of the first generation or of both, never of a part of it
        assert embed(encoder, inputs, out, -1)
        assert contents(out) == unbroken, moment
        assert not [path for path in out.rglob("*") if ".tmp" in path.name or "next" in path.name]
        moment += 1
    checks = verify(out, encoder, inputs)
    assert all(check.ok for check in checks), checks
    print(moment)


def rows_of(out):
    """The rows that readers see; none between the manifest and ``_SUCCESS``."""
    try:
        return range(Embeddings(out).rows)
    except ValueError:
        return ()
