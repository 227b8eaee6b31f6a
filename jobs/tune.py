"""Search a space of recipes, and run a paper's protocol: see ``python jobs/tune.py --help``."""

import sys

if __name__ == "__main__":  # before imports that take seconds, and fail without the virtual environment
    sys.path.append(f"{sys.path[0]}/..")
    from paraembed.commands.start import guard

    guard()


from paraembed.commands.job import run
from paraembed.commands.tune import Tune, tune

if __name__ == "__main__":
    sys.exit(run(tune, Tune))
