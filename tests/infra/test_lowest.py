"""The lane of the lowest versions installs those that pyproject.toml names."""

import re
import tomllib
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[2]


def test_the_lowest_versions_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in ("st", "m2v", "onnx") for line in extras[name])]
    bounds = dict(re.findall(r"^([\w-]+)(?:\[.*\])?[>=]=([\d.]*\d)", "\n".join(wanted), re.MULTILINE))
    pins = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "constraints-lowest.txt").read_text(), re.MULTILINE))
    assert {name: Version(pin) for name, pin in pins.items()} == {name: Version(low) for name, low in bounds.items()}
