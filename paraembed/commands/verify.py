"""Read an embeddings folder again, all of it, and say whether it is what its manifest promises."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing_encoder
from paraembed.console import doing, print_table
from paraembed.io.places import to_place


@dataclass(frozen=True)
class Flags:
    """Read an embeddings folder again, all of it, and compare it with its manifest.

    Prints a line a check; the exit status is 0 if all are ok, else 1.

    Attributes:
        folder: Folder or URI that jobs/embed.py wrote to.
        encoder: Folder of the encoder; embeds a sample of the rows again and compares them. Needs --input.
        input: Input files of the output, or folders or URIs above them. No other file is read for --encoder.
    """

    folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    encoder: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    input: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE [FILE ...]")] = ()


def main(flags: Flags) -> None:
    """Verify and print."""
    if flags.input and flags.encoder is None:
        raise ValueError("--input is read for --encoder alone; give --encoder FOLDER, or leave --input out")
    folder = to_place(flags.folder)
    if isinstance(folder, Path) and not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; expected a folder that jobs/embed.py wrote")
    if flags.encoder is not None:
        existing_encoder(flags.encoder, "--encoder")
    from paraembed.embedding.verify import verify

    doing(f"reading {flags.folder}")
    checks = verify(folder, flags.encoder, flags.input)
    width = max(len(one.found) for one in checks)
    rows = [(one.name, "ok" if one.ok else "FAILED", one.found.ljust(width)) for one in checks]
    print_table(("check", "result", "found".ljust(width)), rows)
    failed = sum(not one.ok for one in checks)
    if failed:
        raise ValueError(f"{failed} of {len(checks)} checks FAILED for {flags.folder}")


def command() -> int:
    """Run the job of this process's command line."""
    return run(main, Flags)
