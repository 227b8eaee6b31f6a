"""Pictures: what is drawn is where its values are."""

import io

import numpy as np
import pytest
from matplotlib.image import imread

from paraembed.plots import (
    _TIE,
    COLORS,
    Panel,
    ScoreChange,
    ScoreCurve,
    Series,
    Trial,
    _effects_figure,
    bars,
    draw_training,
    lines,
)

CURVE = [(100 * at, 1000 * at, 1 / at, 1 / at) for at in range(1, 31)]
BLUE = COLORS[0]
SCORES = [ScoreChange(f"set {number}", 0.3, 0.6, number % 5 == 4) for number in range(24)]


@pytest.mark.parametrize(("curve", "scores"), [(CURVE, SCORES), (CURVE, []), (CURVE[:1], SCORES[:1])])
def test_the_picture_is_a_png_and_always_the_same(tmp_path, curve, scores):
    for name in ("one.png", "two.png"):
        draw_training(tmp_path / name, "iclr2016/avg", curve, 10_000, scores)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    pixels = _pixels(tmp_path / "one.png")
    assert pixels.shape[1] == (1440 if scores else 900)
    assert len(_places(pixels, BLUE)[0]) > 50  # the curves are there


def test_the_best_score_is_ringed_where_it_is(tmp_path):
    """The best of four at three quarters of the run; one has no score."""
    points = [(100, 100, 0.2), (200, 200, None), (300, 300, 0.9), (400, 400, 0.5)]
    draw_training(tmp_path / "one.png", "", [(400, 400, 1.0, 0.5)], 100, [], ScoreCurve("sts/mean", points, 300))
    pixels = _pixels(tmp_path / "one.png")
    rows, columns = _places(pixels, COLORS[1])
    assert rows.min() > 600  # the third of three curves, 900 pixels in all
    assert 0.6 < columns.mean() / pixels.shape[1] < 0.8


def _pixels(png):
    return imread(io.BytesIO(png) if isinstance(png, bytes) else png)[..., :3]


def _places(pixels, color):
    """Rows and columns of the pixels of a color."""
    rgb = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    rows, columns = np.nonzero(np.abs(pixels - rgb).max(axis=2) < 0.02)
    return rows, columns


def test_every_series_is_drawn_where_its_values_are():
    """Two encoders, one above the other; labels with signs that matplotlib reads as mathematics."""
    low, high = np.linspace(10, 20, 7), np.linspace(50, 60, 7)
    panel = Panel("pairs/own", [Series("$x_1", high), Series("y$^2", low)], [str(at) for at in range(7)])
    pixels = _pixels(lines([panel], ("tokens", "")))
    rows = [_places(pixels, color)[0] for color in COLORS[:2]]
    assert min(map(len, rows)) > 200
    assert np.median(rows[0]) + 50 < np.median(rows[1])


def test_a_level_is_a_line_with_its_name_beside_it():
    panel = Panel("score", [Series("avg", [1.0, 5.0], [10, 100])])
    levels = [{}, {"x$_1": 3.0}, {"x$_1": 3.0, "y": 3.01}]
    bare, one, two = (_pixels(lines([panel], ("pairs", ""), amounts=[10, 100], levels=some)) for some in levels)
    assert bare.shape == one.shape == two.shape
    # black, at the right edge, above the axis and its labels; names of close levels do not hide each other
    ink = [(picture[80:450, -60:].max(axis=2) < 0.4).sum() for picture in (bare, one, two)]
    assert ink[0] == 0
    assert ink[1] > 20
    assert ink[2] > ink[1] + 20


def test_bars_of_many_encoders_go_into_rows_of_three():
    shapes = {}
    for count in (1, 3, 4):
        panels = [
            Panel(f"e{number}", [Series("", [2.0, 1.0])], ("long", "short"), 1.5, number) for number in range(count)
        ]
        pixels = _pixels(bars(panels, "norm", horizontal=True))
        shapes[count] = pixels.shape[:2]
        for number in range(count):
            rows, columns = _places(pixels, COLORS[number])
            assert {*(rows // 225)} == {number // 3}
            long, short = (columns[rows == row] for row in (rows.min() + 3, rows.max() - 3))
            assert len(long) == pytest.approx(2 * len(short), rel=0.05)
    assert shapes == {1: (225, 552), 3: (225, 1656), 4: (451, 1656)}


def test_bars_of_two_encoders_stand_side_by_side_and_nan_is_a_gap():
    panel = Panel("", [Series("one", [1.0, np.nan]), Series("two", [2.0, 2.0])], ("a", "b"))
    pixels = _pixels(bars([panel], "error"))[40:]  # below the legend
    (rows, columns), (other_rows, other_columns) = (_places(pixels, color) for color in COLORS[:2])
    assert columns.max() < other_columns[other_columns < pixels.shape[1] / 2].min()
    assert np.ptp(other_rows) == pytest.approx(2 * np.ptp(rows), rel=0.05)


def test_only_the_ties_are_marked_also_if_another_score_is_between_them():
    trials = [Trial(number, {"margin": number}, score) for number, score in enumerate([90.0, 88.0, 89.0, 70.0])]
    parameters = {"margin": ["0.1", "0.2", "0.3", "0.4"]}
    effects = _effects_figure(parameters, trials, 0, "pearson", {1})
    scores = {points.get_label(): points.get_offsets()[:, 1].tolist() for points in effects.axes[0].collections}
    assert scores == {"trial": [89.0, 70.0], _TIE: [88.0], "best trial": [90.0]}
    assert [text.get_text() for text in effects.legends[0].get_texts()] == ["trial", _TIE, "best trial", "mean"]
    effects.draw_without_rendering()
    assert effects.legends[0].get_window_extent().x1 < effects.bbox.x1
