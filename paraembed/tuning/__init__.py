"""Search over recipes: what a trial is, which trials there are, what became of them. No Ray, no MLflow."""
