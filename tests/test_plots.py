from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from paraembed.plots import ScoreChange, ScoreCurve, draw_training

CURVE = [(100 * at, 1000 * at, 1 / at, 1 / at) for at in range(1, 31)]
SCORES = [ScoreChange(f"set {number}", 0.3, 0.6, number % 5 == 4) for number in range(24)]


@pytest.mark.parametrize(("curve", "scores"), [(CURVE, SCORES), (CURVE, []), (CURVE[:1], SCORES[:1])])
def test_the_picture_is_a_png_and_always_the_same(
    tmp_path: Path, curve: list[tuple[int, int, float, float]], scores: list[ScoreChange]
) -> None:
    for name in ("one.png", "two.png"):
        draw_training(tmp_path / name, "iclr2016/avg", curve, 10_000, scores)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    pixels = imread(tmp_path / "one.png")
    assert pixels.shape[1] == (1440 if scores else 900)
    blue = np.abs(pixels[..., :3] - np.array([0x00, 0x72, 0xB2]) / 255).max(axis=2) < 0.02
    assert blue.sum() > 50  # the curves are there


def test_the_best_score_is_ringed_where_it_is(tmp_path: Path) -> None:
    """The best of four at three quarters of the run; one has no score."""
    points = [(100, 100, 0.2), (200, 200, None), (300, 300, 0.9), (400, 400, 0.5)]
    draw_training(tmp_path / "one.png", "", [(400, 400, 1.0, 0.5)], 100, [], ScoreCurve("sts/mean", points, 300))
    pixels = imread(tmp_path / "one.png")
    rows, columns = np.nonzero(np.abs(pixels[..., :3] - np.array([0xD5, 0x5E, 0x00]) / 255).max(axis=2) < 0.02)
    assert rows.min() > 600  # the third of three curves, 900 pixels in all
    assert 0.6 < columns.mean() / pixels.shape[1] < 0.8


def test_the_curve_is_drawn_where_its_values_are(tmp_path: Path) -> None:
    """A loss that falls: the thick line is high on the left and low on the right."""
    draw_training(tmp_path / "falling.png", "", [(at, at, 10.0 - at, 0.5) for at in range(1, 10)], 9)
    pixels = imread(tmp_path / "falling.png")
    rows, columns = np.nonzero(np.abs(pixels[:270, :, :3] - np.array([0x00, 0x72, 0xB2]) / 255).max(axis=2) < 0.02)
    left, right = rows[columns < np.quantile(columns, 0.2)], rows[columns > np.quantile(columns, 0.8)]
    assert left.mean() + 50 < right.mean()
