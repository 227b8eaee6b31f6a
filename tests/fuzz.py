"""Fuzzing of readers: seeded cases, a time limit for each, and the only errors that a user may see."""

import json
import logging
import os
import random
import signal
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from paraembed.io.fingerprint import digest_of, json_bytes, sha256_of

CASES = int(os.environ.get("PARAEMBED_FUZZ_CASES", "5000"))
FIRST_SEED = int(os.environ.get("PARAEMBED_FUZZ_SEED", "0"))
_LIMITS = {signal.ITIMER_PROF: 10.0, signal.ITIMER_REAL: 60.0}  # seconds of CPU; of a hang, even on a busy machine
_MESSAGE = 4000  # characters; a user reads it on a terminal


class TooSlowError(AssertionError):
    """A case took longer than its time limit."""


def run(case, cases=CASES):
    """Run a target with seeds 0, 1, …; count how its cases end.

    A case makes its input from the generator it gets, reads it and asserts what must hold. It returns a label such as
    ``"read"``; ``ValueError`` and ``OSError``, which a user sees as one line, are counted as ``"refused"``. Every other
    exception fails the test and names the seed: ``PARAEMBED_FUZZ_SEED=17 PARAEMBED_FUZZ_CASES=1`` runs that case again.
    The caller asserts that the labels it cares about occur, so that a generator that makes only rubbish is noticed.

    Raises:
        AssertionError: a case failed, used over 10 seconds of CPU, or took over a minute.
    """
    ends = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + cases):
        try:
            with _time_limit(), _no_warnings():
                ends[case(random.Random(seed))] += 1
        except (ValueError, OSError) as error:
            ends["refused"] += 1
            message = str(error)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        else:
            continue
        assert 0 < len(message.strip()) < _MESSAGE, f"seed {seed}: a message of {len(message):,} characters"
    return ends


@contextmanager
def _time_limit():
    def stop(*_):
        raise TooSlowError("over the time limit")

    before = [(number, signal.signal(number, stop)) for number in (signal.SIGPROF, signal.SIGALRM)]
    for timer, seconds in _LIMITS.items():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer in _LIMITS:
            signal.setitimer(timer, 0)
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def _no_warnings():
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


class Bomb:
    """Unpickling it leaves a trace."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def sign(config):
    """Return a changed ``config.json`` of an encoder with the fingerprint that fits."""
    decides = {name: config[name] for name in ("encoder", "tokeniser", "boundary_tokens", "max_tokens", "files")}
    return {**config, "fingerprint": digest_of(decides)}


def sign_files(folder):
    """Write digests and fingerprint of the changed files of an encoder folder into its ``config.json``."""
    config = json.loads((folder / "config.json").read_text())
    config["files"] = {name: sha256_of(folder / name) for name in config["files"]}
    (folder / "config.json").write_bytes(json_bytes(sign(config)))


def mutated(data, draw, tokens=()):
    """Bytes with one to four small changes: cut off, doubled, swapped, overwritten, or with a token of the format."""
    for _ in range(draw.randint(1, 4)):
        at, stop = sorted(draw.choices(range(len(data) + 1), k=2))
        stop = min(stop, at + draw.choice((1, 2, 8, 64)))
        match draw.randrange(6):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + data[stop:]
            case 2:
                data = data[:stop] + data[at:]
            case 3:
                data = data[:at] + draw.randbytes(stop - at) + data[stop:]
            case 4:
                data = data[:at] + draw.choice(tokens or (b"\0", b"\n", b"\r", b'"', b"\xff", b",")) + data[stop:]
            case _:
                data = data[:at] + data[at:stop] * draw.choice((2, 3, 50)) + data[stop:]
    return data
