"""Download encoders from MLflow runs and registered models; MLflow, whose import takes 1 s, is imported on first
use.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_MODEL = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))")


def fetch_encoder(name: str, folder: Path) -> Path:
    """Download an encoder from MLflow into a folder; return the encoder folder.

    The name is the id of a training run, ``models:/NAME@ALIAS`` or ``models:/NAME/VERSION``; ValueError if the run or
    model does not exist, or has no encoder.
    """
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - see the first line
    from mlflow.tracking import MlflowClient  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    from paraembed.tracking.place import StorePlace  # noqa: PLC0415
    from paraembed.tracking.sender import in_a_line  # noqa: PLC0415

    place = StorePlace(Path("encoder"))
    if place.folder is not None and not (place.folder / "mlflow.db").exists():
        raise ValueError(
            f"there is no MLflow store in {place.folder} with {name}; set MLFLOW_TRACKING_URI, or give an encoder "
            "folder"
        )
    model = _MODEL.fullmatch(name)
    if name.startswith("models:") and model is None:
        raise ValueError(f"{name} is not the name of a registered model; expected models:/NAME@ALIAS or /NAME/VERSION")
    try:
        client = MlflowClient(place.uri)
        if model is not None:
            return _registered(client, place.uri, model, folder)
        return Path(client.download_artifacts(name, "encoder", str(folder)))
    except (MlflowException, SQLAlchemyError, OSError) as error:
        what = "a registered model" if model else "the id of a training run, or an encoder folder"
        raise ValueError(
            f"MLflow at {place.shown} has no encoder of {name} ({in_a_line(error)}); expected {what}"
        ) from None


def _registered(client: "MlflowClient", uri: str, model: re.Match[str], folder: Path) -> Path:
    from mlflow.artifacts import download_artifacts  # noqa: PLC0415 - see the first line
    from mlflow.models import Model  # noqa: PLC0415

    from paraembed.tracking.registry import LOADER  # noqa: PLC0415

    version = model["version"] or client.get_model_version_by_alias(model["name"], model["alias"]).version
    source = client.get_model_version_download_uri(model["name"], version)
    fetched = Path(download_artifacts(artifact_uri=source, dst_path=str(folder), tracking_uri=uri))
    if Model.load(str(fetched)).flavors.get("python_function", {}).get("loader_module") != LOADER:
        raise ValueError(f"{model[0]} contains no encoder; expected a model that a job of paraembed registered")
    return fetched / "encoder" if (fetched / "encoder").is_dir() else fetched
