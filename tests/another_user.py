"""What another user of this machine can do to files; needs root."""

import subprocess


def another_user_does(paths):
    """What user 65534 can list, write to or rename."""
    script = """for path in "$@"; do
      ls "$path" && echo "listed $path" >&3
      touch "$path/x" && echo "written $path" >&3
      mv "$path" "$path.moved" && echo "moved $path" >&3
    done"""
    done = subprocess.run(
        ["sh", "-c", f"exec 3>&1 > /dev/null 2> /dev/null; {script}", "sh", *paths],
        user=65534,
        group=65534,
        extra_groups=[],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()
