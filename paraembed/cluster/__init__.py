"""Ray and MLflow: the only folder that imports them.

Both read their settings when they are imported, so these stand here, before any of it; what the user has set stays.
"""

import os

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent outside
if "RAY_ADDRESS" not in os.environ:
    # A cluster of this machine alone: its node is 127.0.0.1, and only then Ray's servers listen on loopback alone; with
    # any other address of the machine, 127.0.0.2 too, they listen on all interfaces.
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
os.environ.setdefault("RAY_DATA_USE_DATASOURCE_V2", "0")  # V2 starts 32 reader processes an epoch, 5-10 s
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # a report waits for this poll; default 2 s
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else a warning for every task without a GPU
os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # Ray Data's own calls, for its statistics, that fail
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")  # a dead server is noticed in seconds, not minutes
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
