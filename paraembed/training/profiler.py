"""A trace of a few training steps, to see where their time goes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

SKIPPED_STEPS = 20
"""Steps before the trace: the first ones compile, allocate and read."""
TRACED_STEPS = 10

log = logging.getLogger(__name__)


@contextmanager
def traced(path: Path | None) -> Iterator[Callable[[], None]]:
    """Trace ``TRACED_STEPS`` steps of the block, which calls what it is given after every step.

    Args:
        path: gzipped JSON file in Chrome's trace format, which https://ui.perfetto.dev opens; None: no trace.
    """
    if path is None:
        yield lambda: None
        return
    written: list[Path] = []
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    plan = schedule(wait=0, warmup=1, active=TRACED_STEPS, skip_first=SKIPPED_STEPS - 1, repeat=1)
    with profile(
        activities=activities, schedule=plan, on_trace_ready=partial(_write, path, written), with_stack=True
    ) as profiler:
        yield profiler.step
    if not written:
        log.warning("no trace: it begins after %d steps, and there were not as many", SKIPPED_STEPS)


def _write(path: Path, written: list[Path], profiler: profile) -> None:
    profiler.export_chrome_trace(str(path))
    written.append(path)
