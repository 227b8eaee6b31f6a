"""Models in MLflow's form, with the code that runs them, so that users need not install paraembed; model registry."""

import shutil
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from paraembed.console import say

ALIAS = "champion"
LOADER = "paraembed.tracking.registered_encoder"
_PACKAGE = "paraembed"
# What a model runs: folder → its modules, and packages of others.
_CODE = {
    "": "__init__ aliases checkpoint compiled console late machine_code options process recipe settings signals",
    **dict.fromkeys(("encoders", "io", "text"), "*"),
    "supervised": "__init__ folder heads model tasks",
    "tracking": "__init__ registered_encoder",
    "training": "__init__ objectives",
}
_PACKAGES = ["isal", "llvmlite", "numba", "numpy", "pandas", "pyarrow", "safetensors", "torch"]
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
    names = [*_PACKAGES, *(["tokenizers"] if any(model.rglob("tokenizer.json")) else [])]  # for the tokenizer subword
    # A local version such as 2.11.0+cpu is on no index.
    packages = [f"{name}=={version(name).partition('+')[0]}" for name in names]
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # MLflow's, of its own types, and pandas', of how MLflow uses it
        pyfunc = import_module("mlflow.pyfunc")  # 1 s, and only here; a plain import puts it off
        signature, example = _signature(model)
        root = Path(import_module(_PACKAGE).__path__[0])
        patterns = [f"{name}/{module}.py" for name, modules in _CODE.items() for module in modules.split()]
        for file in (file for pattern in [*patterns, "text/*.npz"] for file in root.glob(pattern.removeprefix("/"))):
            copy = Path(folder) / _PACKAGE / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
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
