"""Search over recipes: points, trials and their records; without Ray and MLflow."""
