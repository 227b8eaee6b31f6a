"""Models in MLflow's form, with the code that runs them, so that users need not install paraembed; model registry."""

import shutil
import sys
import warnings
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import packages_distributions, version
from modulefinder import Module, ModuleFinder
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from paraembed.console import say
from paraembed.encoders import ENCODERS

ALIAS = "champion"
LOADER = "paraembed.tracking.registered_encoder"
_PACKAGE = "paraembed"
_OFFERED = {"api", "papers"}  # what the package imports on demand, which no model runs
_EXAMPLE = "the cat sat on the mat"


def log_model(client: MlflowClient, run_id: str, folder: Path, path: str, name: str, tags: dict[str, str]) -> None:
    """Upload a model folder to a path of a run's artifacts, as an MLflow model.

    With a name, register it with the tags and the alias ``champion``; of models with the same tag ``fingerprint``, only
    the first one becomes a version. Nothing is done if the version is this run's.
    """
    versions = client.search_model_versions(f"name = '{name}'") if name else []
    same = [version for version in versions if version.tags.get("fingerprint") == tags["fingerprint"]]
    if same and same[0].run_id == run_id:
        return
    client.log_artifacts(run_id, str(folder), path)
    with TemporaryDirectory() as temporary:
        write_mlflow_files(folder, Path(temporary) / "files")
        client.log_artifacts(run_id, f"{temporary}/files", path)
    if name and not same:
        with suppress(MlflowException):  # it exists; otherwise the next call fails
            client.create_registered_model(name)
        source = f"{client.get_run(run_id).info.artifact_uri}/{path}"
        same = [client.create_model_version(name, source, run_id, tags)]
        say(f"registered as {name}, version {same[0].version}: models:/{name}@{ALIAS}")
    if same:
        client.set_registered_model_alias(name, ALIAS, same[0].version)


def write_mlflow_files(model: Path, out: Path) -> None:
    """Write the files that turn a copy of a model folder into an MLflow model, which loads without this project and
    without a package index; they belong next to the files of the model folder.

    The modules it needs are in ``out/code``. The requirements are third-party packages, with their installed versions.
    ``paraembed`` is not among them, because anybody could register that name on a public index.
    """
    modules, packages = _needed()
    if any(model.rglob("tokenizer.json")):  # the tokenizer subword
        packages = [*packages, f"tokenizers=={version('tokenizers')}"]
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # MLflow's, of its own types, and pandas', of how MLflow uses it
        pyfunc = import_module("mlflow.pyfunc")  # 1 s, and only here; a plain import puts it off
        signature, example = _signature(model)
        root = Path(import_module(_PACKAGE).__path__[0]).parent
        for module in modules:
            copy = Path(folder) / module.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(module, copy)
        pyfunc.save_model(
            path=str(out),
            loader_module=LOADER,  # code, not an object: nothing is pickled
            code_paths=[f"{folder}/{_PACKAGE}"],
            pip_requirements=packages,
            signature=signature,
            input_example=example,
        )


def _signature(model: Path) -> tuple[Any, Any]:
    """Return the MLflow signature of a model, from its answer to an example, and the example."""
    import pandas as pd  # noqa: PLC0415 - 0.5 s
    from mlflow.models import infer_signature  # noqa: PLC0415 - with mlflow.pyfunc

    from paraembed.tracking.registered_encoder import load_model  # noqa: PLC0415 - with pandas

    loaded = load_model(model)
    example: Any = [_EXAMPLE]
    if loaded.num_texts is not None:
        example = pd.DataFrame({f"text_{number + 1}": [_EXAMPLE] for number in range(loaded.num_texts)})
    return infer_signature(example, loaded.predict(example)), example


class _Finder(ModuleFinder):
    """Finder of the package's modules that a script imports; other modules are only named, in ``badmodules``."""

    def find_module(self, name: str, path: Any, parent: Module | None = None) -> Any:
        is_ours = (parent.__name__ if parent else name).partition(".")[0] == _PACKAGE  # type: ignore[attr-defined]
        if not is_ours and name != "__init__":  # which it asks for without naming the package
            raise ImportError(name)
        if name in _OFFERED and parent is not None and parent.__name__ == _PACKAGE:  # type: ignore[attr-defined]
            raise ImportError(name)
        return super().find_module(name, path, parent)


@cache
def _needed() -> tuple[list[Path], list[str]]:
    """Return the files of this package that a registered encoder runs, and ``name==version`` of other packages."""
    root = Path(import_module(_PACKAGE).__path__[0]).parent
    finder = _Finder(path=[str(root)])
    finder.import_hook(LOADER)
    for config in ENCODERS.values():  # imported when they build, which the finder does not see
        finder.import_hook(config.module())
    own = [
        Path(module.__file__)  # type: ignore[attr-defined]
        for name, module in finder.modules.items()
        if name.partition(".")[0] == _PACKAGE
    ]
    files = [path / "__init__.py" if path.is_dir() else path for path in own]
    files += {data for path in files for data in path.parent.glob("*.npz")}  # tables that modules read
    others = {name.partition(".")[0] for name in finder.badmodules} - sys.stdlib_module_names - {_PACKAGE}
    known = packages_distributions()
    packages = {other if other in known[other] else known[other][0] for other in others if other in known}
    # A local version such as 2.11.0+cpu is on no index.
    return sorted(files), sorted(f"{package}=={version(package).partition('+')[0]}" for package in packages)
