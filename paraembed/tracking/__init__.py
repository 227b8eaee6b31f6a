"""MLflow tracking; the only folder that imports MLflow."""

from paraembed.process import MLFLOW, set_environment

set_environment(MLFLOW)  # before any of MLflow is imported
