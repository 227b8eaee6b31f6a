"""The process of one program: ``python -m paraembed.benchmarks.train_program SPECIFICATION``, a JSON object."""

import json
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paraembed.benchmarks.peers import embedding, embedding_bag, every, static_embedding
from paraembed.benchmarks.train_case import Case
from paraembed.benchmarks.turns import Finished, Turns
from paraembed.ragged import Ragged
from paraembed.training.loop import Report, train
from paraembed.training.pairs import epoch_batches
from paraembed.training.step import step_for

_INTERVAL = 20  # steps between two looks at the clock, and of the warm-up
_MOST_READY = 1000  # batches
_STATIC_PAIRS = 50_000  # that sentence-transformers gets: it has them as text, and tokenises a batch at a time


def command(program: str, case: Case, **more: Any) -> list[str]:
    """The command line that runs a program."""
    specification = json.dumps({"program": program, "case": vars(case), **more})
    return [sys.executable, "-P", "-m", "paraembed.benchmarks.train_program", specification]


def main(specification: dict[str, Any]) -> None:
    """Run a program until it is told that no more turns are wanted."""
    case = Case(**specification["case"])
    program, rank, world = specification["program"], specification.get("rank", 0), specification.get("world", 1)
    torch.set_num_threads(case.threads)
    if world > 1:
        meeting = f"file://{specification['folder']}/meeting"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    turns = Turns(0 if case.epochs else case.seconds, torch.device(case.device))
    try:
        if program == "paraembed":
            _train(case, turns if rank == 0 else None, world)
        elif program == "static_embedding":
            _static_embedding(case, turns, Path(specification["folder"]))
        else:
            every(_PREPARED[program](case), _INTERVAL, turns)
    except Finished:
        return


def _train(case: Case, turns: Turns | None, world: int) -> None:
    """The training loop as it is. The first worker keeps the time; the others, without ``turns``, keep up with it."""

    def on_report(report: Report) -> None:
        if turns and not case.epochs:
            turns(report.step)
        elif turns and (report.step % 10_000 == 0 or report.end_of_epoch):
            print(  # noqa: T201 - to stderr
                f"epoch {report.epoch}/{report.epochs}  step {report.step:,}/{report.steps:,}  loss {report.loss:.4f}  "
                f"{report.pairs_per_second:,.0f} pairs/s  {report.seconds_left:,.0f} s left",
                file=sys.stderr,
            )

    encoder, pairs = case.build_encoder(), case.draw_pairs()
    if turns and case.epochs:
        turns(0)
    rank = dist.get_rank() if world > 1 else 0
    counters = train(encoder, pairs, case.recipe(), rank=rank, world=world, on_report=on_report)
    if turns and case.epochs:
        turns(counters.step)


def _ready(case: Case) -> Iterator[Tensor]:
    """Our step alone, on batches made in advance."""
    pairs = case.draw_pairs()
    step = step_for(case.build_encoder(), case.recipe(), pairs)
    for number, batch in enumerate(cycle(list(islice(step.batches(pairs, 0), _MOST_READY))), 1):
        yield step(batch, number)


def _embedding_bag(case: Case) -> Iterator[Tensor]:
    return embedding_bag(case.draw_words(), _texts(case), torch.device(case.device))


def _embedding(case: Case) -> Iterator[Tensor]:
    return embedding(case.draw_words(), _texts(case), torch.device(case.device))


def _texts(case: Case) -> list[Ragged]:
    """Those of the batches that ``_ready`` has."""
    batches = epoch_batches(case.draw_pairs(), epoch=0, seed=case.seed, batch_size=case.batch_size)
    return [batch.texts for batch in islice(batches, _MOST_READY)]


_PREPARED = {"ready": _ready, "embedding_bag": _embedding_bag, "embedding": _embedding}


def _static_embedding(case: Case, turns: Turns, folder: Path) -> None:
    def on_step(steps: int) -> None:
        if steps % _INTERVAL == 0:
            turns(steps)

    pairs = case.draw_pairs().slice(0, 2 * min(case.num_pairs, max(_STATIC_PAIRS, case.batch_size)))
    device = torch.device(case.device)
    try:
        static_embedding(case.draw_words(), pairs, case.batch_size, device, folder, on_step)
    except ModuleNotFoundError as missing:
        turns.skip(f"{missing.name} is not installed")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
