"""Check of training and embedding on a GPU, in one command: ``python infra/bench/gpu_check.py [--device cpu]``.

Each section runs in a process of its own, so that one that fails or hangs leaves the others: first those of
correctness, all at the same time, then those of speed, one after the other, together ``--seconds`` at most (8 minutes).
Each row of the table is printed as soon as it is measured, next to what was expected; ``--json FILE`` keeps them. The
exit status is 1 if a check failed. It needs a checkout with torch, numpy and pyarrow, and pytest for the tests.
``--device cpu`` runs the same code with small sizes.
"""

import argparse
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, count, islice
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from torch import Tensor

ROOT = Path(__file__).parents[2]
sys.path[0] = str(ROOT)  # a bare machine has the files, not the package

from infra.bench.generated import draw_lines, draw_texts, draw_words, word_chances  # noqa: E402
from infra.bench.host import to_parquet  # noqa: E402
from paraembed.embedding.estimate import threads_here  # noqa: E402
from paraembed.encoders import Encoder, config_from_dict  # noqa: E402
from paraembed.loading import open_encoder  # noqa: E402
from paraembed.recipe import Recipe  # noqa: E402
from paraembed.settings import DEFAULT_GPUS, Inference, Precision  # noqa: E402
from paraembed.text.ragged import Ragged  # noqa: E402
from paraembed.text.wordpiece import OOV, SPECIALS  # noqa: E402
from paraembed.training.base_step import BaseStep  # noqa: E402
from paraembed.training.fast.gpu import DeviceStep  # noqa: E402
from paraembed.training.step import Step  # noqa: E402

_SECONDS = 480.0
_TOGETHER_SHARE = 0.4  # of the seconds, for the sections of correctness
_LARGEST = 1e-3  # difference of weights of order 0.1 after some hundred steps of Adam, which enlarges roundings
_LEAST_RATE = 60_000  # texts per second of MiniLM's shape in bfloat16 on one H100, from text to Parquet
# Width, layers and heads; share of the texts by precision, for some seconds on an H100.
_SHAPES: tuple[tuple[str, tuple[int, int, int], dict[Precision, float]], ...] = (
    ("MiniLM", (384, 6, 12), {"float32": 0.25, "bfloat16": 1.0}),
    ("base", (768, 12, 12), {"float32": 0.05, "bfloat16": 0.25}),
)
_GROWTH = 1.05  # of memory
_LARGEST_OF_VECTORS = 1e-4
_MOST_NUMBERS = 1 << 24  # of a quantile of PyTorch
_PADDING = 2  # tokens of the second-largest step against the median
_OUTLIER_SECONDS = 30
_TIMED = ("avg", "lstm_avg", "gran")
_COMPARED_STEPS = 20  # with the plain step on a CPU, which takes 0.3 s for recurrent encoders
_CPU_PAIRS = {"avg": 133_000, "lstm_avg": 3300, "gran": 2600}
"""Pairs of phrases per second of one CPU core: docs/reproduce.md, for recurrent encoders 15 / 4 × its sentences."""


@dataclass(frozen=True)
class Row:
    """Line of the table."""

    what: str
    measured: str
    expected: str
    ok: bool = True


@dataclass(frozen=True)
class Size:
    """Sizes of the checks, on a GPU or, to try the program, on a CPU."""

    device: torch.device
    words: int
    few_words: int  # where speed is not measured: 40,000 random vectors of each encoder take longer than its steps
    width: int
    steps: int
    batch_sizes: tuple[int, ...]
    texts: int
    st_texts: int  # texts for models of sentence-transformers
    long_text: int

    @classmethod
    def of(cls, device: str) -> "Size":
        """Return the sizes for a device."""
        if device == "cuda":
            return cls(torch.device("cuda"), 40_000, 2000, 300, 2000, (100, 4096), 200_000, 300_000, 100_000)
        return cls(torch.device("cpu"), 500, 500, 16, 20, (20,), 400, 400, 2000)

    def encoder(self, name: str) -> Encoder:
        """Return an encoder with random weights, equal at every call."""
        return Encoder(config_from_dict({"name": name}), draw_words(self.words, self.width, 1), "space").to(self.device)

    def pairs(self, num_pairs: int, mean_tokens: float = 8.0) -> Ragged:
        """Return generated pairs."""
        return draw_texts(2 * num_pairs, mean_tokens, word_chances(self.words), 3)

    def small(self) -> "Size":
        """Return the same sizes with few words."""
        return replace(self, words=self.few_words)

    def wait(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def reserved(self) -> int:
        """Return the bytes that PyTorch holds on the GPU."""
        return torch.cuda.memory_reserved() if self.device.type == "cuda" else 0


def run_steps(step: BaseStep, pairs: Ragged, number: int, *, queued: bool = True) -> Iterator[None]:
    """Train for a number of steps, over several epochs, as the training loop does; or, unless ``queued``, one at a
    time.
    """
    sums = torch.zeros(2, dtype=torch.float64, device=step.device)
    batches = chain.from_iterable(step.batches(pairs, epoch) for epoch in count())
    for done, batch in enumerate(islice(batches, number), 1):
        if queued:
            step.enqueue(batch, done, sums)
        else:
            sums += step(batch, done)
        if done == number:
            step.flush()
        yield


def _step(encoder: Encoder, recipe: Recipe, pairs: Ragged, kind: str) -> BaseStep:
    """Return a step: recorded (graphs, or single: one at a time), with the collectives of several workers (exchange),
    eager, or plain.
    """
    if kind == "plain":
        return Step(encoder, recipe, pairs)
    step = DeviceStep(encoder, recipe, pairs)
    step.exchanges = kind == "exchange"
    if kind == "eager":
        step.graphs.turn_off()
    return step


def _trained(size: Size, recipe: Recipe, pairs: Ragged, kind: str, number: int = 0) -> tuple[Tensor, int]:
    """Return the weights after a number of steps (0: as many as recording needs), and the number of shapes recorded."""
    encoder = size.encoder(recipe.encoder.name)
    encoder = encoder.cpu() if kind == "plain" else encoder
    step = _step(encoder, recipe, pairs, kind)
    for _ in run_steps(step, pairs, number or max(2, size.steps // 20), queued=kind not in {"single", "eager"}):
        pass
    weights = torch.cat([parameter.detach().flatten().cpu() for parameter in encoder.parameters()])
    return weights, step.graphs.num_recorded if isinstance(step, DeviceStep) else 0


def _is_recorded(size: Size, what: str, num_shapes: int) -> Row:
    """Return the row on whether steps were recorded: one that was not runs eagerly, and agrees with the eager one."""
    if size.device.type != "cuda":
        return Row(f"{what}: recorded", "no", "no: a CPU records no step", num_shapes == 0)
    return Row(f"{what}: recorded", f"{num_shapes} shapes", "≥ 1", num_shapes > 0)


def agreement(size: Size) -> Iterator[Row]:
    """Recorded steps, several in a launch, against an equal run, steps one at a time, eager ones, and the CPU's."""
    size = size.small()
    pairs = size.pairs(size.steps * 5)
    changes: list[dict[str, Any]] = [{}, {"dropout": 0.2}, {"mega_batch_size": 3}]
    changes.append({"precision": "bfloat16"} if size.device.type == "cuda" else {"negatives": "mix", "clip": 1.0})
    for name in _TIMED:
        for change in changes:
            recipe = replace(Recipe(batch_size=size.batch_sizes[0]), encoder=config_from_dict({"name": name}), **change)
            first, num_shapes = _trained(size, recipe, pairs, "graphs")
            yield _is_recorded(size, f"{name} {change}", num_shapes)
            for kind in ("graphs", *["single"] * (name == "avg"), "eager"):
                far = (_trained(size, recipe, pairs, kind)[0] - first).abs().max().item()
                yield Row(f"{name} {change}: {kind} again", f"{far:.1e}", "0", far == 0.0)
        recipe = Recipe(config_from_dict({"name": name}), batch_size=size.batch_sizes[0])
        number = min(_COMPARED_STEPS, max(2, size.steps // 20))
        recorded, plain = (_trained(size, recipe, pairs, kind, number)[0] for kind in ("graphs", "plain"))
        # A gradient near zero may have another sign, and the first step of Adam has the size of the learning rate.
        far = torch.quantile((recorded - plain).abs()[:_MOST_NUMBERS], 0.999).item()
        what = f"{name}: CPU, {number} steps, 99.9 % of the weights"
        yield Row(what, f"{far:.1e}", f"≤ {_LARGEST:.0e}", far <= _LARGEST)


def exchange(size: Size) -> Iterator[Row]:
    """The collectives of several workers, by one: NCCL within recorded steps."""
    size = size.small()
    pairs = size.pairs(size.steps * 5)
    with tempfile.TemporaryDirectory() as folder:
        backend = "nccl" if size.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=0, world_size=1)
        for name in ("avg", "lstm_avg", "gran"):
            changes: list[dict[str, Any]] = [{}, {"negative_pool_workers": "all"}, {"update": "dense"}]
            for change in changes:
                recipe = replace(Recipe(config_from_dict({"name": name}), batch_size=size.batch_sizes[0]), **change)
                alone, _ = _trained(size, recipe, pairs, "graphs")
                with_itself, num_shapes = _trained(size, recipe, pairs, "exchange")
                far, what = (alone - with_itself).abs().max().item(), f"{name} {change} through {backend}"
                yield Row(what, f"{far:.1e}", f"≤ {_LARGEST:.0e}", far <= _LARGEST)
                yield _is_recorded(size, what, num_shapes)
        dist.destroy_process_group()


def tests(size: Size) -> Iterator[Row]:
    """The tests that need a GPU."""
    if size.device.type != "cuda":
        return
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-x", "tests/training", "tests/encoders"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""]
    print(done.stdout[-5000:], file=sys.stderr)
    yield Row("pytest -m gpu", lines[-1], "passed", done.returncode == 0)


def memory(size: Size) -> Iterator[Row]:
    """Memory and speed over many steps of many shapes."""
    pairs = size.pairs(size.batch_sizes[0] * size.steps // 2, 15.0)
    for name in ("avg", "gran"):
        recipe = Recipe(config_from_dict({"name": name}), batch_size=size.batch_sizes[0], dropout=0.1)
        step, half = DeviceStep(size.encoder(name), recipe, pairs), 0
        for number, _ in enumerate(run_steps(step, pairs, size.steps), 1):
            if number == size.steps // 2:
                half = size.reserved()
        size.wait()
        grown = size.reserved() / max(1, half)
        text = f"{size.reserved() / 2**20:,.0f} MB, × {grown:.2f}"
        yield Row(f"{name}: memory after {size.steps:,} steps against half", text, f"× ≤ {_GROWTH}", grown <= _GROWTH)
        yield _is_recorded(size, name, step.graphs.num_recorded)


def outlier(size: Size) -> Iterator[Row]:
    """One very long text among phrases."""
    phrases = size.pairs(size.texts // 4, 4.0)
    ids = np.concatenate([phrases.ids, np.full(size.long_text, 7, np.int32)])
    pairs = Ragged(ids, np.append(phrases.offsets[:-1], len(ids)))
    step = DeviceStep(size.encoder("avg"), Recipe(batch_size=size.batch_sizes[0]), pairs)
    tokens = sorted(len(batch.ids_T) for batch in step.batches(pairs, 0))
    start = time.perf_counter()
    for _ in run_steps(step, pairs, len(tokens)):
        pass
    size.wait()
    seconds = time.perf_counter() - start
    yield Row(
        "tokens of the second-largest step against the median",
        f"× {tokens[-2] / tokens[len(tokens) // 2]:.2f}",
        f"× ≤ {_PADDING}",
        tokens[-2] <= _PADDING * tokens[len(tokens) // 2],
    )
    what = f"{len(tokens):,} steps, one of {tokens[-1]:,} tokens"
    yield Row(what, f"{seconds:.1f} s", f"≤ {_OUTLIER_SECONDS} s", seconds <= _OUTLIER_SECONDS)


def steps(size: Size) -> Iterator[Row]:
    """Time of a step: recorded, eager, and that of the plain step."""
    for name in _TIMED:
        for batch_size in size.batch_sizes:
            number = max(6, size.steps // (1 if batch_size <= 100 else 20))
            pairs = size.pairs(batch_size * min(number, 300))
            recipe = Recipe(config_from_dict({"name": name}), batch_size=batch_size)
            rates, num_shapes = {}, 0
            for kind in ("graphs", "eager", "plain"):
                encoder = size.encoder(name)
                step = _step(encoder, recipe, pairs, kind)
                start = 0.0
                for done, _ in enumerate(run_steps(step, pairs, number, queued=kind == "graphs")):
                    if done == number // 2:
                        size.wait()
                        start = time.perf_counter()
                size.wait()
                num_shapes = max(num_shapes, step.graphs.num_recorded if isinstance(step, DeviceStep) else 0)
                rates[kind] = batch_size * (number - number // 2 - 1) / (time.perf_counter() - start)
            times = ", ".join(f"{kind} {1000 * batch_size / rate:.3f} ms" for kind, rate in rates.items())
            ok = num_shapes == 0 or rates["graphs"] >= rates["eager"]
            text = f"{times}; {rates['graphs']:,.0f} pairs/s"
            yield Row(f"{name}, batch {batch_size:,}: a step", text, "graphs ≤ eager", ok)
            if name == "avg" or batch_size <= 100:  # larger steps of recurrent encoders have too many slots
                yield _is_recorded(size, f"{name}, batch {batch_size:,}", num_shapes)


def embed(size: Size) -> Iterator[Row]:
    """Texts per second of encode, and how far vectors are from those of the CPU."""
    strings = pa.array(draw_lines(size.texts, 19.0, size.words, 3).decode().splitlines())
    for name in (*_TIMED, "bigran"):
        encoder = size.encoder(name).requires_grad_(False).eval()
        kept = strings.slice(0, 200)
        by_cpu = size.encoder(name).requires_grad_(False).cpu()
        far = float(np.abs(encoder.embed(kept).vectors - by_cpu.embed(kept).vectors).max())
        start = time.perf_counter()
        encoder.embed(strings)
        rate = len(strings) / (time.perf_counter() - start)
        yield Row(
            f"{name}: encode",
            f"{rate:,.0f} texts/s, {far:.0e} from the CPU",
            f"≤ {_LARGEST_OF_VECTORS:.0e}",
            far <= _LARGEST_OF_VECTORS,
        )


def st(size: Size) -> Iterator[Row]:
    """Models of sentence-transformers with random weights, this package and the library in turns: vectors, and texts
    per second in memory; and from text to Parquet.
    """
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - takes seconds

    device: Any = size.device.type
    lines = draw_lines(size.st_texts, 19.0, size.words, 3).splitlines(keepends=True)
    for shape, layers, shares in _SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            model, file = Path(folder) / "model", Path(folder) / "texts.txt"
            _save_transformer(model, *(layers if device == "cuda" else (32, 1, 2)), size.words)
            for precision, share in shares.items():
                given = lines[: int(share * len(lines))]
                file.write_bytes(b"".join(given))
                texts = pa.array([line.decode().strip() for line in given])
                encoder = open_encoder(f"st:{model}", Inference(device=device, precision=precision))
                dtype = {"dtype": getattr(torch, precision)}
                library = SentenceTransformer(str(model), device=device, model_kwargs=dtype)
                yield _in_turns(encoder, library, texts, f"{shape}, {precision}, in memory")
                start = time.perf_counter()
                threads = threads_here(encoder, DEFAULT_GPUS)
                to_parquet(encoder, [file], Path(folder) / precision, len(texts) // 20, threads)
                rate = len(texts) / (time.perf_counter() - start)
                least = _LEAST_RATE if (shape, precision, device) == ("MiniLM", "bfloat16", "cuda") else 0
                packs = "packed" if getattr(encoder, "packs", False) else "padded"
                what = f"{shape}, {precision}, text to Parquet"
                yield Row(what, f"{rate:,.0f} texts/s, {packs}", f"≥ {least:,} texts/s", rate >= least)


def _in_turns(encoder: Any, library: Any, texts: pa.StringArray, what: str) -> Row:
    """Encode in turns, the library a twentieth of the texts; of three turns, the first one warms up."""
    few, seconds, vectors = texts.slice(0, max(1, len(texts) // 20)), {"paraembed": [0.0], "library": [0.0]}, {}
    turns: dict[str, Callable[[], Any]] = {
        "paraembed": lambda: encoder.embed(texts).vectors[: len(few)],
        "library": lambda: library.encode(few.to_pylist(), batch_size=256),
    }
    for _ in range(3):
        for who, encode in turns.items():
            start = time.perf_counter()
            vectors[who] = torch.from_numpy(encode())
            seconds[who].append(time.perf_counter() - start)
    least = float(torch.nn.functional.cosine_similarity(vectors["paraembed"], vectors["library"]).min())
    rate, other = len(texts) / min(seconds["paraembed"][2:]), len(few) / min(seconds["library"][2:])
    text = f"{rate:,.0f} texts/s, the library {other:,.0f} (× {rate / other:.1f}), least cosine {least:.6f}"
    expected = 0.999 if "bfloat16" in what else 0.99999
    return Row(what, text, f"cosine ≥ {expected}", least >= expected)


def _save_transformer(folder: Path, width: int, layers: int, heads: int, num_words: int) -> None:
    """Save a BERT with random weights and mean pooling, whose tokens are generated words."""
    import sentence_transformers  # noqa: PLC0415 - takes seconds
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors  # noqa: PLC0415
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast  # noqa: PLC0415

    names = [*SPECIALS, *(f"w{number}" for number in range(1, num_words))]
    tokenizer = Tokenizer(models.WordPiece({name: row for row, name in enumerate(names)}, unk_token=OOV))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(list(SPECIALS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, names.index(name)) for name in ("[CLS]", "[SEP]")]
    )
    shape = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    torch.manual_seed(0)
    network = BertModel(BertConfig(vocab_size=len(names), intermediate_size=4 * width, **shape))
    network.save_pretrained(folder / "bare")
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=SPECIALS[0], unk_token=OOV)
    wrapped.model_max_length = 256
    wrapped.save_pretrained(folder / "bare")
    try:
        modules: Any = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    except ModuleNotFoundError:  # before version 5.4
        modules = sentence_transformers.models
    blocks = [modules.Transformer(str(folder / "bare")), modules.Pooling(width), modules.Normalize()]
    sentence_transformers.SentenceTransformer(modules=blocks, device="cpu").save(str(folder))


def _bench(device: str, *flags: str) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Run the benchmark of training; yield each case, its seconds and its pairs per second."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "numbers.json"
        command = [sys.executable, "jobs/bench.py", "train", "--device", device, "--rounds", "1", "--out", str(out)]
        command += ["--programs", "paraembed", *flags]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
        print(done.stdout[-8000:], done.stderr[-3000:], file=sys.stderr)
        done.check_returncode()
        for measured in json.loads(out.read_text())["cases"]:
            ((whole,),) = [program["turns"] for program in measured["programs"].values()]
            case = measured["case"]
            yield case, whole["seconds"], whole["steps"] * case["batch_size"] / whole["seconds"]


def bench(size: Size) -> Iterator[Row]:
    """The benchmark of training."""
    if size.device.type != "cuda":
        return
    flags = ("--texts", "phrases", "--batch-sizes", *map(str, size.batch_sizes), "--encoders")
    for name in _TIMED:  # a command each, so that the first is printed before the last is measured
        for case, _, rate in _bench("cuda", *flags, name):
            what, least = f"bench.py train, {name}, phrases, batch {case['batch_size']:,}", _CPU_PAIRS[name]
            yield Row(what, f"{rate:,.0f} pairs/s", f"≥ {least:,} pairs/s, those of a CPU core", rate >= least)


def scale(size: Size) -> Iterator[Row]:
    """Ten epochs of pairs like those of PPDB XXL: 5 minutes at 300,000 pairs/s, so give more ``--seconds``."""
    if size.device.type == "cuda":
        for _, seconds, rate in _bench("cuda", "--scale"):
            text = f"{seconds:,.0f} s, {rate:,.0f} pairs/s"
            yield Row("bench.py train --scale: 10 epochs of XXL", text, "≤ 300 s (a CPU core: 18 min)", seconds <= 300)


SECTIONS: dict[str, Callable[[Size], Iterator[Row]]] = {
    section.__name__: section
    for section in (agreement, exchange, tests, memory, outlier, steps, embed, st, bench, scale)
}
_TOGETHER = ("agreement", "exchange", "tests", "memory", "outlier")
"""Sections of correctness."""
DEFAULT = [name for name in SECTIONS if name != "scale"]


def main(arguments: list[str]) -> int:
    """Run the sections; return the exit status."""
    parser = argparse.ArgumentParser("gpu_check.py", description="Check training and embedding on a GPU.")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cuda, or cpu to try the program")
    parser.add_argument(
        "--sections", nargs="+", choices=SECTIONS, default=DEFAULT, help="sections to run (all but scale)"
    )
    parser.add_argument("--seconds", type=float, default=_SECONDS, help="time for all sections (480)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to write device, versions and rows to")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("PyTorch finds no GPU; install torch for CUDA, or give --device cpu to try the program", file=sys.stderr)
        return 2
    if chosen.section:
        torch.set_num_threads(1)
        for row in SECTIONS[chosen.section](Size.of(chosen.device)):
            print(json.dumps(asdict(row)), flush=True)
        return 0
    print("| section | what | measured | expected | | seconds |\n|---|---|---|---|---|--:|", flush=True)
    together = [name for name in chosen.sections if name in _TOGETHER]
    alone = [name for name in chosen.sections if name not in _TOGETHER]
    end = time.monotonic() + chosen.seconds
    rows = _run(together, chosen.device, chosen.seconds * (_TOGETHER_SHARE if alone else 1))
    for number, name in enumerate(alone):
        rows += _run([name], chosen.device, (end - time.monotonic()) / (len(alone) - number))
    if chosen.json is not None:
        device = torch.cuda.get_device_name() if chosen.device == "cuda" else platform.machine()
        about = {"device": device, "cpus": os.cpu_count(), "torch": torch.__version__}
        chosen.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return int(not all(row["ok"] for row in rows))


def _run(sections: list[str], device: str, seconds: float) -> list[dict[str, Any]]:
    """Run sections at the same time, each in its own process; print their rows and return them."""
    if not sections:
        return []
    with ThreadPoolExecutor(len(sections)) as threads:
        return list(chain.from_iterable(threads.map(lambda name: _print_rows(name, device, seconds), sections)))


def _print_rows(section: str, device: str, seconds: float) -> list[dict[str, Any]]:
    started, rows = time.monotonic(), []
    for row in _rows(section, device, seconds):
        passed = round(time.monotonic() - started)
        cells = section, row.what, row.measured, row.expected, "ok" if row.ok else "**FAILED**"
        print(f"| {' | '.join(cells)} | {passed} |", flush=True)
        rows.append({"section": section, **asdict(row), "seconds": passed})
    return rows


def _rows(section: str, device: str, seconds: float) -> Iterator[Row]:
    """Run a section in its own process, and yield its rows as they are measured."""
    command = [sys.executable, __file__, "--device", device, "--section", section]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # A session of its own, so that what it starts ends with it.
    process = subprocess.Popen(  # noqa: S603
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=PIPE, text=True, start_new_session=True
    )
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds, end)
    timer.start()
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            yield Row(**json.loads(line))
    status = process.wait()
    timer.cancel()
    if is_late.is_set() or status:
        problem = f"not finished after {seconds:.0f} s" if is_late.is_set() else f"exit status {status}"
        yield Row("the section as a whole", problem, "finished", ok=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
