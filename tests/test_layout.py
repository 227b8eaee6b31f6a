"""Decisions of the design that hold for the whole tree."""

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.jobs import ran

ROOT = Path(__file__).parents[1]
SOURCES = sorted([*ROOT.glob("paraembed/**/*.py"), *ROOT.glob("jobs/*.py")])
# A folder imports only from those before it; the files beside the folders count as folders.
ENGINE = (
    *("process", "aliases", "late", "options", "settings", "machine_code", "compiled", "signals", "io", "console"),
    *("text", "encoders", "checkpoint", "loading", "embedding"),
)
"""What embeds a corpus: the half that somebody reads who trains nothing."""
LAB = (
    *("pairs", "recipe", "papers", "plots", "evaluation", "training", "supervised", "export", "distillation"),
    "tuning",
)
CORE = *ENGINE, *LAB
ORDER = *CORE, "tracking", "cluster", "ray", "api", "commands"


def imports_of(path):
    """The modules that a file imports, at its top or within a function."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            is_top = node.module == "paraembed"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names} | (set() if is_top else {node.module})
    return modules


def test_imports_run_one_way():
    wrong = []
    for path in ROOT.glob("paraembed/**/*.py"):
        room = path.relative_to(ROOT / "paraembed").parts[0].removesuffix(".py")
        for module in imports_of(path) if room.strip("_") not in {"init", "main"} else ():
            top, _, rest = module.partition(".")
            other = rest.split(".")[0]
            if top == "paraembed" and other != "__version__" and ORDER.index(other) > ORDER.index(room):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


def test_no_module_imports_one_that_imports_it():
    """Also within functions and for type checkers, because a reader follows these imports, too."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in [*ROOT.glob("paraembed/**/*.py"), *ROOT.glob("infra/**/*.py")]
    }
    graph = {}
    for name, path in names.items():
        imported = imports_of(path)
        of_packages = {module.rpartition(".")[0] for module in imported if module in names}
        graph[name] = (imported & names.keys()) - of_packages - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


LINES = {"paraembed": 50_840, "tests": 34_990}
"""Most lines of Python in a folder. A commit that needs more raises the number, and says in its body what for."""


@pytest.mark.parametrize("folder", LINES)
def test_code_grows_only_on_purpose(folder):
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py"))
    assert lines <= LINES[folder]
    assert lines > 0.98 * LINES[folder], "lower the number, so that what was saved stays saved"


def test_the_core_names_no_flag():
    """The core names parameters, which the commands spell as flags."""
    others = {
        "io/lines.py",  # a reason in the files of rejected rows
        "tracking/place.py",  # flags of MLflow
        "tracking/runs.py",  # flags of Git
        "training/loop.py",  # a field of saved states
        "training/state.py",  # its earlier name
    }
    named = set()
    for path in ROOT.glob("paraembed/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                flags = re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", node.value)
                named |= {path.relative_to(ROOT / "paraembed").as_posix()} if flags else set()
    assert {name for name in named if not name.startswith("commands/")} == others


def test_the_tree_in_the_readme_is_the_tree():
    tree = re.search(r"## The tree\n+```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert tree, "README.md has no section 'The tree'"
    named, top = set(), ""
    for line in tree[1].splitlines():
        name = line.split()[0].rstrip("/")
        top = top if line.startswith(" ") else name
        named.add(f"{top}/{name}" if line.startswith(" ") else name)
    files = ran("git", "ls-files", "*.py", cwd=ROOT).stdout.split()
    folders = {str(Path(name).parent) for name in files}
    tests = {name for name in folders if name.startswith("tests/")}
    assert named - {"docs"} == folders - tests - {"paraembed/pairs/public"}


@pytest.mark.parametrize("path", sorted(ROOT.glob("jobs/*.py")), ids=lambda path: path.name)
def test_jobs_are_short(path):
    assert len(path.read_text().splitlines()) <= 100


def test_the_core_and_the_gpu_tests_need_neither_ray_nor_mlflow():
    """A machine with a GPU needs torch and the core alone."""
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in SOURCES]
    core = [name for name in modules if name.split(".")[1:2] and name.split(".")[1] in CORE]
    assert "paraembed.training.loop" in core
    program = (
        "import importlib, sys, pytest\n"
        "sys.modules.update(ray=None, mlflow=None, tyro=None)\n"  # an import of them raises ImportError
        f"[importlib.import_module(name) for name in {core}]\n"
        "raise SystemExit(pytest.main(['--collect-only', '-q', '-m', 'gpu', 'tests/training', 'tests/encoders']))"
    )
    collected = ran(sys.executable, "-c", program, cwd=ROOT)
    assert "test_equal_runs_on_a_gpu_give_equal_bits" in collected.stdout
    assert int(re.findall(r"(\d+)/\d+ tests collected", collected.stdout)[0]) > 100


def test_a_training_worker_imports_no_more_than_it_needs():
    """Each worker would spend seconds on what only the driver does."""
    slow = "mlflow", "sqlalchemy", "alembic", "matplotlib", "scipy.stats", "tyro", "optuna"
    modules = "sys, paraembed.cluster.train_worker, paraembed.cluster.tune_trials"
    program = f"import {modules}; print(*{{*sys.modules}} & {{*{slow}}})"
    done = ran(sys.executable, "-c", program, cwd=ROOT)
    assert done.stdout.split() == []


def words_of(pattern):
    """Number of words of the longest string in an expression; what an f-string inserts counts as one word."""
    texts = [ast.unparse(node) for node in ast.walk(pattern) if isinstance(node, ast.Constant | ast.JoinedStr)]
    return max((len(re.sub(r"\{[^}]*\}", "{}", text).split()) for text in texts), default=0)


def test_tests_match_the_values_of_errors_not_their_prose():
    long = [
        f"{path.relative_to(ROOT)}:{node.value.lineno}: {ast.unparse(node.value)}"
        for path in ROOT.glob("tests/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.keyword) and node.arg == "match" and words_of(node.value) >= 8
    ]
    assert not long, "match the path, number or flag of an error in at most 7 words"
