"""A database of MLflow, made once."""

import pytest

from paraembed.tracking.database import whole_database


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A database of MLflow without runs; making one takes 2 s."""
    return whole_database(tmp_path_factory.mktemp("mlruns"))
