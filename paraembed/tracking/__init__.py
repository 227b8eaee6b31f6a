"""MLflow: the only folder that imports it."""
