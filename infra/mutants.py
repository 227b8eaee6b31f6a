"""Count the seeded mutants of the core that its tests notice:
``python infra/mutants.py --coverage FILE --count 100 paraembed/io paraembed/embedding paraembed/training``.

A mutant is the tree with one comparison, operator, condition, number or returned value replaced. FILE is written by
``pytest --cov=paraembed --cov-context=test`` (of the package pytest-cov) and says which tests reach a line; a mutant is
tried in a copy of the tree on at most ``TESTS`` of them, those that reach the fewest lines first. Lines that no test
reaches, compiled ones among them, have no mutants.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from coverage import CoverageData

from paraembed.console import show

ROOT = Path(__file__).parents[1]
TESTS = 20
_SECONDS = 300  # of one mutant; the tests of a mutant that loops would never end
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
    """Yield the mutants of a file whose replaced expression is on one line."""
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
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
            tests = {context.partition("|")[0] for context in contexts if context.endswith("|run")}
            reached[name, line] = tests
            lines.update(tests)
    return reached, lines


def noticed_by(tree: Path, mutant: Mutant, tests: Sequence[str]) -> str:
    """Return the first of the tests that fails on a mutant, or why they do not end well; empty if all pass."""
    name, _, text = mutant
    original = (tree / name).read_text()
    (tree / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, timeout=_SECONDS, capture_output=True, check=False)  # noqa: S603 - our own command line
    except subprocess.TimeoutExpired:
        return "no end"
    finally:
        (tree / name).write_text(original)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout.decode(), re.MULTILINE)
    return failed[1] if failed else f"status {done.returncode}" * (done.returncode != 0)


def main() -> None:
    """Draw mutants, try each, and print the share that is noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coverage", type=Path, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="JSON lines: file, line, tests and the one that fails, of each mutant")
    parser.add_argument("folders", type=Path, nargs="+")
    args = parser.parse_args()
    data = CoverageData(str(args.coverage))
    data.read()
    reached, lines = tests_by_line(data)
    files = sorted(file.resolve() for folder in args.folders for file in folder.rglob("*.py"))
    candidates = [mutant for file in files for mutant in mutants(file) if reached.get(mutant[:2])]
    drawn = random.Random(args.seed).sample(candidates, args.count)  # noqa: S311 - not for security
    num_noticed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "__pycache__", "demo"))
        for number, mutant in enumerate(drawn, 1):
            tests = sorted(reached[mutant[:2]], key=lambda test: (lines[test], test))[:TESTS]
            noticed = noticed_by(tree, mutant, tests)
            num_noticed += bool(noticed)
            show(f"{number} of {args.count}: {mutant[0]}:{mutant[1]} {noticed or 'is not noticed'}")
            if args.out:
                with args.out.open("a") as out:
                    row = {"file": mutant[0], "line": mutant[1], "tests": tests, "noticed": noticed}
                    out.write(json.dumps(row) + "\n")
    show(f"{num_noticed} of {args.count} mutants were noticed")


if __name__ == "__main__":
    main()
