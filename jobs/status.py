"""Show the progress of an embedding run: see ``python jobs/status.py --help``."""

import sys

if __name__ == "__main__":
    sys.path.append(f"{sys.path[0]}/..")  # a checkout need not be installed
    from paraembed.commands import main

    sys.exit(main("status"))
