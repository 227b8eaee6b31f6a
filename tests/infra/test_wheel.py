"""The wheel has the whole package, and works where the checkout cannot be seen."""

import shutil
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

import paraembed
from tests.jobs import ran

ROOT = Path(__file__).parents[2]
SOURCES = ("paraembed", "tune_spaces", "pyproject.toml", "README.md", "LICENSE")
LOAD = """
import importlib.util, sys
import paraembed
assert paraembed.__file__.startswith(sys.argv[1]), paraembed.__file__
assert importlib.util.find_spec("jobs") is None
from paraembed.text.wordpiece import words_of
assert words_of("Ärger!") == ["arger", "!"]  # by uncased.npz
print(paraembed.load(sys.argv[2]).encode(["the cat sat", ""]).tolist())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel, built by the backend that pyproject.toml names."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    ran(sys.executable, "-c", build, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder that the wheel is installed in, without its dependencies."""
    folder = tmp_path_factory.mktemp("installed")
    ran(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_the_wheel_has_every_file_of_the_package(wheel):
    files = ran("git", "ls-files", "paraembed", "tune_spaces", cwd=ROOT).stdout.split()
    assert {"paraembed/py.typed", "paraembed/text/uncased.npz"} <= {*files}
    with ZipFile(wheel) as content:
        packed = {name for name in content.namelist() if ".dist-info/" not in name}
    assert packed == {*files}


def test_an_installed_wheel_works_without_the_checkout(installed, tiny_encoder_folder, tmp_path):
    # -S: no .pth file is read, so the editable install is not seen.
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{installed}:{sysconfig.get_paths()['purelib']}"}

    def run(*arguments):
        return ran(sys.executable, "-S", *arguments, cwd=tmp_path, env=environment).stdout

    script = installed / "bin" / "paraembed"
    assert run(script, "--version") == f"paraembed {paraembed.__version__}\n"
    assert "--register" in run(script, "train", "--help")
    vectors = paraembed.load(tiny_encoder_folder).encode(["the cat sat", ""]).tolist()
    assert run("-c", LOAD, installed, tiny_encoder_folder) == f"{vectors}\n"
