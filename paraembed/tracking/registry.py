"""Encoders in MLflow's model registry, with the code that runs them, so that users need not install paraembed."""

import shutil
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import packages_distributions, version
from modulefinder import Module, ModuleFinder
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from paraembed.encoders import ENCODERS
from paraembed.tracking.runs import Run

ALIAS = "champion"
_MODEL_CODE = Path(__file__).with_name("registered_encoder.py")
_PACKAGE = "paraembed"


def register(run: Run, folder: Path, name: str, tags: dict[str, str]) -> str | None:
    """Register an encoder folder as an ``mlflow.pyfunc`` model with the alias ``champion``.

    If an encoder with the same fingerprint is already registered, it only gets the alias.

    Args:
        run: MLflow run that produced the encoder.
        folder: encoder folder.
        name: name of the registered model.
        tags: tags of the version, including the fingerprint.

    Returns:
        The version; None if the store does not answer.
    """

    def call(client: MlflowClient, run_id: str) -> str:
        versions = client.search_model_versions(f"name = '{name}'")
        same = [version.version for version in versions if version.tags.get("fingerprint") == tags["fingerprint"]]
        number = same[0] if same else _create(client, run_id, folder, name, tags)
        client.set_registered_model_alias(name, ALIAS, number)
        return str(number)

    return run.ask(call)


def _create(client: MlflowClient, run: str, folder: Path, name: str, tags: Mapping[str, str]) -> Any:
    with TemporaryDirectory() as temporary:
        save_model(folder, Path(temporary) / ALIAS)
        client.log_artifacts(run, temporary)
    source = f"{client.get_run(run).info.artifact_uri}/{ALIAS}"
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    return client.create_model_version(name, source, run, dict(tags)).version


def save_model(encoder: Path, out: Path) -> None:
    """Write an encoder folder as an MLflow model that loads without this project and without a package index.

    The modules it needs are in ``out/code``. The requirements are third-party packages, with their installed versions.
    ``paraembed`` is not among them, because anybody could register that name on a public index.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # its own, of its own types
        pyfunc = import_module("mlflow.pyfunc")  # 1 s, and only here; a plain import puts it off
    modules, packages = _needed()
    with TemporaryDirectory() as folder:
        root = Path(import_module(_PACKAGE).__path__[0]).parent
        for module in modules:
            copy = Path(folder) / module.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(module, copy)
        pyfunc.save_model(
            path=str(out),
            python_model=str(_MODEL_CODE),  # as code: nothing is pickled
            artifacts={"encoder": str(encoder)},
            code_paths=[f"{folder}/{_PACKAGE}"],
            pip_requirements=packages,
        )


class _Finder(ModuleFinder):
    """Finder of the package's modules that a script imports; other modules are only named, in ``badmodules``."""

    def find_module(self, name: str, path: Any, parent: Module | None = None) -> Any:
        is_ours = (parent.__name__ if parent else name).partition(".")[0] == _PACKAGE  # type: ignore[attr-defined]
        if not is_ours and name != "__init__":  # which it asks for without naming the package
            raise ImportError(name)
        return super().find_module(name, path, parent)


def _needed() -> tuple[list[Path], list[str]]:
    """Return the files of this package that a registered encoder runs, and requirements ``name==version`` for the other
    modules.
    """
    root = Path(import_module(_PACKAGE).__path__[0]).parent
    finder = _Finder(path=[str(root)])
    finder.run_script(str(_MODEL_CODE))
    for config in ENCODERS.values():  # imported when they build, which the finder does not see
        finder.import_hook(config.builder())
    own = [
        Path(module.__file__)  # type: ignore[attr-defined]
        for name, module in finder.modules.items()
        if name.partition(".")[0] == _PACKAGE
    ]
    files = [path / "__init__.py" if path.is_dir() else path for path in own]
    others = {name.partition(".")[0] for name in finder.badmodules} - sys.stdlib_module_names - {_PACKAGE}
    known = packages_distributions()
    packages = {other if other in known[other] else known[other][0] for other in others if other in known}
    # A local version such as 2.11.0+cpu is on no index.
    return sorted(files), sorted(f"{package}=={version(package).partition('+')[0]}" for package in packages)
