"""Decisions of the design that hold for the whole tree."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("paraembed/**/*.py"), *ROOT.glob("jobs/*.py")])
CORE = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES
    if "cluster" not in path.parts and "jobs" not in path.parts and path.stem != "__main__"
]


def test_the_core_imports_neither_ray_nor_mlflow() -> None:
    code = f"import sys, importlib; [importlib.import_module(name) for name in {CORE}]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "paraembed.training.loop" in loaded
    assert not {"ray", "mlflow"} & set(loaded)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_pickled(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.split(".")[0] in {"pickle", "cloudpickle", "joblib", "dill", "shelve"}}
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not calls & {"torch.load", "torch.save", "eval", "exec"}


def test_the_tree_in_the_readme_is_the_tree() -> None:
    tree = re.search(r"## The tree\n+```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert tree, "README.md has no section 'The tree'"
    named, top = set[str](), ""
    for line in tree[1].splitlines():
        name = line.split()[0].rstrip("/")
        top = top if line.startswith(" ") else name
        named.add(f"{top}/{name}" if line.startswith(" ") else name)
    command = ["git", "ls-files", "*.py"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = {str(Path(name).parent) for name in files}
    tests = {name for name in folders if name.startswith("tests/")}
    assert named == folders - tests - {"paraembed/pairs/public"}


@pytest.mark.parametrize("path", sorted(ROOT.glob("jobs/*.py")), ids=lambda path: path.name)
def test_jobs_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 100
