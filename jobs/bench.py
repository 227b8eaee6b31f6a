"""Measure how fast paraembed is on this machine, on generated data: see ``python jobs/bench.py --help``."""

import sys

if __name__ == "__main__":  # a bare machine has the files, not the package
    sys.path.append(f"{sys.path[0]}/..")
    from paraembed.signals import guard

    guard()

from infra.bench.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
