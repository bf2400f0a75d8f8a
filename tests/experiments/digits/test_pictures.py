"""Learned regions beside the best ones, and the figures."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from experiments.digits.figures import (
    draw_line,
    draw_overview,
    draw_pictures,
    draw_plane,
    segments,
)


@pytest.fixture(scope="module")
def line():
    return draw_line(n_samples=3000)


@pytest.fixture(scope="module")
def plane():
    return draw_plane(n_samples=2000)


@pytest.mark.parametrize("picture", ["line", "plane"])
def test_stationary_regions_come_close_to_the_best_and_argmax_does_not(picture, request):
    drawn = request.getfixturevalue(picture)
    learned = {
        one["label"]: (one["loss"], one["agreement_with_best"]) for one in drawn.found["learned"]
    }
    good, bad = learned["MILD theory, stationary"], learned["MILD theory, argmax"]
    (loss, agreement), (bad_loss, bad_agreement) = good, bad
    assert agreement > 0.93
    assert (
        drawn.found["best_loss"]
        <= loss
        < drawn.found["best_loss"] + 0.03
        < drawn.found["constant_loss"]
    )
    assert bad_loss > loss + 0.005
    assert bad_agreement < agreement - 0.05


def test_grid_and_choices_have_the_same_length(line, plane):
    for picture in (line, plane):
        assert picture.best.shape == (len(picture.grid),)
        assert all(chosen.shape == picture.best.shape for _, chosen in picture.maps)


def test_the_best_regions_of_the_line_are_four(line):
    assert [part["expert"] for part in segments(line.grid[:, 0], line.best)] == [2, 1, 2, 0]


def test_segments_cover_the_line_without_gaps():
    positions = np.linspace(0, 1, 11)
    parts = segments(positions, [1, 1, 0, 0, 0, 2, 2, 2, 2, 1, 1])
    assert [part["expert"] for part in parts] == [1, 0, 2, 1]
    assert parts[0]["start"] == 0
    assert parts[-1]["end"] == 1
    assert all(a["end"] == b["start"] for a, b in itertools.pairwise(parts))


def test_one_expert_is_one_segment():
    assert segments(np.array([0.0, 1.0]), [3, 3]) == [{"expert": 3, "start": 0.0, "end": 1.0}]


def png_size(path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def test_figures_are_png_files_of_a_readable_size(small_results, tmp_path):
    draw_overview(small_results, tmp_path / "overview.png")
    draw_pictures(small_results, tmp_path / "pictures.png")
    for name in ("overview.png", "pictures.png"):
        width, height = png_size(tmp_path / name)
        assert 800 <= width <= 3000
        assert 700 <= height <= 3000


def test_drawing_leaves_matplotlib_s_global_state_alone(small_results, tmp_path):
    sys.modules.pop("matplotlib.pyplot", None)
    draw_pictures(small_results, tmp_path / "pictures.png")
    assert "matplotlib.pyplot" not in sys.modules
