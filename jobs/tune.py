"""Search a space of recipes, and run a paper's protocol: see ``python jobs/tune.py --help``."""

import sys

if __name__ == "__main__":  # before imports that take seconds, and fail without the virtual environment
    sys.path.append(f"{sys.path[0]}/..")
    from paraembed.start import guard

    guard()


from paraembed.cluster.job import run
from paraembed.cluster.tune_command import Tune, tune

if __name__ == "__main__":
    sys.exit(run(tune, Tune))
