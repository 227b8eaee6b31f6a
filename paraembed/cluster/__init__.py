"""Ray and MLflow: the only folder that imports them.

Both read their settings when they are imported, so these stand here, before any of it; what the user has set stays.
"""

import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent outside
os.environ.setdefault("RAY_AUTH_MODE", "token")  # the same on head and clients; unset, the two disagree
os.environ.setdefault("RAY_DATA_USE_DATASOURCE_V2", "0")  # V2 starts 32 reader processes an epoch, 5-10 s
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # a report waits for this poll; default 2 s
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else a warning for every task without a GPU
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # a dead server is noticed in seconds, not minutes
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
