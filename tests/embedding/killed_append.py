"""Kill an append, and a compaction, before each change of the file system, and finish it by the same command; or run
an append when asked.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from paraembed.embedding.compact import compact
from paraembed.embedding.output import Embeddings
from paraembed.embedding.settings import Settings
from paraembed.embedding.verify import verify
from tests.embedding.without_ray import build
from tests.jobs import contents

SETTINGS = Settings("text", "key", part_rows=2, stamp_column="at")
CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree"}


def ended(work, moment=-1):
    """Work in a process that is killed before its change with this number; return whether it ended."""
    process = os.fork()
    if not process:
        changes = iter(range(moment))

        def hook(event, _arguments):
            if event in CHANGES and next(changes, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            if moment >= 0:
                sys.addaudithook(hook)
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - of any kind, it goes to the test
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in {0, -signal.SIGKILL}, status
    return status == 0


def kill_at_each_moment(begun, out, work, rows, step):
    """Kill work on copies of a folder at every ``step``-th moment, and finish it; print the number of moments. ``rows``
    are those of readers.
    """
    shutil.copytree(begun, out)
    assert ended(work)
    unbroken, moment = contents(out), 0
    while True:
        shutil.rmtree(out)
        shutil.copytree(begun, out)
        if ended(work, moment):
            break
        assert (seen := len(rows_of(out))) in {0, *rows}, seen  # of the previous output or of the new one
        assert ended(work)
        assert contents(out) == unbroken, moment
        assert not [path for path in out.rglob("*") if ".tmp" in path.name or "next" in path.name]
        moment += step
    assert all(check.ok for check in verify(out))
    sys.stdout.write(f"{moment}\n")


def main(encoder, folder, step, uri=""):
    """Print the number of moments of an append and of a compaction."""
    folder = Path(folder)
    first, second = folder / "1.csv", folder / "2.csv"
    first.write_text("key,text,at\na,the cat,1\nb,the dog,1\nc,sat,1\n")
    second.write_text("key,text,at\na,the dog,2\nd,the cat,1\ntoo,many,cells,here\ne,sat,1\n")
    begun, out, inputs = folder / "begun", folder / "out", [str(first), str(second)]
    build(encoder, inputs[:1], SETTINGS, begun)  # in this process, which then has loaded and compiled everything
    if uri:  # for each line of the input, embed one file or both; the test kills the process
        for line in sys.stdin:
            done = ended(lambda line=line: build(encoder, inputs[: int(line)], SETTINGS, uri, append=True))
            sys.stdout.write(f"{done}\n")
            sys.stdout.flush()
        return
    kill_at_each_moment(begun, out, lambda: build(encoder, inputs, SETTINGS, out, append=True), (3, 6), int(step))
    out.rename(folder / "grown")
    kill_at_each_moment(folder / "grown", out, lambda: compact(out), (6, 5), int(step))


def rows_of(out):
    """The rows that readers see; none between the manifest and ``_SUCCESS``."""
    try:
        return range(Embeddings(out).rows)
    except ValueError:
        return ()
