"""The tables of the benchmark of embedding, in Markdown, and what follows from them, in words."""

from collections.abc import Sequence
from statistics import median

from paraembed.benchmarks.embed import FLOOR, IN_MEMORY, JOBS, SIZES, STAGES, Result, Results
from paraembed.benchmarks.embed_case import EmbedWorkload


def markdown(work: EmbedWorkload, results: Results) -> list[str]:
    """Lines of the tables of what was measured, and notes."""
    lines = [
        *_in_memory({key: one for key, one in results.items() if key in IN_MEMORY}),
        *_end_to_end({key: one for key, one in results.items() if key in JOBS | FLOOR}),
        *_stages(work, results),
        *_sizes(work, {key: one for key, one in results.items() if key in SIZES}),
    ]
    found = [f"* {note}" for note in notes(work, results)]
    return [*lines, *found, ""] if found else lines


def _in_memory(results: Results) -> list[str]:
    if not results:
        return []
    rows = []
    for one in results.values():
        if one.skipped:
            rows.append([one.name, one.skipped, "", "", ""])
            continue
        ratio = f"{results['encode'].rate / one.rate:.2f}" if _has(results, "encode") else ""
        peak = f"{one.peak_bytes / 1e6:,.0f}"
        rows.append([one.name, f"{one.rate:,.0f}", f"{one.cpu_rate:,.0f}", ratio, peak])
    head = ("in memory", "sentences/s", "sentences/s of CPU", "paraembed ×", "peak MB")
    return _table(head, rows)


def _end_to_end(results: Results) -> list[str]:
    if not results:
        return []
    rows = []
    for one in results.values():
        ratio = f"{results['float32'].rate / one.rate:.2f}" if _has(results, "float32") else ""
        jobs = one.jobs
        whole, start = (
            (f"{one.turns[0].steps / median(job.whole_seconds for job in jobs):,.0f}", f"{_start(one):.1f}")
            if jobs
            else ("", "")
        )
        parts = f"{jobs[0].parts:,}" if jobs else ""
        peak = f"{one.peak_bytes / 1e6:,.0f}"
        rows.append([one.name, f"{one.turns[0].steps:,}", parts, f"{one.rate:,.0f}", ratio, whole, start, peak])
    head = ("end to end", "rows", "parts", "rows/s", "float32 ×", "rows/s with start", "start s", "peak MB a process")
    return _table(head, rows)


def _stages(work: EmbedWorkload, results: Results) -> list[str]:
    """Seconds a row of one worker, by stage; what Ray and the commit take is what workers spend outside of parts."""
    if not _has(results, *STAGES):
        return []
    seconds = {name: 1 / results[key].rate for key, name in STAGES.items()}
    whole = seconds.pop(STAGES["part"])
    seconds["the rest of a part"] = whole - sum(seconds.values())
    if _has(results, "float32"):
        outside = median((work.workers * job.seconds - job.part_seconds) / job.steps for job in results["float32"].jobs)
        seconds["Ray, commit"] = outside
    total = sum(seconds.values())
    rows = [[name, f"{1 / value:,.0f}" if value > 0 else "", f"{value / total:.1%}"] for name, value in seconds.items()]
    return _table(("stage", "rows/s of a worker", "share"), [*rows, ["all", f"{1 / total:,.0f}", "100.0%"]])


def _sizes(work: EmbedWorkload, results: Results) -> list[str]:
    """Milliseconds a file at the start, and a part of a Parquet input, at two sizes: equal where the time is linear."""
    if not results:
        return []
    rows = []
    for key, result in results.items():
        each = 1000 / result.rate
        total = f"{getattr(work, key) * each / 1000:,.1f}" if key.endswith("files") else ""
        rows.append([result.name, f"{getattr(work, key):,}", f"{each:,.2f}", total])
    return _table(("size of the input", "files or row groups", "ms a file or part", "s at the start"), rows)


def notes(work: EmbedWorkload, results: Results) -> list[str]:
    """What follows from the numbers, in words."""
    found = []
    for peer in ("model2vec", "static_embedding"):
        if _has(results, "encode", peer):
            ratio = results["encode"].rate / results[peer].rate
            found.append(f"encode makes {ratio:.1f} × the vectors of {IN_MEMORY[peer]}")
    if _has(results, "float32", "float16"):
        found.append(f"float16 reaches {results['float16'].rate / results['float32'].rate:.2f} × the rows of float32")
    if _has(results, "float32", "floor"):
        share = results["float32"].rate / results["floor"].rate
        found.append(f"float32 reaches {share:.0%} of the bare floor, {work.workers} processes without Ray")
    if _has(results, "float32"):
        found.append(f"from the command to the first part: {_start(results['float32']):.1f} s")
    if _has(results, "few", "large"):
        sizes = [(f"{one.peak_bytes / 1e6:,.0f} MB", one.turns[0].steps) for one in (results["few"], results["large"])]
        more = results["large"].peak_bytes / results["few"].peak_bytes - 1
        words = ", ".join(f"{peak} for {rows:,} rows" for peak, rows in sizes)
        found.append(f"peak memory of a worker: {words}: {more:+.1%}")
    if _has(results, "few", "many"):
        few, many = results["few"], results["many"]
        parts = many.jobs[0].parts - few.jobs[0].parts
        seconds = median(job.seconds for job in many.jobs) - median(job.seconds for job in few.jobs)
        cost = 1000 * work.workers * seconds / parts
        found.append(f"a part costs {cost:.1f} ms of a worker ({parts:,} more parts for the same rows)")
    return found


def metrics(results: Results) -> dict[str, float]:
    """What MLflow is told of them, by name."""
    found: dict[str, float] = {}
    for key, one in results.items():
        if not one.skipped:
            found |= {f"{key}/rows_per_second": one.rate, f"{key}/peak_bytes": float(one.peak_bytes)}
            if one.jobs:
                found[f"{key}/start_seconds"] = _start(one)
    return found


def _start(result: Result) -> float:
    return median(job.start_seconds for job in result.jobs)


def _has(results: Results, *keys: str) -> bool:
    return all(key in results and not results[key].skipped for key in keys)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [_line(head), "|---|" + "---:|" * (len(head) - 1), *map(_line, rows)]
    return [*lines, ""]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
