"""MLflow: the only folder that imports it."""

from paraembed.process import MLFLOW, set_environment

set_environment(MLFLOW)  # before any of MLflow is imported
