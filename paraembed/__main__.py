"""``python -m paraembed JOB …``: run a job from the installed package, without a checkout; see
``paraembed.commands``.
"""

import sys

from paraembed.commands import run_named

if __name__ == "__main__":
    sys.exit(run_named())
