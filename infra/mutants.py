"""Count the seeded mutants of the core that its tests kill:
``python infra/mutants.py --coverage FILE --count 100 paraembed/io paraembed/embedding paraembed/training``.

A mutant is the tree with one comparison, operator, conditional expression or number replaced. FILE is written by
``pytest --cov=paraembed --cov-context=test`` (``pip install pytest-cov``) and says which tests reach a line; a mutant
runs in a copy of the tree with at most ``TESTS`` of them, those that reach the fewest lines first. Lines that no test
reaches, compiled ones among them, have no mutants.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from coverage import CoverageData

from paraembed.console import show

ROOT = Path(__file__).parents[1]
TESTS = 20
_SECONDS = 300  # of one mutant; the tests of a mutant that loops would never end
_NO_SUCH_TEST = 4  # exit status of pytest
_TIMEOUT = "timeout"
_SWAPPED: Mapping[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
Mutant = tuple[str, int, str]
"""File below the root, line, and the file's text with the replacement."""


def replacement(node: ast.AST) -> ast.expr | None:
    """Return what a mutant has in place of an expression; None for one that stays."""
    new: ast.expr | None = None
    match node:
        case ast.Compare(ops=[op]) if type(op) in _SWAPPED:
            new = ast.Compare(node.left, [_SWAPPED[type(op)]()], node.comparators)
        case ast.BoolOp():
            new = ast.BoolOp(_SWAPPED[type(node.op)](), node.values)
        case ast.BinOp() if type(node.op) in _SWAPPED:
            new = ast.BinOp(node.left, _SWAPPED[type(node.op)](), node.right)
        case ast.UnaryOp(op=ast.Not()):
            new = node.operand
        case ast.IfExp():
            new = ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Constant(value=bool()):
            new = ast.Constant(not node.value)
        case ast.Constant(value=int()):
            new = ast.Constant(node.value + 1)
    return new


def mutants(file: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file whose replaced expression is in a function, on one line."""
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    nodes = (node for function in functions for statement in function.body for node in ast.walk(statement))
    for node in dict.fromkeys(nodes):  # once, if functions are nested
        new = replacement(node)
        if new is not None and node.lineno == node.end_lineno:
            line = lines[node.lineno - 1].encode()
            mutated = line[: node.col_offset] + f"({ast.unparse(new)})".encode() + line[node.end_col_offset :]
            changed = [*lines[: node.lineno - 1], mutated.decode(), *lines[node.lineno :]]
            yield str(file.relative_to(ROOT)), node.lineno, "".join(changed)


def tests_by_line(data: CoverageData) -> tuple[dict[tuple[str, int], set[str]], Counter[str]]:
    """Return the tests that reach a line of a file, and how many lines each test reaches."""
    reached, lines = defaultdict[tuple[str, int], set[str]](set), Counter[str]()
    for file in data.measured_files():
        name = file[file.rindex("/paraembed/") + 1 :]
        for line, contexts in data.contexts_by_lineno(file).items():
            tests = {context.removesuffix("|run") for context in contexts if context.endswith("|run")}
            reached[name, line] = tests
            lines.update(tests)
    return reached, lines


def killer_of(tree: Path, mutant: Mutant, tests: Sequence[str]) -> str:
    """Return the first test that fails on a mutant, or ``_TIMEOUT``; empty if the mutant survives. Raise SystemExit if
    pytest cannot run the tests.
    """
    name, _, text = mutant
    original = (tree / name).read_text()
    (tree / name).write_text(text)
    try:
        return _failed(tree, tests)
    finally:
        (tree / name).write_text(original)


def _failed(tree: Path, tests: Sequence[str]) -> str:
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    with subprocess.Popen(command, cwd=tree, env=environment, **options) as process:  # noqa: S603 - our own command line
        try:
            output = process.communicate(timeout=_SECONDS)[0].decode()
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with what the tests started
            return _TIMEOUT
    if process.returncode == 0:
        return ""
    failed = [test for test in tests if re.search(rf"^(FAILED|ERROR) {re.escape(test)}( - |$)", output, re.MULTILINE)]
    if not failed or process.returncode == _NO_SUCH_TEST:
        raise SystemExit(
            f"error: pytest ended with status {process.returncode}; is --coverage of these tests?\n{output}"
        )
    return failed[0]


def main() -> None:
    """Draw mutants, run each, and print how many are killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coverage", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON lines: file, line, tests and killer of each mutant")
    parser.add_argument("folders", type=Path, nargs="+")
    args = parser.parse_args()
    data = CoverageData(str(args.coverage))
    data.read()
    reached, lines = tests_by_line(data)
    files = sorted(file.resolve() for folder in args.folders for file in folder.rglob("*.py"))
    candidates = [mutant for file in files for mutant in mutants(file) if reached.get(mutant[:2])]
    drawn = random.Random(args.seed).sample(candidates, min(args.count, len(candidates)))  # noqa: S311 - not for security
    num_killed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "__pycache__", "demo"))
        for number, mutant in enumerate(drawn, 1):
            tests = sorted(reached[mutant[:2]], key=lambda test: (lines[test], test))[:TESTS]
            killer = killer_of(tree, mutant, tests)
            if killer not in {"", _TIMEOUT} and _failed(tree, [killer]):
                raise SystemExit(f"error: {killer} also fails without a mutant")
            num_killed += bool(killer)
            show(f"{number} of {len(drawn)}: {mutant[0]}:{mutant[1]} {killer or 'survives'}")
            if args.out:
                with args.out.open("a") as out:
                    row = {"file": mutant[0], "line": mutant[1], "tests": tests, "killer": killer}
                    out.write(json.dumps(row) + "\n")
    show(f"{num_killed} of {len(drawn)} mutants were killed")


if __name__ == "__main__":
    main()
