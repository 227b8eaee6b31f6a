import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paraembed.training.update import distinct


@given(st.lists(st.integers(0, 30), max_size=40))
def test_distinct_is_numpys_unique(values):
    ids = np.array(values, np.int32)
    rows, local = distinct(ids, np.random.default_rng(len(ids)).integers(0, 50, 31, dtype=np.int32))
    assert sorted(rows.tolist()) == np.unique(ids).tolist()
    assert rows[local].tolist() == values
