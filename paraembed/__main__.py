"""``python -m paraembed JOB …``: a job without the checkout; see ``paraembed.commands``."""

import sys

from paraembed.commands import run_named

if __name__ == "__main__":
    sys.exit(run_named())
