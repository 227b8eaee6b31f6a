"""Plan of an embedding run that a thread makes, while workers embed the parts of the files that have been read."""

from concurrent.futures import ThreadPoolExecutor

from paraembed.embedding.plan import Plan, Planner
from paraembed.process import RunTasks

_GROWTH = 1.25  # of the spans that have been read, after which the plan of them is made again, which takes 1 µs a file


class Planning:
    """Plan that a thread makes with ``run``, see ``Planner.make``. ``close`` ends it."""

    def __init__(self, planner: Planner, run: RunTasks | None) -> None:
        self._planner, self._thread, self._least = planner, ThreadPoolExecutor(1), 1
        self._plan = self._thread.submit(planner.make, run)

    @property
    def is_done(self) -> bool:
        """Whether the plan is complete, or an input cannot be read."""
        return self._plan.done()

    def plan(self) -> Plan:
        """Return the complete plan, after waiting for it; the errors are those of ``Planner``."""
        return self._plan.result()

    def plan_so_far(self) -> Plan | None:
        """Return the beginning of the plan, or None if it has hardly grown since the last time."""
        if self._planner.num_read < self._least:
            return None
        self._least = int(_GROWTH * self._planner.num_read) + 1
        return self._planner.plan_so_far()

    def close(self) -> None:
        """Stop the thread, after the spans that are being read."""
        self._planner.stop()
        self._thread.shutdown()
