"""Ray and MLflow: the only folder that imports them."""
