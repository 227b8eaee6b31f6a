"""Command ``shard``, from pair files to pair shards: see ``python jobs/shard.py --help``."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from paraembed.commands.job import run
from paraembed.commands.paths import existing, staged_input, staged_output, staged_places
from paraembed.console import print_table, say
from paraembed.embedding.settings import DEFAULT_LIMITS as DEFAULT_REJECTION
from paraembed.embedding.settings import Limits
from paraembed.io.limits import DEFAULT_LIMITS, ReadLimits
from paraembed.io.places import require_file, shown, to_place
from paraembed.pairs.settings import ShardSettings
from paraembed.settings import SHIPPED, SHIPPED_FOLDER, Engine, check_workers, is_shipped, suggested
from paraembed.text import TOKENIZERS

if TYPE_CHECKING:
    from paraembed.io.staging import Mirror

GROUPS = {
    "data": "encoder format columns no_header tokenizer features alignment non_terminals remove max_rejected_share "
    "max_line_bytes max_inflation csv_delimiter csv_escape csv_skip_blanks encoding",
    "selection": "keep_labels training_set words max_words min_score max_length top sample sample_seed nested_subsets "
    "split match_tokens_of leave_out",
    "output": "rows_per_shard rejected_sample",
    "resources": "workers engine",
}


@dataclass(frozen=True)
class Shard:
    """Read paraphrase pairs, filter and deduplicate them, and write pair shards (Parquet) for training.

    Input: PPDB 1.0 or 2.0; TSV, CSV, Parquet or JSONL with two columns or named columns; lists of a word and its
    paraphrases (--format words); two aligned files (--format aligned). Plain, .gz, .bz2, .zst, .zip. The columns
    tree1 and tree2 hold bracketed binary trees. 'shard.py fetch --list' prints the public originals that
    'shard.py fetch NAME' downloads.
    """

    input: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE [FILE ...]")]
    """Pair files or URIs, best first; of duplicate pairs, the one with the lowest line number in its file is kept."""
    out: Annotated[str, tyro.conf.arg(metavar="FOLDER")]
    """Folder to write, or its URI: pairs-*.parquet, manifest.json and _SUCCESS; one folder for each split or subset."""
    settings: Annotated[ShardSettings, tyro.conf.arg(name="")] = field(default_factory=ShardSettings)
    encoder: Annotated[str | None, tyro.conf.arg(name="for", metavar="small|ENCODER")] = None
    """Encoder that is to be trained further on the pairs, small or a folder: sets --tokenizer to what it reads."""
    words: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """Word-vector file or word list, or its URI: the vocabulary of training sets that reject pairs with OOV words."""
    max_words: int | None = None
    """Number of rows of --words to use, the most frequent words first; default: all (Wieting 2015: 100000)."""
    workers: int = 2
    """Number of processes that parse files, or parts of large uncompressed files."""
    engine: Engine = "auto"
    """Where to parse: in the process of the job (local), in --workers processes of Ray (ray), or (auto) local if the
    estimated time is below 20 seconds and no cluster is used. Both write the same bytes.
    """
    overwrite: bool = False
    """Replace existing pair shards of other inputs or settings."""
    rejected_sample: bool = True
    """Write up to 100 rejected rows per reason to rejected-sample.jsonl and MLflow, and print three pairs."""
    max_rejected_share: float = DEFAULT_REJECTION.max_rejected_share
    """Maximum share of all rows that are unreadable, 0 to 1, before the job fails; not those that labels or filters
    reject.
    """
    limits: Annotated[ReadLimits, tyro.conf.arg(name="")] = DEFAULT_LIMITS


def main(flags: Shard) -> dict[str, Any]:
    """Shard, and print the counts and the next command."""
    check_workers(flags.workers)
    if flags.max_words is not None and not flags.words:
        raise ValueError("--max-words sets the number of rows to use from --words; add --words FILE")
    settings = flags.settings if flags.encoder is None else _settings_for(flags.encoder, flags.settings)
    with staged_places() as stage:
        out = staged_output(stage, flags.out, "--out", *flags.input, flags.words)
        places = [to_place(text) for text in flags.input]
        inputs = [existing(place, "--input") if isinstance(place, Path) else place for place in places]
        for place in inputs:
            require_file(place)
        home = stage.mirror(out)
        _fetch_manifests(home, overwrite=flags.overwrite)
        words = staged_input(stage, flags.words, "--words") if flags.words else None
        from paraembed.cluster.shard import shard_pairs

        def upload() -> None:
            home.remove()
            stage.upload(home)

        manifest, before = shard_pairs(
            inputs,
            out,
            settings,
            words=words,
            max_words=flags.max_words,
            workers=flags.workers,
            engine=flags.engine,
            overwrite=flags.overwrite,
            rejected_sample=flags.rejected_sample,
            limits=flags.limits,
            max_rejected_share=Limits(max_rejected_share=flags.max_rejected_share).max_rejected_share,
            uri=home.uri,
            upload=upload,
        )
        counts = manifest["counts"]
        numbers = {name: counts[name] for name in ("read", "duplicates", "kept")}
        if before:
            return numbers
        rows = {"read": counts["read"], **{f"rejected: {reason}": count for reason, count in counts["reasons"].items()}}
        rows |= {"duplicates": counts["duplicates"], "kept": counts["kept"]}
        rows |= {f"in {name}": count for name, count in manifest.get("subsets", {}).items()}
        print_table(["rows", "count"], [[name, f"{count:,}"] for name, count in rows.items()])
        from paraembed.pairs.shards import has_ptb_tokens

        name, subset = shown(flags.out), next(iter(manifest.get("subsets", {"": 0})), "")
        pairs = f"{name}/{subset}" if subset else name
        start = _start(flags.encoder, is_ptb=has_ptb_tokens(manifest))
        say(
            f"wrote {counts['kept']:,} pairs of {counts['read']:,} rows to {name}; "
            f"next: python jobs/train.py {start} --pairs {pairs} --out ENCODER"
        )
        return numbers


def _settings_for(encoder: str, settings: ShardSettings) -> ShardSettings:
    """Return the settings with the tokenizer whose tokens an encoder reads: word pieces need the texts as they are."""
    from paraembed.checkpoint import read_config

    if settings.tokenizer != "auto":
        raise ValueError(f"--for sets the tokenizer, but --tokenizer is {settings.tokenizer}; leave one of them out")
    expected = f"expected an encoder folder{suggested(encoder)}"
    folder = SHIPPED_FOLDER if is_shipped(encoder) else existing(Path(encoder), "--for", expected)
    tokenizer = read_config(folder)["tokeniser"]
    return replace(settings, tokenizer=tokenizer if tokenizer in TOKENIZERS else "space")


def _start(encoder: str | None, *, is_ptb: bool) -> str:
    """Return the flags of train for the words to start from: an encoder, or vectors for tokens of ``ptb-v1``."""
    if encoder in {None, SHIPPED}:
        return "--words VECTORS.txt.gz" if is_ptb else f"--recipe {SHIPPED}"
    return f"--recipe {SHIPPED} --words {encoder}"


def _fetch_manifests(home: "Mirror", *, overwrite: bool) -> None:
    """Download what says that an output on an object store is complete; only a folder can be overwritten."""
    if home.uri is None:
        return
    from paraembed.io.resume import cannot_overwrite
    from paraembed.pairs.outputs import JOB, OUTPUT_FILES

    if home.check(OUTPUT_FILES, JOB) and overwrite:
        raise cannot_overwrite(shown(home.uri))
    home.pull(["manifest.json", "_SUCCESS"])


def command() -> int:
    """Run the job with this process's command line; if its first word is ``fetch``, download public originals."""
    if sys.argv[1:2] == ["fetch"]:
        from paraembed.commands.fetch import Fetch, run_fetch

        del sys.argv[1]
        return run(run_fetch, Fetch)
    return run(main, Shard, GROUPS)
