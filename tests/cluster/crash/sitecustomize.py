"""Every Python of a test that has this folder on PYTHONPATH dies by SIGKILL at the moments that CRASHES lists.

CRASHES is a folder. A file there names a moment; who comes first removes the file and dies. Moments:
``open NAME`` and ``rename NAME``: just before the temporary file of NAME is made, or put in place; ``write NAME``: when
it was made, as the next file is opened, which for a part is its input; ``rmtree NAME``: before a folder is removed.
"""

import os
import re
import signal
import sys

_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}\.tmp")
_EVENTS = {"open": "open", "os.rename": "rename", "shutil.rmtree": "rmtree"}


def crash(moment, folder):
    try:
        os.unlink(f"{folder}/{moment}")  # noqa: PTH108 - nothing is imported that a process does not have yet
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def install(folder):
    written = []

    def hook(event, arguments):
        if event not in _EVENTS or not isinstance(arguments[0], str | os.PathLike):
            return
        name = os.path.basename(arguments[0])  # noqa: PTH119
        temporary = _TEMPORARY.fullmatch(name)
        if event == "open" and written and not temporary:
            crash(f"write {written.pop()}", folder)
        if event == "open" and temporary:
            written[:] = [temporary[1]]
        if temporary or event == "shutil.rmtree":
            crash(f"{_EVENTS[event]} {temporary[1] if temporary else name}", folder)

    sys.addaudithook(hook)


if "CRASHES" in os.environ:
    install(os.environ["CRASHES"])
