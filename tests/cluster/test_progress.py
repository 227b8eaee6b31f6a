import pytest

from paraembed.cluster.progress import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7620, "2 h 07 min"),
        (1e7, "2,777 h 46 min"),
    ],
)
def test_durations_for_a_reader(seconds: float, text: str) -> None:
    assert duration(seconds) == text
