"""Search a space of recipes, and run a paper's protocol: see ``python jobs/tune.py --help``."""

import sys

from paraembed.cluster.job import run
from paraembed.cluster.tune_command import Tune, tune

if __name__ == "__main__":
    sys.exit(run(tune, Tune))
